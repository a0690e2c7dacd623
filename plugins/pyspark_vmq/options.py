"""The options of `format("vmq")`, read and checked once. Names follow Spark's Kafka source."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Literal
from urllib.parse import urlsplit

from pyspark_vmq.errors import OptionError
from pyspark_vmq.offsets import EARLIEST, LATEST, Offsets, from_option

Use = Literal["batch", "stream", "sink"]

CONNECTION: Final = (
    "server",
    "username",
    "password",
    "cafile",
    "certfile",
    "keyfile",
    "retryTimeout",
)
SOURCE: Final = (
    "stream",
    "topic",
    "startingOffsets",
    "startingTimestamp",
    "endingOffsets",
    "endingTimestamp",
    "maxOffsetsPerTrigger",
    "minPartitions",
    "failOnDataLoss",
    "localReads",
    "where",
)
SINK: Final = ("topic", "qos", "retain")
#: What Spark hands over besides: its own options, in lower case.
OF_SPARK: Final = frozenset({"path", "checkpointlocation", "queryname"})

ENDS: Final = {"earliest": EARLIEST, "latest": LATEST}

#: What may be between a column and a value: the broker's own list (vmq.streams.log.conditions).
OPERATORS: Final = ("=", "<", "<=", ">", ">=", "in", "null", "not null", "starts with")

#: Milliseconds since 1970 at the end of the year 9999.
LAST_MOMENT: Final = 253_402_300_799_999
#: Numbers that are seconds of this century. As milliseconds they are in 1970, and everything would be read.
_SECONDS: Final = range(946_684_800, 4_102_444_800)


@dataclass(frozen=True)
class Connection:
    """How to reach the broker's Flight server. Holds no socket: it travels to the executors."""

    server: str
    username: str = ""
    password: str = ""
    cafile: str = ""
    certfile: str = ""
    keyfile: str = ""
    #: Seconds for which a broker that cannot be reached is tried again.
    retry_timeout: float = 60.0
    #: Other nodes of its cluster, each of which is asked when the one before it does not answer.
    others: tuple[str, ...] = ()
    #: The topics that are read, which the user need have a right to; empty: all of a stream.
    topics: str = ""

    def __repr__(self) -> str:
        # Spark prints objects in plans and logs.
        return f"Connection({self.server!r}, username={self.username!r})"


@dataclass(frozen=True)
class SourceOptions:
    """What to read."""

    connection: Connection
    #: Names of streams; empty: found by the topic.
    streams: tuple[str, ...]
    #: The MQTT topic filter that messages must match; empty: all.
    topic: str
    #: An end (EARLIEST, LATEST), offsets, or milliseconds since 1970.
    starting: int | Offsets | None
    starting_timestamp: int | None
    ending: int | Offsets | None
    ending_timestamp: int | None
    max_offsets: int | None
    #: Tasks to make at least; None: as many as pay.
    min_partitions: int | None
    fail_on_data_loss: bool
    #: Read the files of a broker on the same machine instead of having them sent.
    local_reads: bool = True
    #: Conditions that the broker looks at, as JSON: columns, operators and values; empty: none.
    where: str = ""


@dataclass(frozen=True)
class SinkOptions:
    """What to publish, and how where no column says it."""

    connection: Connection
    topic: str
    qos: int
    retain: bool


def connection_of(given: Mapping[str, str]) -> Connection:
    """The options that say how to reach the broker.

    Raises:
        OptionError: no server, a URL of another scheme, files that are not there.
    """
    accepted = "grpc://HOST:PORT or grpc+tls://HOST:PORT"
    servers = [each.strip() for each in given.get("server", "").split(",") if each.strip()]
    if not servers:
        raise OptionError("server", f"is missing; expected {accepted}")
    for server in servers:
        url = urlsplit(server)
        try:
            port = url.port
        except ValueError:
            port = None
        if url.scheme not in {"grpc", "grpc+tcp", "grpc+tls"} or not url.hostname or not port:
            raise OptionError("server", f"{server!r} is not accepted; expected {accepted}")
    for option in ("cafile", "certfile", "keyfile"):
        path = given.get(option)
        if path and not Path(path).is_file():
            raise OptionError(option, f"there is no file {path!r}")
    if bool(given.get("certfile")) != bool(given.get("keyfile")):
        raise OptionError("certfile", "and 'keyfile' go together: give both or neither")
    return Connection(
        servers[0],
        given.get("username", ""),
        given.get("password", ""),
        given.get("cafile", ""),
        given.get("certfile", ""),
        given.get("keyfile", ""),
        float(_number(given, "retryTimeout", 60, least=0)),
        tuple(servers[1:]),
    )


def source_options(given: Mapping[str, str], use: Use) -> SourceOptions:
    """All options of a source.

    Raises:
        OptionError: names the option, its value and what is accepted.
    """
    _check_names(given, (*CONNECTION, *SOURCE))
    streams = tuple(name.strip() for name in given.get("stream", "").split(",") if name.strip())
    topic = given.get("topic", "")
    if topic:
        _check_filter(topic)
    if use == "stream":
        for option in ("endingOffsets", "endingTimestamp"):
            if option in given:
                raise OptionError(option, "has a meaning for spark.read only, not for a stream")
    for side in ("starting", "ending"):
        if side + "Offsets" in given and side + "Timestamp" in given:
            raise OptionError(f"{side}Timestamp", f"and '{side}Offsets' exclude each other")
    starting = _place(
        given, "startingOffsets", (EARLIEST, LATEST) if use == "stream" else (EARLIEST,)
    )
    ending = _place(given, "endingOffsets", (LATEST,))
    _check_order(starting, ending)
    options = SourceOptions(
        replace(connection_of(given), topics=topic),
        streams,
        topic,
        starting,
        _timestamp(given, "startingTimestamp"),
        ending,
        _timestamp(given, "endingTimestamp"),
        _number(given, "maxOffsetsPerTrigger", 0, least=1) or None,
        _number(given, "minPartitions", 0, least=1) or None,
        _truth(given, "failOnDataLoss", default=True),
        _truth(given, "localReads", default=True),
        _conditions(given),
    )
    # Last: who has written something wrong is told of that, not of what else there could be.
    if not streams and not topic:
        raise OptionError("topic", "is missing: give an MQTT topic filter, or 'stream'")
    return options


def sink_options(given: Mapping[str, str]) -> SinkOptions:
    """All options of a sink.

    Raises:
        OptionError: names the option, its value and what is accepted.
    """
    _check_names(given, (*CONNECTION, *SINK))
    connection = connection_of(given)
    if connection.others:
        problem = "names several nodes; a sink takes one, which remembers what it has published"
        raise OptionError("server", problem)
    topic = given.get("topic", "")
    if topic and ("+" in topic or "#" in topic):
        raise OptionError("topic", f"{topic!r} has wildcards; a message goes to one topic")
    qos = given.get("qos", "1").strip()
    if qos not in {"0", "1", "2"}:
        raise OptionError("qos", f"{qos!r} is not accepted; expected 0, 1 or 2")
    return SinkOptions(connection, topic, int(qos), _truth(given, "retain", default=False))


def _conditions(given: Mapping[str, str]) -> str:
    """Rows that the broker is to send; it knows the columns."""
    text = given.get("where")
    if text is None:
        return ""
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, list) or not all(
        isinstance(each, list) and 2 <= len(each) <= 3 for each in found
    ):
        raise OptionError(
            "where",
            f"{text!r:.200} is not accepted; expected JSON as [[COLUMN, OPERATOR, VALUE], ...], "
            'such as [["temp", ">", 20.5], ["device", "in", ["d1", "d2"]]]',
        )
    for _, operator, *_ in found:
        if operator not in OPERATORS:
            problem = f"{operator!r:.50} is no operator; there are: {', '.join(OPERATORS)}"
            raise OptionError("where", problem)
    return text


def _check_names(given: Mapping[str, str], known: tuple[str, ...]) -> None:
    """A misspelt option must not pass silently. Spark's own are left alone."""
    lower = {name.lower() for name in known}
    for name in given:
        if name.lower() not in lower and name.lower() not in OF_SPARK:
            raise OptionError(name, f"is unknown; there are: {', '.join(known)}")


def _check_filter(topic: str) -> None:
    """The wildcards stand where MQTT allows them [MQTT-4.7.1-2] [MQTT-4.7.1-3]."""
    levels = topic.split("/")
    for index, level in enumerate(levels):
        wrong = (level != "#" and "#" in level) or (level == "#" and index + 1 < len(levels))
        if wrong or (level != "+" and "+" in level):
            raise OptionError(
                "topic",
                f"{topic!r} is no MQTT topic filter: '+' stands for one whole level, "
                "'#' for all that follow, at the end",
            )


def _place(given: Mapping[str, str], option: str, ends: tuple[int, ...]) -> int | Offsets | None:
    """`earliest`, `latest` or JSON."""
    text = given.get(option)
    if text is None:
        return None
    named = {name: end for name, end in ENDS.items() if end in ends}
    if text.strip().lower() in named:
        return named[text.strip().lower()]
    if text.strip().startswith("{"):
        return from_option(option, text, ends=ends)
    raise OptionError(
        option, f"{text!r} is not accepted; expected {', '.join(named)} or JSON with offsets"
    )


def _check_order(starting: int | Offsets | None, ending: int | Offsets | None) -> None:
    """A partition does not end before its start."""
    if not isinstance(starting, dict) or not isinstance(ending, dict):
        return
    for stream, partitions in ending.items():
        for number, end in partitions.items():
            begin = starting.get(stream, {}).get(number, EARLIEST)
            if 0 <= end < begin:
                raise OptionError(
                    "endingOffsets",
                    f"partition {number} of stream '{stream}' ends at {end}, before its start {begin}",
                )


def _number(given: Mapping[str, str], option: str, default: int, *, least: int) -> int:
    text = given.get(option)
    if text is None:
        return default
    try:
        value = int(text)
    except ValueError:
        value = least - 1
    if value < least:
        raise OptionError(option, f"{text!r} is not accepted; expected a whole number from {least}")
    return value


def _truth(given: Mapping[str, str], option: str, *, default: bool) -> bool:
    text = given.get(option)
    if text is None:
        return default
    value = text.strip().lower()
    if value not in {"true", "false"}:
        raise OptionError(option, f"{text!r} is not accepted; expected true or false")
    return value == "true"


def _timestamp(given: Mapping[str, str], option: str) -> int | None:
    """Milliseconds since 1970; a time without a zone is UTC."""
    text = given.get(option)
    if text is None:
        return None
    try:
        if text.strip().isdigit():
            milliseconds = int(text)
        else:
            moment = datetime.fromisoformat(text.strip())
            if moment.tzinfo is None:
                moment = moment.replace(tzinfo=UTC)
            milliseconds = int(moment.timestamp() * 1000)
    except (ValueError, OverflowError):
        milliseconds = -1
    if milliseconds in _SECONDS and text.strip().isdigit():
        raise OptionError(
            option, f"{text!r} is not accepted; expected milliseconds since 1970, not seconds"
        )
    if not 0 <= milliseconds <= LAST_MOMENT:
        raise OptionError(
            option,
            f"{text!r:.100} is not accepted; expected milliseconds since 1970 or a time like "
            "2026-01-31T12:00:00Z",
        )
    return milliseconds
