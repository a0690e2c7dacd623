"""Mappings: what becomes of messages and jobs besides, by an expression."""

import re
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Annotated, Final, Literal

from msgspec import Meta, Struct

from vmq.config.expressions import CelError, compiled
from vmq.mqtt.packets import ProtocolError
from vmq.mqtt.special import (
    DELAYED,
    JOBS,
    STREAM,
    GroupTopic,
    SpecialTopicError,
    is_served,
    read_delayed,
    read_group_topic,
    read_job_topic,
    read_past,
)
from vmq.mqtt.topics import check_filter, decode_filter, decode_topic_name

#: What stands in a target for the value of an expression.
EXPANSION: Final = re.compile(r"\$\{([^{}]*)\}")
_FROM: Final = "from"
#: How the name of a mapping begins among the streams that a topic finds, and among groups; no stream has such a name,
#: and nobody else makes such a group.
MAPPED: Final = "mapping "
_LONGEST_NAME: Final = 92
#: Of the streams that there are, the filters; their names may be others by the time that a mapping reads.
StreamFilters = Mapping[str, Sequence[str]]
_NO_STREAMS: Final[StreamFilters] = MappingProxyType({})


class MappingOptions(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One mapping."""

    # `from` is a word of the language, so that it cannot be declared as the others are.
    __annotations__[_FROM] = Annotated[
        str,
        Meta(
            description="What it takes: the messages of a topic filter, as in sensors/+/temp; the jobs of a queue "
            "or group, as in $jobs/orders or $jobs/orders@audit, whose worker it is; or the messages that a stream has "
            "kept, as in $stream/sensors;from=earliest/sensors/#, as a consumer group of its own, each once."
        ),
    ]
    to: Annotated[
        list[str],
        Meta(
            min_length=1,
            max_length=16,
            description="Where that goes: topics, and queues of jobs with their options, as in $jobs/alerts;retry=60. "
            "${EXPRESSION} stands for one level, as in alerts/${level(2)}.",
            extra={"accepts": 'a list of topics, as in ["$jobs/alerts", "alerts/${level(2)}"]'},
        ),
    ]
    where: Annotated[
        str | None,
        Meta(
            description="Which of it: an expression in CEL, as in json.value > 30.0 && level(2) != 'test'. Unset: all."
        ),
    ] = None
    payload: Annotated[
        str | None,
        Meta(
            description="What it becomes: an expression in CEL, as in {'site': level(2), 'value': json.value}. A text "
            "is taken as it is, anything else as JSON. Unset: what came."
        ),
    ] = None
    on_error: Annotated[
        Literal["skip", "dead"],
        Meta(
            description="A message that an expression fails for, or a target refuses: it is counted, and goes on "
            "without this mapping, or is a dead letter in the queue of the mapping's name (NAME!dead), too."
        ),
    ] = "skip"
    mountpoint: Annotated[str, Meta(description="The topic tree of both.")] = ""
    enabled: Annotated[bool, Meta(description="Whether it is in force.")] = True


def source_of(options: MappingOptions) -> str:
    """What a mapping takes."""
    source: str = getattr(options, _FROM)
    return source


def stream_source(source: str) -> GroupTopic:
    """The stream that a mapping reads, and what of it.

    Raises:
        SpecialTopicError: it says something else; the text says what is accepted.
    """
    topic = read_group_topic("$share/mapping/" + source)
    for name in topic.options:
        if name != "from":
            raise SpecialTopicError(f"not an option here: {name[:80]}; accepted: from")
    start = topic.options.get("from", "latest")
    if start not in ("earliest", "latest") and read_past(start, time.time()) is None:
        raise SpecialTopicError(
            "from is earliest, latest, a span as in -15m, seconds since 1970, or a time as in "
            "2030-01-31T06:00:00Z: " + start[:80]
        )
    check_filter(topic.filter)
    return topic


def mapping_problems(
    mappings: Mapping[str, MappingOptions],
    functions: Collection[str] | None = (),
    streams: StreamFilters = _NO_STREAMS,
) -> Iterator[tuple[str, str]]:
    """What is wrong with mappings: the key below the section, and what.

    Args:
        mappings: by name.
        functions: names of those that plugins bring; None: that is not known yet.
        streams: those that are known.
    """
    for name, options in mappings.items():
        flaw = _source_flaw(source_of(options))
        if flaw:
            yield f"{name}.{_FROM}", flaw
        elif source_of(options).startswith(STREAM):
            if options.mountpoint:
                what = "streams keep no messages under a mountpoint; accepted: none"
                yield f"{name}.mountpoint", what
            if len(name) > _LONGEST_NAME:
                what = (
                    f"a group is called by the mapping's name; accepted: {_LONGEST_NAME} characters"
                )
                yield f"{name}.{_FROM}", what
        for option in ("where", "payload"):
            text = getattr(options, option)
            if text is not None and (flaw := _expression_flaw(text, functions)):
                yield f"{name}.{option}", flaw
        for target in options.to:
            if flaw := _target_flaw(target, functions):
                yield f"{name}.to", f"{target}: {flaw}"
    yield from circles(mappings, streams)


def _source_flaw(source: str) -> str:
    try:
        if source.startswith(JOBS):
            topic = read_job_topic(source)
            if topic.verb or topic.options or topic.queue.startswith("$"):
                return "accepted: a topic filter, or $jobs/QUEUE without options"
        elif source.startswith(STREAM):
            stream_source(source)
        elif source.startswith("$"):
            return (
                "accepted: a topic filter that does not begin with $, $jobs/QUEUE, or $stream/NAME"
            )
        else:
            decode_filter(source.encode())
    except (SpecialTopicError, ProtocolError) as error:
        return str(error)
    return ""


def _expression_flaw(text: str, functions: Collection[str] | None) -> str:
    try:
        compiled(text, functions)
    except CelError as error:
        return str(error)
    return ""


def _target_flaw(target: str, functions: Collection[str] | None) -> str:
    for text in EXPANSION.findall(target):
        if flaw := _expression_flaw(text, functions):
            return flaw
    plain = EXPANSION.sub("x", target)
    if "${" in plain:
        return "${ without }; accepted: ${EXPRESSION}, without braces in it"
    return target_flaw(plain)


def target_flaw(plain: str) -> str:
    """Why nothing can be sent there from inside the broker: to a topic, a queue of jobs, or later to one of both."""
    try:
        if plain.startswith(DELAYED):
            plain = read_delayed(plain, 0.0)[1]
        if plain.startswith(JOBS):
            topic = read_job_topic(plain)
            if topic.verb or topic.queue.startswith("$") or topic.queue.endswith("!dead"):
                return "accepted: $jobs/QUEUE[;option=value]"
        elif is_served(plain) or plain.startswith("$"):
            return "accepted: a topic, $jobs/QUEUE, or $delayed/WHEN/ and one of these"
        else:
            decode_topic_name(plain.encode())
    except (SpecialTopicError, ProtocolError) as error:
        return str(error)
    return ""


# Circles


def circles(
    mappings: Mapping[str, MappingOptions], streams: StreamFilters
) -> Iterator[tuple[str, str]]:
    """Mappings that may feed themselves, by way of others or not: a message would go round for ever."""
    after = {
        name: [
            other
            for other, its in mappings.items()
            if its.mountpoint == each.mountpoint
            and any(_may_come_to(target, source_of(its), streams) for target in each.to)
        ]
        for name, each in mappings.items()
    }
    for name in mappings:
        seen: set[str] = set()
        ahead = list(after[name])
        while ahead:
            other = ahead.pop()
            if other == name:
                yield (
                    f"{name}.to",
                    "what it sends may come to itself again; a mapping feeds no circle",
                )
                break
            if other not in seen:
                seen.add(other)
                ahead += after[other]


def _may_come_to(target: str, source: str, streams: StreamFilters) -> bool:
    """Whether what goes to a target may be what a mapping takes."""
    if not source.startswith(STREAM):
        return _may_feed(target, source)
    try:
        topic = stream_source(source)
    except (SpecialTopicError, ProtocolError):
        return False  # that is told by itself
    kept = streams.get(topic.stream, ())
    return _may_feed(target, topic.filter) and any(_may_feed(target, each) for each in kept)


def _may_feed(target: str, source: str) -> bool:
    """Whether what goes to a target may be what a source takes."""
    target = EXPANSION.sub("+", target)
    if target.startswith(DELAYED):
        target = target[len(DELAYED) :].partition("/")[2]
    if source.startswith(JOBS) != target.startswith(JOBS):
        return False
    if source.startswith(JOBS):
        queue = target.partition(";")[0]
        # The groups of a queue have what it is sent.
        return queue in (source, source.partition("@")[0]) or "+" in queue
    mine, wanted = target.split("/"), source.split("/")
    for place, level in enumerate(wanted):
        if level == "#":
            return True
        if place >= len(mine) or not (level == "+" or "+" in mine[place] or level == mine[place]):
            return False
    return len(mine) == len(wanted)
