"""Topics of which a service has the say, not the subscribers: they begin with `$jobs/`, `$delayed/` or `$replay/`.

    $jobs/QUEUE[;option=value]...                publish: add; subscribe: work, PUBACK acknowledges
    $jobs/QUEUE[;option=value].../manual/+       subscribe: work, delivered at $jobs/QUEUE/manual/JOBID
    $jobs/QUEUE/ack   /nack   /working           publish: job ids, one a line
    $jobs/QUEUE/error/CLIENTID                   what was refused and why: an ordinary topic
    $delayed/WHEN/TOPIC                          publish, to TOPIC when it is time
    $replay/FROM[;option=value].../FILTER        subscribe: what streams have kept, then what they take
    $share/GROUP/$stream/NAME[;option=value]...[/FILTER]   subscribe: share the partitions of a stream

Options belong to the level that they qualify. In names and values `+ # / ; = %` and control characters are
percent-encoded, and decoded once, after the levels and options are taken apart.
"""

import re
from datetime import datetime
from typing import Final

from vmq.mqtt.topics import split_shared

JOBS: Final = "$jobs/"
DELAYED: Final = "$delayed/"
REPLAY: Final = "$replay/"
STREAM: Final = "$stream/"
#: How rows of messages are named that no stream has: a job by its id, what a mapping makes of a message.
JOB_ROW: Final = "$job/"
MAPPING_ROW: Final = "$map/"
#: Up to so many WHEN is seconds from now, above it seconds since 1970.
LONGEST_WAIT: Final = 42_949_669
#: A minute is `m` here, as elsewhere, and `min` as in the configuration, where VerneMQ's `m` is a month.
_UNITS: Final = {"s": 1, "m": 60, "min": 60, "h": 3600, "d": 86_400}
_SPAN: Final = re.compile(r"(-?[0-9]{1,9})(min|[smhd])\Z")
_TIME: Final = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]{1,6})?)?Z\Z"
)
#: The last level of a topic of jobs.
MANUAL: Final = "manual"
VERBS: Final = ("ack", "nack", "working")
_ERROR: Final = "error"
_ENCODED: Final = "+#/;=%"
_HEXADECIMAL: Final = "0123456789abcdefABCDEF"


class SpecialTopicError(ValueError):
    """A topic that means nothing to the service that it is for."""


class JobTopic:
    """What a topic of jobs says."""

    def __init__(self, queue: str) -> None:
        #: The name of the queue, decoded; "" if that cannot be read.
        self.queue = queue
        self.options: dict[str, str] = {}
        #: "" to add or to work, `manual`, or one of `VERBS`.
        self.verb = ""

    def canonical(self) -> str:
        """The topic as plugins see it: without options, verbs and ids."""
        return JOBS + encode_level(self.queue)


class ReplayTopic:
    """What a topic of history says."""

    def __init__(self, start: str, options: dict[str, str], topic_filter: str) -> None:
        #: Where it begins, decoded.
        self.start = start
        self.options = options
        self.filter = topic_filter


def is_served(topic: str) -> bool:
    """Whether a service has the say of a topic or topic filter."""
    if not topic.startswith("$"):
        return False
    if not topic.startswith(JOBS):
        if topic.startswith("$share/"):
            return split_shared(topic)[1].startswith((JOBS, DELAYED, REPLAY, STREAM))
        return topic.startswith((DELAYED, REPLAY, STREAM))
    if topic.find("/error/", len(JOBS)) < 0:
        return True
    levels = topic.split("/")
    return len(levels) != 4 or levels[2] != _ERROR


def is_read(topic: str) -> bool:
    """Whether it is the streams' readers that have the say of a topic or filter that is served."""
    if topic.startswith("$share/"):
        topic = split_shared(topic)[1]
    return topic.startswith((REPLAY, STREAM))


def is_group(topic: str) -> bool:
    """Whether a filter makes its client a member of a consumer group."""
    return topic.startswith("$share/") and split_shared(topic)[1].startswith(STREAM)


class GroupTopic:
    """What a topic of a consumer group says."""

    def __init__(self, group: str, stream: str, options: dict[str, str], topic_filter: str) -> None:
        self.group = group
        #: The name of the stream, decoded.
        self.stream = stream
        self.options = options
        self.filter = topic_filter


def read_group_topic(topic: str) -> GroupTopic:
    """Takes a topic of a consumer group apart.

    Raises:
        SpecialTopicError: it is none.
    """
    group, rest = split_shared(topic)
    if not group or not rest.startswith(STREAM):
        raise SpecialTopicError(
            "a stream is read by a group; accepted: $share/GROUP/$stream/NAME/FILTER"
        )
    first, slash, topic_filter = rest[len(STREAM) :].partition("/")
    stream, *options = first.split(";")
    if not slash:
        topic_filter = "#"
    if not stream or not topic_filter:
        raise SpecialTopicError(
            "accepted: $share/GROUP/$stream/NAME and $share/GROUP/$stream/NAME/FILTER"
        )
    if topic_filter.startswith("$share/") or is_served(topic_filter):
        raise SpecialTopicError("FILTER is an ordinary one: " + topic_filter[:80])
    return GroupTopic(
        decode_level(group), decode_level(stream), read_options(options), topic_filter
    )


def read_replay_topic(topic: str) -> ReplayTopic:
    """Takes a topic of history apart.

    Raises:
        SpecialTopicError: it is none.
    """
    if not topic.startswith(REPLAY):
        raise SpecialTopicError("a replay is one client's own; accepted: $replay/FROM/FILTER")
    first, _, topic_filter = topic[len(REPLAY) :].partition("/")
    start, *options = first.split(";")
    if not start or not topic_filter:
        raise SpecialTopicError("accepted: $replay/FROM/FILTER")
    if topic_filter.startswith("$share/") or is_served(topic_filter):
        raise SpecialTopicError("FILTER is an ordinary one: " + topic_filter[:80])
    return ReplayTopic(decode_level(start), read_options(options), topic_filter)


def read_options(options: list[str]) -> dict[str, str]:
    """The options of a level, decoded.

    Raises:
        SpecialTopicError: one of them has no value, or is given twice.
    """
    found: dict[str, str] = {}
    for option in options:
        name, equals, value = option.partition("=")
        if not equals or name in found:
            raise SpecialTopicError(
                "an option is NAME=VALUE, and each is given once: " + option[:80]
            )
        found[name] = decode_level(value)
    return found


def read_job_topic(topic: str) -> JobTopic:
    """Takes a topic of jobs apart.

    Raises:
        SpecialTopicError: it is none.
    """
    if topic.startswith(DELAYED):
        raise SpecialTopicError("delayed messages are only published")
    if topic.startswith("$share/"):
        raise SpecialTopicError("a queue is shared by its workers anyway; accepted: $jobs/QUEUE")
    if not topic.startswith(JOBS):
        raise SpecialTopicError("only subscribed to: " + topic[:80])
    levels = topic[len(JOBS) :].split("/")
    first, *options = levels[0].split(";")
    found = JobTopic(decode_level(first))
    if not found.queue:
        raise SpecialTopicError("the name of a queue is missing")
    found.options = read_options(options)
    if len(levels) == 1:
        return found
    found.verb = levels[1]
    if levels[1] == MANUAL and len(levels) == 3 and levels[2] == "+":
        return found
    if levels[1] not in VERBS or len(levels) > 2 or found.options:
        what = "/".join(levels[1:])[:80]
        raise SpecialTopicError("not known: " + what + "; accepted: ack, nack, working, manual/+")
    return found


def read_delayed(topic: str, now: float) -> tuple[float, str]:
    """When what is published there is due, in seconds since 1970, and where it goes then.

    Raises:
        SpecialTopicError: one of both is wrong.
    """
    when, _, target = topic[len(DELAYED) :].partition("/")
    if not target:
        raise SpecialTopicError("accepted: $delayed/WHEN/TOPIC")
    if target.startswith(DELAYED):
        raise SpecialTopicError("what is delayed is not delayed again")
    return read_when(decode_level(when), now), target


def read_when(when: str, now: float) -> float:
    """A time in seconds since 1970. What is over is due at once.

    Raises:
        SpecialTopicError: it is none.
    """
    if when.isascii() and when.isdigit() and len(when) <= 11:
        number = int(when)
        return now + number if number <= LONGEST_WAIT else float(number)
    found = _read_time(when, now)
    if found is None:
        raise SpecialTopicError(
            "WHEN is seconds, a span as in 15m, or a time as in 2030-01-31T06:00:00Z: " + when[:80]
        )
    return found


def read_past(start: str, now: float) -> float | None:
    """The time at which history begins, in seconds since 1970; None: it is none.

    Raises:
        SpecialTopicError: it is to come, or there is no such time.
    """
    if start.isascii() and start.isdigit() and len(start) <= 11:
        found: float | None = float(start)
    else:
        found = _read_time(start, now)
    if found is not None and found > now:
        raise SpecialTopicError("this is a time to come: " + start[:80])
    return found


def _read_time(text: str, now: float) -> float | None:
    """A span from now or a time, in seconds since 1970; None: it is neither.

    Raises:
        SpecialTopicError: it is like a time and none.
    """
    span = _SPAN.match(text)
    if span is not None:
        return now + int(span[1]) * _UNITS[span[2]]
    if _TIME.match(text):
        try:
            return datetime.fromisoformat(text[:-1] + "+00:00").timestamp()
        except ValueError:
            raise SpecialTopicError("there is no such time: " + text) from None
    if text[:4].isdigit() and "T" in text:
        raise SpecialTopicError("a time ends in Z; an offset is not accepted: " + text[:80])
    return None


def queue_of(topic: str) -> str:
    """The name of the queue of a topic, whatever else is wrong with it; "" if that cannot be read."""
    try:
        return decode_level(topic[len(JOBS) :].split("/", maxsplit=1)[0].split(";", maxsplit=1)[0])
    except SpecialTopicError:
        return ""


def canonical(topic: str) -> str:
    """A topic or filter as plugins see it; what means nothing stays as it is."""
    if topic.startswith(DELAYED):
        _, slash, target = topic[len(DELAYED) :].partition("/")
        return canonical(target) if slash and not target.startswith(DELAYED) else topic
    try:
        if topic.startswith(REPLAY):
            return read_replay_topic(topic).filter
        if is_group(topic):
            return read_group_topic(topic).filter
        if topic.startswith(JOBS) and is_served(topic):
            return read_job_topic(topic).canonical()
    except SpecialTopicError:
        pass
    return topic


def history_of(topic: str) -> str:
    """Where the history begins that a filter asks for; "" if it asks for none."""
    if not topic.startswith(REPLAY):
        return ""
    try:
        return read_replay_topic(topic).start
    except SpecialTopicError:
        return ""


def group_of(topic: str) -> str:
    """The consumer group that a filter names; "" if it names none."""
    if not is_group(topic):
        return ""
    try:
        return read_group_topic(topic).group
    except SpecialTopicError:
        return ""


def with_filter(topic: str, topic_filter: str) -> str:
    """A filter of history, or of a group, with another FILTER."""
    if topic.startswith(REPLAY):
        start, _, _ = topic[len(REPLAY) :].partition("/")
        return REPLAY + start + "/" + topic_filter
    group, rest = split_shared(topic)
    stream, _, _ = rest[len(STREAM) :].partition("/")
    return f"$share/{group}/{STREAM}{stream}/{topic_filter}"


def encode_level(text: str) -> str:
    """A name as one level of a topic."""
    encoded = [
        f"%{ord(each):02X}" if each in _ENCODED or ord(each) < 32 or ord(each) == 127 else each
        for each in text
    ]
    return "".join(encoded)


def decode_level(text: str) -> str:
    """A name from a level of a topic.

    Raises:
        SpecialTopicError: a wildcard, or what follows % is no byte of UTF-8.
    """
    if "+" in text or "#" in text:
        raise SpecialTopicError("a wildcard stands here for nothing: " + text[:80])
    if "%" not in text:
        return text
    first, *others = text.split("%")
    raw = bytearray(first.encode())
    for part in others:
        code = part[:2]
        if len(code) < 2 or code[0] not in _HEXADECIMAL or code[1] not in _HEXADECIMAL:
            raise SpecialTopicError("after % come two hexadecimal digits: " + text[:80])
        raw.append(int(code, 16))
        raw += part[2:].encode()
    try:
        return bytes(raw).decode()
    except UnicodeDecodeError:
        raise SpecialTopicError("ill-formed UTF-8 in " + text[:80]) from None
