"""What nodes tell each other of jobs. Times are milliseconds from now: no clock is compared with another's."""

from typing import Annotated, Final

import msgspec
from msgspec import Meta, Struct

_Id = Annotated[bytes, Meta(min_length=40, max_length=40)]
#: Of many jobs, one behind the other.
_Ids = Annotated[bytes, Meta(max_length=40 * 65_536)]
_Name = Annotated[bytes, Meta(max_length=4096)]
_Nodes = Annotated[list[Annotated[int, Meta(ge=1, lt=1 << 62)]], Meta(max_length=4096)]
_Count = Annotated[int, Meta(ge=0, le=0xFFFF)]
_Time = Annotated[int, Meta(ge=0, lt=1 << 62)]
_Number = Annotated[int, Meta(ge=-1, le=0xFFFF_FFFF)]


class Entry(Struct, array_like=True, frozen=True):
    """One of them."""


class Present(Entry, frozen=True, tag=1):
    """Who I am; `asks`: tell me who you are. `boot` is another after each start: what was in memory only is gone.

    `is_short`: there is little memory left, others had better have the copies.
    """

    node: Annotated[int, Meta(ge=1, lt=1 << 62)]
    name: Annotated[bytes, Meta(max_length=64)]
    host: Annotated[str, Meta(max_length=512)]
    address: Annotated[str, Meta(max_length=512)]
    port: Annotated[int, Meta(ge=0, le=65_535)]
    boot: _Time
    is_leaving: bool
    asks: bool
    is_short: bool = False


class Copy(Entry, frozen=True, tag=2):
    """A job. The receiver has it from now on, says so, and looks at it after `wake`; at once if it `serves` it."""

    job: _Id
    queue: _Name
    body: bytes
    created: Annotated[int, Meta(ge=0, lt=1 << 62)]
    lives: _Time
    wake: _Time
    ttl: _Number
    retry: _Number
    delay: _Number
    priority: Annotated[int, Meta(ge=0, le=9)]
    deliveries: _Count
    nacks: _Count
    repeats: _Count
    key: _Name
    reason: Annotated[str, Meta(max_length=4096)]
    wanted: _Count
    nodes: _Nodes
    is_delayed: bool
    serves: bool


class Stored(Entry, frozen=True, tag=3):
    """I have it, as safe as its queue's rules say."""

    job: _Id


class Queued(Entry, frozen=True, tag=4):
    """I have it queued; with a reason among the dead letters."""

    job: _Id
    deliveries: _Count
    nacks: _Count
    repeats: _Count
    reason: Annotated[str, Meta(max_length=4096)]


class WillQueue(Entry, frozen=True, tag=5):
    """I am about to queue it: who has it? As far as I know these may."""

    job: _Id
    nodes: _Nodes = msgspec.field(default_factory=list)


class Busy(Entry, frozen=True, tag=6):
    """I have it, and shall see to it for so long at least."""

    job: _Id
    wake: _Time
    deliveries: _Count
    nacks: _Count
    repeats: _Count


class Lacks(Entry, frozen=True, tag=7):
    """I have it not."""

    job: _Id


class Done(Entry, frozen=True, tag=8):
    """It is done. These may have it; `lives`: what is left of its time."""

    job: _Id
    queue: _Name
    lives: _Time
    nodes: _Nodes


class Heard(Entry, frozen=True, tag=9):
    """I know that it is done. As far as I know these may have it; none: I know nothing of it."""

    job: _Id
    nodes: _Nodes


class Forget(Entry, frozen=True, tag=10):
    """All that may have it know that it is done."""

    job: _Id


class Drop(Entry, frozen=True, tag=11):
    """It is not to be done, or is done, and nobody has to be sure of that."""

    job: _Id


class Working(Entry, frozen=True, tag=12):
    """Its worker is at it still."""

    job: _Id


class JobNeed(Entry, frozen=True, tag=13):
    """So many workers wait here for jobs of a queue, for so long at least; none: not any more."""

    queue: _Name
    count: _Count
    lease: _Time


class Paused(Entry, frozen=True, tag=14):
    """What a queue refuses from now on."""

    queue: _Name
    is_in: bool
    is_out: bool


class Fired(Entry, frozen=True, tag=15):
    """This time of a schedule, seconds since 1970, and all before it were seen to."""

    schedule: Annotated[str, Meta(max_length=512)]
    tick: Annotated[float, Meta(ge=0, le=1e12)]


class Holders(Entry, frozen=True, tag=16):
    """I know of more that may have it: these."""

    job: _Id
    nodes: _Nodes


class Claim(Entry, frozen=True, tag=17):
    """I am about to add this one, with a key: do you know of one that has it?"""

    job: _Id
    queue: _Name
    key: _Name


class Claimed(Entry, frozen=True, tag=18):
    """To a claim: this one has the key, and is added, or goes first; none: I know of none."""

    job: _Id
    queue: _Name
    key: _Name
    known: Annotated[bytes, Meta(max_length=40)]
    is_added: bool


class KeyHeld(Entry, frozen=True, tag=19):
    """This one has a key here; somebody took it, or it is done. It is to be on so many hosts."""

    job: _Id
    queue: _Name
    key: _Name
    is_taken: bool
    wanted: _Count = 1


class WillQueueAll(Entry, frozen=True, tag=20):
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
    jobs: _Ids


class QueuedAll(Entry, frozen=True, tag=21):
    """I have all of these queued, to which that happened; and am about to queue the `busy` ones."""

    number: _Number
    queue: _Name
    first: _Time
    last: _Time
    deliveries: _Count
    nacks: _Count
    repeats: _Count
    jobs: _Ids
    busy: _Ids


AnyEntry = (
    Present
    | Copy
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
