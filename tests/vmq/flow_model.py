"""A simple reference of what subscribers are sent: `ModelQueue` says in plain lists what a queue of vmq does.

Nothing here is fast, stored or clever: that is its point.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from tests.support import wire as mqtt
from vmq.core.context import CoreOptions


@dataclass(eq=False)
class Item:
    """One message on its way to one subscriber."""

    payload: bytes
    qos: int
    #: What it counts in the window, as its options do: bytes of topic and payload.
    length: int
    retain: bool = False
    released: bool = False
    pid: int = 0
    #: The filter whose subscription brought this retained message.
    brought_by: str = ""


#: What a client should be sent: ("publish", payload, qos, dup, retain) or ("pubrel", pid).
Event = tuple[object, ...]


def event_of(packet: mqtt.Packet) -> Event:
    if packet.type == mqtt.PUBREL:
        return ("pubrel", packet.packet_id)
    return ("publish", packet.payload, packet.qos, packet.dup, packet.retain)


class ModelQueue:
    """One subscriber's queue in lists.

    `draining` tells whether the real queue still has messages of its time offline in the store:
    the larger of the two limits holds until they are loaded.
    """

    def __init__(self, options: CoreOptions, durable: bool, draining: Callable[[], bool]) -> None:
        self.options = options
        self.durable = durable
        self.draining = draining
        self.online = False
        self.blocked = False
        #: In the order in which they would be repeated.
        self.inflight: list[Item] = []
        self.burst: list[Item] = []
        self.quick: list[Item] = []
        self.waiting: list[Item] = []
        #: Due to be sent: QoS 0, and the rest. No order is promised between the two.
        self.quick_events: list[Event] = []
        self.events: list[Event | Item] = []
        self.dropped: list[bytes] = []

    def deliver(self, item: Item) -> None:
        """A message that a subscription matched."""
        if item.qos == 0:
            self.deliver_quick(item)
        elif self.free_to_send(item.length):
            self.send(item)
        elif self.make_room(self.limit()):
            self.waiting.append(item)
        else:
            self.dropped.append(item.payload)

    def deliver_quick(self, item: Item) -> None:
        if not self.online:
            return
        if self.blocked or self.quick or self.burst:
            limit = self.options.max_online_messages
            if limit >= 0 and self.count() >= limit:
                if not (self.options.drop_oldest and self.quick):
                    self.dropped.append(item.payload)
                    return
                self.dropped.append(self.quick.pop(0).payload)
            self.quick.append(item)
        else:
            self.quick_events.append(("publish", item.payload, 0, False, item.retain))

    def deliver_retained(self, topic_filter: str, items: list[Item]) -> None:
        """The retained messages of a new subscription, far below their limit.

        They replace what is unsent of an earlier time, apart from what was stored.
        """
        self.burst = [item for item in self.burst if item.brought_by != topic_filter]
        for item in items:
            if not (item.qos and self.durable):
                continue
            if self.free_to_send(item.length):
                self.send(item)
            else:
                self.waiting.append(item)
        self.burst += [item for item in items if not (item.qos and self.durable)]
        self.run()

    def free_to_send(self, length: int) -> bool:
        waits = self.waiting or self.burst
        return self.online and not self.blocked and not waits and self.has_place(length)

    def window_open(self) -> bool:
        return len(self.inflight) < (self.options.max_inflight_messages or 65_535)

    def has_place(self, length: int) -> bool:
        """An empty window has one for a message of any length."""
        sent = sum(item.length for item in self.inflight if not item.released)
        fits = not self.inflight or sent + length <= self.options.max_inflight_bytes
        return self.window_open() and fits

    def limit(self) -> int:
        offline, online = self.options.max_offline_messages, self.options.max_online_messages
        if not self.online:
            return offline
        if self.draining() and online >= 0:
            return -1 if offline < 0 else max(online, offline)
        return online

    def make_room(self, limit: int) -> bool:
        if limit < 0 or self.count() < limit:
            return True
        if not self.options.drop_oldest or limit == 0 or not self.waiting:
            return False
        self.dropped.append(self.waiting.pop(0).payload)
        return True

    def count(self) -> int:
        return len(self.waiting) + len(self.quick)

    def would_take(self, length: int) -> bool:
        """Whether a QoS 1 or 2 message would be sent or wait, not be dropped."""
        limit = self.limit()
        room = limit < 0 or self.count() < limit
        return (
            room or self.free_to_send(length) or (self.options.drop_oldest and bool(self.waiting))
        )

    def send(self, item: Item) -> None:
        self.inflight.append(item)
        self.events.append(item)

    def run(self) -> None:
        """Sends what socket and window allow."""
        while self.online and not self.blocked:
            if self.burst:
                if self.burst[0].qos == 0:
                    item = self.burst.pop(0)
                    self.quick_events.append(("publish", item.payload, 0, False, True))
                elif self.window_open():
                    self.send(self.burst.pop(0))
                else:
                    return
            elif self.quick:
                item = self.quick.pop(0)
                self.quick_events.append(("publish", item.payload, 0, False, item.retain))
            else:
                end = -1 if self.options.lifo else 0
                if not (self.waiting and self.has_place(self.waiting[end].length)):
                    return
                self.send(self.waiting.pop(end))

    def go_online(self) -> None:
        self.online, self.blocked = True, False
        for item in self.inflight:
            if item.released:
                self.events.append(("pubrel", item.pid))
            else:
                self.events.append(("publish", item.payload, item.qos, True, item.retain))
        self.run()

    def go_offline(self) -> None:
        self.online = False
        self.quick, self.burst = [], []
        self.quick_events, self.events = [], []

    def acknowledge(self, item: Item) -> None:
        """PUBACK or PUBCOMP came."""
        self.inflight.remove(item)
        self.run()

    def received(self, item: Item) -> None:
        """PUBREC came."""
        if not item.released:
            item.released = True
            self.inflight.remove(item)
            self.inflight.append(item)
        self.events.append(("pubrel", item.pid))


@dataclass
class ModelSession:
    """One client id's session."""

    queue: ModelQueue
    subscriptions: dict[str, int] = field(default_factory=dict)
    #: QoS 2 packet ids that it published under and has not released.
    published: dict[int, bytes] = field(default_factory=dict)
    #: Packet ids under which it was sent messages that it has not finished.
    ids: dict[int, Item] = field(default_factory=dict)
    #: What it took over as a careful client does, by its QoS: QoS 2 once for each packet id.
    taken: dict[int, list[bytes]] = field(default_factory=lambda: {0: [], 1: [], 2: []})
