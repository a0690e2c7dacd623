"""A reconnect storm: everybody gets in, and who is in notices little.

`VMQ_STORM_CLIENTS=20000 pytest tests/limits/test_storm.py` is the full size; files that one process
may open bound it.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest

from tests.conftest import BrokerFactory
from tests.support.metrics import figure
from tests.support.wire import Wire
from vmq.testing.process import BrokerProcess

FILES = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
CLIENTS = min(int(os.environ.get("VMQ_STORM_CLIENTS", "2000")), FILES - 500)


class StormProcess:
    """`tests.support.storm` in a process of its own."""

    def __init__(self, port: int, count: int) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.storm", str(port), str(count)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def ask(self, what: str) -> Any:
        """Has it do something; returns its answer."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(what + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def __enter__(self) -> StormProcess:
        return self

    def __exit__(self, *_error: object) -> None:
        self.process.kill()
        self.process.communicate()


class SteadyPair:
    """A publisher and a subscriber that go on, one acknowledged message after the other."""

    def __init__(self, broker: BrokerProcess) -> None:
        self.sub = Wire.connect_tcp(broker.tcp)
        self.pub = Wire.connect_tcp(broker.tcp)
        self.count = 0
        self.error: BaseException | None = None
        self.stopping = threading.Event()
        self.thread = threading.Thread(target=self.run)

    def run(self) -> None:
        """Publishes and receives until told to stop; each message has `tests.support.wire.TIMEOUT`."""
        try:
            while not self.stopping.is_set():
                payload = b"%d" % self.count
                self.pub.publish("steady", payload, qos=1)
                self.sub.acknowledge(self.sub.expect_publish("steady", payload, qos=1))
                self.count += 1
        except BaseException as error:  # noqa: BLE001 - told by `finish`
            self.error = error

    def finish(self) -> None:
        """Stops; raises what went wrong."""
        self.stopping.set()
        self.thread.join()
        if self.error is not None:
            raise self.error


@contextmanager
def steady_pair(broker: BrokerProcess) -> Iterator[SteadyPair]:
    """A pair that has begun when it is given out."""
    pair = SteadyPair(broker)
    with pair.sub, pair.pub:
        pair.sub.connect("steady-sub")
        pair.pub.connect("steady-pub")
        pair.sub.subscribe(("steady", 1))
        pair.thread.start()
        try:
            yield pair
        finally:
            pair.stopping.set()
            pair.thread.join()


@pytest.mark.timeout(180)
def test_everybody_gets_in_and_nobody_falls_out(fresh_broker: BrokerFactory) -> None:
    broker = fresh_broker(
        listen=("tcp://127.0.0.1:0", "http://127.0.0.1:0"),
        env={"VMQ_NETWORK__MAX_EVENT_LOOP_DRIFT": "0.001", "VMQ_LOG__LEVEL": "warning"},
    )
    with ExitStack() as stack:
        crowd = [stack.enter_context(Wire.connect_tcp(broker.tcp)) for _ in range(100)]
        for number, wire in enumerate(crowd):
            wire.connect(f"crowd-{number}")
        pair = stack.enter_context(steady_pair(broker))
        storm = stack.enter_context(StormProcess(broker.tcp[1], CLIENTS))
        assert storm.ask("connect") == {"entered": CLIENTS, "lost": []}
        # All go at once, and are back before the broker has seen the last of them go.
        assert storm.ask("drop") == {"held": CLIENTS, "lost": []}
        before = pair.count
        assert storm.ask("connect") == {"entered": CLIENTS, "lost": []}
        assert storm.ask("drop") == {"held": CLIENTS, "lost": []}
        assert pair.count > before, "the pair went on meanwhile"
        pair.finish()
        for wire in crowd:
            wire.ping()
        assert figure(broker, "accept_paced_total") > 0
        assert figure(broker, "socket_close_timeout_total") == 0
    broker.wait_log(r"accepting slower listener=\S+: the event loop is \d+ ms late")
    assert broker.stderr_text().count("accepting slower") < 50, "the log is not flooded"
