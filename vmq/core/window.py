"""The inflight window of one subscriber: what it was sent and has not acknowledged, in a ring by packet id.

A packet id stands in the slot that is its remainder by the number of slots, so that finding one takes an index and no
hash. Ids are given in turn. One whose slot is taken, by an older one that stays unacknowledged, is passed over: at
least half of the slots are free, until there is one for each id.
"""

from operator import attrgetter
from typing import Final

from mypy_extensions import i64, mypyc_attr

from vmq.mqtt.message import Delivery

#: Packet ids are 1 to this [MQTT-2.3.1-1].
LAST_ID: Final = 65_535
#: One for each packet id, and for 0, which is none.
MOST_SLOTS: Final = 65_536
#: The first slots that a window gets, and as many as it keeps when it is empty: those of the default limit.
FEWEST_SLOTS: Final = 8
KEPT_SLOTS: Final = 64

#: The slots of whoever was never sent anything. Nothing is put there: there are too few.
NO_SLOTS: Final[list[Delivery | None]] = [None]


# It holds a list of deliveries, which hold no window.
@mypyc_attr(acyclic=True)
class InflightWindow:
    """Deliveries in flight by packet id, and in the order in which they were sent."""

    def __init__(self) -> None:
        self.slots: list[Delivery | None] = NO_SLOTS
        self.count: i64 = 0
        #: The packet id that was given last, 0 at first.
        self.last_packet_id: i64 = 0
        #: Counts what was sent, for the order.
        self.turn: i64 = 0

    def __len__(self) -> int:
        return self.count

    def __contains__(self, packet_id: int) -> bool:
        return self.get(packet_id) is not None

    def get(self, packet_id: i64) -> Delivery | None:
        """What is in flight under a packet id."""
        slots = self.slots
        size: i64 = len(slots)
        found = slots[packet_id & (size - 1)]
        if found is not None and found.packet_id == packet_id:
            return found
        return None

    def send(self, delivery: Delivery) -> None:
        """Gives a delivery the next packet id that is free; fewer than all are in flight."""
        slots = self.slots
        size: i64 = len(slots)
        if 2 * self.count + 1 >= size and size < MOST_SLOTS:
            slots = self.grow()
            size = len(slots)
        packet_id: i64 = self.last_packet_id
        while True:
            packet_id = packet_id + 1 if packet_id < LAST_ID else 1
            place: i64 = packet_id & (size - 1)
            if slots[place] is None:
                break
        self.last_packet_id = packet_id
        delivery.packet_id = packet_id
        slots[place] = delivery
        self.count += 1
        self.to_end(delivery)

    def put(self, delivery: Delivery) -> None:
        """Takes a delivery that has a packet id, the store's or another node's, instead of what is under that id."""
        packet_id: i64 = delivery.packet_id
        slots = self.slots
        while True:
            size: i64 = len(slots)
            place: i64 = packet_id & (size - 1)
            present = slots[place]
            if size == MOST_SLOTS or (present is not None and present.packet_id == packet_id):
                break
            if present is None and 2 * self.count + 1 < size:
                break
            slots = self.grow()
        if present is None:
            self.count += 1
        slots[place] = delivery
        self.to_end(delivery)

    def remove(self, delivery: Delivery) -> None:
        """Takes one out that is there."""
        slots = self.slots
        size: i64 = len(slots)
        place: i64 = delivery.packet_id & (size - 1)
        if slots[place] is not delivery:
            raise KeyError(delivery.packet_id)
        slots[place] = None
        self.count -= 1
        if self.count == 0 and size > KEPT_SLOTS:
            self.slots = NO_SLOTS

    def to_end(self, delivery: Delivery) -> None:
        """A delivery becomes the last in the order."""
        turn: i64 = self.turn + 1
        self.turn = turn
        delivery.turn = turn

    def values(self) -> list[Delivery]:
        """All of them, in order."""
        found = [each for each in self.slots if each is not None]
        found.sort(key=attrgetter("turn"))
        return found

    def clear(self) -> None:
        """Takes all of them out."""
        self.slots = NO_SLOTS
        self.count = 0

    def grow(self) -> list[Delivery | None]:
        """Doubles the slots: what had one each has one each again."""
        before = self.slots
        size: i64 = max(FEWEST_SLOTS, 2 * len(before))
        slots: list[Delivery | None] = [None] * size
        for each in before:
            if each is not None:
                slots[each.packet_id & (size - 1)] = each
        self.slots = slots
        return slots
