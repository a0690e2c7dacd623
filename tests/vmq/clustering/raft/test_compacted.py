"""A compacted stream of which three nodes have copies: each compacts by itself, and all have the same."""

from pathlib import Path
from random import randbytes
from unittest.mock import patch

from tests.support.until import until
from tests.vmq.clustering.raft.replicas import groups, is_led, payloads, replicated
from tests.vmq.clustering.stream_nodes import nodes, owners
from tests.vmq.streamed import streams_of
from tests.vmq.streams.support import options
from vmq.admin import streams as admin
from vmq.broker import Broker
from vmq.clustering.raft.groups import thread

MESSAGES = 240
TOPICS = 4


@patch.object(thread, "LOOK", 0.2)
async def test_all_replicas_have_the_same_left(tmp_path: Path) -> None:
    async with replicated(tmp_path, "a", "b", "c", compact=True, segment_bytes=65_536) as brokers:
        for number in range(MESSAGES):
            payload = b"%04d" % number + randbytes(2000)
            await brokers["abc"[number % 3]].publish(f"s/{number % TOPICS}", payload, qos=1)

        found: list[list[bytes]] = []

        def is_compacted() -> bool:
            for each in brokers.values():
                assert each.streaming is not None
                each.streaming.catalog.janitor.wanted.set()  # rounds are not waited for
            found[:] = [payloads(each) for each in brokers.values()]
            return len(found[0]) < MESSAGES and found[0] == found[1] == found[2]

        await until(is_compacted, 0.05)
        last = {int(each[:4]) % TOPICS: int(each[:4]) for each in found[0]}
        assert sorted(last.values()) == [*range(MESSAGES - TOPICS, MESSAGES)]


def has_copy(broker: Broker, *names: str) -> bool:
    """Whether these nodes have the copies of `s`, and this one reads its own."""
    places = groups(broker).places
    return sorted(places.replicas("s", 0)) == [*names] and places.is_here("s", 0)


async def test_one_copy_that_is_compacted_becomes_two_and_moves(tmp_path: Path) -> None:
    made = options(
        filters=["s/#"], key="topic", durability="os", compact=True, segment_bytes=65_536
    )
    async with nodes(tmp_path, "a", "b", "c", s=made) as brokers:
        by_name = dict(zip("abc", brokers, strict=True))
        owner = by_name[owners(brokers[0], "s")[0]]
        for number in range(MESSAGES):
            payload = b"%04d" % number + randbytes(2000)
            await owner.publish(f"s/{number % TOPICS}", payload, qos=1)

        def is_compacted() -> bool:
            streams_of(owner).catalog.janitor.wanted.set()  # rounds are not waited for
            return len(payloads(owner)) < MESSAGES

        await until(is_compacted, 0.05)
        had = payloads(owner)
        await admin.alter_stream(owner, "s", {"replicas": 2})
        await until(lambda: all(is_led(each) for each in brokers))
        placed = groups(owner).places.replicas("s", 0)
        await until(lambda: all(has_copy(by_name[each], *sorted(placed)) for each in placed))
        [other] = {*by_name} - {*placed}
        to = sorted([other, placed[0]])
        await admin.move_partition(owner, "s", 0, to)
        await until(lambda: all(has_copy(by_name[each], *to) for each in to))
        await by_name[other].publish("s/0", b"last", qos=1)
        await until(lambda: payloads(by_name[other])[-1:] == [b"last"])
        found = payloads(by_name[other])
        assert set(found) <= {*had, b"last"}
        last = {int(each[:4]) % TOPICS: int(each[:4]) for each in found[:-1]}
        assert sorted(last.values()) == [*range(MESSAGES - TOPICS, MESSAGES)]
