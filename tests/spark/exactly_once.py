"""Exactly once, end to end, while everything is killed: python -m tests.spark.exactly_once

    --messages N    how many the devices send (a million)
    --kills N       how many SIGKILLs strike them on the way (12)
    --early N       and how many strike before that while the driver comes up (none)
    --seed N        where those strike (1)
    --minutes N     after which the run has failed (60)

    devices (QoS 1 and 2) -> broker -> stream -> Spark -> Parquet
                                                       -> vmq sink -> durable subscriber (QoS 2)
                                                                   -> stream

In turn the broker, the driver with its JVM, and the executor's workers end by SIGKILL, at even steps of
progress. At the end: what devices sent at QoS 2 is in Parquet, at the subscriber and in the second stream exactly once,
in the order of each device. At QoS 1 a device repeats what was not acknowledged, so the stream may hold as
many messages twice as were sent twice; Spark's side still has each row of the stream once.

The run tells how far it is, and ends with a table of what was counted and a verdict; its exit code is
1 if a message is missing, twice or out of order. Then its folder stays, with all logs and checkpoints.
"""

import argparse
import json
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Any

import psutil
from vmq_spark.checkpoints import drop_unfinished

from tests.spark.devices import Device, Subscriber
from tests.spark.driver import is_ordered
from tests.spark.driver_process import DriverProcess, end
from tests.spark.early import WORKERS, Early, Strike, kill_python
from vmq.testing.ports import lasting_port
from vmq.testing.process import BrokerProcess

DEVICES = 6
#: Seconds without any progress after which a run has failed. Spark gives a worker ten seconds to start; where
#: the machine is too busy for that, driver after driver gives up.
STUCK = 400.0
#: Seconds between two lines that tell how far it is.
TELL_EVERY = 5.0


@dataclass
class Count:
    """What arrived of one device's messages: in Parquet and the second stream, as the driver counted it, and at the
    subscriber.
    """

    device: str
    qos: int
    sent: int
    resent: int
    rows: dict[str, Any]
    published: dict[str, Any]
    got: list[int]

    def problems(self) -> Iterator[str]:
        rows, got, sent = self.rows, self.got, self.sent
        wanted = sent * (sent - 1) // 2
        if rows["numbers"] != sent:
            yield f"Parquet has {rows['numbers']} different messages, {sent} were sent"
        if len(set(got)) != sent:
            yield f"the subscriber got {len(set(got))} different messages, {sent} were sent"
        if rows["count"] != rows["places"]:
            yield f"Parquet has {rows['count']} rows of {rows['places']} messages in the stream"
        if rows["count"] != len(got):
            yield f"the subscriber got {len(got)} messages, Parquet has {rows['count']}"
        if rows["sum"] != sum(got):
            yield f"the sums are {rows['sum']} in Parquet, {sum(got)} at the subscriber"
        if rows["count"] - sent > (0 if self.qos == 2 else self.resent):
            yield f"{rows['count'] - sent} are there twice; at QoS {self.qos} {self.resent} were sent twice"
        if self.qos == 2 and rows["sum"] != wanted:
            yield f"the sum is {rows['sum']}, of what was sent {wanted}"
        for name in ("count", "places", "numbers", "sum", "ordered"):
            if self.published[name] != rows[name]:
                yield f"{name}: {self.published[name]} in the second stream, {rows[name]} in Parquet"
        if not rows["ordered"]:
            yield "the rows in Parquet are out of order"
        if not is_ordered(got):
            yield "the subscriber's messages are out of order"

    def line(self) -> str:
        """A line of the table."""
        rows, got = self.rows, self.got
        return (
            f"{self.device:6} {self.qos:3} {self.sent:9,} {rows['count']:9,} {rows['numbers']:9,} "
            f"{len(got):9,} {len(set(got)):9,} {self.published['count']:9,} {rows['sum']:16,} {sum(got):16,}"
        )


HEAD = (
    f"{'device':6} {'QoS':3} {'sent':>9} {'Parquet':>9} {'distinct':>9} {'received':>9} {'distinct':>9} {'stream':>9} "
    f"{'sum in Parquet':>16} {'sum received':>16}"
)


class Run:
    """One run, in a folder that has nothing of another one, to be closed.

    `check` says what came of it, or fails. `tell` is given lines about how far it is.
    """

    def __init__(
        self,
        folder: Path,
        messages: int,
        kills: int,
        tell: Callable[[str], None] = lambda _line: None,
        minutes: float = 60.0,
        early: int = 0,
        seed: int = 1,
    ) -> None:
        (folder / "spark").mkdir(parents=True)
        self.folder = folder
        self.early = early
        self.seed = seed
        self.strikes: list[Strike] = []
        self.tell = tell
        self.begun = monotonic()
        self.told = self.begun
        self.deadline = self.begun + minutes * 60
        self.struck: list[str] = []
        self.drivers = 0
        self.each = messages // DEVICES
        self.total = self.each * DEVICES
        self.kills = kills
        self.limit = max(1250, self.total // 40)
        self.listen = ("tcp://127.0.0.1:0", f"grpc://127.0.0.1:{lasting_port()}")
        self.changed = threading.Condition()
        self.sent = 0
        self.broker = self.start_broker()
        self.driver = self.start_driver()
        self.subscriber = Subscriber(lambda: self.broker.tcp, self.changed)
        self.devices = [
            Device(f"d{number}", lambda: self.broker.tcp, 1 + number % 2, self.each, self.may_send)
            for number in range(DEVICES)
        ]

    def start_broker(self) -> BrokerProcess:
        return BrokerProcess.start(
            self.listen,
            self.folder / "broker",
            env={
                "VMQ_STREAMS__ONCE__FILTERS": '["once/#"]',
                "VMQ_STREAMS__ONCE__PARTITIONS": "3",
                "VMQ_STREAMS__DONE__FILTERS": '["done/#"]',
                "VMQ_STREAMS__DONE__PARTITIONS": "2",
                "VMQ_STREAMS__DONE__KEY": "topic",
                "VMQ_QUEUE__MAX_ONLINE_MESSAGES": "-1",
                "VMQ_QUEUE__MAX_OFFLINE_MESSAGES": "-1",
            },
            args=("--allow-anonymous",),
        )

    def start_driver(self) -> DriverProcess:
        self.drivers += 1
        spark = self.folder / "spark"
        drop_unfinished(spark)
        arguments = (self.listen[1], str(spark), str(self.limit))
        return DriverProcess(arguments, spark, self.folder / "driver.log")

    def may_send(self, count: int) -> None:
        """Holds devices up that are far ahead of Spark: kills are to strike the traffic."""
        with self.changed:
            self.changed.wait_for(lambda: self.sent - self.subscriber.count < 4 * self.limit, STUCK)
            self.sent += count

    def wait(self, count: int) -> None:
        """Waits until the subscriber has so many messages."""
        self.wait_until(lambda: self.subscriber.count >= count, f"{count} messages")

    def wait_until(self, holds: Callable[[], bool], what: str) -> None:
        """Waits until something holds; a driver that gave up is started again."""
        latest, since = -1, monotonic()
        while not holds():
            with self.changed:
                self.changed.wait(1.0)
            if self.subscriber.count != latest:
                latest, since = self.subscriber.count, monotonic()
            if not self.driver.is_running() and not (self.folder / "spark" / "finish").exists():
                self.kill_driver()
            self.tell_progress()
            if monotonic() - since > STUCK:
                raise AssertionError(f"stuck at {latest}, {what} wanted\n{self.end_of_log()}")
            assert monotonic() < self.deadline, f"time is up at {latest}, {what} wanted"

    def end_of_log(self) -> str:
        return (self.folder / "driver.log").read_text(errors="replace")[-4000:]

    def tell_progress(self) -> None:
        """Tells now and then how far it is."""
        now = monotonic()
        if now - self.told >= TELL_EVERY:
            self.told = now
            self.say(f"sent {self.sent:,} received {self.subscriber.count:,} of {self.total:,}")

    def say(self, line: str) -> None:
        self.tell(f"{monotonic() - self.begun:5.0f} s  {line}")

    def go(self) -> None:
        self.subscriber.start()
        assert self.subscriber.subscribed.wait(STUCK)
        for device in self.devices:
            device.start()
        self.strike_early()
        strikes = {
            "broker": self.kill_broker,
            "driver": self.kill_driver,
            "workers": self.kill_workers,
        }
        for number in range(self.kills):
            self.wait(self.total * (number + 1) // (self.kills + 2))
            target = list(strikes)[number % 3]
            strikes[target]()
            self.struck.append(target)
            self.say(f"kill {number + 1} of {self.kills}: {target}")
        self.wait(self.total * (self.kills + 1) // (self.kills + 2))
        self.wait_until(
            lambda: not any(device.is_alive() for device in self.devices), "the end of all devices"
        )
        self.say("everything is sent")
        (self.folder / "spark" / "finish").touch()

    def strike_early(self) -> None:
        """Strikes while drivers come up.

        Raises:
            AssertionError: a query ended for what passes, or nobody knows for what.
        """
        strikes = {"broker": self.kill_broker, WORKERS: lambda: kill_python(self.driver)}
        series = Early(self.seed, strikes, self.kill_driver, lambda: self.driver, self.say)
        series.go(self.early)
        self.strikes = series.done
        wrong = [f"{each}: {problem}" for each in series.done if (problem := each.problem())]
        assert not wrong, "\n".join(wrong)

    def kill_broker(self) -> None:
        self.broker.kill()
        self.broker.close()
        self.broker = self.start_broker()

    def kill_driver(self) -> None:
        """Ends the driver, unless it has ended by itself, and starts the next."""
        self.driver.kill()
        self.driver = self.start_driver()

    def kill_workers(self) -> None:
        """All workers that run tasks; their daemon makes new ones."""
        for process in self.driver.workers():
            if is_worker(process):
                end(process)

    def check(self) -> dict[str, Any]:
        """Compares what was sent with what arrived."""
        out = self.driver.finish(max(1.0, self.deadline - monotonic()))
        assert self.driver.process.returncode == 0, self.driver.failure or self.end_of_log()
        report = json.loads(out)
        landed, published = report["rows"], report["published"]
        self.wait(sum(each["count"] for each in landed.values()))
        assert landed.keys() == {device.client_id for device in self.devices}
        seconds = monotonic() - self.begun
        counts = [
            Count(
                device.client_id,
                device.qos,
                self.each,
                device.resent,
                landed[device.client_id],
                published[device.client_id],
                self.subscriber.received[device.client_id],
            )
            for device in self.devices
        ]
        for line in (HEAD, *(count.line() for count in counts)):
            self.tell(line)
        wrong = [f"{count.device}: {each}" for count in counts for each in count.problems()]
        assert not wrong, "\n".join(wrong)
        return {
            "sent": self.total,
            "kills": {target: self.struck.count(target) for target in self.struck},
            "struck early": len(self.strikes),
            "drivers": self.drivers,
            "rows": sum(each["count"] for each in landed.values()),
            "received": self.subscriber.count,
            "repeated by devices at QoS 1": sum(d.resent for d in self.devices if d.qos == 1),
            "seconds": round(seconds),
        }

    def close(self) -> None:
        for client in (*self.devices, self.subscriber):
            client.ended.set()
        self.driver.kill()
        self.broker.close()


def is_worker(process: psutil.Process) -> bool:
    """Whether a process runs tasks: a fork of the daemon of pyspark.worker."""
    try:
        parent = process.parent()
        command = process.cmdline()
        return (
            "pyspark.daemon" in command
            and command[-1] in {"pyspark.daemon", "pyspark.worker"}
            and parent is not None
            and parent.cmdline() == command
        )
    except psutil.NoSuchProcess:
        return False


def main() -> int:
    parser = argparse.ArgumentParser(description="Exactly once, end to end, under SIGKILL.")
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--kills", type=int, default=12)
    parser.add_argument("--early", type=int, default=0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=60.0)
    arguments = parser.parse_args()
    # Who is asked to end takes the broker, Spark and their workers along.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by SIGTERM"))
    folder = Path(tempfile.mkdtemp(prefix="vmq-once-"))

    def tell(line: str) -> None:
        print(line, flush=True)

    try:
        given = arguments
        options = (given.messages, given.kills, tell, given.minutes, given.early, given.seed)
        with closing(Run(folder, *options)) as course:
            course.go()
            tell(json.dumps(course.check()))
    except (AssertionError, subprocess.TimeoutExpired) as error:
        tell(f"NOT exactly once: {error}\nlogs and checkpoints are in {folder}")
        return 1
    tell("exactly once: nothing is missing, nothing is twice, each device's order is kept")
    shutil.rmtree(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
