"""What nodes tell each other of jobs. Times are milliseconds from now: no clock is compared with another's.

A message that can be decoded can be taken: all that depends on lengths and bounds of what it says is checked here.
"""

from typing import Annotated, Final

import msgspec
from msgspec import Meta, Struct

from vmq.jobs.ids import are_job_ids

_NO_IDS: Final = "what is to be ids of jobs is none"
#: Last digits of ids of jobs that are delivered at least once.
_REPEATED: Final = b"13579bdf"
#: Bytes of a job's id.
ID: Final = 40
_Id = Annotated[bytes, Meta(min_length=ID, max_length=ID)]
#: Of many jobs, one behind the other.
_Ids = Annotated[bytes, Meta(max_length=ID * 65_536)]
_Name = Annotated[bytes, Meta(max_length=4096)]
_Nodes = Annotated[list[Annotated[int, Meta(ge=1, lt=1 << 62)]], Meta(max_length=4096)]
_Count = Annotated[int, Meta(ge=0, le=0xFFFF)]
_Time = Annotated[int, Meta(ge=0, lt=1 << 62)]
#: A job's whole time, its delay included, and some hours.
_Lives = Annotated[int, Meta(ge=0, le=2_000 * 0xFFFF_FFFF + 100_000_000)]
_Created = Annotated[int, Meta(ge=0, lt=1 << 62)]
_Seconds = Annotated[int, Meta(ge=0, le=0xFFFF_FFFF)]
_Retry = Annotated[int, Meta(ge=-1, le=0x7FFF_FFFF)]
_Number = Annotated[int, Meta(ge=-1, le=0xFFFF_FFFF)]


class Entry(Struct, array_like=True, frozen=True):
    """One of them."""


class OfMany(Entry, frozen=True):
    """One about many jobs: their ids, one behind the other."""

    jobs: _Ids

    def __post_init__(self) -> None:
        if not are_job_ids(self.jobs):
            raise ValueError(_NO_IDS)


class OfOne(Entry, frozen=True):
    """One about one job."""

    job: _Id

    def __post_init__(self) -> None:
        if not are_job_ids(self.job):
            raise ValueError(_NO_IDS)


class Present(Entry, frozen=True, tag=1):
    """Who I am; `asks`: tell me who you are. `boot` is another after each start: what was in memory only is gone.

    `is_short`: there is little memory left, others had better have the copies. `lost`: nodes whose disks are lost.
    """

    node: Annotated[int, Meta(ge=1, lt=1 << 62)]
    name: bytes
    host: Annotated[str, Meta(max_length=512)]
    address: Annotated[str, Meta(max_length=512, pattern=r"^[^\s]*$")]
    port: Annotated[int, Meta(ge=0, le=65_535)]
    boot: _Time
    is_leaving: bool
    asks: bool
    is_short: bool = False
    lost: _Nodes = []

    def __post_init__(self) -> None:
        if len(self.name) != ID or self.name.translate(None, b"0123456789abcdef"):
            raise ValueError("a node has no name")


class Copies(OfMany, frozen=True, tag=2):
    """Jobs. The receiver has them from now on, says so, and looks at them after `wake`; at once if it `serves` them.

    In order: when each was added, its body, and its key; no keys: none has one.
    """

    queue: _Name
    lives: _Lives
    wake: _Lives
    ttl: _Seconds
    retry: _Retry
    delay: _Seconds
    priority: Annotated[int, Meta(ge=0, le=9)]
    deliveries: _Count
    nacks: _Count
    repeats: _Count
    reason: Annotated[str, Meta(max_length=4096)]
    wanted: _Count
    nodes: _Nodes
    is_delayed: bool
    serves: bool
    created: list[_Created]
    bodies: list[bytes]
    keys: list[_Name]

    def __post_init__(self) -> None:
        count = len(self.bodies)
        if not are_job_ids(self.jobs):
            raise ValueError(_NO_IDS)
        if len(self.jobs) != ID * count or len(self.created) != count:
            raise ValueError("copies of more or fewer jobs than are named")
        if self.keys and len(self.keys) != count:
            raise ValueError("keys of more or fewer jobs than are named")
        if not self.serves and self.jobs[ID - 1 :: ID].translate(None, _REPEATED):
            raise ValueError("a job that is delivered at most once has no copies")


class Stored(OfMany, frozen=True, tag=3):
    """I have them, as safe as their queues' rules say."""


class Queued(OfOne, frozen=True, tag=4):
    """I have it queued; with a reason among the dead letters."""

    deliveries: _Count
    nacks: _Count
    repeats: _Count
    reason: Annotated[str, Meta(max_length=4096)]


class WillQueue(OfOne, frozen=True, tag=5):
    """I am about to queue it: who has it? As far as I know these may."""

    nodes: _Nodes = msgspec.field(default_factory=list)


class Busy(OfOne, frozen=True, tag=6):
    """I have it, and shall see to it for so long at least."""

    wake: _Lives
    deliveries: _Count
    nacks: _Count
    repeats: _Count


class Lacks(OfOne, frozen=True, tag=7):
    """I have it not."""


class Done(OfMany, frozen=True, tag=8):
    """They are done. These nodes may have them; `lives`: what is left of their time."""

    queue: _Name
    lives: _Lives
    nodes: _Nodes


class Heard(OfMany, frozen=True, tag=9):
    """I know that they are done. As far as I know these nodes may have them; none: I know nothing of them."""

    nodes: _Nodes


class Forget(OfMany, frozen=True, tag=10):
    """All that may have them know that they are done."""


class Drop(OfOne, frozen=True, tag=11):
    """It is not to be done, or is done, and nobody has to be sure of that."""


class Working(OfOne, frozen=True, tag=12):
    """Its worker is at it still."""


class JobNeed(Entry, frozen=True, tag=13):
    """So many workers wait here for jobs of a queue, for so long at least; none: not any more."""

    queue: _Name
    count: _Count
    lease: _Lives


class Paused(Entry, frozen=True, tag=14):
    """What a queue refuses, as an operator said then, in nanoseconds since 1970."""

    queue: _Name
    is_in: bool
    is_out: bool
    at: _Created = 0


class Fired(Entry, frozen=True, tag=15):
    """This time of a schedule, seconds since 1970, and all before it were seen to."""

    schedule: Annotated[str, Meta(max_length=512)]
    tick: Annotated[float, Meta(ge=0, le=1e12)]


class Holders(OfOne, frozen=True, tag=16):
    """I know of more that may have it: these."""

    nodes: _Nodes


class Claim(OfOne, frozen=True, tag=17):
    """I am about to add this one, with a key: do you know of one that has it? These members I do not reach.

    `turn`: how often I have asked all.
    """

    queue: _Name
    key: _Name
    unreached: _Nodes
    turn: _Count = 0


class Claimed(OfOne, frozen=True, tag=18):
    """To a claim of that turn: this one has the key, and is added, or goes first; none: I know of none."""

    queue: _Name
    key: _Name
    known: Annotated[bytes, Meta(max_length=ID)]
    is_added: bool
    turn: _Count = 0

    def __post_init__(self) -> None:
        if not are_job_ids(self.job) or not are_job_ids(self.known):
            raise ValueError(_NO_IDS)


class KeyHeld(OfOne, frozen=True, tag=19):
    """This one has a key here; somebody took it, or it is done. It is to be on so many hosts."""

    queue: _Name
    key: _Name
    is_taken: bool
    wanted: _Count = 1


class WillQueueAll(OfMany, frozen=True, tag=20):
    """I am about to queue all of these, which were added from then to then, and to which that happened: who has one?

    As far as I know these nodes may. The answer is to have the number.
    """

    number: _Number
    queue: _Name
    first: _Time
    last: _Time
    deliveries: _Count
    nacks: _Count
    repeats: _Count
    nodes: _Nodes


class QueuedAll(OfMany, frozen=True, tag=21):
    """I have all of these queued, to which that happened; and am about to queue the `busy` ones."""

    number: _Number
    queue: _Name
    first: _Time
    last: _Time
    deliveries: _Count
    nacks: _Count
    repeats: _Count
    busy: _Ids

    def __post_init__(self) -> None:
        if not are_job_ids(self.jobs) or not are_job_ids(self.busy):
            raise ValueError(_NO_IDS)


class IsAdded(OfOne, frozen=True, tag=22):
    """Who hears of this one anew asks: do you know of it? Who says so says it once it is on its hosts."""


class Added(OfOne, frozen=True, tag=23):
    """To that: it is; or I know nothing of it."""

    is_added: bool


AnyEntry = (
    Present
    | Copies
    | Stored
    | Queued
    | WillQueue
    | Busy
    | Lacks
    | Done
    | Heard
    | Forget
    | Drop
    | Working
    | JobNeed
    | Paused
    | Fired
    | Holders
    | Claim
    | Claimed
    | KeyHeld
    | WillQueueAll
    | QueuedAll
    | IsAdded
    | Added
)

encode: Final = msgspec.msgpack.Encoder().encode
_DECODER: Final[msgspec.msgpack.Decoder[AnyEntry]] = msgspec.msgpack.Decoder(AnyEntry)


def decode(raw: bytes) -> AnyEntry:
    """An entry.

    Raises:
        ValueError: it is none.
    """
    try:
        return _DECODER.decode(raw)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise ValueError(f"no message about jobs: {error}") from None
