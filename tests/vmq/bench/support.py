"""Pieces of a flow without sockets."""

from vmq.bench.load.address import Address, parse_address
from vmq.bench.load.frames import LoadFrames
from vmq.bench.load.histogram import LatencyHistogram
from vmq.bench.load.loop import Loop
from vmq.bench.load.options import LoadOptions, Scenario, options_for
from vmq.bench.load.publisher import LoadPublisher
from vmq.bench.load.subscriber import LoadSubscriber
from vmq.bench.load.transport import Chunk, LoadEndpoint

HERE = Address("mqtt", "127.0.0.1", 1)


def flow_options(
    url: str, scenario: Scenario = Scenario.PAIR, **given: int | float | None
) -> LoadOptions:
    """A small load; what is not given is small too."""
    return options_for(scenario, parse_address(url), given)


class SilentPublisher(LoadPublisher):
    """Keeps what it would write."""

    def __init__(self, loop: Loop, index: int, qos: int = 0, size: int = 16) -> None:
        topic = f"bench/p{index}".encode()
        frames = LoadFrames(topic, index, size, qos, per_block=64)
        super().__init__(loop, LoadEndpoint(HERE), f"p{index}", frames)
        self.written = bytearray()

    def write(self, data: Chunk) -> None:
        self.written += data


class SilentSubscriber(LoadSubscriber):
    """Keeps what it would write; is fed by hand."""

    def __init__(self, loop: Loop, *publishers: LoadPublisher) -> None:
        super().__init__(loop, LoadEndpoint(HERE), "s0", publishers, LatencyHistogram())
        self.written = bytearray()
        self._kept = b""

    def write(self, data: Chunk) -> None:
        self.written += data

    def feed(self, data: bytes) -> None:
        """What one read brings."""
        data = self._kept + data
        self.loop.buffer[: len(data)] = data
        taken = self.take(self.loop.buffer, len(data))
        self._kept = data[taken:]
        self.on_taken()

    @property
    def waiting(self) -> int:
        """Bytes of a packet that is not whole."""
        return len(self._kept)


def sent(publisher: LoadPublisher, count: int) -> None:
    """Notes that the publisher has sent its next messages."""
    publisher.sent += count
    publisher.timeline.add(publisher.sent, publisher.loop.now)
