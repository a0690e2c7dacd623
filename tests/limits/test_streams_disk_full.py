"""A disk without room below streams: acknowledgements wait, nothing breaks, and it goes on when there is room."""

import json
import threading
from collections import deque
from contextlib import closing
from pathlib import Path
from random import Random
from typing import Any
from urllib.parse import urlsplit

import pytest
from redis import Redis
from redis.exceptions import ResponseError

from tests.limits.small_disk import SmallDisk, small_disk
from tests.limits.test_disk_full import client, exchange
from tests.support.metrics import figure
from tests.support.until import reach
from tests.support.wire import PUBACK, ConnectionEnded, Wire, publish_packet
from tests.vmq.http.conftest import get
from vmq.streams.stored import StoredStream, find_folder
from vmq.testing.process import BrokerProcess

#: Small segments, so that sealing and merging meet the full disk, too.
ENV = {
    "VMQ_STREAMS__KEPT__FILTERS": '["kept/#"]',
    "VMQ_STREAMS__KEPT__PARTITIONS": "2",
    "VMQ_STREAMS__KEPT__SEGMENT_BYTES": "262144",
    # The disk is to be full for the streams only.
    "VMQ_STORE__MIN_FREE_BYTES": "0",
}

#: Seconds for what is to happen by itself.
PATIENCE = 30.0

#: Random bytes, which do not compress.
SIZES = (10, 3000, 30_000)


class Device:
    """Publishes numbered payloads at QoS 1, many at a time, and knows which were acknowledged."""

    def __init__(self, name: str, wire: Wire) -> None:
        self.name = name
        self.wire = wire
        self.random = Random(name)
        self.number = 0
        self.acknowledged: list[int] = []

    def send(self, count: int) -> None:
        """Publishes so many, without waiting."""
        for _ in range(count):
            payload = b"%d " % self.number + self.random.randbytes(self.random.choice(SIZES))
            packet_id = self.number + 1
            self.wire.send(publish_packet(f"kept/{self.name}", payload, qos=1, packet_id=packet_id))
            self.number += 1

    def take(self, timeout: float) -> bool:
        """Takes one acknowledgement; False if none came in time, or the broker is gone."""
        try:
            packet = self.wire.recv_packet(timeout)
        except (TimeoutError, ConnectionEnded):
            return False
        assert packet.type == PUBACK
        self.acknowledged.append(packet.packet_id - 1)
        return True

    def settle(self) -> None:
        """Waits until everything is acknowledged."""
        while len(self.acknowledged) < self.number:
            assert self.take(PATIENCE), f"{len(self.acknowledged)} of {self.number}"


def wait_until_full(
    broker: BrokerProcess, devices: list[Device], times: int = 1, why: str = "No space left"
) -> None:
    """The operator sees the alarm wherever she looks, and the devices get no acknowledgement any more.

    `times` is how often it has been full.
    """
    broker.wait_count(times, f"error .*the streams cannot write: .*{why}.*; acknowledgements wait")
    for device in devices:
        while device.take(0.05):
            pass
        assert len(device.acknowledged) < device.number, "acknowledged without being on disk"
    health = get(broker.http, "/health")
    assert health.status == 200
    assert json.loads(health.body)["status"] == "degraded"
    assert any("streams cannot write" in reason for reason in json.loads(health.body)["reasons"])
    assert waiting(broker) > 0


def waiting(broker: BrokerProcess) -> float:
    """Bytes of messages that the disk has not taken, by the metrics."""
    return figure(broker, "stream_uncommitted_bytes")


def wait_until_well(broker: BrokerProcess) -> None:
    """The broker finds by itself that there is room again."""
    reach(lambda: not json.loads(get(broker.http, "/health").body)["reasons"], "it does not notice")


def kept(disk: SmallDisk) -> dict[str, list[int]]:
    """The numbers in the stream by device, in its order; everything in it is whole."""
    stream = StoredStream(find_folder(disk.seen), "kept")
    assert [problem for report in stream.verify() for problem in report.problems] == []
    found: dict[str, list[int]] = {}
    for batch in stream.rows(["topic", "payload"]):
        for row in batch.to_pylist():
            numbers = found.setdefault(row["topic"].removeprefix("kept/"), [])
            numbers.append(int(row["payload"].split(b" ")[0]))
    return found


def test_a_full_disk_holds_acknowledgements_back_until_there_is_room(disk: SmallDisk) -> None:
    """It fills up three times in the middle of traffic; what needs no disk goes on."""
    with disk.broker(ENV) as broker:
        with (
            client(broker, "a") as a,
            client(broker, "b") as b,
            client(broker, "subscriber") as subscriber,
            client(broker, "publisher") as publisher,
        ):
            devices = [Device("a", a), Device("b", b)]
            subscriber.subscribe(("live", 2))
            for turn in range(3):
                for device in devices:
                    device.send(20)
                    device.settle()
                disk.fill()
                for device in devices:
                    device.send(40)
                wait_until_full(broker, devices, turn + 1)
                exchange(subscriber, publisher, b"%d" % turn)
                disk.make_room()
                for device in devices:
                    device.settle()
                wait_until_well(broker)
                broker.wait_count(turn + 1, "streams can write again")
            assert waiting(broker) == 0
        assert broker.terminate() == 0
        assert "Traceback" not in broker.stderr_text()
    assert kept(disk) == {"a": list(range(180)), "b": list(range(180))}


def test_what_waits_for_a_full_disk_is_bounded(disk: SmallDisk) -> None:
    """A device that floods is not read any more, the others are; all that was taken arrives."""
    count, size = 6000, 10_000
    with disk.broker(ENV) as broker:
        with (
            client(broker, "flood") as flood,
            client(broker, "subscriber") as subscriber,
            client(broker, "publisher") as publisher,
        ):
            subscriber.subscribe(("live", 2))
            disk.fill()

            def send() -> None:
                for number in range(count):
                    payload = b"%d " % number + bytes(size)
                    flood.send(publish_packet("kept/flood", payload))

            sending = threading.Thread(target=send)
            sending.start()
            broker.wait_log("the streams cannot write: .*No space left")
            reach(lambda: waiting(broker) >= 32 << 20, "the flood stopped too early", PATIENCE)
            exchange(subscriber, publisher, b"meanwhile")
            assert sending.is_alive(), "60 MB were taken"
            assert waiting(broker) < 48 << 20
            disk.make_room()
            disk.grow("128m")
            sending.join(PATIENCE)
            assert not sending.is_alive(), "there is room, and the flood is still held up"
            flood.ping()
            wait_until_well(broker)
        assert broker.terminate() == 0
    assert kept(disk)["flood"] == list(range(count))


#: Nothing is set but a stream.
ROOMY = {"VMQ_STREAMS__KEPT__FILTERS": '["kept/#"]'}


DOORS = ("tcp://127.0.0.1:0", "http://127.0.0.1:0", "resp://127.0.0.1:0")


def leave_messages(broker: BrokerProcess, count: int) -> None:
    """Has messages of 100 kB wait for a durable session."""
    with client(broker, "durable", clean=False) as durable:
        durable.subscribe(("d/#", 1))
        durable.disconnect()
    with client(broker, "publisher") as publisher:
        for number in range(count):
            publisher.publish(f"d/{number}", bytes(100_000), qos=1)


def fetch(broker: BrokerProcess, count: int) -> None:
    """They are all there for whoever comes back."""
    with Wire.connect_tcp(broker.tcp) as durable:
        assert durable.connect("durable", clean=False).session_present
        for number in range(count):
            durable.acknowledge(durable.expect_publish(f"d/{number}", qos=1, dup=False))


def test_streams_leave_the_store_the_room_that_it_works_in(tmp_path: Path) -> None:
    """A stream takes all that it may; who has a durable session fetches what waits there all the same."""
    folder = tmp_path / "disk"
    folder.mkdir()
    with small_disk(folder, "64m") as disk, disk.broker(ROOMY, DOORS) as broker:
        leave_messages(broker, 99)
        with client(broker, "a") as wire:
            device = Device("a", wire)
            while not broker.stderr_text().count("streams cannot write"):
                device.send(20)
                while device.take(0.05):
                    pass
            wait_until_full(broker, [device], why="are to stay")
            reasons = json.loads(get(broker.http, "/health").body)["reasons"]
            assert any("store.min_free_bytes" in each for each in reasons)
            assert disk.free() >= (12 << 20)  # 16 MiB are to stay; LevelDB works in them
            fetch(broker, 99)
        assert "the store cannot write" not in broker.stderr_text()
        disk.grow("160m")
        broker.wait_log("streams can write again")
        wait_until_well(broker)
        assert broker.terminate() == 0


def test_jobs_leave_the_store_the_room_that_it_works_in(tmp_path: Path) -> None:
    folder = tmp_path / "disk"
    folder.mkdir()
    with small_disk(folder, "64m") as disk, disk.broker(ROOMY, DOORS) as broker:
        leave_messages(broker, 50)
        body = Random(1).randbytes(50_000)
        url = next(each for each in broker.urls if each.startswith("resp://"))
        redis: Any = Redis(port=urlsplit(url).port or 0, socket_timeout=60)  # no types for commands
        with closing(redis):
            add = ("ADDJOB", "q", body, 1000)
            with pytest.raises(ResponseError, match=r"IOERR .*store\.min_free_bytes"):
                deque((redis.execute_command(*add) for _ in range(2000)), 0)
            reasons = json.loads(get(broker.http, "/health").body)["reasons"]
            assert any("jobs are refused: the disk is short" in each for each in reasons)
            assert disk.free() >= (12 << 20)
            fetch(broker, 50)
            taken = redis.execute_command("GETJOB", "FROM", "q")
            assert redis.execute_command("ACKJOB", taken[0][1]) == 1
            disk.grow("160m")
            broker.wait_log("the disk of jobs has room again")
            redis.execute_command(*add)
        assert broker.terminate() == 0
