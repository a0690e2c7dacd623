"""The archive of a partition goes with it to the node that owns it next."""

import asyncio
from functools import partial
from pathlib import Path

from tests.support.until import until
from tests.vmq.clustering.stream_nodes import leave, nodes, owners, read, stream
from tests.vmq.streamed import streams_of
from tests.vmq.streams.support import options
from vmq.broker import Broker
from vmq.streams.log.partition import Partition
from vmq.streams.tidying.janitor import Janitor


def partitions_of(broker: Broker) -> list[Partition]:
    return stream(broker, "s").partitions


async def fill(broker: Broker, numbers: range) -> None:
    for number in numbers:
        await broker.publish("s/1", b"%03d" % number, qos=1)
    await streams_of(broker).commits.wait()


async def test_the_next_owner_reads_what_the_one_before_archived(tmp_path: Path) -> None:
    url = f"file://{tmp_path / 'archive'}"
    kept = options(filters=["s/#"], key="topic", archive=url, retention_age="1h", replicas=1)
    async with nodes(tmp_path, "a", "b", flight=True, s=kept) as brokers:
        (name,) = owners(brokers[0], "s")
        first, second = brokers if name == "a" else brokers[::-1]
        await fill(first, range(30))
        partition = stream(first, "s").partitions[0]
        partition.roll()
        await fill(first, range(30, 40))
        clock = partition.clock
        partition.clock = lambda: clock() + 2 * 3600
        for each in (first, second):
            Janitor(partial(partitions_of, each)).tidy()
        assert (partition.kept, partition.earliest) == (30, 0)
        assert not list(streams_of(second).problems())
        partition.clock = clock
        location = streams_of(first).listeners[0].url
        assert await asyncio.to_thread(read, location, "s") == [
            b"%03d" % number for number in range(40)
        ]
        await leave(first)
        await until(lambda: owners(second, "s") == ["b" if name == "a" else "a"])
        await until(lambda: stream(second, "s").partitions[0].end == 40)
        taken = stream(second, "s").partitions[0]
        assert taken.kept == 30
        Janitor(lambda: [taken]).tidy()
        assert taken.earliest == 0
        location = streams_of(second).listeners[0].url
        assert await asyncio.to_thread(read, location, "s") == [
            b"%03d" % number for number in range(40)
        ]
