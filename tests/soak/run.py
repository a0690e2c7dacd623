"""A soak: a broker, rounds, and figures between them."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from tests.soak.figures import Figures, leaks, settled
from tests.soak.traffic import Round
from vmq.testing.process import BrokerProcess

LISTEN: Final = ("tcp://127.0.0.1:0", "ws://127.0.0.1:0/mqtt", "http://127.0.0.1:0")
#: Small buffers and caches: they are full after a few rounds, and what grows then is a leak.
ENV: Final = {
    "VMQ_STORE__WRITE_BUFFER_SIZE": "65536",
    "VMQ_STORE__CACHE_SIZE": "65536",
    "VMQ_NETWORK__TOPIC_CACHE": "64",
    "VMQ_LOG__LEVEL": "warning",
}


class Soak:
    """Rounds against one broker. The first ones warm it up and are not judged."""

    def __init__(self, broker: BrokerProcess, warm_up: int) -> None:
        self.broker = broker
        self.warm_up = warm_up
        self.played = 0
        self.history: list[Figures] = []

    def play_round(self) -> None:
        """The next round."""
        Round(self.broker, self.played).play()
        self.played += 1
        found = settled(self.broker, self.history[0] if self.history else None)
        if self.played > self.warm_up:
            self.history.append(found)

    def verdict(self) -> list[str]:
        """What is wrong: leaks, and what the broker complained about."""
        log = self.broker.stderr_text()
        complaints = [line for line in log.splitlines() if " error " in line or "Traceback" in line]
        return leaks(self.history) + complaints[:5]


@contextmanager
def soak(warm_up: int) -> Iterator[Soak]:
    """A soak whose broker ends cleanly."""
    with BrokerProcess.start(LISTEN, env=ENV, args=("--allow-anonymous",)) as broker:
        yield Soak(broker, warm_up)
        assert broker.terminate() == 0
