"""Numbers that name nodes, slots and messages, and the kinds of steps between front and owner."""

from collections.abc import Mapping
from hashlib import blake2b
from typing import Final

#: A store in one life of its broker; see `incarnation_of`.
Incarnation = int
#: Epoch, and the incarnation that owns the slot in it. The greater is the newer.
Lineage = tuple[int, int]
#: A message's identity: its origin, and the place in the origin's messages for one slot, from 1. The origin is the
#: incarnation that published it; of one that another slot handed on, that slot stands in front (`handed_on`).
Dot = tuple[int, int]
#: Where a message goes: slot, its dot there, and the share group that is to get it ("": all other subscribers), behind
#: the scope of its mountpoint.
Address = tuple[int, Dot, str]

#: Bits of an incarnation that count the lives of its store, and of the store. With a slot in front it fits 63 bits.
BOOT_BITS: Final = 24
STORE_BITS: Final = 28
#: Bits of a dot's place; above them stands how often it was handed on.
PLACE_BITS: Final = 46
#: More than any slot, and that of an address which is none: a row in a log with copies, which takes it once by its dot.
#: Behind the dot's number stand stream, partition, store and boot (`vmq.clustering.raft.roads`).
ROWS: Final = 2047
#: Of a row that is to become a job (`vmq.mqtt.special.JOB_ROW`) the origin of the dot, once that is on its hosts.
DONE: Final = 1
#: As often as this a message is handed on at most.
MAX_HANDED: Final = 100_000
#: In front of a share group, as the owner of a queue: no client id begins so.
GROUP: Final = "\1"
#: In front of a client id, as the share group of a message that is for this client alone: a retained one.
ONLY: Final = "\3"
#: The queue of messages that clients may want whom a state does not know.
UNCLAIMED: Final = "\2"
NO_LINEAGE: Final[Lineage] = (0, 0)

#: Steps of a client: PUBACK has packet and count; PUBLISH at QoS 2 packet, addresses, digest, is_again, is_settled;
#: SUBSCRIBE and UNSUBSCRIBE packet and filters.
PUBACK: Final = 0
PUBREC: Final = 1
PUBCOMP: Final = 2
PUBLISHED: Final = 3
PUBREL: Final = 4
SUBSCRIBE: Final = 5
UNSUBSCRIBE: Final = 6
#: The connection is over.
GONE: Final = 7
#: Steps for a client: PUBLISH has packet, one address, topic, payload, qos, and more of what follows at QoS 1;
#: REGISTERED packet and addresses; the rest packet. `is_again`: it may have been sent on another connection.
SEND: Final = 8
SEND_PUBREL: Final = 9
REGISTERED: Final = 10
SEND_PUBCOMP: Final = 11
SUBSCRIBED: Final = 12
UNSUBSCRIBED: Final = 13


def includes(included: Mapping[Lineage, int], lineage: Lineage, version: int) -> bool:
    """Whether a state has what a lineage wrote up to a version.

    `included` has the version of each lineage up to which the state has it. At `NO_LINEAGE` stands an epoch: of the
    lineages up to that one it has all.
    """
    if 0 < lineage[0] <= included.get(NO_LINEAGE, 0):
        return True
    return included.get(lineage, 0) >= version


def above(versions: Mapping[Lineage, int], floor: int) -> dict[Lineage, int]:
    """Those of lineages of later epochs."""
    return {each: version for each, version in versions.items() if not 0 < each[0] <= floor}


def incarnation_of(store: int, boot: int) -> Incarnation:
    """A store in one of its lives. Lives rise: max(the last one + 1, minutes since 2024), on disk before it is told."""
    return store << BOOT_BITS | boot


def store_of(origin: int) -> int:
    """The store of an incarnation or an origin."""
    return origin >> BOOT_BITS & (1 << STORE_BITS) - 1


def handed_on(slot: int, dot: Dot) -> Dot:
    """The dot of a message that this slot hands to another: both forks of a slot may hand on the same one.

    The slot where it was published stays in front, so that it meets no other message's dot; and each time is another,
    so that a slot which had it before takes it again.
    """
    origin, place = dot
    if not origin >> BOOT_BITS + STORE_BITS:
        origin |= (slot + 1) << BOOT_BITS + STORE_BITS
    return origin, place + (1 << PLACE_BITS)


def group_queue(group: str, slot: int = -1) -> str:
    """What waits for a member of a share group, in a slot without; `slot`: it is on its way there, and nowhere else."""
    return f"{GROUP}{slot}{GROUP}{group}"


def of_group_queue(queue: str) -> tuple[int, str]:
    """The slot and the group of such a queue."""
    _, slot, group = queue.split(GROUP, 2)
    return int(slot), group


def split_scope(scoped: str) -> tuple[str, str]:
    """The scope of a mountpoint ("": of the default one) and the client id, filter or share group behind it.

    A scope is its mountpoint between two NULs; none has another, and a client id has one in front of it at most.
    """
    end = scoped.find("\0", 1) + 1 if scoped[:1] == "\0" else 0
    return scoped[:end], scoped[end:]


def slot_of(client: str, slots: int) -> int:
    """The slot of a client by its id, behind the scope of its mountpoint."""
    return int.from_bytes(blake2b(client.encode(), digest_size=8).digest(), "big") % slots


def digest_of(topic: bytes, payload: bytes) -> bytes:
    """What tells a repetition from another message under the same packet id."""
    return blake2b(topic + b"\0" + payload, digest_size=8).digest()
