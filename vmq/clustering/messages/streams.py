"""Messages of streams on their way to the node that owns their partition, and what nodes ask each other of offsets."""

from typing import Annotated

from msgspec import Meta

from vmq.clustering.messages.base import NodeAnswer, NodeMessage, Question
from vmq.clustering.messages.publishes import MAX_HOPS, QOS, RETAIN, Topic, check_topic

StreamName = Annotated[str, Meta(min_length=1, max_length=100)]
_ClientId = Annotated[str, Meta(max_length=65_535)]
_Time = Annotated[int, Meta(ge=0, lt=1 << 62)]
_Hops = Annotated[int, Meta(ge=0, le=MAX_HOPS)]
_Partition = Annotated[int, Meta(ge=0, lt=1024)]
_Offset = Annotated[int, Meta(ge=-1, le=1 << 62)]
_Reached = Annotated[int, Meta(ge=0, le=1 << 62)]
_Since = Annotated[int, Meta(ge=0, lt=1 << 62)]

#: Messages of one run.
MAX_RUN = 1_000_000

#: Messages of one page, and bytes of all but the last of them.
MAX_PAGE_ROWS = 4096
MAX_PAGE_BYTES = 1 << 20


class Append(NodeMessage, frozen=True, tag=50, gc=False):
    """One message for a stream, with what the node knows of it to which it was published."""

    stream: StreamName
    topic: Topic
    payload: bytes
    flags: Annotated[int, Meta(ge=0, le=RETAIN | 2)]
    client_id: _ClientId
    #: Microseconds since 1970.
    time: _Time
    #: How many nodes it came to that do not own its partition.
    hops: _Hops = 0
    #: Since when its sender knows the receiver for the owner: that may be news to it.
    since: _Since = 0

    def check(self) -> None:
        """Refuses what no client could have published."""
        check_topic(self.topic)
        if self.flags & QOS == QOS:
            raise ValueError("QoS 3")


class AppendRun(NodeMessage, frozen=True, tag=51):
    """Messages at QoS 0 of one client and topic."""

    stream: StreamName
    topic: Topic
    payloads: Annotated[list[bytes], Meta(min_length=1, max_length=MAX_RUN)]
    client_id: _ClientId
    time: _Time
    hops: _Hops = 0

    def check(self) -> None:
        """Refuses what no client could have published."""
        check_topic(self.topic)


class Define(NodeMessage, frozen=True, tag=52):
    """What the stream is whose messages follow, for a node that may not have heard of it yet."""

    stream: StreamName
    definition: Annotated[bytes, Meta(max_length=1 << 20)]


class PartitionRows(NodeMessage, frozen=True, tag=53):
    """Rows of a partition as an Arrow IPC stream.

    Where `first` is no -1, they are the first of a copy that begins with that offset. Where `end` is no -1, they keep
    their offsets, which reach up to there: their own, as a column behind the others, or consecutive ones. What is
    missing before them was compacted.
    """

    stream: StreamName
    partition: _Partition
    first: _Offset
    rows: bytes
    end: _Offset = -1


class AskOffsets(NodeMessage, frozen=True, tag=54):
    """Where do your partitions of a stream begin and end; or, with a `time`, where does it begin."""

    question: Question
    stream: StreamName
    time: Annotated[int, Meta(ge=-1, le=1 << 62)] = -1


class Offsets(NodeAnswer, frozen=True, tag=55):
    """The answer: partition, first offset, the one behind the last, and bytes; or the first at that time twice."""

    partitions: Annotated[list[tuple[_Partition, _Offset, _Offset, _Offset]], Meta(max_length=1024)]
    #: How many messages each has; none are told of a time, nor by earlier versions.
    messages: Annotated[tuple[_Offset, ...], Meta(max_length=1024)] = ()


class HoldPartition(NodeMessage, frozen=True, tag=56):
    """Hold messages for a partition of mine, for so many seconds; 0: let them go. `number` names the question."""

    stream: StreamName
    partition: _Partition
    number: Question
    seconds: Annotated[float, Meta(ge=0, le=60)]


class PartitionHeld(NodeMessage, frozen=True, tag=57):
    """The answer: all that I have sent you for that partition is before this."""

    number: Question


class AskCopy(NodeMessage, frozen=True, tag=73):
    """Have you the copy of a partition that I give you, whole up to here? If it `counts`, it is yours from now on."""

    question: Question
    stream: StreamName
    partition: _Partition
    end: _Reached
    counts: bool


class CopyFound(NodeAnswer, frozen=True, tag=74):
    """The answer."""

    is_whole: bool


class AskPage(NodeMessage, frozen=True, tag=58):
    """Some messages of a partition of yours: see `vmq.streams.places.PageQuery`."""

    question: Question
    stream: StreamName
    partition: _Partition
    start: _Reached
    end: _Reached
    rows: Annotated[int, Meta(ge=1, le=MAX_PAGE_ROWS)]
    size: Annotated[int, Meta(ge=0, le=MAX_PAGE_BYTES)]
    filter: Annotated[str, Meta(min_length=1, max_length=32_768)] | None = None
    payload_bytes: Question = 0


class PageFound(NodeAnswer, frozen=True, tag=59):
    """The answer: messages in msgpack, and where the next ones begin; or what is wrong with the partition."""

    next: _Reached = 0
    messages: bytes = b""
    error: Annotated[str, Meta(max_length=4096)] = ""
