"""A disk that gets short of room, with the limits as they are shipped: who is absent loses, nobody else does."""

import json
from pathlib import Path
from random import Random
from time import monotonic

from tests.limits.small_disk import SmallDisk, small_disk
from tests.limits.test_disk_full import client
from tests.support import wire as mqtt
from tests.support.until import reach
from tests.vmq.http.conftest import get
from vmq.testing.process import BrokerProcess

#: LevelDB's default would fill such a disk with its log alone.
ENV = {"VMQ_STORE__WRITE_BUFFER_SIZE": "1048576"}

DISK = "80m"
SIZE = 40_000
PATIENCE = 60.0

#: The return code of CONNACK for who may come again later.
UNAVAILABLE = 3


def sessions(broker: BrokerProcess, *names: str) -> None:
    """Durable sessions, each with the topic of its name, whose clients go away."""
    for name in names:
        with client(broker, name, clean=False) as wire:
            wire.subscribe((name, 1))
            wire.disconnect()


class Publisher:
    """Publishes numbers at QoS 1; what is refused it sends again."""

    def __init__(self, broker: BrokerProcess) -> None:
        self.broker = broker
        self.random = Random(3)

    def publish(self, topic: str, numbers: range) -> None:
        left = list(numbers)
        reach(lambda: self._is_taken(topic, left), "it takes nothing any more", PATIENCE)

    def _is_taken(self, topic: str, left: list[int]) -> bool:
        """Publishes until nothing is left, or it is refused; the broker looks for room once a second."""
        try:
            with client(self.broker, "publisher") as wire:
                while left:
                    payload = b"%08d" % left[0] + self.random.randbytes(SIZE)
                    wire.ask(mqtt.publish_packet(topic, payload, qos=1, packet_id=1), mqtt.PUBACK)
                    del left[0]
        except mqtt.ConnectionEnded:
            return False
        return True


def drain(broker: BrokerProcess, name: str, last: int) -> list[int]:
    """What waits for a durable session, up to a number. Who is refused for want of room comes again, as clients do."""
    found: list[int] = []
    deadline = monotonic() + PATIENCE
    while True:
        wire = mqtt.Wire.connect_tcp(broker.tcp)
        answer = wire.ask(mqtt.connect_packet(name, clean=False), mqtt.CONNACK)
        if answer.return_code != UNAVAILABLE:
            break
        wire.close()
        assert monotonic() < deadline, "the broker lets in nobody any more"
    with wire:
        assert answer.return_code == 0
        assert answer.session_present
        while not found or found[-1] != last:
            packet = wire.expect_publish(name, qos=1)
            wire.acknowledge(packet)
            found.append(int(packet.payload[:8]))
    return found


def test_absent_sessions_lose_their_oldest_before_the_disk_is_full(disk: SmallDisk) -> None:
    """Half of the disk is the messages'. Who is connected loses nothing, though it takes nothing for long."""
    with disk.broker(ENV) as broker:
        sessions(broker, "absent", "present")
        with mqtt.Wire.connected(broker.tcp, "present", clean=False):
            publisher = Publisher(broker)
            publisher.publish("present", range(100))
            publisher.publish("absent", range(1300))
            broker.wait_log("warning .*the store has .* of .* bytes .store.max_bytes.")
            told = broker.wait_log("dropped client=absent reason=store_full messages=.*")
            assert "queue.max_age" in told.string
        # What a publisher is not acknowledged it sends again: QoS 1 may come twice.
        found = list(dict.fromkeys(drain(broker, "absent", 1299)))
        assert found == list(range(found[0], 1300)), "the newest are there, without a gap"
        assert found[0] > 0
        assert sorted(set(drain(broker, "present", 99))) == list(range(100))
        assert "cannot write" not in broker.stderr_text()
        assert broker.terminate() == 0


def test_a_disk_of_64_mib_is_enough_with_nothing_set(tmp_path: Path) -> None:
    """Several times as much as it holds, and a restart on what is left of it."""
    folder = tmp_path / "disk"
    folder.mkdir()
    with small_disk(folder, "64m") as disk:
        with disk.broker({}) as broker:
            sessions(broker, "absent")
            publisher = Publisher(broker)
            publisher.publish("absent", range(1250))
            found = list(dict.fromkeys(drain(broker, "absent", 1249)))
            assert found == list(range(found[0], 1250)), "the newest are there, without a gap"
            assert 1250 - found[0] > 250
            assert found[0] > 0
            assert "cannot write" not in broker.stderr_text()
            publisher.publish("absent", range(1250, 1850))
            assert broker.terminate() == 0
        with disk.broker({}) as broker:
            found = list(dict.fromkeys(drain(broker, "absent", 1849)))
            assert found == list(range(found[0], 1850))
            assert broker.terminate() == 0
        disk.grow("160m")  # the check works on a copy
        disk.check_store()


def test_a_disk_short_of_room_takes_no_durable_work_until_it_has_more(disk: SmallDisk) -> None:
    with disk.broker(ENV) as broker:
        said = broker.wait_log(r"has \d+ bytes in all: durable work is refused under (\d+) bytes")
        least = int(said.group(1))
        sessions(broker, "absent")
        Publisher(broker).publish("absent", range(10))
        disk.fill(leave=least - (1 << 20))
        broker.wait_log("error .*durable work is refused until it has more")
        health = json.loads(get(broker.http, "/health").body)
        assert health["status"] == "degraded"
        assert any("store.min_free_bytes" in reason for reason in health["reasons"])
        with client(broker, "live") as live:
            live.subscribe(("live", 1))
            live.publish("live", b"goes on", qos=1)
            live.acknowledge(live.expect_publish("live", b"goes on", qos=1))
            live.ended_by(mqtt.publish_packet("absent", b"refused", qos=1, packet_id=9))
        with mqtt.Wire.connect_tcp(broker.tcp) as newcomer:
            newcomer.send(mqtt.connect_packet("newcomer", clean=False))
            assert newcomer.recv_packet().return_code == 3
        assert drain(broker, "absent", 9) == list(range(10))
        assert disk.free() > 0, "it stopped before the disk was full"
        disk.make_room()
        broker.wait_log("the disk of the store has room again")
        Publisher(broker).publish("absent", range(10, 12))
        assert drain(broker, "absent", 11) == [10, 11]
        assert broker.terminate() == 0
