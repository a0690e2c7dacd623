"""A compacted stream of which three nodes have copies: each compacts by itself, and all have the same."""

from pathlib import Path
from random import randbytes

import pytest

from tests.support.until import until
from tests.vmq.clustering.raft.replicas import payloads, replicated
from vmq.clustering.raft import thread

MESSAGES = 240
TOPICS = 4


async def test_all_replicas_have_the_same_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(thread, "LOOK", 0.2)
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

        await until(is_compacted)
        last = {int(each[:4]) % TOPICS: int(each[:4]) for each in found[0]}
        assert sorted(last.values()) == [*range(MESSAGES - TOPICS, MESSAGES)]
