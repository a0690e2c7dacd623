"""What a client of MQTT asks for with `$share/GROUP/$stream/NAME[;option=value].../FILTER`."""

from typing import Final

from vmq.config.mappings import MAPPED
from vmq.mqtt.packets import ProtocolError
from vmq.mqtt.special import SpecialTopicError, read_group_topic
from vmq.mqtt.topics import check_filter
from vmq.streams.catalog import Stream
from vmq.streams.reader_places import CursorKey
from vmq.streams.replay.expressions import check_expression
from vmq.streams.replay.request import LATEST, PREFETCH, read_prefetch, read_start, stream_named

_OPTIONS: Final = ("from", "where", "prefetch")
_LONGEST_NAME: Final = 100
#: How the owner of a group's cursor begins.
OWNER: Final = "group "


class GroupRequest:
    """Which group, and which rows of which stream.

    Args:
        text: the whole topic filter.
        now: seconds since 1970.
        is_mapping: it is a mapping of this broker that asks.

    Raises:
        SpecialTopicError: it means nothing; the text says what is accepted.
    """

    #: Topics and RETAIN are those of the rows, without more.
    prefix = b""
    as_published = False

    def __init__(self, text: str, now: float, *, is_mapping: bool = False) -> None:
        topic = read_group_topic(text)
        options = topic.options
        for name in options:
            if name not in _OPTIONS:
                accepted = ", ".join(_OPTIONS)
                raise SpecialTopicError(
                    f"not an option of a group: {name[:80]}; accepted: {accepted}"
                )
        if len(topic.group) > _LONGEST_NAME:
            raise SpecialTopicError(f"the name of a group has at most {_LONGEST_NAME} characters")
        if topic.group.startswith(MAPPED) and not is_mapping:
            raise SpecialTopicError(
                f"groups that begin with {MAPPED!r} are those of mappings; accepted: another name"
            )
        self.group = topic.group
        self.stream = topic.stream
        self.filter = topic.filter
        try:
            check_filter(self.filter)
        except ProtocolError as error:
            raise SpecialTopicError(f"FILTER is no topic filter: {error}") from None
        self.start: str | int = read_start(options.get("from", LATEST), now)
        self.where = options.get("where", "")
        if "where" in options:
            check_expression(self.where)
        self.prefetch = read_prefetch(options.get("prefetch", str(PREFETCH)))

    def key(self) -> CursorKey:
        """Under what its place is kept.

        On one cursor a member of `a/#` would skip the rows of `b/#` for ever: what is read is part of it.
        """
        return CursorKey(OWNER + self.group, f"{self.stream}\0{self.filter}\0{self.where}")

    def stream_of(self, streams: dict[str, Stream]) -> Stream:
        """The stream.

        Raises:
            SpecialTopicError: there is none of this name, or it keeps nothing of FILTER.
        """
        return stream_named(streams, self.stream, self.filter)
