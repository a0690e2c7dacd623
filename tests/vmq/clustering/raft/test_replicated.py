"""A stream of which three nodes have copies: what is acknowledged is on most of them, whoever leads."""

import asyncio
import logging
from functools import partialmethod
from itertools import chain, repeat
from pathlib import Path
from random import randbytes
from unittest.mock import DEFAULT, Mock, patch

import pytest

from tests.support.present import present
from tests.support.until import PATIENCE, until
from tests.vmq.cli.program import here
from tests.vmq.clustering.nodes import address, clustering
from tests.vmq.clustering.raft.replicas import (
    groups,
    has,
    is_led,
    leader,
    node_config,
    payloads,
    replicated,
)
from tests.vmq.clustering.stream_nodes import stream
from tests.vmq.streams.support import options
from vmq.admin import cluster
from vmq.admin import streams as admin
from vmq.admin.cluster import drain
from vmq.admin.streams import list_streams, show_stream
from vmq.broker import Broker
from vmq.clustering.messages.streams import PartitionRows
from vmq.clustering.raft import service
from vmq.clustering.raft.meta import MetaGroup
from vmq.clustering.streams.metadata import chosen
from vmq.clustering.streams.rows import EMPTY, pack
from vmq.streams.log.cursor import LogReader
from vmq.streams.log.gathering import Gathering
from vmq.streams.replica.partition import ReplicaPartition

NAMES = ("a", "b", "c")


async def test_a_copy_whose_folder_could_not_be_written_for_a_moment_is_opened_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was not before the next start, and one copy fewer of what is acknowledged was there."""
    full = [OSError("full")] * len(NAMES)
    open_group, open_meta = (
        Mock(wraps=each, side_effect=chain(full, repeat(DEFAULT)))
        for each in (ReplicaPartition.belong_to, MetaGroup)
    )
    monkeypatch.setattr(ReplicaPartition, "belong_to", partialmethod(open_group))
    monkeypatch.setattr(service, "MetaGroup", open_meta)
    async with replicated(tmp_path, *NAMES) as brokers:
        await brokers["a"].publish("s/t", b"1", qos=1)
        for each in brokers.values():
            await has(each, 1)
        assert open_group.call_count == open_meta.call_count == 2 * len(NAMES)


async def test_what_a_copy_has_put_off_goes_with_the_next_rows_for_its_leader(
    tmp_path: Path,
) -> None:
    async with replicated(tmp_path, *NAMES, acks="quorum") as brokers:
        hosts = {name: groups(each).thread.host for name, each in brokers.items()}
        await until(lambda: not any(each.is_busy for each in hosts.values()))
        for host in hosts.values():
            for each in ("tell_within", "spare_within", "heartbeat", "election_timeout"):
                object.__setattr__(host.options, each, 600.0)
        lead = leader(brokers["a"])
        publisher = brokers[next(name for name in NAMES if name != lead)]
        await publisher.publish("s/t", b"1", qos=1)
        assert payloads(publisher) == [b"1"]
        assert payloads(brokers[lead]) == []
        await publisher.publish("s/t", b"2", qos=1)
        await until(lambda: payloads(brokers[lead]) == [b"1"])


async def test_who_hands_rows_in_is_told_when_they_are_safe(tmp_path: Path) -> None:
    """As what programs publish with a commit is; and who asks when all is."""
    async with replicated(tmp_path, *NAMES) as brokers:
        for name in NAMES:
            roads, told = groups(brokers[name]).roads, asyncio.Queue[bool]()
            rows = Gathering()
            rows.add_run(b"s/t", [name.encode()], 1, "program", 0)
            roads.append_rows(stream(brokers[name], "s"), 0, rows, 10, told.put_nowait)
            await asyncio.wait_for(roads.written(), PATIENCE)
            assert await asyncio.wait_for(told.get(), PATIENCE)
            await has(brokers[name], NAMES.index(name) + 1)


async def test_who_publishes_beside_a_follower_needs_no_answer_of_the_leader(
    tmp_path: Path,
) -> None:
    """The copy there sees by itself that the rows are committed, and the leader that it does."""
    async with replicated(tmp_path, *NAMES, durability="os") as brokers:
        publisher, third = (name for name in NAMES if name != leader(brokers["a"]))
        await brokers.pop(third).stop()
        roads, count = groups(brokers[publisher]).roads, 20
        with patch.object(roads, "on_produced") as produced:
            for number in range(count):
                done = brokers[publisher].publish("s/t", b"%d" % number, qos=1)
                await asyncio.wait_for(done, PATIENCE)
        assert produced.call_count < count // 2, "but for those that took long"
        for each in brokers.values():
            await has(each, count)


async def test_partitions_have_their_leaders_spread(tmp_path: Path) -> None:
    async with replicated(tmp_path, *NAMES, partitions=6) as brokers:
        a = brokers["a"]
        first = [groups(a).places.replicas("s", number)[0] for number in range(6)]
        assert sorted(first) == ["a", "a", "b", "b", "c", "c"]
        for number in range(6):
            assert sorted(groups(a).places.replicas("s", number)) == list(NAMES)
            assert not groups(a).requests.wish("s", number, first[number])
        await until(lambda: [leader(a, number) for number in range(6)] == first)


async def test_a_node_that_is_drained_leads_nothing_until_it_is_let_in(tmp_path: Path) -> None:
    async with replicated(tmp_path, *NAMES, partitions=6) as brokers:
        a = brokers["a"]
        numbers = range(6)
        await until(lambda: "a" in [leader(a, number) for number in numbers])
        assert (await drain(a, PATIENCE)).complete

        def led_by() -> set[str]:
            return {leader(each, at) for each in brokers.values() for at in numbers}

        await until(lambda: led_by() <= {*"bc"})
        # One more that is drained gives nothing to the first.
        assert (await drain(brokers["b"], PATIENCE)).complete
        await until(lambda: led_by() == {"c"})
        await drain(brokers["b"], PATIENCE, undo=True)
        await admin.rebalance_stream(brokers["b"], "s")
        # What it is made to lead all the same it gives away again; copies it keeps.
        led = next(number for number in numbers if leader(brokers["b"], number) == "b")
        assert "is drained" in groups(a).requests.wish("s", led, "a")
        place, thread = groups(a).places.places["s", led], groups(brokers["b"]).thread

        def is_led_by_a() -> bool:
            thread.post(
                thread.transfer, place.group, groups(a).thread.name
            )  # should it come to nothing
            return leader(a, led) == "a"

        await until(is_led_by_a)
        await until(lambda: leader(a, led) in {*"bc"})
        await brokers["b"].publish("s/t", b"1", qos=1)
        await until(lambda: [b"1"] in [payloads(a, number) for number in numbers])
        await drain(a, PATIENCE, undo=True)
        await admin.rebalance_stream(a, "s")
        placed = [groups(a).places.replicas("s", number)[0] for number in numbers]
        await until(lambda: [leader(a, number) for number in numbers] == placed)
        assert groups(a).thread._drained is None


async def test_a_change_of_one_partition_has_no_other_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of thousands one moves, or is read from another node: to look at all each time would take more than that."""
    async with replicated(tmp_path, *NAMES, partitions=6, replicas=2) as brokers:
        a = groups(brokers["a"])
        # Two are enough to have all of them led: the third takes copies as soon as that is known.
        await until(lambda: all(groups(each).places.hosts == 3 for each in brokers.values()))
        for name in NAMES:  # what is posted to the groups is done, and told
            await asyncio.wrap_future(groups(brokers[name]).thread.turns.call(lambda: None))
        looked = [Mock(wraps=each._is_here) for each in map(groups, brokers.values())]
        for service, look in zip(map(groups, brokers.values()), looked, strict=True):
            monkeypatch.setattr(service, "_is_here", look)
        before = a.places.replicas("s", 0)
        other = next(name for name in NAMES if name not in before)
        assert not a.requests.move("s", 0, [before[0], other])
        await until(
            lambda: all(
                set(groups(each).places.replicas("s", 0)) == {before[0], other}
                and leader(each) in (before[0], other)
                for each in brokers.values()
            )
        )
        await until(lambda: ("s", 0) not in groups(brokers[before[1]]).places.open.values())
        assert {call.args[1] for look in looked for call in look.call_args_list} == {0}


async def test_another_replica_leads_while_the_leader_is_away_and_that_one_catches_up(
    tmp_path: Path,
) -> None:
    async with replicated(tmp_path, *NAMES) as brokers:
        first = leader(brokers["a"])
        one, other = (name for name in NAMES if name != first)
        config = brokers[first].config
        await brokers[one].publish("s/t", b"1", qos=1)
        await brokers.pop(first).stop()
        await until(lambda: leader(brokers[one]) in (one, other))
        await brokers[other].publish("s/t", b"2", qos=1)
        brokers[first] = Broker(config)
        await brokers[first].start()
        await brokers[first].publish("s/t", b"3", qos=1)
        for each in brokers.values():
            await has(each, 3)
            assert payloads(each) == [b"1", b"2", b"3"]


async def test_who_leads_says_who_is_behind_and_takes_no_time_that_is_far_ahead(
    tmp_path: Path,
) -> None:
    async with replicated(tmp_path, *NAMES) as brokers:
        first = leader(brokers["a"])
        roads = groups(brokers[first]).roads
        now = roads._wall_clock() * 1e6
        appender = roads.tap(stream(brokers[first], "s"))
        for time in (int(now), int(now) + (1 << 50)):
            appender.append(b"s/t", b"0", 1, False, "x", time)
        await has(brokers[first], 2)
        reader = LogReader(stream(brokers[first], "s").partitions[0], ["timestamp"])
        [before, after] = [
            each
            for chunk in reader.read(0)
            for each in chunk.rows.column(0).cast("int64").to_pylist()
        ]
        assert before == int(now) < after < now + 600e6
        assert [each.samples[0].value for each in roads.families()][-1] == 1
        gone = next(each for each in NAMES if each != first)
        await brokers.pop(gone).stop()
        await brokers[first].publish("s/t", b"1", qos=1)
        places = groups(brokers[first]).places

        def behind() -> int:
            standing = places.standing("s", 0)
            return 0 if standing is None else standing.behind.get(gone) or 0

        await until(lambda: behind() > 0 and places.figures()["lagging"] == 1)
        assert (await show_stream(brokers[first], "s")).partitions[0].behind == {gone: behind()}


async def test_a_node_that_goes_leaves_fewer_copies_than_there_are_to_be(tmp_path: Path) -> None:
    """Gone for a while, or for good: then there are two nodes for three copies, until it joins again."""
    async with replicated(tmp_path, *NAMES) as brokers:
        a = brokers["a"]

        def short() -> list[str]:
            return [each for each in a.health() if "fewer copies can be reached than the 3" in each]

        await until(lambda: not short() and is_led(a))
        config = brokers["c"].config
        await brokers.pop("c").stop()
        await until(short)
        brokers["c"] = Broker(config)
        await brokers["c"].start()
        await until(lambda: not short())
        assert await clustering(brokers["c"]).leave(30)
        await cluster.join(brokers["c"], address(brokers["a"]))
        await until(lambda: "c" in groups(a).places.replicas("s", 0))
        assert await clustering(brokers["c"]).leave(30)
        await brokers.pop("c").stop()
        await until(lambda: is_led(a) and sorted(groups(a).places.replicas("s", 0)) == ["a", "b"])
        assert short() == [
            "stream 's': partition 0: fewer copies can be reached than the 3 that it is to have"
        ]
        [row] = await list_streams(a).rows()
        assert (row.leaderless, row.under_replicated) == (0, 1)


async def test_the_name_of_an_earlier_life_does_not_stand(tmp_path: Path) -> None:
    """A node that comes back without its disk: its new name and the old one were both written without the other."""
    async with replicated(tmp_path, *NAMES) as brokers:
        a, c = groups(brokers["a"]), groups(brokers["c"])
        a._records.put(b"c@ffffffff", "node", "c")
        await until(lambda: a._records.nodes()["c"] == c.places.name)


async def test_publishers_wait_until_a_stream_is_placed(tmp_path: Path) -> None:
    """It is made where one node of three runs; who publishes meanwhile is neither disconnected nor acknowledged."""
    made = options(filters=["s/#"], replicas=3, key="topic")
    brokers = [Broker(node_config(tmp_path, "a", "", made))]
    try:
        await brokers[0].start()
        publishing = asyncio.create_task(brokers[0].publish("s/t", b"1", qos=1))
        roads = groups(brokers[0]).roads
        await until(lambda: roads.backlog.size > 0)
        assert any("not placed yet" in each for each in brokers[0].health())
        for name in "bc":
            brokers.append(Broker(node_config(tmp_path, name, address(brokers[0]), made)))
            await brokers[-1].start()
        await publishing
        assert roads.backlog.size == 0
        await until(lambda: payloads(brokers[0]) == [b"1"])
    finally:
        for each in brokers:
            await each.stop()


async def test_a_node_that_can_have_no_groups_takes_nothing_for_replicated_streams(
    tmp_path: Path,
) -> None:
    made = options(filters=["s/#"], replicas=3, key="topic")
    config = node_config(tmp_path, "a", "", made)
    folder = Path(config.broker.data_dir) / "streams"
    folder.mkdir(parents=True)
    (folder / ".groups").touch()  # where a folder is to be
    async with Broker(config) as broker:
        assert any("cannot keep replicas" in each for each in broker.health())
        with pytest.raises(ConnectionError):
            await broker.publish("s/t", b"1", qos=1)
        rows = PartitionRows("s", 0, -1, pack(EMPTY))
        safe, number = present(
            clustering(broker).streams.replicas.take_rows("b", stream(broker, "s"), rows)
        )
        assert safe.reached < number  # whoever has them keeps them


async def test_a_flipped_bit_below_the_commit_index_costs_nothing_but_a_fetch(
    tmp_path: Path,
) -> None:
    """Though nothing else happens in the group, and the one that has it leads."""
    async with replicated(tmp_path, *NAMES, segment_bytes=65_536, admin=True) as brokers:
        for number in range(40):
            await brokers["a"].publish("s/t", b"%d" % number + randbytes(8192), qos=1)
        for each in brokers.values():
            await has(each, 40)
        wanted = payloads(brokers["a"])
        broker = brokers[leader(brokers["a"])]
        thread = groups(broker).thread
        group = groups(broker).places.places["s", 0].group
        await until(lambda: group not in thread.host.awake)
        partition = stream(broker, "s").partitions[0]
        raw = bytearray(partition.sealed[0].path.read_bytes())
        raw[len(raw) // 2] ^= 4
        with partition.sealed[0].path.open("r+b") as file:
            file.write(raw)
        verify = ("stream", "verify", "--local", "--data-dir", broker.config.broker.data_dir)
        assert (await asyncio.to_thread(here, *verify)).code == 1
        async with asyncio.timeout(PATIENCE):
            while (await asyncio.to_thread(here, *verify)).code:
                pass
        await until(lambda: not partition.flaws)  # the file is whole a moment before
        assert payloads(broker) == wanted
        mended = thread.opened[group].group
        assert mended is not None
        assert not mended.replica.abstains


async def test_a_fourth_node_reads_writes_leads_and_takes_the_place_of_one_that_leaves(
    tmp_path: Path,
) -> None:
    async with replicated(tmp_path, *NAMES) as brokers:
        made = options(filters=["s/#"], replicas=3, key="topic")
        join = clustering(brokers["a"]).node.address
        brokers["d"] = d = Broker(node_config(tmp_path, "d", join, made))
        await d.start()
        await until(lambda: clustering(d).streams.replicas.groups is not None and is_led(d))
        await d.publish("s/t", b"1", qos=1)
        assert clustering(d).streams.owner("s", 0) in NAMES
        # It may be asked to lead before it has its copy.
        await until(lambda: not groups(d).requests.move("s", 0, ["b", "c", "d"]))
        assert not groups(d).requests.wish("s", 0, "d")
        await until(lambda: leader(d, 0) == "d")
        assert await clustering(brokers["b"]).streams.leave(30)
        await until(lambda: sorted(groups(d).places.replicas("s", 0)) == ["a", "c", "d"])
        assert payloads(d) == [b"1"]


def change_of(broker: Broker) -> tuple[list[str], list[str]]:
    """Who is to have the partition and does not count yet, and who has it and is to go, as a node knows it."""
    return groups(broker).picture.change_of(("s", 0))


async def test_what_is_on_its_way_is_seen_at_each_node_until_it_is_there(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It waits for a node that is down. Once that has its copy it leads, as the first that was named."""
    caplog.set_level(logging.INFO)
    async with replicated(tmp_path, *NAMES, "d") as brokers:
        before = groups(brokers["a"]).places.replicas("s", 0)
        first = leader(brokers["a"])
        [away] = {*brokers} - {*before}
        kept, gone = [each for each in before if each != first]
        down = brokers.pop(away)
        await down.stop()
        row = await admin.move_partition(brokers[kept], "s", 0, [away, first, kept])
        assert row.moving == 1
        there = [*brokers.values()]
        await until(lambda: [change_of(each) for each in there] == [([away], [gone])] * 3)
        for each in there:
            [partition] = (await show_stream(each, "s")).partitions
            assert (partition.joining, partition.leaving) == ([away], [gone])
            [row] = await list_streams(each).rows()
            assert (row.moving, row.abstaining) == (1, 0)
        assert leader(brokers[kept]) == first
        brokers[away] = Broker(down.config)
        await brokers[away].start()
        await until(lambda: [change_of(each) for each in there] == [([], [])] * 3)
        await until(lambda: {leader(each) for each in brokers.values()} == {away})
        assert groups(brokers[kept]).places.figures()["moving"] == 0
        copies = ",".join(sorted([away, first, kept]))
        assert f"stream=s partition=0 has copies on={copies}\n" in caplog.text


async def test_a_stream_that_is_made_in_a_cluster_has_copies_and_a_place_when_it_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with replicated(tmp_path, *NAMES, admin=True) as brokers:
        a = brokers["a"]

        async def told(command: str) -> str:
            words = ("stream", *command.split(), "--data-dir", a.config.broker.data_dir)
            done = await asyncio.to_thread(here, *words)
            return done.err if done.code else done.out.decode()

        await told("create t -t t/# --partitions 2")
        assert [len(groups(a).places.replicas("t", number)) for number in (0, 1)] == [3, 3]
        assert not groups(a).places.unled("t")
        made = stream(a, "t").options
        assert (made.replicas, made.acknowledged_by) == (3, "quorum")
        shown = await told("show t")
        assert ("term" in shown, "owner" in shown) == (True, False), shown
        await told("create two -t two/# --replicas 2")
        assert stream(a, "two").options.acknowledged_by == "leader"
        await told("alter two --without-quorum keep")
        assert stream(a, "two").options.without_quorum == "keep"
        await a.publish("two/t", b"1", qos=1)
        assert groups(a).roads._producers["two", 0].keeps
        await told("create one -t one/# --replicas 1")
        assert stream(a, "one").options.replicas == 1
        assert not groups(a).places.covers("one")
        monkeypatch.setattr(admin, "_PLACING", 0.2)
        for name in "bc":
            await brokers.pop(name).stop()
        refused = await told("create none -t none/#")
        assert "not placed yet: that takes 3 nodes that keep streams" in refused
        assert "(known: 3), and a majority of the meta group" in refused
        assert a.streaming is not None
        assert "none" not in a.streaming.catalog.streams


async def test_a_stream_that_is_deleted_and_made_anew_is_empty(tmp_path: Path) -> None:
    async with replicated(tmp_path, *NAMES) as brokers:
        a, b = brokers["a"], brokers["b"]
        catalog = a.streaming.catalog  # type: ignore[union-attr]
        made = options(filters=["t/#"], replicas=3)
        for word in (b"1", b"2"):
            await catalog.create("t", made)
            await until(
                lambda: (
                    "t" in b.streaming.catalog.streams  # type: ignore[union-attr]
                    and groups(b).places.leader("t", 0)
                    and groups(a).places.leader("t", 0)
                )
            )
            await b.publish("t/x", word, qos=1)
            partition = stream(b, "t").partitions[0]
            await has(b, 1, "t")
            assert partition.end > 2
            catalog.delete("t")
            await until(lambda: "t" not in b.streaming.catalog.streams)  # type: ignore[union-attr]
            await until(lambda: ("t", 0) not in groups(a).places.places)


async def test_a_node_with_as_many_partitions_as_it_takes_gets_no_more(tmp_path: Path) -> None:
    async with replicated(tmp_path, *NAMES, "d", admin=True, limit=1) as brokers:
        a = brokers["a"]
        folder = a.config.broker.data_dir

        async def wrong(*words: str) -> str:
            done = await asyncio.to_thread(here, "stream", *words, "--data-dir", folder)
            return done.err if done.code else ""

        had = groups(a).places.replicas("s", 0)
        [free] = {*NAMES, "d"} - {*had}
        nodes = dict.fromkeys((*NAMES, "d"), 1)
        await until(lambda: groups(a).requests.limits() == nodes)
        full = "; ".join(f"node {each} has {int(each in had)} of 1" for each in (*NAMES, "d"))
        refused = await wrong("create", "t", "-t", "t/#")
        assert f"no room for 1 partitions of 3 copies each: {full} (limits.max_part" in refused
        names = {chosen(name, 0, {*NAMES, "d"}): name for name in map(str, range(50))}
        refused = await wrong("create", names[had[0]], "-t", "t/#", "--replicas", "1")
        assert f"no room for 1 partitions: node {had[0]} has 1 of 1" in refused
        one = names[free]
        assert not await wrong("create", one, "-t", "t/#", "--replicas", "1")
        refused = await wrong("alter", one, "--partitions", "2")
        owner = chosen(one, 1, {*NAMES, "d"})
        assert f"no room for 1 partitions: node {owner} has 1 of 1" in refused
        to = [part for each in (free, *had[:2]) for part in ("--to", each)]
        refused = await wrong("move", "s", "--partition", "0", *to)
        assert f"no room for 1 partitions: node {free} has 1 of 1" in refused
        assert groups(a).places.replicas("s", 0) == had
