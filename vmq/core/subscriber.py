"""A client id with its session."""

from typing import Final

from mypy_extensions import i32

from vmq.core.context import Core
from vmq.core.output import Output
from vmq.core.queue import Queue
from vmq.core.subscription_set import SubscriptionSet
from vmq.mqtt.packet_ids import PacketIds

#: The owner of sessions of clients inside the broker's own process: no user has such a name [MQTT-1.5.3-2].
OURS: Final = "\0"


class Subscriber(SubscriptionSet):
    """One client id and its session.

    It lives as long as the session does: with clean session 1 as long as its connection, else until it expires or the
    client asks for a clean one.
    """

    def __init__(self, client_id: str, queue: Queue) -> None:
        super().__init__()
        self.client_id = client_id
        self.queue = queue
        #: The connection that has the session, if any.
        self.output: Output | None = None
        #: Packet ids of QoS 2 messages received and not released [MQTT-4.3.3-2].
        self.received: PacketIds | None = None
        self.received_is_stored = False
        #: Retained messages about which plugins are asked before it gets them (`vmq.protocol.retain_source`).
        self.judged_messages: i32 = 0
        #: The user whose durable session it is, "" if that is a client without user name; None: nobody knows yet.
        self.owner: str | None = None

    def is_shared(self) -> bool:
        """Whether it is a member of a share group."""
        return any(each.group for each in self.subscriptions.values())

    def received_ids(self, core: Core) -> PacketIds:
        """The QoS 2 packet ids, loaded from the store when first asked for after a restart."""
        received = self.received
        if received is None:
            self.received = received = PacketIds()
            store = core.store
            if self.received_is_stored and store is not None:
                received.update(store.load_received(self.queue.session))
                self.received_is_stored = False
        return received

    def known_ids(self, core: Core) -> list[int]:
        """Those of them whose messages need not come again: no stream lacks them."""
        received = self.received_ids(core).sorted()
        receipts = core.receipts
        session = self.queue.session
        return [packet_id for packet_id in received if not receipts.lacks(session, packet_id)]
