"""What the replicas of a group say to each other, and the batches that their logs are made of.

One envelope carries everything that a pass has for another node, of all groups. Sizes are checked when it is decoded.
"""

from typing import Annotated, Final

import msgspec
from msgspec import Meta, Struct

from vmq_cluster.errors import MalformedError
from vmq_cluster.messages import Name, Number

MAX_ITEMS: Final = 100_000
MAX_BATCHES: Final = 16_384
MAX_BODY: Final = 60 * 1024 * 1024

Body = Annotated[bytes, Meta(max_length=MAX_BODY)]

#: Kinds of batches. `ROWS` is of producers, the others are of the leader: control batches.
ROWS: Final = 0
#: A new leader; nothing of earlier terms counts as committed before it.
LEADER: Final = 1
#: The group's members from here on.
MEMBERS: Final = 2
#: The state of the log so far: the first batch of every segment.
STATE: Final = 3
#: A new leader that was elected though a majority may have forgotten: rows may be missing before it.
UNCLEAN: Final = 4
#: Stores whose producers are forgotten, by the meta group's decision.
RETIRED: Final = 5
#: Rows before an offset are compacted, and tombstones gone that are older than a time, by the leader's decision.
COMPACT: Final = 6
#: Committed offsets of which nobody has the rows whole any more are given up, by an operator's word.
HOLE: Final = 7
#: In the place of the first of them, where they were: the state of the log, for a part of it may have been there.
BLANK: Final = 8


class Mark(Struct, array_like=True, frozen=True):
    """Whose rows a batch has: `count` of them, numbered from `first`, by one boot of one store."""

    store: Name
    boot: Name
    first: Number
    count: Number

    @property
    def end(self) -> int:
        return self.first + self.count


class Batch(Struct, array_like=True, frozen=True):
    """One batch of a log: offsets from `offset` on, `span` of them. The body is the log's own affair."""

    offset: Number
    span: Annotated[int, Meta(ge=1)]
    term: Number
    kind: Annotated[int, Meta(ge=0, le=BLANK)]
    marks: Annotated[tuple[Mark, ...], Meta(max_length=MAX_BATCHES)]
    body: Body

    @property
    def end(self) -> int:
        return self.offset + self.span


class SealedFile(Struct, array_like=True, frozen=True):
    """A segment that is complete and committed, as a file: what is fetched to catch up."""

    first: Number
    end: Number
    size: Number
    digest: Annotated[bytes, Meta(max_length=64)]
    #: The term of its last batch, and of the batch before its first one.
    last_term: Number
    before_term: Number


class Message(Struct, array_like=True):
    """One of the messages below. Each begins with a term: the sender's, unless it says otherwise."""

    term: Number


class Ask(Message, tag=1):
    """Would you, or with `pre` false: do you, give me your vote for this term? My log ends here."""

    last_term: Number
    end: Number
    #: Nothing is decided yet: the term is the one that would come.
    pre: bool
    #: The leader asked for it.
    transfer: bool = False
    #: The sender may have forgotten; `unclean`: it stands nevertheless, for so may a majority.
    abstains: bool = False
    unclean: bool = False
    #: The voters as its log names them, which may be one more or one less than in the receiver's.
    voters: Annotated[tuple[Name, ...], Meta(max_length=255)] = ()
    #: Which of them abstain, as far as it knows.
    abstainers: Annotated[tuple[Name, ...], Meta(max_length=255)] = ()


class Vote(Message, tag=2):
    """The answer; granted before the election, it has the term that would come."""

    granted: bool
    pre: bool
    abstains: bool
    #: How the voter's log ends.
    last_term: Number = 0
    end: Number = 0


class Append(Message, tag=3):
    """Batches of the leader's log from `prev` on, or none: then it says that the leader lives."""

    prev: Number
    #: The term of the batch that ends at `prev`.
    prev_term: Number
    batches: Annotated[list[Batch], Meta(max_length=MAX_BATCHES)]
    commit: Number
    #: The log's first offset, by the leader's decision.
    first: Number
    #: What the leader counts to learn whether it still leads.
    round: Number
    #: (offset, term) of the last unclean election in the log: what was committed from there on counts no more.
    unclean: tuple[Number, Number]
    #: Nothing is under way: the link's liveness stands for the leader from now on.
    quiet: bool = False
    #: (life of the receiver, offset): who may have forgotten has what it may have had from there on.
    enough: tuple[Number, Number] | None = None
    #: Up to where the leader itself has its log as durable as promised.
    safe: Number = 0


class Ack(Message, tag=4):
    """What a replica has of the leader's log: agreed up to `end`, as durable as promised up to `safe`.

    Not `agreed`: the logs differ at the offset asked for; they may agree at `end`.
    """

    agreed: bool
    end: Number
    safe: Number
    round: Number
    life: Number
    counts: bool
    quiet: bool
    #: What the sender knows to be committed.
    commit: Number = 0


class Files(Message, tag=5):
    """Who is that far behind is to fetch these sealed files first; the leader's log begins at `first`."""

    files: Annotated[list[SealedFile], Meta(max_length=MAX_BATCHES)]
    commit: Number
    round: Number
    unclean: tuple[Number, Number]
    first: Number


class Pull(Message, tag=6):
    """Send me a piece of a sealed file."""

    file: SealedFile
    position: Number


class Piece(Message, tag=7):
    """The piece; an empty one: that file is here no more."""

    file: SealedFile
    position: Number
    data: Body


class Mend(Message, tag=8):
    """My disk has damaged these committed offsets: send me them."""

    first: Number
    end: Number


class Mended(Message, tag=9):
    """What was asked for, or nothing: they are damaged here, too.

    `kept` is where the sender's log begins: what the group let go of nobody has to mend. Where it has nothing from
    `first` on, which was asked for, it lacks that up to `behind`.
    """

    kept: Number
    batches: Annotated[list[Batch], Meta(max_length=MAX_BATCHES)]
    first: Number = 0
    behind: Number = 0


class Campaign(Message, tag=10):
    """The leader asks the receiver to stand at once."""


class Nudge(Message, tag=11):
    """Somebody doubts that the leader lives: let it speak. From the leader itself: it leads no more."""


class Gone(Message, tag=12):
    """The receiver is no member any more, by a committed decision."""


AnyMessage = (
    Ask | Vote | Append | Ack | Files | Pull | Piece | Mend | Mended | Campaign | Nudge | Gone
)


class Envelope(Struct, array_like=True):
    """All that a node has for another one: pairs of a group and a message."""

    sender: Name
    #: The sender's life: it rises with each start.
    boot: Number
    items: Annotated[list[tuple[Name, AnyMessage]], Meta(max_length=MAX_ITEMS)]


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Envelope)


def encode(envelope: Envelope) -> bytes:
    """The bytes that a frame carries."""
    return _encoder.encode(envelope)


def decode(raw: bytes) -> Envelope:
    """Raises `MalformedError`."""
    try:
        return _decoder.decode(raw)
    except (msgspec.DecodeError, ValueError) as error:
        raise MalformedError(f"no envelope: {error}") from error
