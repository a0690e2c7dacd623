"""What nodes say to each other when a session moves: all of it on the reliable outbox, numbered 10 to 19, and 60."""

from typing import Annotated, Final

from msgspec import Meta, Struct

from vmq.clustering.messages.base import NodeMessage
from vmq.mqtt.packets import ProtocolError
from vmq.mqtt.topics import decode_topic_name

#: Mountpoint and client id.
Who = tuple[str, str]

RETAIN: Final = 4
RELEASED: Final = 8
_QOS: Final = 3

Name = Annotated[str, Meta(min_length=1, max_length=255)]
Mountpoint = Annotated[str, Meta(max_length=255)]
ClientId = Annotated[str, Meta(min_length=1, max_length=65_535)]
Since = Annotated[int, Meta(ge=0, lt=1 << 62)]
PacketId = Annotated[int, Meta(ge=1, le=65_535)]
Topic = Annotated[bytes, Meta(max_length=65_535)]
Filter = Annotated[str, Meta(min_length=1, max_length=65_535)]
Qos = Annotated[int, Meta(ge=0, le=2)]


class SessionMessage(Struct, array_like=True, frozen=True):
    """One message of a session: in flight under its packet id, or waiting (0).

    With RELEASED its PUBREC has come, and only the packet id counts.
    """

    topic: Topic
    payload: bytes
    flags: Annotated[int, Meta(ge=0, le=RELEASED | RETAIN | 2)]
    packet_id: Annotated[int, Meta(ge=0, le=65_535)] = 0
    group: Annotated[str, Meta(max_length=65_535)] = ""

    def check(self) -> None:
        """Refuses what no client could have published."""
        if self.qos == 0 or self.qos == _QOS:
            raise ValueError("no message of a session: neither QoS 1 nor 2")
        if self.released:
            return
        try:
            decode_topic_name(self.topic)
        except ProtocolError as error:
            raise ValueError(f"no message of a session: {error}") from None

    @property
    def qos(self) -> int:
        return self.flags & _QOS

    @property
    def retain(self) -> bool:
        return self.flags & RETAIN != 0

    @property
    def released(self) -> bool:
        return self.flags & RELEASED != 0


class _About(NodeMessage, frozen=True):
    """About one session."""

    mountpoint: Mountpoint
    client_id: ClientId

    @property
    def who(self) -> Who:
        return (self.mountpoint, self.client_id)


class ClaimSession(_About, frozen=True, tag=10):
    """To the owner: a client of this session has connected to `node`, which wants to be its owner."""

    node: Name
    #: The client asks for a clean session: the old one is to end.
    clean: bool
    #: Nodes that it was sent on by, each in the belief that the next one is the owner.
    hops: Annotated[int, Meta(ge=0, le=16)] = 0


class SessionFree(_About, frozen=True, tag=11):
    """To the claimer: there is no session, or none any more."""


class SessionState(_About, frozen=True, tag=12):
    """From the former owner, which writes you into the record: all of the session but its messages, which follow."""

    since: Since
    subscriptions: dict[Filter, Qos]
    #: QoS 2 packet ids of the client's publishes, not released.
    received: Annotated[list[PacketId], Meta(max_length=65_535)]


class SessionBatch(_About, frozen=True, tag=13):
    """The next messages of the session, in order: first those in flight, then those that wait."""

    entries: Annotated[list[SessionMessage], Meta(max_length=100_000)]

    def check(self) -> None:
        """Refuses what no client could have published."""
        for each in self.entries:
            each.check()


class InflightSent(_About, frozen=True, tag=14):
    """All that was in flight has been sent: the client may come."""

    since: Since


class SessionMoved(_About, frozen=True, tag=15):
    """From the owner until `since`, to a node whose mark has not come: mark when you route to `node`."""

    since: Since
    node: Name


class RouteMarker(_About, frozen=True, tag=16):
    """To the old owner and the new: behind this I route by the record of `since`, or by a later one."""

    since: Since
    #: The owner, and the one before it.
    node: Name
    source: Name
    subscriptions: dict[Filter, Qos]
    #: It was asked for: there may be one in front of it that said the same.
    again: bool = False


class RouteMarkerEcho(_About, frozen=True, tag=17):
    """To the new owner: all that `origin` published before its mark has been handed over."""

    since: Since
    origin: Name


class TakeoverEnd(_About, frozen=True, tag=18):
    """To the new owner: everything has been handed over."""

    since: Since


class RedirectedPublish(NodeMessage, frozen=True, tag=19):
    """For sessions that you have: a message that waited for a node which had them and is gone, or lost its disk."""

    mountpoint: Mountpoint
    clients: Annotated[list[ClientId], Meta(max_length=10_000)]
    entry: SessionMessage

    def check(self) -> None:
        """Refuses what no client could have published."""
        self.entry.check()


class SessionDamaged(_About, frozen=True, tag=60):
    """From who has the session, or the rest of one that goes to you: part of it cannot be read, refuse its client."""

    #: Whose store is damaged.
    node: Name
    #: The record by which the rest is yours; 0: the session stays there.
    since: Since


Move = (
    ClaimSession
    | SessionFree
    | SessionState
    | SessionBatch
    | InflightSent
    | SessionMoved
    | RouteMarker
    | RouteMarkerEcho
    | TakeoverEnd
    | RedirectedPublish
    | SessionDamaged
)
