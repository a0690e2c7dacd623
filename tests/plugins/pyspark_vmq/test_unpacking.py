import pyarrow as pa
import pytest
from pyarrow import ipc
from pyspark.sql import types
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark_vmq.planning import Range
from pyspark_vmq.schema import COLUMNS, DDL, projection
from pyspark_vmq.unpacking import Unpacker, arrow_schema

WANTED = Range("plant", 3, 0, 100)


def packed(*batches: pa.RecordBatch) -> pa.RecordBatch:
    """Batches as the broker sends them."""
    sink = pa.BufferOutputStream()
    with ipc.new_stream(
        sink, batches[0].schema, options=ipc.IpcWriteOptions(compression="lz4")
    ) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return pa.record_batch([pa.array([sink.getvalue().to_pybytes()])], ["packed"])


def stored(first: int, count: int) -> pa.RecordBatch:
    numbers = range(first, first + count)
    return pa.record_batch(
        {
            "topic": [f"t/{number}" for number in numbers],
            "payload": [b"%d" % number for number in numbers],
            "qos": pa.array([1] * count, pa.int32()),
        }
    )


HEADER = types.StructType(
    [types.StructField("key", types.StringType()), types.StructField("value", types.StringType())]
)
TYPES = {
    "topic": types.StringType(),
    "payload": types.BinaryType(),
    "qos": types.IntegerType(),
    "retain": types.BooleanType(),
    "timestamp": types.TimestampType(),
    "client_id": types.StringType(),
    "key": types.BinaryType(),
    "headers": types.ArrayType(HEADER),
    "stream": types.StringType(),
    "partition": types.IntegerType(),
    "offset": types.LongType(),
}


@pytest.mark.parametrize("nullable", [True, False])
def test_the_schema_is_the_one_that_spark_expects(nullable: bool) -> None:
    spark = types.StructType(
        [types.StructField(name, kind, nullable) for name, kind in TYPES.items()]
    )
    assert arrow_schema(projection(spark)).equals(to_arrow_schema(spark, timezone="UTC"))


def test_no_column_but_headers_may_be_null() -> None:
    assert [each.endswith(" NOT NULL") for each in DDL.split(", ")] == [
        name != "headers" for name in COLUMNS
    ]


def test_every_column_has_a_type() -> None:
    assert arrow_schema(dict.fromkeys(COLUMNS, True)).names == list(COLUMNS)


def test_the_rows_that_count_get_the_columns_that_are_not_stored() -> None:
    schema = arrow_schema({"offset": False, "payload": True, "stream": False, "partition": False})
    told = {"skip": 2, "rows": 3, "first": 12, "next": 15}
    rows = Unpacker(WANTED, schema).unpacked(packed(stored(10, 4), stored(14, 4)), told)
    assert rows.schema.equals(schema)
    assert rows.to_pylist() == [
        {"offset": number, "payload": b"%d" % number, "stream": "plant", "partition": 3}
        for number in (12, 13, 14)
    ]


def test_rows_that_bring_their_offsets_keep_them() -> None:
    rows = pa.record_batch({"payload": [b"a", b"b"], "offset": [4, 9]})
    schema = arrow_schema({"payload": True, "offset": False})
    told = {"skip": 0, "rows": 2, "first": 4, "next": 10}
    found = Unpacker(WANTED, schema).unpacked(packed(rows), told)
    assert found.column("offset").to_pylist() == [4, 9]
