"""The client in a cluster: each partition is read at the node that owns it. No JVM is needed to see it."""

import asyncio
from pathlib import Path

import pytest
from pyspark_vmq.client import Client
from pyspark_vmq.options import Connection, source_options
from pyspark_vmq.planning import Range
from pyspark_vmq.reading import read_range

from tests.support.until import until
from tests.vmq.clustering.stream_nodes import TOPICS, fill, flight_of, kept, nodes, owners
from tests.vmq.streams.support import options


async def test_each_partition_is_read_at_its_owner(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = options(filters=["x/#"], partitions=6, key="topic")
    async with nodes(tmp_path, "a", "b", flight=True, s=given) as (a, b):
        await fill(a, TOPICS, 1, "m")
        await until(lambda: kept([a, b], "s") == len(TOPICS))

        def collect() -> list[bytes]:
            client = Client(Connection(flight_of(b)))
            found = []
            for number, end in client.latest("s").items():
                asked = {"stream": "s", "partition": number, "start": 0, "end": end}
                for batch, _ in client.read(asked):
                    found += batch.column("payload").to_pylist()
            assert len(client.owners) == owners(b, "s").count("a")
            return sorted(found)

        def collect_files() -> list[bytes]:
            client = Client(Connection(flight_of(b)))
            given = source_options({"server": flight_of(b), "stream": "s"}, "batch")
            found = []
            for number, end in client.latest("s").items():
                wanted = Range("s", number, 0, end)
                for batch in read_range(client, wanted, given, {"payload": False}):
                    found += batch.column("payload").to_pylist()
            assert len(client.owners) == owners(b, "s").count("a")
            return sorted(found)

        there = sorted(f"m {each}".encode() for each in TOPICS)
        assert await asyncio.to_thread(collect) == there
        monkeypatch.setattr(Client, "read_here", None)
        assert await asyncio.to_thread(collect_files) == there
