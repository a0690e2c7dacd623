"""What is wrong with the options of a stream is the last that Spark's runner says."""

import io
import json
import struct
from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.streaming import python_streaming_source_runner as spark
from pyspark.sql.types import LongType, StringType, StructType
from pyspark_vmq.errors import OptionError
from pyspark_vmq.source import DefaultSource

SCHEMA = StructType().add("offset", LongType(), nullable=False)
GOOD = {"server": "grpc://127.0.0.1:1", "stream": "s"}


def asked(*texts: object) -> io.BytesIO:
    """What Spark writes to ask."""
    told = [json.dumps(each).encode() for each in texts]
    return io.BytesIO(b"".join(struct.pack("!i", len(each)) + each for each in told))


OFFSET = {"v": 1, "s": {}}
ALL = {"_type": "ReadAllAvailable"}
CALLS: dict[str, Callable[[Any, io.BytesIO], None]] = {
    "prepare": spark.prepare_for_trigger_available_now_func,
    "initial": spark.initial_offset_func,
    "latest": lambda reader, out: spark.latest_offset_admission_control_func(
        reader, asked(OFFSET, ALL), out
    ),
    "partitions": lambda reader, out: spark.partitions_func(
        reader, DefaultSource({}), SCHEMA, 10_000, asked(OFFSET, OFFSET), out
    ),
}


@pytest.mark.parametrize(
    ("option", "value", "schema"),
    [
        ("server", "http://x", SCHEMA),
        ("server", "", SCHEMA),
        ("startingOffsets", "begin", SCHEMA),
        ("startingTimestamp", "yesterday", SCHEMA),
        ("endingOffsets", "latest", SCHEMA),
        ("maxOffsetsPerTrigger", "-3", SCHEMA),
        ("minPartitions", "0", SCHEMA),
        ("failOnDataLoss", "maybe", SCHEMA),
        ("topic", "a/#/b", SCHEMA),
        ("where", "{", SCHEMA),
        ("cafile", "/nowhere", SCHEMA),
        ("retryTimeout", "soon", SCHEMA),
        ("strem", "s", SCHEMA),
        ("schema", None, StructType().add("payload", StringType())),
    ],
)
def test_spark_gets_a_reader_that_names_the_option(
    option: str, value: str | None, schema: StructType
) -> None:
    given = GOOD if value is None else {**GOOD, option: value}
    reader: Any = DefaultSource(CaseInsensitiveDict(given)).streamReader(schema)
    out = io.BytesIO()
    spark.check_support_func(reader, out)
    flags = spark.SUPPORTS_ADMISSION_CONTROL | spark.SUPPORTS_TRIGGER_AVAILABLE_NOW
    assert out.getvalue() == struct.pack("!i", flags)
    spark.get_default_read_limit_func(reader, io.BytesIO())
    for call in CALLS.values():
        with pytest.raises(OptionError, match=f"^vmq: option '(?i:{option})': "):
            call(reader, io.BytesIO())
    reader.stop()
