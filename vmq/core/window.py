"""The inflight window of one subscriber: what it was sent and has not acknowledged, in a ring by packet id.

Rows of a stream go out in runs: many under packet ids that follow each other, which a client acknowledges in that order
[MQTT-4.6.0-2]. A run is one entry beside the ring. One of which a client acknowledges another row than the first
becomes single deliveries.

A packet id stands in the slot that is its remainder by the number of slots, so that finding one takes an index and no
hash. Ids are given in turn. One whose slot is taken, by an older one that stays unacknowledged, is passed over: at
least half of the slots are free, until there is one for each id.
"""

from collections import deque
from operator import attrgetter
from typing import Final

from mypy_extensions import i32, i64, mypyc_attr

from vmq.mqtt.message import NO_MESSAGE, Delivery, Transient

#: Packet ids are 1 to this [MQTT-2.3.1-1].
LAST_ID: Final = 65_535
#: One for each packet id, and for 0, which is none.
MOST_SLOTS: Final = 65_536
#: The first slots that a window gets, and as many as it keeps when it is empty: those of the default limit.
FEWEST_SLOTS: Final = 8
KEPT_SLOTS: Final = 64

#: The slots of whoever was never sent anything. Nothing is put there: there are too few.
NO_SLOTS: Final[list[Delivery | None]] = [None]


class PacketRun:
    """Deliveries at QoS 1 under packet ids that follow each other, none of them session state."""

    def __init__(self, first: i64, left: i64) -> None:
        #: The packet id of the first one that is not acknowledged, and how many there are from it on.
        self.first = first
        self.left = left
        #: Its place in the order.
        self.turn: i64 = 0

    def size(self) -> i64:
        """The bytes that those count in flight."""
        return 0

    def acknowledge(self, count: i64) -> None:
        """So many at the front are acknowledged."""
        self.first += count
        self.left -= count
        self.turn += count

    def single(self) -> list[Transient]:
        """What is left, one by one: it is this run no more."""
        return self.content()

    def content(self) -> list[Transient]:
        """What is left, for people."""
        return [Transient(NO_MESSAGE, b"") for _ in range(self.left)]

    def numbered(self, deliveries: list[Transient]) -> list[Transient]:
        """What is left, with packet ids and places in the order."""
        for at, each in enumerate(deliveries):
            each.packet_id = self.first + at
            each.turn = self.turn + at
        return deliveries


class PacketRuns:
    """The runs in flight, in the order in which they were sent."""

    def __init__(self) -> None:
        self.line: deque[PacketRun] = deque()
        #: How many deliveries are in them.
        self.count: i64 = 0

    def of(self, packet_id: i64) -> PacketRun | None:
        """The run that a packet id is of."""
        for run in self.line:
            if run.first <= packet_id < run.first + run.left:
                return run
        return None

    def is_free(self, first: i64, end: i64) -> bool:
        """Whether no run has a packet id from `first` on and before `end`."""
        return not any(run.first < end and first < run.first + run.left for run in self.line)

    def acknowledged(self, data: bytes, index: i64) -> i64:
        """How many packets of four bytes from here on acknowledge what the first run begins with, one by one."""
        if self.count == 0:
            return 0
        first = self.line[0]
        packet_id: i64 = first.first
        most: i64 = (len(data) - index) >> 2
        most = min(most, first.left)
        count: i64 = 0
        while count < most:
            given: i64 = data[index + 2]
            given = given << 8 | data[index + 3]
            if given != packet_id:
                break
            packet_id += 1
            index += 4
            count += 1
        return count

    def advance(self, count: i64) -> None:
        """So many of the first run are acknowledged."""
        first = self.line[0]
        self.count -= count
        first.acknowledge(count)
        if first.left == 0:
            self.line.popleft()

    def remove(self, run: PacketRun) -> None:
        """Takes one out that is there."""
        self.line.remove(run)
        self.count -= run.left


# It holds deliveries and runs, which hold no window.
@mypyc_attr(acyclic=True)
class InflightWindow:
    """Deliveries in flight by packet id, and in the order in which they were sent."""

    def __init__(self) -> None:
        self.slots: list[Delivery | None] = NO_SLOTS
        #: How many are in the slots, and how many of these are no session state.
        self.count: i64 = 0
        self.transients: i32 = 0
        #: The packet id that was given last, 0 at first.
        self.last_packet_id: i32 = 0
        #: Those of whoever was never sent any are None: windows are many.
        self.runs: PacketRuns | None = None
        #: Counts what was sent, for the order.
        self.turn: i64 = 0

    def __len__(self) -> int:
        return self.total()

    def total(self) -> i64:
        """How many there are, those of runs too."""
        runs = self.runs
        return self.count if runs is None else self.count + runs.count

    def messages(self) -> i64:
        """How many of them are session state."""
        return self.count - i64(self.transients)

    def __contains__(self, packet_id: int) -> bool:
        return self.get(packet_id) is not None

    def get(self, packet_id: i64) -> Delivery | None:
        """What is in flight under a packet id."""
        slots = self.slots
        size: i64 = len(slots)
        found = slots[packet_id & (size - 1)]
        if found is not None and found.packet_id == packet_id:
            return found
        return None if self.runs is None else self.single(packet_id)

    def send(self, delivery: Delivery) -> None:
        """Gives a delivery the next packet id that is free; fewer than all are in flight."""
        slots = self.slots
        runs = self.runs
        size: i64 = len(slots)
        if 2 * self.count + 1 >= size and size < MOST_SLOTS:
            slots = self.grow()
            size = len(slots)
        packet_id: i64 = i64(self.last_packet_id)
        while True:
            packet_id = packet_id + 1 if packet_id < LAST_ID else 1
            place: i64 = packet_id & (size - 1)
            if slots[place] is None and (runs is None or runs.of(packet_id) is None):
                break
        self.last_packet_id = i32(packet_id)
        delivery.packet_id = packet_id
        slots[place] = delivery
        self.count += 1
        self.to_end(delivery)

    def put(self, delivery: Delivery) -> None:
        """Takes a delivery that has a packet id, the store's or another node's, instead of what is under that id."""
        packet_id: i64 = delivery.packet_id
        if self.runs is not None:
            self.single(packet_id)
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
        """All that are single, in order."""
        found = [each for each in self.slots if each is not None]
        found.sort(key=attrgetter("turn"))
        return found

    def content(self) -> list[Delivery]:
        """All of them, in order, as they are at this moment."""
        found = self.values()
        for run in self.all_runs():
            found += run.numbered(run.content())
        found.sort(key=attrgetter("turn"))
        return found

    def oldest(self) -> int:
        """The place in the order of what was sent first; -1: there is nothing."""
        turns = [each.turn for each in self.values()[:1]] + [
            each.turn for each in self.all_runs()[:1]
        ]
        return min(turns, default=-1)

    def clear(self) -> None:
        """Takes all of them out, runs too."""
        self.slots = NO_SLOTS
        self.count = 0
        self.transients = 0
        self.runs = None

    # Runs

    def all_runs(self) -> list[PacketRun]:
        """In order, as they are at this moment."""
        runs = self.runs
        return [] if runs is None else list(runs.line)

    def is_free(self, first: i64, count: i64) -> bool:
        """Whether nothing is in flight under any of so many packet ids."""
        end = first + count
        runs = self.runs
        if runs is not None and not runs.is_free(first, end):
            return False
        if self.count:
            slots = self.slots
            size: i64 = len(slots)
            for packet_id in range(first, end):
                found = slots[packet_id & (size - 1)]
                if found is not None and found.packet_id == packet_id:
                    return False
        return True

    def send_run(self, run: PacketRun) -> None:
        """One goes out whose packet ids are free."""
        runs = self.runs
        if runs is None:
            self.runs = runs = PacketRuns()
        runs.line.append(run)
        runs.count += run.left
        run.turn = self.turn + 1
        self.turn += run.left

    def single(self, packet_id: i64) -> Delivery | None:
        """What a run has under a packet id: this run is single deliveries from now on."""
        runs = self.runs
        run = None if runs is None else runs.of(packet_id)
        if runs is None or run is None:
            return None
        runs.remove(run)
        deliveries = run.numbered(run.single())
        self.transients += len(deliveries)
        for each in deliveries:
            turn = each.turn
            self.put(each)
            each.turn = turn
        return deliveries[packet_id - run.first]

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
