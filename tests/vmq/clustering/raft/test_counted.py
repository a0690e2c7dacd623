"""What is told of a replicated stream counts its messages: not what its group writes for itself."""

import asyncio
from pathlib import Path

from tests.support.until import PATIENCE
from tests.vmq.clustering.raft.replicas import leader, payloads, replicated
from vmq.admin import streams as admin
from vmq.broker import Broker
from vmq.streams.stored import StoredStream

NAMES = ("a", "b", "c", "d")


async def counts(broker: Broker) -> tuple[int, int, list[int | None]]:
    """In the list of streams, in what is shown of one, and of its partitions there."""
    [row] = await admin.list_streams(broker).rows()
    details = await admin.show_stream(broker, "s")
    return row.messages, details.messages, [each.messages for each in details.partitions]


async def test_no_message_is_counted_that_nobody_published(tmp_path: Path) -> None:
    """By nodes that have a copy; by the one that has none, who is told; and by one that is started again."""
    async with replicated(tmp_path, *NAMES) as brokers:
        replicas = [each for each in NAMES if await counts(brokers[each]) == (0, 0, [0])]
        for each in replicas:
            partition = (await admin.show_stream(brokers[each], "s")).partitions[0]
            assert partition.end, "the group has written something for itself"
        assert replicas == [*NAMES]
        for number in range(3):
            await brokers["a"].publish("s/t", b"%d" % number, qos=1)
        has_copy = [each for each in NAMES if payloads(brokers[each])]
        assert len(has_copy) in (2, 3), "a majority has them"
        first = leader(brokers["a"])
        config = brokers[first].config
        await brokers.pop(first).stop()
        stored = StoredStream(Path(config.broker.data_dir) / "streams", "s")
        assert stored.partitions[0].summary().messages == 3
        brokers[first] = Broker(config)
        await brokers[first].start()
        for name in NAMES:
            wanted = len(payloads(brokers[name])), 3, [3]
            async with asyncio.timeout(PATIENCE):
                while await counts(brokers[name]) != wanted:
                    wanted = len(payloads(brokers[name])), 3, [3]
