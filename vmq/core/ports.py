"""What the core asks of rooms above it: a class a port, whose methods do nothing.

The base is the null object: a broker without a cluster, streams or traces has the ports as they are. A native call
costs less than to look whether a callback is there, and a twentieth of calling one. Who brings a port subclasses it,
sets its attribute of `vmq.core.context.Core`, and puts a base back when it ends. What is `Any` stands above this
module: registries (`vmq.core.registry`), routes (`vmq.core.trie`), connections.
"""

import logging
from typing import Any, Final

from mypy_extensions import mypyc_attr
from vmq_hooks.types import REFUSED_QOS

from vmq.core.hook_sites import Pending
from vmq.core.output import Output
from vmq.core.source import Source

log = logging.getLogger("vmq.session")


@mypyc_attr(allow_interpreted_subclasses=True)
class SessionListener:
    """Told of this broker's sessions."""

    def on_subscriber(self, event: int, registry: Any, subscriber: Any, topic_filter: str) -> None:
        """One is `CLAIMED`, `CHANGED` or `ENDED` (`vmq.core.context`).

        `topic_filter`: whose subscription changed, or "".
        """


@mypyc_attr(allow_interpreted_subclasses=True)
class Claims:
    """Who has which session, where other nodes may have it."""

    def claim(
        self, registry: Any, client_id: str, clean: bool, user: str = "", options: Any = None
    ) -> Pending | None:
        """A client of a user has come: None: it may have its session; else `Pending` comes when it may.

        `options` are the `CoreOptions` of its session; None: the broker's.
        It brings None, `Refuse`, or `Placed`.
        """
        return None

    def end_session(self, registry: Any, client_id: str) -> None:
        """Ends a durable session that is in a slot, with the connection that it has."""

    def elsewhere(self, mountpoint: str, client_id: str) -> str:
        """The other node that has the client's connection and can be reached; "" if there is none."""
        return ""


class Placed:
    """What `Claims.claim` brings where the durable session of a client is in a slot; see `vmq.protocol.front_queue`."""

    def __init__(self, is_present: bool) -> None:
        #: There was a session.
        self.is_present = is_present


@mypyc_attr(allow_interpreted_subclasses=True)
class FrontPort:
    """The owners of sessions that are in slots, for the connections of this node, which have numbers."""

    def keep(self, number: int, message: Any, qos: int, retain: bool) -> None:
        """A message for this client alone, which it gets with RETAIN or without."""

    def on_acknowledged(self, number: int, kind: int, packet_id: int) -> None:
        """The client has sent PUBACK, PUBREC or PUBCOMP."""

    def on_pubacks(self, number: int, run: bytes) -> None:
        """The client has sent PUBACK packets of four bytes each."""

    def is_unreleased(self, number: int, packet_id: int) -> bool:
        """Whether a QoS 2 message with that packet id comes again even without DUP."""
        return False

    def digest(self, message: Any) -> bytes:
        """What tells a message that comes again from another one under the same packet id."""
        return b""

    def receive(self, message: Any, source: Source) -> None:
        """A QoS 2 message of a client goes to no slot; its packet id is the session's."""

    def on_pubrels(self, number: int, run: bytes, output: Output) -> None:
        """The client has sent PUBREL packets of four bytes each: what answers them waits for the owner."""

    def on_online(self, number: int) -> None:
        """CONNACK is sent: what is of the session may follow."""

    def on_offline(self, number: int) -> None:
        """The connection has ended."""


@mypyc_attr(allow_interpreted_subclasses=True)
class Wills:
    """Who keeps the wills of this broker's clients, should it end before them."""

    def left(self, client: Any) -> None:
        """A client has connected with a will."""

    def over(self, client: Any) -> None:
        """Its connection is over: its will is published now, or is not to be."""


@mypyc_attr(allow_interpreted_subclasses=True)
class Propagation:
    """Whether other nodes know of subscriptions."""

    def wait(self, registry: Any, subscriber: Any, filters: list[str]) -> Pending | None:
        """A client has subscribed: None: the SUBACK may be sent; else `Pending` comes when it may."""
        return None


@mypyc_attr(allow_interpreted_subclasses=True)
class RemoteTargets:
    """What the topics of one mountpoint find on other nodes."""

    def complete(self, route: Any) -> None:
        """Completes a route with its targets there."""


@mypyc_attr(allow_interpreted_subclasses=True)
class Elsewhere:
    """Where messages go on other nodes."""

    def targets(self, mountpoint: str) -> RemoteTargets:
        """What the topics of a mountpoint find there."""
        return RemoteTargets()

    def forward(self, registry: Any, route: Any, message: Any, source: Source) -> None:
        """Sends a message to the nodes of its route, and to one member of each share group that has some there."""

    def forward_again(self, registry: Any, route: Any, message: Any, source: Source) -> None:
        """A QoS 2 message of a client has come again that all have who are in no slot."""

    def forward_run(self, mountpoint: str, route: Any, frames: bytes, count: int) -> None:
        """Sends a run of so many PUBLISH packets to the nodes of its route."""

    def give(self, registry: Any, group: str, message: Any, to_absent: bool) -> bool:
        """Gives what a member of a share group cannot handle any more to one there; False if there is none.

        `to_absent`: one that is away will do.
        """
        return False

    def has_member(self, registry: Any, group: str, is_absent: bool) -> bool:
        """Whether a share group has such a member there."""
        return False


@mypyc_attr(allow_interpreted_subclasses=True)
class Peers:
    """The nodes that have what this one sent to them."""

    def wait_for_all(self, output: Output) -> None:
        """Has the answers of this pass wait for whatever other nodes have not confirmed, if they are to."""


@mypyc_attr(allow_interpreted_subclasses=True)
class RetainedListener:
    """Told of the retained messages of this broker's clients."""

    #: Bytes that a payload may have; 0 is no limit.
    longest: int

    def __init__(self) -> None:
        self.longest = 0

    def on_retained(self, registry: Any, message: Any) -> None:
        """One is kept, or erased if it has no payload."""

    def on_subscribed(
        self, registry: Any, subscriber: Any, granted: dict[str, int], hooks: Any
    ) -> None:
        """A client has subscribed, at the QoS of each filter, and gets what is retained here; `hooks` judge that.

        Other nodes may not know of it.
        """


@mypyc_attr(allow_interpreted_subclasses=True)
class StreamFinder:
    """Which streams keep a topic."""

    def appenders(self, topic: str) -> list[Any]:
        """Their write sides (`vmq.streams.appender.Appender`)."""
        return []


@mypyc_attr(allow_interpreted_subclasses=True)
class MappingFinder:
    """Which mappings want a topic."""

    def taps(self, mountpoint: str, topic: str) -> list[Any]:
        """Where its messages come by, as those of a stream do (`vmq.jobs.mappings.tap`)."""
        return []

    def hand_in(self, row: Any) -> None:
        """A session knows of a message that they want (`vmq.clustering.running.rows.HandedRow`)."""
        row.confirm()


@mypyc_attr(allow_interpreted_subclasses=True)
class ReceiptsPort:
    """What streams have of messages at QoS 2; see `vmq.streams.serving.receipts`."""

    #: There are streams that give receipts.
    gives: bool

    def __init__(self) -> None:
        self.gives = False

    def lacks(self, session: bytes, packet_id: int) -> bool:
        """Whether a stream lacks a message that sessions have."""
        return False

    def begin(self, session: bytes, packet_id: int, came_before: bool) -> frozenset[str] | None:
        """A message is handed to the streams next; which ones lack it, None: it is new to all."""
        return None

    def cancel(self) -> None:
        """A stream did not take it."""

    def end(self) -> None:
        """The streams have taken it."""

    def forget(self, session: bytes, packet_id: int) -> None:
        """The streams have been given what they lacked, or the client has released the packet id."""


@mypyc_attr(allow_interpreted_subclasses=True)
class ServicePort:
    """What has the say of topics that begin with `$`, as clients of MQTT reach it; see `vmq.mqtt.special`.

    Clients are `vmq.protocol.session.Session`.
    """

    def publish(self, client: Any, topic: str, message: Any, packet_id: int) -> None:
        """A client publishes to one of its topics."""
        client.output.close("not served here: " + topic[:80])

    def publish_will(self, client: Any, registry: Any, topic: str, will: Any) -> None:
        """Its will is due, in the topic tree of a registry."""

    def prepare(self, client: Any, topic_filter: str) -> Pending | None:
        """A client may subscribe as far as plugins say: None, or `Pending` comes when `grant` may be asked."""
        return None

    def grant(self, client: Any, topic_filter: str, qos: int) -> int:
        """A client wants to subscribe: the QoS that it is granted, or 128."""
        return 128

    def on_subscribed(self, queue: Any, topic_filter: str) -> None:
        """It is subscribed."""

    def on_unsubscribed(self, queue: Any, topic_filter: str) -> None:
        """It is not any more."""

    def on_online(self, queue: Any) -> None:
        """A connection has a queue."""

    def on_offline(self, queue: Any) -> None:
        """It has ended."""


@mypyc_attr(allow_interpreted_subclasses=True)
class JobsPort(ServicePort):
    """The jobs."""

    #: Somebody has added or taken jobs: else `on_pubrel` needs not be called.
    is_on: bool

    def __init__(self) -> None:
        self.is_on = False

    def bury(self, queue: str, body: bytes, reason: str) -> None:
        """Something that can never be done is a dead letter of a queue of the default topic tree."""

    def on_acknowledged(self, queue: Any, token: bytes) -> None:
        """A client has acknowledged a `Transient` delivery of theirs."""

    def on_pubrel(self, client: Any, packet_id: int) -> None:
        """A client releases a packet id of QoS 2."""

    def hand_in(self, row: Any) -> None:
        """A session knows of a job (`vmq.clustering.running.rows.HandedRow`)."""
        row.confirm()


@mypyc_attr(allow_interpreted_subclasses=True)
class ReadersPort(ServicePort):
    """Those who read streams; this one is of a broker that has none."""

    def publish(self, client: Any, topic: str, message: Any, packet_id: int) -> None:
        client.output.close("nothing is published to " + topic[:80] + " [MQTT-3.3.5-2]")

    def publish_will(self, client: Any, registry: Any, topic: str, will: Any) -> None:
        text = "will of client=%s is lost: nothing is published to %s"
        log.warning(text, client.client_id, topic[:80])

    def grant(self, client: Any, topic_filter: str, qos: int) -> int:
        return self.refuse(client, topic_filter, "there are no streams")

    def refuse(self, client: Any, topic_filter: str, flaw: str) -> int:
        """Nobody is granted that, and the log says why."""
        client.core.counters.subscriptions_refused += 1
        text = 'no reader client=%s filter="%s": %s'
        log.warning(text, client.client_id, topic_filter[:200], flaw)
        return REFUSED_QOS

    def on_unblocked(self, queue: Any) -> None:
        """The socket of a client takes bytes again."""

    def on_settled(self, queue: Any) -> None:
        """A client to which they send has acknowledged something, theirs or not."""


@mypyc_attr(allow_interpreted_subclasses=True)
class Traffic:
    """Sees what comes from and goes to connections, while somebody traces a client."""

    #: Somebody does: the one port that each pass would else call, twice.
    is_on: bool

    def __init__(self) -> None:
        self.is_on = False

    def see(self, connection: Any, incoming: bool, data: bytes) -> None:
        """Bytes that have come, or are about to go."""


@mypyc_attr(allow_interpreted_subclasses=True)
class BanList:
    """Who is not let in."""

    #: Nobody is banned: a CONNECT costs nothing for it.
    is_empty: bool

    def __init__(self) -> None:
        self.is_empty = True

    def refusal(self, client_id: str, user: str | None, host: str) -> str:
        """Why a client is not let in; "" if it is."""
        return ""


@mypyc_attr(allow_interpreted_subclasses=True)
class MemoryPort:
    """Measures the process's memory."""

    def look(self) -> None:
        """More has come or was kept since the last look than was to."""


@mypyc_attr(allow_interpreted_subclasses=True)
class RegistryFinder:
    """The topic trees of the broker."""

    def find(self, mountpoint: str) -> Any:
        """The registry of a mountpoint, made when first asked for; None without a broker."""
        return None


@mypyc_attr(allow_interpreted_subclasses=True)
class SessionOptionsPort:
    """The options of sessions for which a plugin changed some."""

    def of(self, modifiers: Any) -> Any:
        """The `CoreOptions` of a session with these modifiers; None: the broker's."""
        return None


@mypyc_attr(allow_interpreted_subclasses=True)
class RecheckPort:
    """Authorises subscriptions anew."""

    def put(self, registry: Any, subscriber: Any) -> None:
        """Has a session's asked about, soon."""


@mypyc_attr(allow_interpreted_subclasses=True)
class ConnectionWatch:
    """Who keeps the deadlines of a connection; this one keeps none."""

    def wake(self) -> None:
        """Something changed that may bring the next look forward."""

    def look(self) -> None:
        """Looks at once, for what every connection does: a call of the event loop is dearer than a look."""


NOBODY: Final = ConnectionWatch()
