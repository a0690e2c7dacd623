"""The retained scenario: many retained messages, then one subscriber that gets them all."""

from collections.abc import Iterator
from time import monotonic_ns
from typing import Final

from vmq.bench.load.acks import LENGTH, PUBACK, PUBCOMP, PUBREC, PUBREL, AckLine, run_of
from vmq.bench.load.checks import Faults
from vmq.bench.load.client import LoadClient
from vmq.bench.load.frames import HEADER, packet_id_of
from vmq.bench.load.options import BenchError
from vmq.bench.result import Result
from vmq.bench.stage import SETTLE, Meter, Stage
from vmq.mqtt import encoder

_PUBLISH: Final = 3
_BATCH: Final = 64 * 1024
_STEP: Final = 0.02
_LINGER: Final = 0.2


class RetainedLoad:
    """The retained messages: what each topic is to hold."""

    def __init__(self, stage: Stage) -> None:
        options = stage.options
        self.filter = f"{stage.prefix}/r/#"
        self.qos = options.qos
        filler = bytes((index * 7 + 13) & 255 for index in range(options.size - HEADER))
        width = len(str(options.count))
        self.topics = [
            f"{stage.prefix}/r/{index % 100:02}/{index:0{width}}".encode()
            for index in range(options.count)
        ]
        self.payloads = [index.to_bytes(HEADER, "big") + filler for index in range(options.count)]

    def packets(self, is_clearing: bool) -> Iterator[bytes]:
        """A PUBLISH for each topic, with its payload or, to clear it, none."""
        for index, topic in enumerate(self.topics):
            payload = b"" if is_clearing else self.payloads[index]
            yield encoder.publish(topic, payload, self.qos, packet_id_of(index), True, False)

    def expected(self) -> set[bytes]:
        """What a new subscriber is to get, with packet id 0."""
        return {
            encoder.publish(topic, payload, self.qos, 0, True, False)
            for topic, payload in zip(self.topics, self.payloads, strict=True)
        }


class Keeper(LoadClient):
    """Publishes what is to be retained, and says when the broker has taken all of it."""

    def __init__(self, stage: Stage, index: int, store: RetainedLoad) -> None:
        super().__init__(stage.loop, stage.endpoint, stage.client_id("k", index))
        self.count = stage.options.count
        self.sent = 0
        self.is_settled = False
        self._window = stage.options.window
        self._qos = store.qos
        self._received = AckLine(PUBREC)
        self._acked = AckLine(PUBACK if store.qos == 1 else PUBCOMP)

    def publish(self, packets: Iterator[bytes]) -> None:
        """Sends a batch, as far as the window allows."""
        batch: list[bytes] = []
        size = 0
        while size < _BATCH and self.sent < self.count:
            if self._qos and self.sent - self._acked.next >= self._window:
                break
            batch.append(packet := next(packets))
            size += len(packet)
            self.sent += 1
        if batch:
            self.write(b"".join(batch))
        if self.sent == self.count and (not self._qos or self._acked.next == self.count):
            self.write(
                encoder.PINGREQ
            )  # its answer comes when the broker has handled all before it
            self.sent += 1

    def on_packet(self, head: int, packet: bytes, body: int) -> None:
        """An acknowledgement, or the answer to the ping."""
        if head == encoder.PINGRESP[0]:
            self.is_settled = True
        elif head == PUBREC:
            self._received.take(memoryview(packet), self.sent)
            self.write(bytes((PUBREL,)) + packet[1:])
        elif head in {PUBACK, PUBCOMP}:
            self._acked.take(memoryview(packet), self.sent)
        else:
            super().on_packet(head, packet, body)


class Collector(LoadClient):
    """The new subscriber: each retained message is to come once, in whatever order."""

    def __init__(self, stage: Stage, store: RetainedLoad) -> None:
        super().__init__(stage.loop, stage.endpoint, stage.client_id("s", 0))
        self.faults = Faults()
        self.missing = store.expected()
        self.came: set[bytes] = set()
        self.last = 0
        self._qos = store.qos
        self._replies: list[bytes] = []

    def take(self, buffer: bytearray, size: int) -> int:
        """Handles what came; PUBRELs by the run."""
        at = 0
        while not self.is_over and at < size:
            end = run_of(buffer, at, size, PUBREL) if buffer[at] == PUBREL else 0
            if end > at:
                answer = buffer[at:end]
                answer[0::LENGTH] = bytes((PUBCOMP,)) * ((end - at) // LENGTH)
                self._replies.append(bytes(answer))
            else:
                end = self.take_one(buffer, at, size)
            if not end:
                break
            at = end
        return at

    def on_packet(self, head: int, packet: bytes, body: int) -> None:
        """A retained message, as a rule."""
        if head >> 4 != _PUBLISH:
            super().on_packet(head, packet, body)
            return
        if head & 6:
            at = body + 2 + int.from_bytes(packet[body : body + 2], "big")
            self._replies.append(
                bytes((PUBACK if head & 6 == 2 else PUBREC, 2)) + packet[at : at + 2]
            )
            packet = packet[:at] + bytes(2) + packet[at + 2 :]
        self.last = self.loop.now
        if packet in self.missing:
            self.missing.remove(packet)
            self.came.add(packet)
        elif packet in self.came:
            self.faults.duplicates += 1
        else:
            # Among others: without the retain flag, which a stored message must have [MQTT-3.3.1-8].
            self.faults.damaged += 1

    def on_taken(self) -> None:
        """Sends the answers to what one read brought."""
        if self._replies:
            data = b"".join(self._replies)
            self._replies.clear()
            self.write(data)


def run_retained(stage: Stage) -> Result:
    """Stores, subscribes, and clears what was stored."""
    options = stage.options
    store = RetainedLoad(stage)
    result = stage.new_result()
    before = stage.usage()
    begun = monotonic_ns()
    keep(stage, store, 0)
    result.store_rate = round(options.count / ((monotonic_ns() - begun) / 1e9), 1)
    stage.loop.run_for(SETTLE)
    stored = stage.usage()
    try:
        collect(stage, store, result)
    finally:
        # A keeper of its own: whatever happened to the first one, the broker is left as it was.
        if stage.loop.ended == 0:
            keep(stage, store, 1)
    if result.broker is not None and before is not None and stored is not None:
        result.broker.bytes_per_retained = round((stored.rss - before.rss) / options.count, 1)
    stage.finish(result)
    return result


def keep(stage: Stage, store: RetainedLoad, index: int) -> None:
    """Has the broker retain everything (`index` 0) or clears it (1)."""
    keeper = Keeper(stage, index, store)
    stage.connect([keeper])
    packets = store.packets(is_clearing=index == 1)
    moved = monotonic_ns()
    mark = -1
    while not keeper.is_settled:
        if not keeper.pending:
            keeper.publish(packets)
        stage.loop.step(_STEP if keeper.pending or keeper.sent > keeper.count else 0.001)
        stage.control.tell("stored" if index == 0 else "cleared", keeper.sent, keeper.count)
        if stage.loop.ended:
            raise BenchError(stage.loop.first_problem)
        if index == 0:
            stage.control.check()
        now = monotonic_ns()
        if stage.loop.bytes_in + stage.loop.bytes_out != mark:
            mark, moved = stage.loop.bytes_in + stage.loop.bytes_out, now
        elif now - moved > stage.options.stall * 1e9:
            raise BenchError(f"the broker took {keeper.sent} retained messages, then no more")


def collect(stage: Stage, store: RetainedLoad, result: Result) -> None:
    """Subscribes, and waits for everything that is retained."""
    options = stage.options
    collector = Collector(stage, store)
    stage.connect([collector])
    meter = Meter(stage)
    begun = moved = monotonic_ns()
    collector.subscribe(store.filter, qos=options.qos)
    mark = -1
    while collector.missing:
        stage.loop.step(_STEP)
        meter.sample()
        stage.control.tell("received", len(collector.came), options.count)
        now = monotonic_ns()
        if stage.loop.bytes_in != mark:
            mark, moved = stage.loop.bytes_in, now
        elif now - moved > options.stall * 1e9:
            result.end = "stalled"
            break
        if stage.loop.ended or stage.control.is_stopping:
            result.end = "disconnected" if stage.loop.ended else "interrupted"
            break
    result.broker, result.loader = meter.broker(), meter.loader()
    stage.loop.run_for(_LINGER)
    seconds = max((collector.last - begun) / 1e9, 1e-9)
    result.qos, result.size = options.qos, options.size
    result.seconds = round(seconds, 4)
    result.sent = result.expected = options.count
    result.received = len(collector.came)
    result.receive_rate = round(result.received / seconds, 1)
    result.take_faults(collector.faults)
    if result.end != "interrupted":
        result.lost = len(collector.missing)
    if result.broker is not None and result.received:
        result.broker.cpu_us_per_message = round(
            result.broker.cpu_seconds * 1e6 / result.received, 3
        )
