"""Typed columns are read with their types, or with wider ones, of which no value changes."""

from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql.types import DoubleType, IntegerType, LongType, StructType
from pyspark_vmq.errors import OptionError
from pyspark_vmq.options import source_options
from pyspark_vmq.schema import COLUMNS, TYPED, check_typed, projection
from pyspark_vmq.source import Reader

from tests.vmq.streams.flight_support import Running, serving
from tests.vmq.streams.support import options

THERE = pa.schema(
    [
        ("topic", pa.string()),
        ("text", pa.string()),
        ("truth", pa.bool_()),
        ("small", pa.int32()),
        ("large", pa.int64()),
        ("real", pa.float64()),
        ("time", pa.timestamp("us", tz="UTC")),
    ]
)
KINDS = {
    "text": "string",
    "truth": "boolean",
    "small": "int",
    "large": "bigint",
    "real": "double",
    "time": "timestamp",
}
WIDER = {("small", "bigint"), ("small", "double")}


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("given", TYPED)
def test_its_own_type_and_wider_ones(name: str, given: str) -> None:
    if given == KINDS[name] or (name, given) in WIDER:
        check_typed("s", THERE, {"topic": False, name: given})
        return
    said = f"option 'schema': column '{name}' of stream 's' is {KINDS[name]}, not {given}"
    with pytest.raises(OptionError, match=f"{said}$"):
        check_typed("s", THERE, {"topic": False, name: given})


def test_one_that_is_not_there() -> None:
    with pytest.raises(OptionError, match=r"no column 'wind'; accepted: topic, text.*stream 's'"):
        check_typed("s", THERE, {"wind": "double"})
    check_typed("s", THERE, dict.fromkeys(COLUMNS, True))


def test_what_is_read_as_a_wider_type(tmp_path: Path) -> None:
    running = Running(tmp_path / "streams", s=options(schema={"n": "int32"}))
    with closing(running), serving("server", running) as server:
        running.append("a", b'{"n": 2147483647}', b"{}", b'{"n": -7}')
        given = {"server": f"grpc://127.0.0.1:{server.port}", "stream": "s"}
        for kind, arrow in (
            (IntegerType(), pa.int32()),
            (LongType(), pa.int64()),
            (DoubleType(), pa.float64()),
        ):
            wanted = projection(StructType().add("n", kind))
            reader = Reader(source_options(given, "batch"), wanted)
            (task,) = reader.partitions()
            (rows,) = reader.read(task)
            assert rows.column(0).type == arrow
            assert rows.column(0).to_pylist() == [2147483647, None, -7]
