"""The connect scenario, and the crowd of clients that storms a broker."""

from time import monotonic_ns
from typing import Final

from vmq.bench.load.client import LoadClient
from vmq.bench.load.histogram import LatencyHistogram
from vmq.bench.result import Connects, Latency, Result
from vmq.bench.stage import Deadline, Meter, Stage, need_files

_STEP: Final = 0.02
_LONGEST: Final = 120.0


class Crowd:
    """Many clients that want in, a number of them at once."""

    def __init__(self, stage: Stage, count: int, concurrency: int) -> None:
        need_files(count + len(stage.clients))
        self.concurrency = concurrency
        self.latency = LatencyHistogram()
        self.clients = [Visitor(self, stage, index) for index in range(count)]
        stage.clients += self.clients
        self._opened = self._came = self._failed = 0
        self._begun = self._last = monotonic_ns()

    def begin(self) -> None:
        """From here on time counts."""
        self._begun = self._last = monotonic_ns()

    def may_open(self) -> bool:
        """Whether there is somebody to open, and not too many are under way."""
        under_way = self._opened - self._came - self._failed
        return self._opened < len(self.clients) and under_way < self.concurrency

    def open_some(self, most: int) -> None:
        """Begins up to `most` further connections."""
        while most and self.may_open():
            client = self.clients[self._opened]
            self._opened += 1
            client.open()
            most -= 1

    def on_up(self, begun: int, now: int) -> None:
        """A client has come in."""
        self._came += 1
        self._last = now
        self.latency.add(now - begun)

    def on_end(self, was_up: bool) -> None:
        """A client is gone before its time."""
        if not was_up:
            self._failed += 1

    @property
    def came(self) -> int:
        """How many have come in."""
        return self._came

    def is_done(self) -> bool:
        """Whether all are in, or failed to come in."""
        return self._came + self._failed == len(self.clients)

    def connects(self) -> Connects:
        """How it went."""
        seconds = max((self._last - self._begun) / 1e9, 1e-9)
        return Connects(
            asked=len(self.clients),
            came=self._came,
            held=sum(client.is_up for client in self.clients),
            seconds=round(seconds, 4),
            rate=round(self._came / seconds, 1),
            latency_us=Latency.of(self.latency),
        )


class Visitor(LoadClient):
    """One of a crowd."""

    def __init__(self, crowd: Crowd, stage: Stage, index: int) -> None:
        super().__init__(stage.loop, stage.endpoint, stage.client_id("c", index), crowd=True)
        self._members = crowd
        self._was_up = False

    def on_up(self) -> None:
        """Came in."""
        self._was_up = True
        self._members.on_up(self.begun, self.loop.now)

    def on_end(self) -> None:
        """Was turned away, or cut off later."""
        self._members.on_end(self._was_up)


def run_connect(stage: Stage) -> Result:
    """Many connections, held for a moment."""
    options = stage.options
    crowd = Crowd(stage, options.clients, options.concurrency)
    meter = Meter(stage)
    deadline = Deadline(_LONGEST)
    crowd.begin()
    result = stage.new_result()
    while not crowd.is_done():
        crowd.open_some(options.concurrency)
        stage.loop.step(_STEP)
        meter.sample()
        stage.control.tell("connections", crowd.came, options.clients)
        if stage.control.is_stopping or deadline.is_over():
            result.end = "interrupted" if stage.control.is_stopping else "time"
            break
    result.loader = meter.loader()
    broker = meter.broker()
    if not stage.control.is_stopping:
        stage.loop.run_for(options.hold)
    held = meter.broker()
    result.connects = crowd.connects()
    if broker is not None and held is not None and crowd.came:
        broker.cpu_us_per_connection = round(broker.cpu_seconds * 1e6 / crowd.came, 1)
        broker.bytes_per_connection = round((held.rss_end - held.rss_start) / crowd.came, 1)
        broker.rss_end, broker.rss_peak = held.rss_end, held.rss_peak
    result.broker = broker
    stage.finish(result)
    return result
