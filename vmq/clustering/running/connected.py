"""Clients of this node whose sessions are in slots: those who wait for them, and those who have them."""

from collections.abc import Callable, Mapping

from vmq.clustering.messages.fronts import Attached, SessionStep
from vmq.clustering.slots import words
from vmq.clustering.slots.flow import Given
from vmq.core.hook_sites import Hooks, Pending
from vmq.core.output import Output
from vmq.core.source import Source
from vmq.disk.durable import Confirmations
from vmq.mqtt.message import Delivery
from vmq.mqtt.packets import PUBACK, PUBREC
from vmq.protocol.client import Client
from vmq.protocol.front_queue import FrontQueue


class SlotArrival:
    """A client that waits for its session."""

    def __init__(
        self,
        client_id: str,
        clean: bool,
        pending: Pending,
        claim: Callable[[], Pending | None],
    ) -> None:
        self.client_id = client_id
        self.clean = clean
        self.pending = pending
        self.claim = claim
        #: What its owner has said, and what another node still has to.
        self.attached: Attached | None = None
        self.first: Pending | None = None
        #: What its owner has for it already.
        self.early: list[Given] = []


class SlotClient:
    """A client that has it."""

    def __init__(
        self, queue: FrontQueue, output: Output, client_id: str, early: list[Given]
    ) -> None:
        self.queue = queue
        #: Its connection's, which its queue has from its CONNACK on.
        self.output = output
        #: Behind the scope of its mountpoint.
        self.client_id = client_id
        #: Steps from before its CONNACK; None: that is sent.
        self.early: list[Given] | None = early
        #: Tickets of its requests.
        self.last = 0
        self.subscribing: dict[int, Pending] = {}
        self.unsubscribing: dict[int, Confirmations] = {}
        #: What follows when a QoS 2 message of it is safe, and when a packet id is free.
        self.publishing: dict[int, list[Callable[[], None]]] = {}
        self.releasing: dict[int, Callable[[], None]] = {}
        #: Subscriptions that its owner has not been told of: filter -> QoS, and the filter that was asked for.
        self.fresh: dict[str, tuple[int, str]] = {}
        #: Packet ids of QoS 2 messages that plugins kept back.
        self.withheld: set[int] = set()
        #: Messages by packet id that it has not acknowledged, if plugins want to know when it does.
        self.unacknowledged: dict[int, Delivery] = {}

    def ticket(self) -> int:
        self.last = self.last % 65_535 + 1
        return self.last

    def tell_acked(self, hooks: Hooks, kind: int, packet_id: int) -> None:
        """Tells plugins that the client has a message, if they want to know."""
        delivery = self.unacknowledged.get(packet_id)
        if delivery is None or kind != (PUBACK if delivery.qos == 1 else PUBREC):
            return
        del self.unacknowledged[packet_id]
        if hooks.on_acked is not None:
            self.queue.tell_acked(hooks.on_acked, delivery)


def queue_of(source: Source) -> FrontQueue | None:
    """The queue of a publisher whose session is in a slot."""
    if not isinstance(source, Client) or source.subscriber is None:
        return None
    queue = source.subscriber.queue
    return queue if isinstance(queue, FrontQueue) else None


def subscribing(ticket: int, granted: Mapping[str, tuple[int, str]]) -> SessionStep:
    """Subscriptions, as the owner of their session is told of them."""
    filters = [(each, qos) for each, (qos, _) in granted.items()]
    asked = {each: asked for each, (_, asked) in granted.items() if asked != each}
    return SessionStep(words.SUBSCRIBE, ticket, filters=filters, asked=asked)
