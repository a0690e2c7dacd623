"""Real clients that stop in the middle of the traffic (SIGSTOP), and what that does to others."""

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager

from tests.conftest import BrokerFactory
from tests.support.tools import require_tool
from tests.support.wire import Wire
from vmq.bench.load.usage import resident
from vmq.testing.process import BrokerProcess

MIB = 1 << 20


def command_of(broker: BrokerProcess, qos: int) -> list[str]:
    """A durable client subscribed to `stalled`, which prints payloads."""
    host, port = broker.tcp
    program = require_tool("mosquitto_sub")
    name = ["-h", host, "-p", str(port), "-V", "mqttv311", "-i", "sleeper", "-c"]
    # -d tells of the SUBACK; stdbuf lets each line out at once.
    return ["stdbuf", "-oL", program, *name, "-q", str(qos), "-t", "stalled", "-d"]


class Subscriber:
    def __init__(self, command: list[str]) -> None:
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        self.wait_for("ubscribed")

    def lines(self) -> Iterator[str]:
        """What it prints, without what mosquitto_sub tells about packets."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            yield line.rstrip().rstrip(".")

    def wait_for(self, text: str) -> None:
        """Reads up to the line that has this text."""
        for line in self.lines():
            if text in line:
                return
        raise AssertionError(f"ended with code {self.process.wait()} and no {text!r}")

    def numbers(self, last: int) -> list[int]:
        """The numbers that it prints, up to this one."""
        found: list[int] = []
        for line in self.lines():
            if line.isdigit():
                found.append(int(line))
                if found[-1] == last:
                    return found
        raise AssertionError(f"ended with code {self.process.wait()} after {found[-3:]}")

    def stop(self) -> None:
        """It does nothing from here on, and its connection stays."""
        os.kill(self.process.pid, signal.SIGSTOP)
        os.waitid(os.P_PID, self.process.pid, os.WSTOPPED)

    def go_on(self) -> None:
        """As if nothing had been."""
        os.kill(self.process.pid, signal.SIGCONT)

    def close(self) -> None:
        assert self.process.stdout is not None
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()


@contextmanager
def stopped(broker: BrokerProcess, qos: int) -> Iterator[tuple[Subscriber, Wire, Wire]]:
    """A subscriber that has stopped, one that has not, and a publisher.

    A test in which the first hangs ends by pytest's timeout.
    """
    with (
        closing(Subscriber(command_of(broker, qos))) as sleeper,
        Wire.connected(broker.tcp, "other") as other,
        Wire.connected(broker.tcp, "publisher") as publisher,
    ):
        other.subscribe(("stalled", 0))
        sleeper.stop()
        yield sleeper, other, publisher


def payload(number: int, size: int) -> bytes:
    """A number, and dots."""
    return b"%d" % number + b"." * size


def test_a_stopped_client_is_dropped_by_policy(fresh_broker: BrokerFactory) -> None:
    """What it does not take fills its buffers and no more; it is dropped, and welcome back."""
    broker = fresh_broker(
        env={"VMQ_LIMITS__STALLED_CLIENT_TIMEOUT": "1", "VMQ_QUEUE__MAX_ONLINE_MESSAGES": "100"}
    )
    with stopped(broker, 0) as (sleeper, other, publisher):
        before = resident(broker.pid)
        for number in range(600):
            publisher.publish("stalled", payload(number, 50_000))
            other.expect_publish("stalled", payload(number, 50_000))
        # 30 MB were published: the queue holds 5 MB of them, the rest was sent or dropped.
        assert resident(broker.pid) - before < 16 * MIB
        broker.wait_log("client=sleeper .*stalled_client_timeout")
        other.expect_nothing()
        sleeper.go_on()
        sleeper.wait_for("ubscribed")
        publisher.publish("stalled", b"1000")
        assert sleeper.numbers(1000)[-1] == 1000
