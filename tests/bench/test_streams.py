"""Encoding a commit: what the writer's thread does with the columns that gathered."""

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from tests.vmq.streams.support import options
from vmq.streams.log.frame import encode, write_options
from vmq.streams.log.gathering import Gathering
from vmq.streams.log.keys import Keys
from vmq.streams.log.segment import Header
from vmq.streams.log.small import FewRows


@pytest.mark.parametrize("count", [1, 100, 1000, 10_000])
@pytest.mark.parametrize("compression", ["none", "lz4", "zstd"])
def test_encode(benchmark: BenchmarkFixture, count: int, compression: str) -> None:
    gathering = Gathering()
    for number in range(count):
        topic = b"plant/%d/line/%d/temp" % (number % 10, number % 100)
        gathering.add_run(topic, [b"x" * 64], 1, "client-17", 1_700_000_000_000_000)
    keys, header, how = Keys(options()), Header("s", 0), write_options(compression)

    def run() -> int:
        rows, _ = gathering.rows(keys)
        rows = rows.replace_schema_metadata(header.schema.metadata)
        head, body = encode(rows, 0, gathering.newest(), len(header.raw), how)
        return len(head) + len(body)

    assert benchmark(run) > count


@pytest.mark.parametrize("count", [1, 8, 63])
def test_encode_few(benchmark: BenchmarkFixture, count: int) -> None:
    """The same of a batch of few rows, which is written without Arrow."""
    gathering = Gathering()
    for number in range(count):
        gathering.add_run(b"plant/%d/temp" % number, [b"x" * 20], 1, "client-17", 1_700_000_000)
    keys = Keys(options())

    def run() -> int:
        few = FewRows.of(gathering, keys)
        assert few is not None
        return sum(map(len, few.message(0)))

    assert benchmark(run) > count
