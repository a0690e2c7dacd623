"""Consumer groups whose members are clients of several nodes, on which the partitions are, too."""

from collections import Counter
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from unittest.mock import patch

import pytest

from tests.support.present import present
from tests.support.until import until
from tests.vmq.clustering.nodes import clustering
from tests.vmq.clustering.stream_nodes import nodes
from tests.vmq.sockets import peer_of
from tests.vmq.streamed import streams_of
from tests.vmq.streams.groups.test_members import Taker, numbers
from tests.vmq.streams.replay.test_port import reading
from tests.vmq.streams.support import options
from vmq.admin.errors import RefusedError
from vmq.admin.readers import groups as admin
from vmq.broker import Broker
from vmq.clustering.raft import cursors
from vmq.clustering.streams import groups as asking
from vmq.clustering.streams.groups import ClusterGroups

TOPIC = "$share/g/$stream/s;from=earliest/s/#"
STREAM = options(filters=["s/#"], partitions=4, key="topic")


def groups_of(broker: Broker) -> ClusterGroups:
    return present(clustering(broker).streams.replicas.consumers)


async def publish(broker: Broker, wanted: range) -> None:
    for number in wanted:
        await broker.publish(f"s/{number % 16}", b"%d" % number, qos=1)


async def positions(broker: Broker) -> int:
    """How many rows the group has done with, as its coordinator knows it."""
    (row,) = await admin.list_groups(broker)
    details = await admin.show_group(broker, "g", "", "")
    assert row.lag is not None
    return sum(each.position for each in details.partitions)


async def reaches(broker: Broker, count: int) -> None:
    """Waits until the group has done with so many rows, while nobody coordinates it, too."""
    done = False
    while not done:
        with suppress(RefusedError):
            done = await positions(broker) == count


async def test_members_on_any_node_share_the_partitions_and_one_cursor(tmp_path: Path) -> None:
    async with nodes(tmp_path, "a", "b", "c", s=STREAM) as brokers, AsyncExitStack() as stack:
        await publish(brokers[0], range(100))
        takers: list[Taker] = []
        for number, broker in enumerate(brokers[:2]):
            peer = await stack.enter_async_context(peer_of(broker))
            await reading(peer, TOPIC, client_id=f"m{number}")
            takers.append(Taker(peer))
        await until(lambda: numbers(*takers) == list(range(100)))
        await until(lambda: all(has_some(each) for each in brokers[:2]))
        await publish(brokers[2], range(100, 200))
        await until(lambda: numbers(*takers) == list(range(200)))
        assert all(taker.found for taker in takers)
        for taker in takers:
            for topic in {topic for topic, _ in taker.found}:
                of_topic = [number for each, number in taker.found if each == topic]
                assert of_topic == sorted(of_topic)
        # Any node answers for the group, the one without members, too.
        await reaches(brokers[2], 200)
        details = await admin.show_group(brokers[2], "g", "", "")
        assert details.members == 2
        (place,) = groups_of(coordinator(brokers)).coordinator.kept.places.values()
        assert place.stream == streams_of(brokers[2]).catalog.streams["s"].stream_id
        assert Counter(each.client for each in details.partitions) == {"m0": 2, "m1": 2}
        with pytest.raises(RefusedError, match="has 2 members"):
            await admin.reset_group(brokers[2], "g", "", "", "earliest")
        for taker in takers:
            await taker.stop()
        await stack.aclose()
        await until(lambda: not any(groups_of(each).coordinator.groups for each in brokers))
        # Where it is outlives its members; a new member goes on there, on another node.
        async with peer_of(brokers[2]) as peer:
            await reading(peer, TOPIC, client_id="m2")
            taker = Taker(peer)
            await publish(brokers[0], range(200, 220))
            await until(lambda: numbers(taker) == list(range(200, 220)))
            await taker.stop()
        await until(lambda: not any(groups_of(each).coordinator.groups for each in brokers))
        assert (await admin.reset_group(brokers[1], "g", "", "", "earliest")).lag == 220
        await admin.delete_group(brokers[0], "g", "", "")
        assert await admin.list_groups(brokers[1]) == []


def has_some(broker: Broker) -> bool:
    """Whether members on this node have partitions."""
    return any(each.share.holds for each in groups_of(broker).shares.values())


def coordinator(brokers: list[Broker]) -> Broker:
    (found,) = [each for each in brokers if groups_of(each).coordinator.term]
    return found


@patch.object(cursors, "LONG", 1)
async def test_the_coordinator_stops_and_another_goes_on(tmp_path: Path) -> None:
    """Its log is written again meanwhile: whoever coordinates next has all that counts from what is left of it."""
    async with nodes(tmp_path, "a", "b", "c", s=STREAM) as brokers, AsyncExitStack() as stack:
        await publish(brokers[0], range(40))
        peers = {}
        takers: list[Taker] = []
        for broker in brokers:
            peer = peers[broker] = await stack.enter_async_context(peer_of(broker))
            await reading(peer, TOPIC, client_id=f"of-{groups_of(broker).name}")
            takers.append(Taker(peer))
        await until(lambda: numbers(*takers) == list(range(40)))
        await reaches(brokers[0], 40)
        first = coordinator(brokers)
        await until(lambda: len(voters(first)) == 3)  # else one of two would be no majority
        config = first.config
        place = brokers.index(first)
        await takers[place].stop()
        await first.stop()
        rest = [each for each in brokers if each is not first]
        await until(lambda: any(groups_of(each).coordinator.term for each in rest))
        brokers[place] = Broker(config)
        await brokers[place].start()
        await publish(rest[0], range(40, 80))
        await until(lambda: set(numbers(*takers)) == set(range(80)))
        assert numbers(*takers) == list(range(80)), "a clean end repeats nothing"
        await reaches(brokers[place], 80)
        for taker in takers:
            await taker.stop()


async def test_an_answer_comes_though_another_is_thought_to_coordinate_and_answers_are_late(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with nodes(tmp_path, "a", "b", "c", s=STREAM) as brokers, AsyncExitStack() as stack:
        await publish(brokers[0], range(16))
        peer = await stack.enter_async_context(peer_of(brokers[0]))
        await reading(peer, TOPIC, client_id="m")
        taker = Taker(peer)
        await until(lambda: numbers(taker) == list(range(16)))
        await reaches(brokers[0], 16)
        await until(lambda: len(voters(coordinator(brokers))) == 3)
        rest = [each for each in brokers if each is not coordinator(brokers)]
        for one, other in (rest, rest[::-1]):
            places, log = groups_of(one).service.places, groups_of(one).service.cursors
            places.lead(present(log).name, groups_of(other).service.places.name)
        # Each answer comes when the next question was asked already.
        monkeypatch.setattr(asking, "_AGAIN", 0.0)
        for each in rest:
            assert await positions(each) == 16
        await taker.stop()


async def test_without_most_of_the_nodes_nobody_gets_anything(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with nodes(tmp_path, "a", "b", "c", s=STREAM) as brokers, AsyncExitStack() as stack:
        peer = await stack.enter_async_context(peer_of(brokers[0]))
        await reading(peer, TOPIC, client_id="m")
        await until(lambda: has_some(brokers[0]))
        await until(lambda: len(voters(brokers[0])) == 3)
        (share,) = [each.share for each in groups_of(brokers[0]).shares.values()]
        for each in brokers[1:]:
            await each.stop()
        await until(lambda: not share.holds)
        (group,) = streams_of(brokers[0]).readers.groups.all.values()
        assert not group.may_send()
        await until(lambda: "its members on this node get nothing" in caplog.text)


def voters(broker: Broker) -> tuple[str, ...]:
    service = groups_of(broker).service
    opened = service.thread.opened.get(present(service.cursors).name)
    group = None if opened is None else opened.group
    return () if group is None else group.replica.members.voters
