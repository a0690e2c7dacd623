"""Messages for nodes that will not get them: bounded, counted, and told."""

import asyncio
from pathlib import Path

from tests.support.until import until
from tests.vmq.clustering.nodes import clustering
from tests.vmq.clustering.sides import payloads, sides
from vmq.admin import cluster
from vmq.clustering.delivery.dropped import BUFFER_FULL, NODE_REMOVED
from vmq.clustering.messages.publishes import RemotePublish


async def test_what_waits_is_bounded_counted_and_told(tmp_path: Path) -> None:
    told: list[tuple[str, str, bytes, str]] = []
    async with sides(tmp_path, buffer_bytes=65_536) as (a, b):
        await b.stop()
        a.running.hooks.on_message_drop = lambda who, load, why: told.append(
            (who.mountpoint, who.client_id, load().payload, why)
        )
        large = b"x" * 30_000
        assert [a.send(large + b"%d" % number) for number in range(4)] == [True, True, False, False]
        assert a.done == [False, False]
        assert told == [("", "b", large + b"%d" % number, BUFFER_FULL) for number in (2, 3)]
        assert a.outboxes.dropped.messages == 2
        assert a.outboxes.dropped.bytes > 60_000
        figures = {each.name: each.samples[0].value for each in clustering(a.running).families()}
        assert figures["cluster_messages_dropped"] == 2
        assert figures["cluster_bytes_dropped"] > 60_000
        assert figures["cluster_messages_waiting"] == 2
        assert figures["cluster_bytes_waiting"] > 60_000
        await b.start()
        await until(lambda: len(a.done) == 4)
        assert a.send(large)
        await until(lambda: len(b.got) == 3)


async def test_what_waited_for_a_removed_member_is_dropped_counted_and_told(tmp_path: Path) -> None:
    told: list[tuple[str, bytes, str]] = []
    async with sides(tmp_path) as (a, b):
        assert not a.send(b"to a stranger", peer="c")
        assert not a.outboxes.send_quick("c", RemotePublish(b"t", b"", 0))
        await b.stop()
        for payload in payloads(1, 10):
            a.send(payload)
            await asyncio.sleep(0.001)
        a.running.hooks.on_message_drop = lambda who, load, why: told.append(
            (who.client_id, load().payload, why)
        )
        await until(lambda: not a.node.up)
        assert not a.outboxes.send_quick("b", RemotePublish(b"t", b"", 0))
        cluster.remove(a.running, "b", force=True)
        await until(lambda: len(told) == 10)
        assert told == [("b", payload, NODE_REMOVED) for payload in payloads(1, 10)]
        assert not a.send(b"behind it")
        assert a.done == [False] * 12
        assert a.outboxes.dropped.messages == 12
        await until(lambda: a.records(b"o") == [])
