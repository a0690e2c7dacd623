"""Messages flowing from publishers to subscribers: the part that pair, fan-in, fan-out and the like share."""

from collections.abc import Sequence
from time import monotonic_ns
from typing import Final, Protocol

from vmq.bench.load.checks import Faults
from vmq.bench.load.histogram import LatencyHistogram
from vmq.bench.load.options import MAX_COUNT
from vmq.bench.load.publisher import LoadPublisher, Schedule
from vmq.bench.load.subscriber import LoadSubscriber
from vmq.bench.result import Latency, Result
from vmq.bench.stage import Deadline, Meter, Stage

_STEP: Final = 0.02
#: Nanoseconds between looks at how far things are.
_LOOK: Final = 2_000_000
#: Whatever would come twice is still on its way when the last message has come.
_LINGER: Final = 0.2
#: How long what is under way may take to arrive after Ctrl-C.
_PATIENCE: Final = 2.0


class Beside(Protocol):
    """Something else that is done while messages flow."""

    def step(self) -> float:
        """Does what is due; returns the seconds until more is."""


class Flow:
    """One flow: `begin`, `step` as long as it is to last, `finish`."""

    def __init__(
        self,
        stage: Stage,
        publishers: Sequence[LoadPublisher],
        subscribers: Sequence[LoadSubscriber],
        latency: LatencyHistogram,
    ) -> None:
        self.stage = stage
        self.publishers = publishers
        self.subscribers = subscribers
        self.latency = latency
        self.lateness = LatencyHistogram()
        self.end = "complete"
        self.meter: Meter | None = None
        self.beside: Beside | None = None
        self._schedule: Schedule | None = None
        #: Messages that the schedule may give out.
        self._most = stage.options.count
        self._started = 0
        self._sent = 0
        self._received = 0
        self._expected = 0
        self._mark = -1
        self._moved = 0
        self._last = 0

    def begin(self) -> None:
        """Lets the publishers go."""
        options = self.stage.options
        self.reset()
        self.stage.loop.now = monotonic_ns()
        count, extra = divmod(options.count, len(self.publishers))
        if options.rate:
            self._schedule = Schedule(options.rate, len(self.publishers), self.stage.loop.now)
        for index, publisher in enumerate(self.publishers):
            publisher.limit = min(count + (index < extra), MAX_COUNT)
            publisher.window = options.window
            publisher.credit = options.credit
            publisher.schedule = self._schedule
            self.stage.loop.kick(publisher)

    def reset(self) -> None:
        """From here on it counts: rates, latencies and costs are those since the last reset."""
        self.latency.clear()
        self.lateness.clear()
        self.meter = Meter(self.stage)
        self._sent = self.sent()
        self._received = self.received()
        self._expected = self.expected()
        self._started = self._moved = self._last = monotonic_ns()

    def sent(self) -> int:
        """Messages sent so far."""
        return sum(publisher.sent for publisher in self.publishers)

    def expected(self) -> int:
        """Deliveries that these should lead to."""
        return sum(publisher.sent * publisher.fan for publisher in self.publishers)

    def received(self) -> int:
        """Messages received so far, each counted once."""
        return sum(track.received() for each in self.subscribers for track in each.tracks.values())

    def step(self, timeout: float = _STEP) -> None:
        """Goes on for a moment."""
        loop = self.stage.loop
        if self._schedule is not None:
            timeout = min(timeout, self._give_due(self._schedule))
        if self.beside is not None:
            timeout = min(timeout, self.beside.step())
        before = loop.bytes_in
        loop.step(timeout)
        if loop.bytes_in != before:
            self._last = loop.now
        if self.meter is not None:
            self.meter.sample()

    def _give_due(self, schedule: Schedule) -> float:
        """Hands out what is due; returns the seconds until more is."""
        now = monotonic_ns()
        publishers = self.publishers
        while schedule.given < self._most and (due := schedule.next_due()) <= now:
            publisher = publishers[schedule.given % len(publishers)]
            schedule.given += 1
            publisher.due += 1
            self.lateness.add(now - due)
            self.stage.loop.kick(publisher)
        return max(schedule.next_due() - now, 0) / 1e9 if schedule.given < self._most else _STEP

    def is_stalled(self) -> bool:
        """Whether something is under way that has not moved for longer than the options allow."""
        loop = self.stage.loop
        mark = loop.bytes_in + loop.bytes_out
        now = monotonic_ns()
        if mark != self._mark:
            self._mark, self._moved = mark, now
        return now - self._moved > self.stage.options.stall * 1e9 and self._is_under_way()

    def run(self) -> None:
        """Flows until count or time is reached, and until the last message has come."""
        options = self.stage.options
        self.begin()
        if options.warmup:
            warm = Deadline(options.warmup)
            while not warm.is_over() and not self._is_cut_short():
                self.step()
            self.reset()
        deadline = Deadline(options.seconds)
        look = monotonic_ns()
        while not deadline.is_over():
            self.step()
            if self.stage.loop.now < look:
                continue
            look = self.stage.loop.now + _LOOK
            if self.sent() >= options.count or self._is_cut_short():
                break
            if options.count < MAX_COUNT:
                self.stage.control.tell("messages", self.sent(), options.count)
            else:
                gone = (monotonic_ns() - self._started) / 1e9
                self.stage.control.tell("seconds", gone, options.seconds)
        if self.sent() < options.count < MAX_COUNT and self.end == "complete":
            self.end = "time"
        self.drain()

    def _is_cut_short(self) -> bool:
        """Whether the flow must end now; `end` says why."""
        if self.stage.control.is_stopping:
            self.end = "interrupted"
        elif self.stage.loop.ended:
            self.end = "disconnected"
        elif self.is_stalled():
            self.end = "stalled"
        return self.end != "complete"

    def drain(self) -> None:
        """Stops publishing, and waits for what is under way."""
        for publisher in self.publishers:
            publisher.limit = publisher.sent
        self._most = 0
        patience = Deadline(
            _PATIENCE if self.end == "interrupted" else self.stage.options.seconds + 60
        )
        while self._is_under_way() and not patience.is_over() and not self.stage.loop.ended:
            self.step()
            if self.is_stalled():
                break

    def _is_under_way(self) -> bool:
        return any(
            publisher.passed < publisher.sent * publisher.fan
            or publisher.acknowledged < publisher.sent
            for publisher in self.publishers
        )

    def finish(self) -> Result:
        """What was found."""
        stage = self.stage
        assert self.meter is not None
        broker, loader = self.meter.broker(), self.meter.loader()
        seconds = max((self._last - self._started) / 1e9, 1e-9)
        result = stage.new_result()
        result.sent = self.sent() - self._sent
        result.received = self.received() - self._received
        result.expected = self.expected() - self._expected
        stage.loop.run_for(_LINGER)
        result.end = self.end
        result.qos, result.size = stage.options.qos, stage.options.size
        result.pubs, result.subs = len(self.publishers), len(self.subscribers)
        result.seconds = round(seconds, 4)
        result.send_rate = round(result.sent / seconds, 1)
        result.receive_rate = round(result.received / seconds, 1)
        result.latency_us = Latency.of(self.latency)
        if self._schedule is not None:
            loader.late_us = Latency.of(self.lateness)
        if broker is not None and result.received:
            broker.cpu_us_per_message = round(broker.cpu_seconds * 1e6 / result.received, 3)
        result.broker, result.loader = broker, loader
        self._judge(result)
        stage.finish(result)
        return result

    def _judge(self, result: Result) -> None:
        for subscriber in self.subscribers:
            for number, track in subscriber.tracks.items():
                sent = subscriber.publishers[number].sent
                # What was still under way when somebody lost patience is not lost.
                is_cut = self.end == "interrupted"
                lost = track.skipped() if is_cut else track.missing(sent)
                result.take_faults(Faults(lost=lost))
            result.take_faults(subscriber.faults)
        result.unacknowledged = self.sent() - sum(each.acknowledged for each in self.publishers)
