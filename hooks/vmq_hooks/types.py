"""What hooks are told: who connects, what is published, what is subscribed to.

All of them are immutable. A hook that wants something changed answers with modifiers.
"""

from collections.abc import Callable
from typing import Final, Literal

import msgspec

#: The QoS that refuses one subscription of several, as in SUBACK.
REFUSED_QOS: Final = 128


class Peer(msgspec.Struct, frozen=True):
    """The far end of a connection, as the listener knows it.

    Behind a proxy that the listener trusts, `host` and `port` are the client's own.
    """

    host: str
    port: int
    #: The listener's name in the configuration.
    listener: str = ""
    transport: Literal["tcp", "tls", "ws", "wss", "unix", "local"] = "tcp"
    #: The common name in the client's verified certificate.
    common_name: str | None = None
    #: What it counts as where addresses count: an IPv4 address, or the /64 of an IPv6 one. Empty where nobody
    #: knows the client's own: behind a trusted proxy that does not tell, on a Unix socket, inside the process.
    network: str = ""
    #: Wrong passwords from its network in the last minutes. A plugin that has clients wait serves others first.
    failures: int = 0

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class SubscriberId(msgspec.Struct, frozen=True):
    """A client id within a mountpoint: what a session belongs to."""

    client_id: str
    mountpoint: str = ""

    def __str__(self) -> str:
        return f"{self.mountpoint}:{self.client_id}" if self.mountpoint else self.client_id


class Message(msgspec.Struct, frozen=True):
    """An application message."""

    topic: str
    payload: bytes
    qos: int = 0
    retain: bool = False
    #: With topics of a service what is to be done there: "add" a job to `$jobs/QUEUE`. Empty: it is published.
    action: str = ""

    @property
    def words(self) -> list[str]:
        """The levels of the topic."""
        return self.topic.split("/")


class Subscription(msgspec.Struct, frozen=True):
    """A topic filter and the QoS that is asked for, or granted."""

    topic_filter: str
    qos: int = 0
    #: With filters of a service what is to be done there: "take" jobs from `$jobs/QUEUE`, or "inspect" them. Empty: to
    #: subscribe.
    action: str = ""
    #: Where the history begins that is wanted first, as in `$replay/FROM/FILTER`: "earliest", "-15m". Empty: none is.
    history: str = ""
    #: The consumer group that is joined, as in `$share/GROUP/$stream/NAME/FILTER`. Empty: none is.
    group: str = ""

    @property
    def words(self) -> list[str]:
        """The levels of the filter."""
        return self.topic_filter.split("/")


#: Loads a dropped message, which may cost a read from disk.
LazyMessage = Callable[[], Message]

#: Why a message was dropped. `queue_full`: the client's queue. `store_full`, `memory_full`: what all clients have
#: together. `expired`: it waited longer than `queue.max_age`. `max_packet_size_exceeded`: at the QoS of the
#: subscription (`session.upgrade_outgoing_qos`) its packet would be larger than MQTT can express.
#: `not_subscribed`: its client may not read it any more. `withheld`: by on_deliver.
DropReason = Literal[
    "queue_full",
    "store_full",
    "memory_full",
    "expired",
    "purged",
    "max_packet_size_exceeded",
    "not_subscribed",
    "withheld",
    "cluster_buffer_full",
    "cluster_node_removed",
]


def words(topic: str) -> list[str]:
    """The levels of a topic name or filter: `a/b` is `["a", "b"]`."""
    return topic.split("/")


def matches(topic_filter: str, topic: str) -> bool:
    """Whether a filter with the wildcards of MQTT matches a topic name (section 4.7).

    Wildcards in the first level do not match topics that begin with `$` [MQTT-4.7.2-1].
    """
    wanted, levels = topic_filter.split("/"), topic.split("/")
    if topic[:1] == "$" and wanted[0] in {"+", "#"}:
        return False
    for index, word in enumerate(wanted):
        if word == "#":
            return True
        if index >= len(levels) or word not in {"+", levels[index]}:
            return False
    return len(wanted) == len(levels)
