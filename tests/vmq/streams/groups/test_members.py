"""Members of groups that are clients of MQTT: who gets what, and what becomes of it when they go, stall or choke."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.support.until import until
from tests.support.wire import puback_packet, publish_packet, unsubscribe_packet
from tests.vmq.sockets import Peer, peer_of, session_of
from tests.vmq.streamed import config_in, streams_of
from tests.vmq.streams.replay.test_port import fill, payload_of, reading, row_of, subscribe
from tests.vmq.streams.support import options
from vmq.admin.errors import AdminError, NotFoundError, RefusedError
from vmq.admin.readers import groups as admin
from vmq.broker import Broker
from vmq.core.output import SOCKET
from vmq.streams.replay import group as module
from vmq.streams.replay import replay
from vmq.streams.replay.group import ConsumerGroup
from vmq.streams.replay.member import GroupMember

TOPIC = "$share/g/$stream/s;from=earliest/s/#"


@asynccontextmanager
async def broker_of(folder: Path, partitions: int = 2) -> AsyncIterator[Broker]:
    stream = options(filters=["s/#"], partitions=partitions, key="topic")
    async with Broker(config_in(folder, s=stream)) as broker:
        yield broker


@asynccontextmanager
async def two_peers(folder: Path, partitions: int) -> AsyncIterator[tuple[Broker, Peer, Peer]]:
    async with (
        broker_of(folder, partitions) as broker,
        peer_of(broker) as first,
        peer_of(broker) as second,
    ):
        yield broker, first, second


def group_of(broker: Broker) -> ConsumerGroup:
    (found,) = streams_of(broker).readers.groups.all.values()
    return found


async def publish(broker: Broker, numbers: range, topics: int = 4) -> None:
    """Rows of several topics, numbered."""
    async with session_of(broker, "filler") as peer:
        for number in numbers:
            topic = f"s/{number % topics}"
            peer.send(publish_packet(topic, b"%d" % number, qos=1, packet_id=1))
            await peer.expect(b"\x40\x02\x00\x01")
        await streams_of(broker).commits.wait()


class Taker:
    """A member that acknowledges what it gets."""

    def __init__(self, peer: Peer) -> None:
        self.peer = peer
        self.found: list[tuple[str, int]] = []
        self.task = asyncio.create_task(self.run())

    async def run(self) -> None:
        while True:
            row = await row_of(self.peer)
            self.found.append((row.topic, int(row.payload)))
            if row.qos:
                self.peer.send(puback_packet(row.packet_id))

    async def stop(self) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)


def numbers(*takers: Taker) -> list[int]:
    return sorted(number for taker in takers for _, number in taker.found)


async def test_members_share_the_partitions(tmp_path: Path) -> None:
    async with two_peers(tmp_path, 4) as (broker, first, second):
        await publish(broker, range(40), topics=16)
        await reading(first, TOPIC, client_id="m1")
        one = Taker(first)
        await until(lambda: len(one.found) == 40)
        await reading(second, TOPIC, client_id="m2")
        two = Taker(second)
        await until(lambda: len(group_of(broker).machine.standing_by()) == 0)
        await until(lambda: not any(each.leaving for each in group_of(broker).members.values()))
        await publish(broker, range(40, 200), topics=16)
        await until(lambda: numbers(one, two) == list(range(200)))
        assert two.found
        assert not {topic for topic, number in one.found if number >= 40} & {
            topic for topic, _ in two.found
        }
        for taker in (one, two):
            for topic in {topic for topic, _ in taker.found}:
                of_topic = [number for each, number in taker.found if each == topic]
                assert of_topic == sorted(of_topic)
            await taker.stop()


async def test_without_a_filter_it_is_all_of_the_stream(tmp_path: Path) -> None:
    async with broker_of(tmp_path, 1) as broker, peer_of(broker) as peer:
        await publish(broker, range(3), topics=3)
        await reading(peer, "$share/g/$stream/s;from=earliest")
        assert [await payload_of(peer) for _ in range(3)] == list("012")


async def test_a_new_group_begins_with_what_comes(tmp_path: Path) -> None:
    async with broker_of(tmp_path) as broker, peer_of(broker) as peer:
        await publish(broker, range(5))
        await reading(peer, "$share/g/$stream/s/s/#")
        await publish(broker, range(5, 6))
        assert await payload_of(peer) == "5"


async def test_what_a_member_has_not_acknowledged_goes_to_another(tmp_path: Path) -> None:
    async with broker_of(tmp_path, 1) as broker, peer_of(broker) as second:
        await publish(broker, range(6), topics=1)
        async with peer_of(broker) as first:
            await reading(first, TOPIC, client_id="m1")
            assert [await payload_of(first) for _ in range(2)] == ["0", "1"]
            found = [await payload_of(first, acknowledge=False) for _ in range(4)]
            assert found == ["2", "3", "4", "5"]
            await reading(second, TOPIC, client_id="m2")
            assert group_of(broker).machine.standing_by() != []
        assert [await payload_of(second) for _ in range(4)] == ["2", "3", "4", "5"]


async def test_what_leaves_a_member_before_it_is_sent_makes_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All that it has read ahead is of a partition that goes, and its client takes nothing: it reads the other one."""
    monkeypatch.setattr(replay, "AHEAD", 1)
    async with broker_of(tmp_path) as broker, peer_of(broker) as peer:
        await publish(broker, range(8))
        await peer.connect("m1")
        queue = broker.registry().subscribers["m1"].queue
        queue.output.blocked |= SOCKET
        await subscribe(peer, TOPIC, qos=0)
        (member,) = group_of(broker).members.values()
        assert isinstance(member, GroupMember)
        await until(lambda: bool(member.sender.items))
        gone = member.sender.items[0].partition
        member.take_away(gone, member.group.clock())
        await until(lambda: [each.partition for each in member.sender.items] == [1 - gone])


async def test_a_partition_that_moves_is_settled_first(tmp_path: Path) -> None:
    """What one has got and acknowledges in time the other one does not get."""
    async with two_peers(tmp_path, 2) as (broker, first, second):
        await publish(broker, range(40), topics=16)
        await reading(first, TOPIC, client_id="m1")
        rows = [await row_of(first) for _ in range(40)]
        await reading(second, TOPIC, client_id="m2")
        await until(lambda: any(each.leaving for each in group_of(broker).members.values()))
        for row in rows:
            first.send(puback_packet(row.packet_id))
        await until(lambda: not group_of(broker).machine.standing_by())
        await publish(broker, range(40, 80), topics=16)
        one, two = Taker(first), Taker(second)
        await until(lambda: numbers(one, two) == list(range(40, 80)))
        assert one.found
        assert two.found
        await one.stop()
        await two.stop()


async def test_a_stalled_member_loses_its_partitions_until_it_acknowledges(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with two_peers(tmp_path, 1) as (broker, first, second):
        await publish(broker, range(3), topics=1)
        await reading(first, TOPIC, client_id="m1")
        stuck = [await row_of(first) for _ in range(3)]
        await reading(second, TOPIC, client_id="m2")
        group = group_of(broker)
        group.look()
        monkeypatch.setattr(module, "ACK_TIMEOUT", -1.0)
        group.look()
        monkeypatch.setattr(module, "ACK_TIMEOUT", 60.0)
        assert "client=m1 has acknowledged nothing" in caplog.text
        assert [await payload_of(second) for _ in range(3)] == ["0", "1", "2"]
        details = await admin.show_group(broker, "g", "", "")
        assert details.stalled == ["m1"]
        first.send(puback_packet(stuck[0].packet_id))
        await until(lambda: not any(each.is_stalled for each in group.members.values()))
        await until(
            lambda: group.place().positions == {0: 3}
        )  # what was taken away counts for nothing
        await publish(broker, range(3, 4), topics=1)
        assert await payload_of(second) == "3"


async def test_a_row_that_no_member_can_take_is_a_dead_letter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "MAX_DELIVERIES", 3)
    async with broker_of(tmp_path, 1) as broker:
        await publish(broker, range(3), topics=1)
        for _ in range(3):
            async with peer_of(broker) as peer:
                await reading(peer, TOPIC)
                assert await payload_of(peer, acknowledge=False) == "0"
            await until(lambda: not streams_of(broker).readers.groups.all)
        async with peer_of(broker) as peer:
            await reading(peer, TOPIC)
            assert [await payload_of(peer) for _ in range(2)] == ["1", "2"]
        assert "passes over offset=0 of partition=0" in caplog.text
        machine = broker.jobs.open().machine
        await until(lambda: machine.jobs)
        (job,) = machine.jobs.values()
        assert job.body == b"0"
        assert job.queue.name == b"g!dead"


async def test_where_a_group_is_survives_a_restart(tmp_path: Path) -> None:
    async with broker_of(tmp_path) as broker:
        await publish(broker, range(20))
        async with peer_of(broker) as peer:
            await reading(peer, TOPIC)
            taker = Taker(peer)
            await until(lambda: len(taker.found) == 20)
            await until(lambda: sum(group_of(broker).place().positions.values()) == 20)
            await taker.stop()
    async with broker_of(tmp_path) as broker, peer_of(broker) as peer:
        await reading(peer, TOPIC, client_id="another")
        await publish(broker, range(20, 25))
        taker = Taker(peer)
        await until(lambda: numbers(taker) == list(range(20, 25)))
        await taker.stop()


async def test_at_qos_0_it_moves_with_what_is_sent(tmp_path: Path) -> None:
    async with broker_of(tmp_path, 1) as broker:
        await publish(broker, range(3), topics=1)
        async with peer_of(broker) as peer:
            await reading(peer, TOPIC, qos=0)
            assert [await payload_of(peer) for _ in range(3)] == ["0", "1", "2"]
        await publish(broker, range(3, 4), topics=1)
        async with peer_of(broker) as peer:
            await reading(peer, TOPIC, qos=0)
            assert await payload_of(peer) == "3"


async def test_other_filters_have_other_cursors(tmp_path: Path) -> None:
    async with two_peers(tmp_path, 2) as (broker, first, second):
        await publish(broker, range(8))
        await reading(first, "$share/g/$stream/s;from=earliest/s/1", client_id="m1")
        assert [await payload_of(first) for _ in range(2)] == ["1", "5"]
        await reading(second, "$share/g/$stream/s;from=earliest/s/2", client_id="m2")
        assert [await payload_of(second) for _ in range(2)] == ["2", "6"]
        rows = await admin.list_groups(broker)
        assert [(each.group, each.stream, each.filter, each.members) for each in rows] == [
            ("g", "s", "s/1", 1), ("g", "s", "s/2", 1)
        ]  # fmt: skip
        with pytest.raises(
            AdminError, match=r"reads several things, .* filter s/1; stream s, filter s/2"
        ):
            await admin.show_group(broker, "g", "", "")
        assert (await admin.show_group(broker, "g", "", "s/2")).members == 1


async def test_unsubscribing_leaves_the_group(tmp_path: Path) -> None:
    async with two_peers(tmp_path, 1) as (broker, first, second):
        await reading(first, TOPIC, client_id="m1")
        await reading(second, TOPIC, client_id="m2")
        await first.ask(unsubscribe_packet(7, TOPIC), b"\xb0\x02\x00\x07")
        await publish(broker, range(1))
        assert await payload_of(second) == "0"


async def test_an_absent_durable_session_is_no_member(tmp_path: Path) -> None:
    async with broker_of(tmp_path, 1) as broker, peer_of(broker) as second:
        async with peer_of(broker) as first:
            await reading(first, TOPIC, client_id="m1", clean=False)
            await reading(second, TOPIC, client_id="m2")
        await publish(broker, range(2), topics=1)
        assert [await payload_of(second) for _ in range(2)] == ["0", "1"]
        assert len(group_of(broker).members) == 1
        async with session_of(broker, "m1", clean=False) as first:
            await until(lambda: len(group_of(broker).members) == 2)


REFUSED = (
    ("$stream/s/#", "accepted: $share/GROUP/$stream/NAME/FILTER"),
    ("$share/g/$stream/s/", "accepted: $share/GROUP/$stream/NAME and"),
    ("$share/g/$stream/x/#", "there is no stream 'x'; there are: s"),
    ("$share/g/$stream/s/t/+", "stream 's' keeps no topic of t/+; it keeps: s/#"),
    ("$share/g/$stream/s;as=x/#", "not an option of a group: as"),
    ("$share/g/$stream/s;from=15m/#", "a time to come"),
    ("$share/g/$stream/s;where=a.map(x, x)/#", "may not call map"),
    ("$share/g/$stream/s/$jobs/mail", "FILTER is an ordinary one"),
)


async def test_what_is_refused_and_why(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with broker_of(tmp_path) as broker:
        for topic, reason in REFUSED:
            caplog.clear()
            async with peer_of(broker) as peer:
                await reading(peer, topic, code=128)
            assert reason in caplog.text


async def test_reset_and_delete(tmp_path: Path) -> None:
    async with broker_of(tmp_path, 1) as broker:
        await publish(broker, range(5), topics=1)
        async with peer_of(broker) as peer:
            await reading(peer, TOPIC)
            assert [await payload_of(peer) for _ in range(5)] == list("01234")
            await until(lambda: group_of(broker).place().positions == {0: 5})
            details = await admin.show_group(broker, "g", "s", "s/#")
            assert [
                (each.position, each.end, each.lag, each.client) for each in details.partitions
            ] == [(5, 5, 0, "r")]
            with pytest.raises(RefusedError, match="has 1 members"):
                await admin.reset_group(broker, "g", "", "", "earliest")
            with pytest.raises(RefusedError, match="has 1 members"):
                await admin.delete_group(broker, "g", "", "")
        await until(lambda: not streams_of(broker).readers.groups.all)
        assert (await admin.reset_group(broker, "g", "", "", "earliest")).lag == 5
        with pytest.raises(AdminError, match="FROM is earliest"):
            await admin.reset_group(broker, "g", "", "", "yesterday")
        async with peer_of(broker) as peer:
            await reading(peer, TOPIC)
            assert [await payload_of(peer) for _ in range(5)] == list("01234")
        await until(lambda: not streams_of(broker).readers.groups.all)
        assert (await admin.delete_group(broker, "g", "", "")).group == "g"
        assert await admin.list_groups(broker) == []
        with pytest.raises(NotFoundError, match="there is no group 'g'"):
            await admin.show_group(broker, "g", "", "")


async def test_figures(tmp_path: Path) -> None:
    async with broker_of(tmp_path, 1) as broker, peer_of(broker) as peer:
        await publish(broker, range(3), topics=1)
        await reading(peer, TOPIC)
        assert await payload_of(peer) == "0"
        await until(lambda: group_of(broker).place().positions == {0: 1})
        found = {each.name: each.samples for each in streams_of(broker).readers.families()}
        (lag,) = found["stream_group_lag"]
        assert lag.labels == (("group", "g"), ("stream", "s"), ("partition", "0"))
        assert lag.value == 2
        assert found["stream_replays"][0].value == 0


async def test_beside_a_share_group_of_the_same_name(tmp_path: Path) -> None:
    async with broker_of(tmp_path) as broker, peer_of(broker) as peer:
        await reading(peer, "$share/g/s/#", qos=0)
        await subscribe(peer, "$share/g/$stream/s/#", qos=0)
        await fill(broker, "s/1")
        assert [(await row_of(peer)).topic for _ in range(2)] == ["s/1", "s/1"]
