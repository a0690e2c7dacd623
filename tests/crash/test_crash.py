"""The broker is stopped at random moments of its work, and keeps all its promises."""

import os
import signal
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, Final

import pytest

from tests.cluster_processes.devices import Subscriber, retained_at, traffic
from vmq.testing.closing import Closing
from vmq.testing.ports import lasting_port
from vmq.testing.process import BrokerProcess

#: The devices may be slower than the broker: no queue may overflow.
ENV: Final = {"VMQ_QUEUE__MAX_ONLINE_MESSAGES": "-1", "VMQ_QUEUE__MAX_OFFLINE_MESSAGES": "-1"}


class Alone(Closing):
    """A broker that is struck and comes back at its port; to devices each node of a cluster."""

    host: Final = "127.0.0.1"
    transport: Final = "tcp"

    def __init__(self, folder: Path, stop: signal.Signals, durability: str) -> None:
        self.port = lasting_port()
        self._stop = stop
        self._folder = folder
        self._env = {**ENV, "VMQ_STORE__DURABILITY": durability}
        self._process = self._started()

    def _started(self) -> BrokerProcess:
        url = f"tcp://{self.host}:{self.port}"
        return BrokerProcess.start((url,), self._folder, self._env, ("--allow-anonymous",))

    def __getitem__(self, _name: str) -> Any:
        return self

    def strike(self) -> None:
        os.kill(self._process.pid, self._stop)
        code = self._process.wait()
        self.close()
        assert code == (0 if self._stop == signal.SIGTERM else -self._stop)
        assert "Traceback" not in self._process.stderr_text()
        self._process = self._started()

    def close(self) -> None:
        self._process.close()


@pytest.mark.parametrize(
    ("stop", "durability", "strikes"),
    [(signal.SIGKILL, "os", 10), (signal.SIGKILL, "fsync", 5), (signal.SIGTERM, "memory", 4)],
)
def test_struck_again_and_again(
    tmp_path: Path, stop: signal.Signals, durability: str, strikes: int
) -> None:
    """Some sleep meanwhile; a clean stop loses nothing even where the store is written behind."""
    random = Random(strikes)
    with (
        Alone(tmp_path, stop, durability) as broker,
        traffic(broker, "c", "ab", "ab", 0) as devices,
    ):
        sleepy = devices.subscribers[1]
        lower, before = devices.join_in("c", qos=1)
        for number in range(strikes):
            devices.flow(random.randrange(1, 200))
            kept = {f"kept/{topic}": b"%d" % number for topic in range(number % 3)}
            for topic in ("kept/0", "kept/1"):
                devices.retain(topic, kept.get(topic, b"").decode(), "a")
            broker.strike()
            assert retained_at(broker["a"], "kept/#") == kept
            (sleepy.wake if sleepy.is_paused else sleepy.sleep)()
        sleepy.wake()
        devices.settle()
        lower.wait_for(devices.sent() - before)
        everybody = (lower, *devices.subscribers)
        for each in everybody:
            assert each.sessions[0] is False
            assert all(each.sessions[1:])
        for each in everybody:
            each.sleep()
        broker.strike()
        for each in everybody:
            each.resume()
            each.subscribe("answer", 0)
        devices.settle()  # nothing of it has come again
        # The strikes met work under way: without them nothing would have come twice.
        assert stop == signal.SIGTERM or any(len(x.got) > len({*x.got}) for x in everybody)


def has(subscriber: Subscriber, count: int) -> bool:
    return len(subscriber.got) >= count


def test_killed_while_backlogs_drain(tmp_path: Path) -> None:
    """Long queues of clients that were away survive kills in the middle of their delivery."""
    random = Random(5)
    with (
        Alone(tmp_path, signal.SIGKILL, "os") as broker,
        traffic(broker, "c", "ab", "ab", 0) as devices,
    ):
        for each in devices.subscribers:
            each.sleep()
        devices.flow(750)
        broker.strike()
        for publisher in devices.publishers:
            publisher.finish()
        first = devices.subscribers[0]
        for each in devices.subscribers:
            each.wake()
        for _ in range(7):
            wanted = len(first.got) + random.randrange(1, 200)
            first.wait(partial(has, first, wanted), f"sent {wanted} messages")
            broker.strike()
        devices.settle()
        assert len(devices.sent()) > 1500
