"""What a query has not read when the retention deletes it: an error, or what is left, by `failOnDataLoss`."""

import json
from pathlib import Path

from tests.spark.support import Bridge, fails, outrun, send


def ends(bridge: Bridge) -> tuple[int, int]:
    """The first offset of stream short, and the one behind its last."""
    from pyspark_vmq.client import Client
    from pyspark_vmq.options import connection_of

    client = Client(connection_of({"server": bridge.url}))
    return client.earliest("short")[0], client.latest("short")[0]


def offsets(bridge: Bridge, folder: Path) -> list[int]:
    rows = bridge.spark.read.parquet(str(folder)).select("offset").collect()
    return sorted(row.offset for row in rows)


def test_a_stream_that_was_outrun_ends_or_goes_on_behind_the_gap(
    bridge: Bridge, tmp_path: Path
) -> None:
    out, check = tmp_path / "out", tmp_path / "check"
    send(bridge.broker, [("short/x", b"%d" % number) for number in range(100)])
    begun, read = ends(bridge)
    options = {"stream": "short", "startingOffsets": "earliest"}
    bridge.collect(bridge.stream(**options), out, check)
    assert offsets(bridge, out) == list(range(begun, read))

    outrun(bridge.broker, read)
    with fails(f"offset {read} is not there", "it holds ", "by retention", "'failOnDataLoss'"):
        bridge.collect(bridge.stream(**options), out, check)
    assert offsets(bridge, out) == list(range(begun, read)), "a query that fails adds nothing"

    bridge.collect(bridge.stream(**options, failOnDataLoss="false"), out, check)
    first, end = ends(bridge)
    assert first > read
    assert offsets(bridge, out) == [*range(begun, read), *range(first, end)]


def test_a_batch_that_asks_for_deleted_offsets_fails_or_takes_what_is_left(bridge: Bridge) -> None:
    outrun(bridge.broker, ends(bridge)[1])
    first, end = ends(bridge)
    assert first > 0
    options = {
        "stream": "short",
        "startingOffsets": json.dumps({"short": {"0": 0}}),
        "endingOffsets": json.dumps({"short": {"0": end - 5}}),
    }
    with fails("offset 0 is not there", "it holds ", "option 'failOnDataLoss'"):
        bridge.load(**options).count()
    rows = bridge.load(**options, failOnDataLoss="false").select("offset").collect()
    assert [row.offset for row in rows] == list(range(ends(bridge)[0], end - 5))
    assert bridge.load(stream="short").count() > 0, "what starts at the earliest loses nothing"
