"""The sending end of a flow."""

from typing import Final

from vmq.bench.load.acks import LENGTH, PUBACK, PUBCOMP, PUBREC, PUBREL, AckLine, run_of
from vmq.bench.load.checks import Timeline
from vmq.bench.load.client import LoadClient
from vmq.bench.load.frames import PACKET_ID_CYCLE, LoadFrames
from vmq.bench.load.loop import Loop
from vmq.bench.load.transport import LoadEndpoint

#: Bytes of one write, about.
_BATCH: Final = 64 * 1024
#: A message that went out this much later than it was due (nanoseconds) counts from when it was due, so that a broker
#: which stalls its publishers cannot hide its delays.
_HELD: Final = 1_000_000


class Schedule:
    """When messages are due: `rate` a second in all, from publisher after publisher in turn."""

    def __init__(self, rate: float, publishers: int, start: int) -> None:
        self.step = 1e9 / rate
        self.publishers = publishers
        self.start = start
        #: Messages that were due so far.
        self.given = 0

    def due_at(self, index: int, sequence: int) -> int:
        """When message `sequence` of publisher `index` is due."""
        return self.start + int((sequence * self.publishers + index) * self.step)

    def next_due(self) -> int:
        """When the next message is due."""
        return self.start + int(self.given * self.step)


class LoadPublisher(LoadClient):
    """Sends its numbered messages as fast as window, credit and schedule allow."""

    def __init__(
        self, loop: Loop, endpoint: LoadEndpoint, client_id: str, frames: LoadFrames
    ) -> None:
        super().__init__(loop, endpoint, client_id)
        self.frames = frames
        self.timeline = Timeline()
        self.kicked = False
        #: Subscribers that get each message.
        self.fan = 0
        #: Messages to send in all, and those sent.
        self.limit = 0
        self.sent = 0
        #: Deliveries, over all subscribers; what was lost on the way counts, lest it blocks the rest.
        self.passed = 0
        self.window = 0
        self.credit = 0
        self.schedule: Schedule | None = None
        self.due = 0
        self.received = AckLine(PUBREC)
        self.acked = AckLine(PUBACK if frames.qos == 1 else PUBCOMP)
        self._replies: list[bytes] = []
        self._batch = max(1, _BATCH // frames.length)
        self._qos = frames.qos
        self._length = frames.length
        self._per_block = frames.per_block
        #: The block that is sent from, and the number of its first message.
        self._first = -frames.per_block
        self._view = memoryview(b"")
        #: Whether it is the credit that holds us back.
        self._is_waiting = False

    # What may be sent

    def allowed(self) -> int:
        """How many messages may be sent now."""
        sent = self.sent
        room = self.limit - sent
        if self.credit:
            credit = self.credit - sent + self.passed // self.fan
            if credit < room:
                room = credit
                self._is_waiting = credit <= 0
        if self._qos:
            acked = self.acked
            window = self.window - sent + acked.next + len(acked.early)
            # A packet id is free when its message is acknowledged, however late that one is.
            room = min(room, window, PACKET_ID_CYCLE - sent + acked.next)
        if self.schedule is not None:
            room = min(room, self.due - sent)
        return room

    def on_passed(self, count: int) -> None:
        """A subscriber has had that many further messages."""
        self.passed += count
        # Half of the credit at a time: smaller batches would cost everybody more system calls.
        if self._is_waiting and (self.sent * self.fan - self.passed) * 2 <= self.credit * self.fan:
            self._is_waiting = False
            self.loop.kick(self)

    def pump(self) -> None:
        """Sends what may be sent, up to a batch, behind the answers that wait."""
        if not self.is_up or self.pending:
            return
        room = self.allowed()
        if room > 0:
            at = self.sent - self._first
            if not 0 <= at < self._per_block:
                at = self._turn_page()
            count = min(room, self._per_block - at, self._batch)
            data = self._view[at * self._length : (at + count) * self._length]
            self._note(count)
            if self._replies:
                self._replies.append(bytes(data))
                self._flush()
            else:
                self.write(data)
            if room > count:
                self.loop.kick(self)
            elif self.credit:
                self._is_waiting = self.credit - self.sent + self.passed // self.fan <= 0
        elif self._replies:
            self._flush()

    def _turn_page(self) -> int:
        """Takes up the block of the next message; returns its place there."""
        number, at = divmod(self.sent, self._per_block)
        self._first = self.sent - at
        self._view = memoryview(self.frames.numbered(number))
        return at

    def _flush(self) -> None:
        data = b"".join(self._replies)
        self._replies.clear()
        self.write(data)

    def _note(self, count: int) -> None:
        """The next `count` messages go out now."""
        first = self.sent
        self.sent = end = first + count
        now = self.loop.now
        schedule = self.schedule
        if schedule is not None:
            index = self.frames.publisher
            while first < end and (due := schedule.due_at(index, first)) + _HELD < now:
                first += 1
                self.timeline.add(first, due)
        if first < end:
            self.timeline.add(end, now)

    def on_drained(self) -> None:
        """The socket has taken everything: more may follow."""
        self.loop.kick(self)

    # What comes back

    def take(self, buffer: bytearray, size: int) -> int:
        """Handles acknowledgements by the run, anything else one by one."""
        at = 0
        while not self.is_over and at < size:
            end = self._take_acks(buffer, at, size) or self.take_one(buffer, at, size)
            if not end:
                break
            at = end
        return at

    def _take_acks(self, buffer: bytearray, at: int, size: int) -> int:
        """Handles a run of acknowledgements; returns its end, or 0 if there is none."""
        head = buffer[at]
        qos = self._qos
        if head == PUBACK and qos == 1:
            line, limit = self.acked, self.sent
        elif head == PUBREC and qos == 2:
            line, limit = self.received, self.sent
        elif head == PUBCOMP and qos == 2:
            # Where PUBRECs come out of order, it is not worth knowing which message has had its own.
            received = self.received
            line, limit = self.acked, self.sent if received.early else received.next
        else:
            return 0
        # Mostly all that is left is one run, in order.
        end = size - (size - at) % LENGTH
        if not line.take_in_order(self.loop.view[at:end], limit):
            end = run_of(buffer, at, size, head)
            if end == at:
                return 0
            self._take_one_by_one(line, self.loop.view[at:end], limit)
        if head == PUBREC:
            answer = buffer[at:end]
            answer[0::LENGTH] = bytes((PUBREL,)) * ((end - at) // LENGTH)
            self._replies.append(bytes(answer))
        return end

    def _take_one_by_one(self, line: AckLine, packets: memoryview, limit: int) -> None:
        unknown = line.unknown
        line.take(packets, limit)
        for _ in range(line.unknown - unknown):
            self.loop.protocol_error(f"{self.client_id}: acknowledgement of an unknown packet id")

    def on_taken(self) -> None:
        """What one read brought has been handled."""
        self.pump()

    @property
    def acknowledged(self) -> int:
        """Messages that the broker has taken over; at QoS 0 there is no saying."""
        return self.acked.count if self.frames.qos else self.sent
