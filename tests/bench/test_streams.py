"""Encoding a commit: what the writer's thread does with the columns that gathered."""

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from tests.vmq.streams.support import options
from vmq.streams.log.frame import encode, write_options
from vmq.streams.log.gathering import Gathering
from vmq.streams.log.keys import Keys
from vmq.streams.log.segment import Header
from vmq.streams.log.small import FewRows
from vmq.streams.replica.batches import Codec
from vmq_cluster.raft.messages import ROWS, Mark


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
@pytest.mark.parametrize("kind", ["single", "replicated"])
def test_encode_few(benchmark: BenchmarkFixture, count: int, kind: str) -> None:
    """The same of a batch of few rows, which is written without Arrow; and what it takes beside topics and payloads.

    Of the bytes of a batch 608 are Arrow's own: where each buffer of our columns lies, whatever is in them.
    """
    gathering = Gathering()
    for number in range(count):
        gathering.add_run(b"plant/%d/temp" % number, [b"x" * 20], 1, "client-17", 1_700_000_000)
    keys, codec = Keys(options()), Codec(Header("s", 0))
    marks = (Mark("node@0123abcd", "000000000001-00000001", 1000, count),)

    def run() -> int:
        few = FewRows.of(gathering, keys)
        assert few is not None
        if kind == "replicated":
            return len(codec.make(0, 1, ROWS, marks, [few], None).body)
        return sum(map(len, few.message(0)))

    size = benchmark(run)
    beside = size - sum(map(len, gathering.topics + gathering.payloads))
    benchmark.extra_info["bytes beside the rows"] = beside
    assert beside < 1200 + 80 * count
