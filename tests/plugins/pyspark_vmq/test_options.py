from contextlib import nullcontext
from pathlib import Path
from typing import get_args

import pytest
from pyspark_vmq.errors import OptionError
from pyspark_vmq.offsets import EARLIEST, LATEST
from pyspark_vmq.options import OPERATORS, connection_of, sink_options, source_options

from vmq.streams.log.conditions import Operator

SERVER = {"server": "grpc://localhost:8815"}


def test_the_least_that_a_source_needs() -> None:
    options = source_options({**SERVER, "topic": "sensors/+/temp"}, "stream")
    assert options.topic == "sensors/+/temp"
    assert options.streams == ()
    assert options.starting is None
    assert options.fail_on_data_loss
    assert options.local_reads
    assert options.connection.server == "grpc://localhost:8815"


def test_everything_that_a_source_takes() -> None:
    given = {**SERVER, "username": "u", "password": "p", "retryTimeout": "5", "stream": "a, b"}
    given |= {"startingOffsets": "Earliest", "maxOffsetsPerTrigger": "100", "minPartitions": "3"}
    given |= {"failOnDataLoss": "FALSE", "localReads": "false"}
    options = source_options(given, "stream")
    assert options.streams == ("a", "b")
    assert options.starting == EARLIEST
    assert (options.max_offsets, options.min_partitions) == (100, 3)
    assert not options.fail_on_data_loss
    assert not options.local_reads
    assert options.connection.retry_timeout == 5


def test_a_batch_may_name_its_end() -> None:
    given = {**SERVER, "stream": "a", "endingOffsets": "latest"}
    assert source_options(given, "batch").ending == LATEST
    with pytest.raises(OptionError, match=r"for spark\.read only"):
        source_options(given, "stream")


def test_times() -> None:
    def start(text: str) -> int | None:
        given = {**SERVER, "stream": "a", "startingTimestamp": text}
        return source_options(given, "stream").starting_timestamp

    assert start("1700000000000") == 1_700_000_000_000
    assert start("2023-11-14T22:13:20Z") == 1_700_000_000_000
    assert start("2023-11-14T22:13:20") == 1_700_000_000_000
    assert start("2023-11-15T00:13:20+02:00") == 1_700_000_000_000


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("server", "", "is missing; expected grpc://HOST:PORT"),
        ("server", "localhost:8815", "'localhost:8815' is not accepted"),
        ("server", "http://localhost:8815", "expected grpc://HOST:PORT or grpc"),
        ("server", "grpc://localhost", "not accepted"),
        ("server", "grpc://localhost:99999", "not accepted"),
        ("server", "grpc://localhost:8815,localhost:8816", "'localhost:8816' is not accepted"),
        ("cafile", "/nowhere/ca.pem", "there is no file '/nowhere/ca.pem'"),
        ("topic", "a/#/b", "is no MQTT topic filter"),
        ("topic", "a+/b", "is no MQTT topic filter"),
        ("startingOffsets", "latest-ish", "expected earliest, latest or JSON"),
        ("startingOffsets", "[]", "expected earliest, latest or JSON"),
        ("endingOffsets", "latest", "spark.read"),
        ("startingTimestamp", "yesterday", "expected milliseconds since 1970"),
        ("startingTimestamp", "-5", "'-5' is not accepted; expected milliseconds since 1970"),
        ("startingTimestamp", "1700000000", "expected milliseconds since 1970, not seconds"),
        ("startingTimestamp", "9" * 30, "expected milliseconds since 1970"),
        ("startingTimestamp", "1960-01-01", "expected milliseconds since 1970"),
        ("maxOffsetsPerTrigger", "0", "'0' is not accepted; expected a whole number from 1"),
        ("maxOffsetsPerTrigger", "many", "expected a whole number from 1"),
        ("minPartitions", "-1", "expected a whole number from 1"),
        ("failOnDataLoss", "perhaps", "expected true or false"),
        ("startingOffset", "earliest", "is unknown; there are: server"),
    ],
)
def test_wrong_options_name_option_value_and_what_is_accepted(
    option: str, value: str, message: str
) -> None:
    with pytest.raises(OptionError, match=message) as caught:
        source_options({**SERVER, option: value}, "stream")  # told before that 'topic' is missing
    assert f"'{option}'" in str(caught.value)


def test_neither_topic_nor_stream() -> None:
    with pytest.raises(OptionError, match="give an MQTT topic filter, or 'stream'"):
        source_options(SERVER, "batch")


def test_a_start_is_named_once() -> None:
    given = {**SERVER, "stream": "a", "startingOffsets": "earliest", "startingTimestamp": "1"}
    with pytest.raises(OptionError, match="exclude each other"):
        source_options(given, "batch")


@pytest.mark.parametrize(
    ("start", "end", "good"),
    [
        ('{"a": {"0": 3}}', '{"a": {"0": 1}}', False),
        ('{"a": {"0": 3}}', '{"a": {"0": 3}}', True),
        ('{"a": {"0": -2}}', '{"a": {"0": 0}}', True),
        ('{"a": {"0": 3}}', '{"a": {"0": -1, "1": 1}}', True),
        ("earliest", '{"a": {"0": 0}}', True),
    ],
)
def test_a_partition_does_not_end_before_its_start(start: str, end: str, good: bool) -> None:
    given = {**SERVER, "stream": "a", "startingOffsets": start, "endingOffsets": end}
    wrong = pytest.raises(
        OptionError, match="partition 0 of stream 'a' ends at 1, before its start"
    )
    with nullcontext() if good else wrong:
        source_options(given, "batch")


def test_a_batch_cannot_start_at_the_end() -> None:
    with pytest.raises(OptionError, match="expected earliest or JSON"):
        source_options({**SERVER, "stream": "a", "startingOffsets": "latest"}, "batch")


def test_a_certificate_goes_with_its_key(tmp_path: Path) -> None:
    (tmp_path / "cert").touch()
    with pytest.raises(OptionError, match="go together"):
        connection_of({**SERVER, "certfile": str(tmp_path / "cert")})


def test_the_password_does_not_appear_in_plans_and_logs() -> None:
    given = {**SERVER, "topic": "a", "username": "u", "password": "secret"}
    assert "secret" not in repr(source_options(given, "batch"))


def test_sink() -> None:
    options = sink_options({**SERVER, "topic": "alerts", "qos": "2", "retain": "true"})
    assert (options.topic, options.qos, options.retain) == ("alerts", 2, True)
    assert sink_options(SERVER).qos == 1
    # A query with a name and a checkpoint: Spark hands over its own options.
    assert sink_options({**SERVER, "queryname": "a", "checkpointLocation": "/tmp"}).qos == 1


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("topic", "a/+", "has wildcards"),
        ("qos", "3", "'3' is not accepted; expected 0, 1 or 2"),
        ("qos", "two", "'two' is not accepted; expected 0, 1 or 2"),
        ("retain", "1", "expected true or false"),
        ("startingOffsets", "earliest", "is unknown"),
        ("server", "grpc://a:1,grpc://b:1", "names several nodes; a sink takes one"),
    ],
)
def test_wrong_options_of_a_sink(option: str, value: str, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        sink_options({**SERVER, option: value})


def test_conditions_are_json() -> None:
    given = {**SERVER, "stream": "a"}
    where = '[["temp", ">", 20.5], ["key", "null"]]'
    assert source_options({**given, "where": where}, "stream").where == where
    for wrong in ("temp > 20", "{}", '["temp"]', '[["temp"]]'):
        with pytest.raises(OptionError, match=r"expected JSON as \[\[COLUMN, OPERATOR, VALUE\]"):
            source_options({**given, "where": wrong}, "batch")
    with pytest.raises(OptionError, match="'where': '~' is no operator; there are: =, <,"):
        source_options({**given, "where": '[["qos", "~", 1]]'}, "batch")
    assert get_args(Operator) == OPERATORS
