"""Exactly once, end to end, while everything is killed: python -m tests.spark.exactly_once [--messages N] [--kills N]

    devices (QoS 1 and 2) -> broker -> stream -> Spark -> Parquet
                                                       -> vmq sink -> durable subscriber (QoS 2)

In turn the broker, the driver with its JVM, and the executor's workers end by SIGKILL, at even steps of
progress. At the end: what devices sent at QoS 2 is in Parquet and at the subscriber exactly once, in the
order of each device. At QoS 1 a device repeats what was not acknowledged, so the stream may hold as
many messages twice as were sent twice; Spark's side still has each row of the stream once.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic
from typing import Any

import psutil

from tests.spark.devices import Device, Subscriber
from tests.spark.driver import is_ordered
from tests.spark.support import executors_environment, free_port
from tests.support.broker_process import BrokerProcess

DEVICES = 6
#: Seconds without any progress after which a run has failed.
STUCK = 150.0


class Run:
    """One run. `check` says what came of it, or fails."""

    def __init__(self, folder: Path, messages: int, kills: int) -> None:
        self.folder = folder
        self.each = messages // DEVICES
        self.total = self.each * DEVICES
        self.kills = kills
        self.limit = max(2500, self.total // 40)
        self.listen = ("tcp://127.0.0.1:0", f"grpc://127.0.0.1:{free_port()}")
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
                "VMQ_QUEUE__MAX_ONLINE_MESSAGES": "-1",
                "VMQ_QUEUE__MAX_OFFLINE_MESSAGES": "-1",
            },
            args=("--allow-anonymous",),
        )

    def start_driver(self) -> subprocess.Popen[bytes]:
        log = (self.folder / "driver.log").open("ab")
        with log:
            return subprocess.Popen(
                [
                    *(sys.executable, "-m", "tests.spark.driver"),
                    *(self.listen[1], str(self.folder / "spark"), str(self.limit)),
                ],
                env={**os.environ, **executors_environment()},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
            )

    def may_send(self, count: int) -> None:
        """Holds devices up that are far ahead of Spark: kills are to strike the traffic."""
        with self.changed:
            self.changed.wait_for(lambda: self.sent - self.subscriber.count < 4 * self.limit, STUCK)
            self.sent += count

    def wait(self, count: int) -> None:
        """Waits until the subscriber has so many messages; a driver that gave up is started again."""
        latest, since = -1, monotonic()
        while self.subscriber.count < count:
            with self.changed:
                self.changed.wait(1.0)
            if self.subscriber.count != latest:
                latest, since = self.subscriber.count, monotonic()
            if self.driver.poll() is not None and not (self.folder / "spark" / "finish").exists():
                self.driver = self.start_driver()
            if monotonic() - since > STUCK:
                log = (self.folder / "driver.log").read_text(errors="replace")[-4000:]
                raise AssertionError(f"stuck at {latest} of {count} messages\n{log}")

    def go(self) -> None:
        """The whole course."""
        self.subscriber.start()
        assert self.subscriber.subscribed.wait(STUCK)
        for device in self.devices:
            device.start()
        strikes = (self.kill_broker, self.kill_driver, self.kill_workers)
        for number in range(self.kills):
            self.wait(self.total * (number + 1) // (self.kills + 2))
            strikes[number % 3]()
        self.wait(self.total * (self.kills + 1) // (self.kills + 2))
        for device in self.devices:
            device.join()
        (self.folder / "spark" / "finish").touch()

    def kill_broker(self) -> None:
        self.broker.kill()
        self.broker.close()
        self.broker = self.start_broker()

    def kill_driver(self) -> None:
        end_tree(self.driver)
        self.driver = self.start_driver()

    def kill_workers(self) -> None:
        """All workers that run tasks; their daemon makes new ones."""
        for process in psutil.Process(self.driver.pid).children(recursive=True):
            try:
                if is_worker(process):
                    process.kill()
            except psutil.NoSuchProcess:
                continue

    def check(self) -> dict[str, Any]:
        """Compares what was sent with what arrived."""
        out, _ = self.driver.communicate(timeout=STUCK * 4)
        assert self.driver.returncode == 0, (self.folder / "driver.log").read_text()[-4000:]
        landed = json.loads(out.decode().strip().splitlines()[-1])
        self.wait(sum(each["count"] for each in landed.values()))
        assert landed.keys() == {device.client_id for device in self.devices}
        total = self.each * (self.each - 1) // 2
        for device in self.devices:
            rows = landed[device.client_id]
            got = self.subscriber.received[device.client_id]
            assert rows["numbers"] == len(set(got)) == self.each, (device.client_id, rows)
            assert rows["count"] == rows["places"] == len(got), (device.client_id, rows, len(got))
            assert rows["sum"] == sum(got), (device.client_id, rows)
            assert rows["ordered"], (device.client_id, rows)
            assert is_ordered(got), (device.client_id, rows)
            if device.qos == 2:
                assert (rows["count"], rows["sum"]) == (self.each, total), (device.client_id, rows)
            assert rows["count"] - self.each <= device.resent, (device.client_id, rows)
        return {
            "sent": self.total,
            "kills": self.kills,
            "rows": sum(each["count"] for each in landed.values()),
            "received": self.subscriber.count,
            "repeated by devices at QoS 1": sum(d.resent for d in self.devices if d.qos == 1),
        }

    def close(self) -> None:
        for client in (*self.devices, self.subscriber):
            client.ended.set()
        end_tree(self.driver)
        self.broker.close()


def is_worker(process: psutil.Process) -> bool:
    """Whether a process runs tasks: a fork of the daemon of pyspark.worker."""
    parent = process.parent()
    command = process.cmdline()
    return (
        "pyspark.daemon" in command
        and command[-1] in {"pyspark.daemon", "pyspark.worker"}
        and parent is not None
        and parent.cmdline() == command
    )


def end_tree(process: subprocess.Popen[bytes]) -> None:
    """SIGKILL for a process and all that it started."""
    if process.poll() is None:
        family = psutil.Process(process.pid).children(recursive=True)
        process.kill()
        for each in family:
            try:
                each.kill()
            except psutil.NoSuchProcess:
                continue
    process.wait()
    if process.stdout is not None:
        process.stdout.close()


@contextmanager
def run(folder: Path, messages: int, kills: int) -> Iterator[Run]:
    (folder / "spark").mkdir(parents=True)
    course = Run(folder, messages, kills)
    try:
        yield course
    finally:
        course.close()


def main() -> None:
    parser = argparse.ArgumentParser(description="Exactly once, end to end, under SIGKILL.")
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--kills", type=int, default=12)
    arguments = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="vmq-once-"))
    with run(folder, arguments.messages, arguments.kills) as course:
        course.go()
        print(json.dumps(course.check(), indent=2))
    shutil.rmtree(folder)


if __name__ == "__main__":
    main()
