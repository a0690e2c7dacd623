"""What a client of MQTT asks for with `$replay/FROM[;option=value].../FILTER`.

FROM      earliest, latest, a span as in -15m, seconds since 1970, a time as in 2030-01-31T06:00:00Z,
or @NAME: a cursor that the broker keeps
stream    which stream; else the first by name that keeps all topics of FILTER
from      where a cursor begins that is new (latest)
as        what stands before the topics, with a slash
retain    published: RETAIN as it was published; else it is 0 [MQTT-3.3.1-9]
where     an expression of CEL: rows for which it is not true are left out
prefetch  messages at QoS 1 that may be unacknowledged
"""

from typing import Final

from vmq.mqtt.packets import ProtocolError
from vmq.mqtt.special import REPLAY, SpecialTopicError, read_past, read_replay_topic
from vmq.mqtt.topics import check_filter, covers
from vmq.streams.catalog import Stream
from vmq.streams.replay.expressions import check_expression
from vmq.streams.tail import keep_some, why_none

EARLIEST: Final = "earliest"
LATEST: Final = "latest"
#: Messages at QoS 1 that may be unacknowledged, and how many may be asked for.
PREFETCH: Final = 1000
_LONGEST_NAME: Final = 100
_LONGEST_PREFIX: Final = 1024
_OPTIONS: Final = ("stream", "from", "as", "retain", "where", "prefetch")
_FORMS: Final = (
    "FROM is earliest, latest, a span as in -15m, seconds since 1970, a time as in "
    "2030-01-31T06:00:00Z, or @NAME"
)


class ReplayRequest:
    """Which rows, from where on, and how they are delivered.

    Args:
        text: the whole topic filter.
        now: seconds since 1970.

    Raises:
        SpecialTopicError: it means nothing; the text says what is accepted.
    """

    def __init__(self, text: str, now: float) -> None:
        topic = read_replay_topic(text)
        options = topic.options
        for name in options:
            if name not in _OPTIONS:
                accepted = ", ".join(_OPTIONS)
                raise SpecialTopicError(
                    f"not an option of {REPLAY}: {name[:80]}; accepted: {accepted}"
                )
        self.filter = topic.filter
        try:
            check_filter(self.filter)
        except ProtocolError as error:
            raise SpecialTopicError(f"FILTER is no topic filter: {error}") from None
        #: The name of the cursor; "": it has none.
        self.name = topic.start[1:] if topic.start.startswith("@") else ""
        start = topic.start
        if self.name:
            if len(self.name) > _LONGEST_NAME:
                raise SpecialTopicError(
                    f"the name of a cursor has at most {_LONGEST_NAME} characters"
                )
            start = options.get("from", LATEST)
        elif "from" in options:
            raise SpecialTopicError("from= is where a cursor begins, which is @NAME")
        #: `earliest`, `latest`, or microseconds since 1970.
        self.start: str | int = read_start(start, now)
        self.stream = options.get("stream", "")
        self.prefix = read_prefix(options.get("as", ""))
        retain = options.get("retain", "")
        if retain not in ("", "published"):
            raise SpecialTopicError(
                "retain= is not known: " + retain[:80] + "; accepted: published"
            )
        self.as_published = bool(retain)
        self.where = options.get("where", "")
        if "where" in options:
            check_expression(self.where)
        self.prefetch = read_prefetch(options.get("prefetch", str(PREFETCH)))

    def stream_of(self, streams: dict[str, Stream]) -> Stream:
        """The stream that has it, or the one that was named if it may have some of it.

        Raises:
            SpecialTopicError: there is none.
        """
        if self.stream:
            return stream_named(streams, self.stream, self.filter)
        for _, each in sorted(streams.items()):
            if each.fed and any(covers(wider, self.filter) for wider in each.options.filters):
                return each
        some = [name for name, each in sorted(streams.items()) if keeps_some(each, self.filter)]
        raise SpecialTopicError(
            f"no stream keeps all topics of {self.filter[:200]}; stream=NAME names one that keeps some: "
            + (", ".join(some[:20]) or "there is none")
        )


def keeps_some(stream: Stream, topics: str) -> bool:
    """Whether a message of a stream may be of these topics."""
    return keep_some(stream.options.filters, topics)


def stream_named(streams: dict[str, Stream], name: str, topics: str) -> Stream:
    """A stream that may have messages of these topics.

    Raises:
        SpecialTopicError: there is none of this name, or no topic of it matches: its reader would wait for ever.
    """
    found = streams.get(name)
    if found is None:
        there = ", ".join(sorted(streams)[:20]) or "none"
        raise SpecialTopicError(f"there is no stream {name[:100]!r}; there are: {there}")
    if not keeps_some(found, topics):
        raise SpecialTopicError(why_none(name, found.options.filters, topics))
    return found


def read_start(start: str, now: float) -> str | int:
    """`earliest`, `latest`, or a time in microseconds since 1970.

    Raises:
        SpecialTopicError: it is none of them, or a time to come.
    """
    if start in (EARLIEST, LATEST):
        return start
    found = read_past(start, now)
    if found is None:
        raise SpecialTopicError(f"{_FORMS}: {start[:80]}")
    return max(0, round(found * 1_000_000))


def read_prefix(prefix: str) -> bytes:
    """What stands before topics, its slash included.

    Raises:
        SpecialTopicError: no topic begins with it.
    """
    if len(prefix) > _LONGEST_PREFIX or prefix.startswith("$") or "\0" in prefix:
        raise SpecialTopicError(
            f"as= begins topics: without $ in front, of {_LONGEST_PREFIX} characters at most"
        )
    return prefix.encode() + b"/" if prefix else b""


def read_prefetch(text: str) -> int:
    """How many messages may be unacknowledged.

    Raises:
        SpecialTopicError: it is no number of messages.
    """
    if text.isascii() and text.isdigit() and len(text) < 6 and 1 <= int(text) <= PREFETCH:
        return int(text)
    raise SpecialTopicError(f"prefetch is 1 to {PREFETCH}")
