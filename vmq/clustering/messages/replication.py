"""What nodes say to each other about copies of durable sessions.

All of it travels at most once. What must arrive is numbered (`Changes`), or is asked for again.

A session is named by the eight bytes of its number in its owner's store, and a client by its id behind the scope of
its mountpoint (`vmq.store.store.scope_of`).
"""

from typing import Annotated, Final

from msgspec import Meta, Struct, field

from vmq.clustering.messages.base import NodeMessage
from vmq.clustering.messages.publishes import RemotePublish
from vmq.clustering.messages.ranges import Range as Places
from vmq.clustering.messages.ranges import check_ranges
from vmq.clustering.messages.records import check_changes, check_places

#: Changes in one message, and their bytes, above which a commit is cut into several.
MAX_CHANGES: Final = 5000
MAX_BYTES: Final = 512 * 1024

#: No list of sessions or clients is longer.
MAX_NAMES: Final = 10_000

#: Ranges of what is left of a session.
MAX_RANGES: Final = 1000

#: A longer message has no copies: a channel between nodes carries no more at once.
MAX_VALUE: Final = 48 * 1024 * 1024

Number = Annotated[int, Meta(ge=0, lt=1 << 62)]
Session = Annotated[bytes, Meta(min_length=8, max_length=8)]
Scoped = Annotated[str, Meta(min_length=1, max_length=66_000)]
#: Kind, session, and what comes behind it in the owner's store.
Key = Annotated[bytes, Meta(min_length=9, max_length=66_000)]
Value = Annotated[bytes, Meta(max_length=MAX_VALUE)]
Sessions = Annotated[list[Session], Meta(max_length=MAX_NAMES)]
#: A place among the records of a session: kind, and what comes behind the session in the key; b"" is none.
Place = Annotated[bytes, Meta(max_length=66_000)]
#: A record, or that it is deleted. An entry that names a message names one of `bodies`, by its place there.
Changed = tuple[Key, Value | None]


class GreetFollower(NodeMessage, frozen=True, tag=30):
    """An owner, in this life of its store, asks how far the copies are that the other has of its sessions."""

    life: Number


class FollowerPosition(NodeMessage, frozen=True, tag=31):
    """The answer: everything up to this number of this life is stored; 0, 0: nothing is known of the owner."""

    life: Number
    number: Number


class BeginCopy(Struct, array_like=True, frozen=True):
    """The copy of a session begins: empty, or (`compares`) as an old one was, which is compared and corrected."""

    session: Session
    scoped_id: Scoped
    offline_at: Number = 0
    compares: bool = False


class RangeDigest(Struct, array_like=True, frozen=True):
    """The digest of a range of a session's records (`vmq.clustering.replication.anti_entropy`)."""

    session: Session
    behind: Place
    end: Place
    digest: Annotated[bytes, Meta(min_length=16, max_length=16)]


class KeepOnly(Struct, array_like=True, frozen=True):
    """Of this range only the records at these places are to stay."""

    session: Session
    behind: Place
    end: Place
    keep: Annotated[list[Place], Meta(max_length=MAX_CHANGES)]


class Changes(NodeMessage, frozen=True, tag=32):
    """What one commit of an owner changed, or a part of what its store holds.

    It is taken in this order: freeze, end, begin, keep ranges, change, compare, complete.

    Numbers rise by one. With `reset` this number is the next, whatever was expected: what was in between concerns
    only sessions that are in `frozen`, and then in `ended` or, later, in `begun` again. Numbers are those of one owner
    and one node with copies; `at` is the owner's commit, by which copies on different nodes compare.
    """

    life: Number
    number: Number
    at: Number
    changes: Annotated[list[Changed], Meta(max_length=2 * MAX_CHANGES)] = field(
        default_factory=list
    )
    bodies: Annotated[list[Value], Meta(max_length=2 * MAX_CHANGES)] = field(default_factory=list)
    begun: Annotated[list[BeginCopy], Meta(max_length=MAX_NAMES)] = field(default_factory=list)
    complete: Sessions = field(default_factory=list)
    ended: Sessions = field(default_factory=list)
    #: These copies get no changes any more; they stay as they are until another is complete.
    frozen: Sessions = field(default_factory=list)
    #: These records may be there already.
    again: bool = False
    reset: bool = False
    #: Copies of earlier lives are of no use any more.
    swept: bool = False
    ranges: Annotated[list[KeepOnly], Meta(max_length=MAX_NAMES)] = field(default_factory=list)
    sums: Annotated[list[RangeDigest], Meta(max_length=MAX_NAMES)] = field(default_factory=list)

    def check(self) -> None:
        check_changes(self.changes, self.bodies)
        for sum_ in self.sums:
            check_places(sum_.behind, sum_.end)
        for part in self.ranges:
            check_places(part.behind, part.end, *part.keep)


class ConfirmChanges(NodeMessage, frozen=True, tag=33):
    """Everything up to this number is in the replica's store."""

    life: Number
    number: Number


class MissingChanges(NodeMessage, frozen=True, tag=34):
    """This number comes next; a later one came."""

    life: Number
    number: Number


class UnknownCopies(NodeMessage, frozen=True, tag=35):
    """There is no copy of these sessions, though changes of them came."""

    life: Number
    sessions: Sessions


class CopyDiffers(NodeMessage, frozen=True, tag=36):
    """The copy of a session, as compared, differs in these ranges from its owner's digests."""

    life: Number
    session: Session
    ranges: Annotated[list[tuple[Place, Place]], Meta(max_length=1_000_000)]

    def check(self) -> None:
        for each in self.ranges:
            check_places(*each)


class StillComparing(NodeMessage, frozen=True, tag=37):
    """In what do the copies of these sessions differ? The digests were sent, and no answer has come."""

    life: Number
    sessions: Sessions


class AskTaken(NodeMessage, frozen=True, tag=38):
    """How far have you come with what this store of another node sent you? It is lost.

    To the other node itself: what do I have to keep for you still?
    """

    origin: Annotated[str, Meta(min_length=1, max_length=255)]
    store: Annotated[int, Meta(ge=1, lt=1 << 62)]


class IsTaken(NodeMessage, frozen=True, tag=39):
    """Up to this place, (0, 0) if nothing is known of it."""

    origin: Annotated[str, Meta(min_length=1, max_length=255)]
    store: Annotated[int, Meta(ge=1, lt=1 << 62)]
    life: Number
    number: Number


class AskCopies(NodeMessage, frozen=True, tag=40):
    """Which copies are there of these clients' sessions at `owner`? There may be others, of who had them before."""

    ticket: Number
    clients: Annotated[list[Scoped], Meta(min_length=1, max_length=MAX_NAMES)]
    owner: Annotated[str, Meta(max_length=255)] = ""


class OfferCopy(Struct, array_like=True, frozen=True):
    """A copy: whose, how good, and its own number in the store of who offers it."""

    owner: Annotated[str, Meta(min_length=1, max_length=255)]
    session: Session
    complete: bool
    life: Number
    at: Number
    copy: Session


class CopiesFound(NodeMessage, frozen=True, tag=41):
    """The answer: the best copy of each, if there is one."""

    ticket: Number
    offers: Annotated[list[OfferCopy | None], Meta(max_length=MAX_NAMES)]


class FetchCopy(NodeMessage, frozen=True, tag=42):
    """Asks for the records of a copy behind one of them (empty: from the first)."""

    ticket: Number
    copy: Session
    behind: Annotated[bytes, Meta(max_length=66_000)]


class CopyPart(NodeMessage, frozen=True, tag=43):
    """The records of a copy behind `behind`; `last` is the last of them, empty when none is left."""

    ticket: Number
    behind: Annotated[bytes, Meta(max_length=66_000)]
    last: Annotated[bytes, Meta(max_length=66_000)]
    changes: Annotated[list[Changed], Meta(max_length=2 * MAX_CHANGES)]
    bodies: Annotated[list[Value], Meta(max_length=2 * MAX_CHANGES)]
    offline_at: Number = 0

    def check(self) -> None:
        check_changes(self.changes, self.bodies)


class CopyLost(NodeMessage, frozen=True, tag=44):
    """There is no such copy any more."""

    ticket: Number


class Provenance(Struct, array_like=True, frozen=True):
    """The session that one was before its owner was given up, and the node whose copy it is made of."""

    owner: Annotated[str, Meta(min_length=1, max_length=255)]
    session: Session
    node: Annotated[str, Meta(min_length=1, max_length=255)]
    #: The commit of the owner's, in that life of its store, as of which the copy was.
    life: Number
    at: Number
    #: The places behind the last that waited in the copy, and that was in flight: what came later has others.
    waiting: Number = (1 << 64) - 1
    inflight: Number = (1 << 64) - 1
    #: What is at earlier places is of the copy still, and its owner has not said what of it is done.
    is_open: bool = False
    #: Since when its client is away (milliseconds): as long as that is so, nobody has been sent anything of it.
    away_since: Number = 0


class AskProvenance(NodeMessage, frozen=True, tag=45):
    """Of which copy did you make your session of this client?"""

    ticket: Number
    client: Scoped
    #: I will also say what of the copy is done (`Undone`).
    tells: bool = False
    #: The copy of a session of yours of which mine is, which goes to you.
    mine: Provenance | None = None


class ProvenanceIs(NodeMessage, frozen=True, tag=46):
    """The answer; None: of no copy, or there is no such session."""

    ticket: Number
    whence: Provenance | None
    #: The session's number here.
    session: Annotated[bytes, Meta(max_length=8)] = b""
    #: What was in the copy that the question names is here, or done.
    has_all: bool = False


class Undone(NodeMessage, frozen=True, tag=20):
    """From the owner before: of what the copy had of which you made this session, only this is not done."""

    ticket: Number
    client: Scoped
    #: The session's number in the store of who gets this.
    session: Session
    #: Places of what waits, and of what is in flight.
    waiting: Annotated[list[Places], Meta(max_length=MAX_RANGES)]
    inflight: Annotated[list[Places], Meta(max_length=MAX_RANGES)]
    #: QoS 2 packet ids of the client's publishes, not released.
    received: Annotated[list[Annotated[int, Meta(ge=1, le=65_535)]], Meta(max_length=65_535)]

    def check(self) -> None:
        check_ranges(self.waiting)
        check_ranges(self.inflight)


class TakenOut(NodeMessage, frozen=True, tag=21):
    """The answer: the rest is out of it, which is stored."""

    ticket: Number


class HintedPublish(Struct, array_like=True, frozen=True):
    """A publish, and the clients at its owner whose sessions get it at this QoS; with a group, any member of that."""

    publish: RemotePublish
    clients: Annotated[list[Annotated[str, Meta(max_length=65_535)]], Meta(max_length=1_000_000)]


class KeepHints(NodeMessage, frozen=True, tag=47):
    """Keep these: they wait here for a node that is down, and I may be gone before it is back."""

    store: Annotated[int, Meta(ge=1, lt=1 << 62)]
    owner: Annotated[str, Meta(min_length=1, max_length=255)]
    life: Number
    number: Number
    messages: Annotated[list[HintedPublish], Meta(max_length=100_000)]
    #: All who are asked to keep them.
    keepers: Annotated[list[Annotated[str, Meta(max_length=255)]], Meta(max_length=16)]

    def check(self) -> None:
        for each in self.messages:
            each.publish.check()


class HintsBegin(Struct, array_like=True, frozen=True):
    """What waits for a node begins at this place."""

    owner: Annotated[str, Meta(min_length=1, max_length=255)]
    life: Number
    number: Number


class HintsNeeded(NodeMessage, frozen=True, tag=48):
    """Of what my store had you keep, only this is still needed; other stores of mine are lost."""

    store: Annotated[int, Meta(ge=1, lt=1 << 62)]
    left: Annotated[list[HintsBegin], Meta(max_length=10_000)]


class HintsHandedOver(NodeMessage, frozen=True, tag=49):
    """What we both kept for a store that is lost has gone where it belongs."""

    origin: Annotated[str, Meta(min_length=1, max_length=255)]
    store: Annotated[int, Meta(ge=1, lt=1 << 62)]


ReplicaMessage = (
    GreetFollower
    | FollowerPosition
    | Changes
    | ConfirmChanges
    | MissingChanges
    | UnknownCopies
    | CopyDiffers
    | StillComparing
    | AskCopies
    | CopiesFound
    | FetchCopy
    | CopyPart
    | CopyLost
    | AskProvenance
    | ProvenanceIs
    | Undone
    | TakenOut
    | KeepHints
    | HintsNeeded
    | HintsHandedOver
    | AskTaken
    | IsTaken
)
