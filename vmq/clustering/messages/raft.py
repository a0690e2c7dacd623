"""What nodes say to each other of replicated partitions: the groups' own envelopes, and rows for their leaders."""

from typing import Annotated, Final

from msgspec import Meta, field

from vmq.clustering.messages.base import NodeMessage, Question
from vmq.clustering.messages.publishes import RETAIN, check_topic

_Number = Annotated[int, Meta(ge=0, lt=1 << 62)]
_Name = Annotated[str, Meta(min_length=1, max_length=255)]

#: Rows of one `Produce`.
MAX_ROWS: Final = 16_384

_Count = Annotated[int, Meta(ge=1, le=MAX_ROWS)]
_Rows = Meta(min_length=1, max_length=MAX_ROWS)


class GroupEnvelope(NodeMessage, frozen=True, tag=90):
    """What the groups of a node say to those of another one (`vmq_cluster.raft.messages.Envelope`)."""

    raw: bytes


class Produce(NodeMessage, frozen=True, tag=91):
    """Rows of a producer for the leader of a group, numbered from `first`.

    With `DOTTED` in front of the store each has a dot: store, boot and number of runs of them, in order, and how many.
    """

    question: Question
    group: _Name
    store: _Name
    boot: _Name
    first: _Number
    topics: Annotated[list[bytes], _Rows]
    payloads: Annotated[list[bytes], _Rows]
    flags: Annotated[bytes, _Rows]
    #: Microseconds since 1970.
    times: Annotated[list[Annotated[int, Meta(ge=0, lt=1 << 62)]], _Rows]
    clients: Annotated[list[Annotated[str, Meta(max_length=65_535)]], _Rows]
    #: Of the rows that have any, by number.
    headers: Annotated[dict[int, list[tuple[str, str]]], Meta(max_length=MAX_ROWS)]
    #: It is enough that the leader has them.
    early: bool
    dots: Annotated[list[tuple[_Name, _Name, _Number, _Count]], Meta(max_length=MAX_ROWS)] = field(
        default_factory=list
    )

    def check(self) -> None:
        """Refuses what no client could have published."""
        count = len(self.topics)
        if not count == len(self.payloads) == len(self.flags) == len(self.times):
            raise ValueError("columns of several lengths")
        if count != len(self.clients) or any(not 0 <= each < count for each in self.headers):
            raise ValueError("columns of several lengths")
        if self.dots and sum(each[3] for each in self.dots) != count:
            raise ValueError("dots of other rows")
        if max(self.flags) > (RETAIN | 3):
            raise ValueError("flags that there are not")
        for topic in set(self.topics):
            check_topic(topic)


class Produced(NodeMessage, frozen=True, tag=92):
    """What became of them (`vmq.clustering.raft.produce`)."""

    question: Question
    status: Annotated[int, Meta(ge=0, le=3)]
    #: Earlier versions say who leads; the metadata do, and nobody reads it.
    leader: Annotated[str, Meta(max_length=255)] = ""
    #: How many of the rows are none of a stream, where others of them are safe.
    left_out: Annotated[int, Meta(ge=0, le=MAX_ROWS)] = 0
