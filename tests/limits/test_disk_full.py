"""A disk without room: durable work is refused with an alarm, the rest goes on, nothing is lost."""

import json
from random import Random

from tests.limits.small_disk import SmallDisk
from tests.support import wire as mqtt
from tests.support.until import reach
from tests.vmq.http.conftest import get
from vmq.testing.process import BrokerProcess

#: LevelDB writes its buffer out early, so that all its files meet the full disk.
#: What keeps a store from coming so far is off.
ENV = {
    "VMQ_STORE__WRITE_BUFFER_SIZE": "65536",
    "VMQ_STORE__MIN_FREE_BYTES": "0",
    "VMQ_STORE__MAX_BYTES": "-1",
}


def client(broker: BrokerProcess, client_id: str, *, clean: bool = True) -> mqtt.Wire:
    return mqtt.Wire.connected(broker.tcp, client_id, clean=clean)


class Sender:
    """Publishes numbered payloads of random size at QoS 1, and knows which were acknowledged."""

    def __init__(self, broker: BrokerProcess) -> None:
        self.broker = broker
        self.random = Random(7)
        self.number = 0
        self.acknowledged: list[bytes] = []

    def send_until_refused(self, most: int) -> bool:
        """Publishes one by one; True when the broker closed instead of acknowledging."""
        with client(self.broker, "sender") as wire:
            for _ in range(most):
                self.number += 1
                payload = b"%d " % self.number + self.random.randbytes(self.random.choice(SIZES))
                wire.send(mqtt.publish_packet("durable", payload, qos=1, packet_id=self.number))
                try:
                    wire.expect(mqtt.PUBACK)
                except mqtt.ConnectionEnded:
                    return True
                self.acknowledged.append(payload)
        return False


#: Random bytes, which do not compress; some larger than LevelDB's blocks.
SIZES = (10, 3000, 30_000)


def exchange(subscriber: mqtt.Wire, publisher: mqtt.Wire, text: bytes) -> None:
    """What needs no disk goes on, at every QoS."""
    for qos in (0, 1, 2):
        publisher.publish("live", text, qos=qos)
        found = subscriber.expect_publish("live", text, qos=qos)
        subscriber.acknowledge(found)


def check_alarm(broker: BrokerProcess) -> None:
    """The operator can see it, wherever she looks."""
    broker.wait_log("error .*the store cannot write: .*; durable work is refused until it can")
    health = get(broker.http, "/health")
    assert health.status == 503
    assert any("store" in reason for reason in json.loads(health.body)["reasons"])
    assert b"\nstore_failing 1.0\n" in get(broker.http, "/metrics").body
    with mqtt.Wire.connect_tcp(broker.tcp) as refused:
        refused.send(mqtt.connect_packet("another", clean=False))
        assert refused.recv_packet().return_code == 3
        refused.expect_closed()


def wait_until_well(broker: BrokerProcess) -> None:
    """The broker finds by itself that there is room again."""
    reach(lambda: get(broker.http, "/health").status == 200, "the broker does not notice")
    assert b"\nstore_failing 0.0\n" in get(broker.http, "/metrics").body
    broker.wait_log("the store is open again")


def drain(broker: BrokerProcess) -> list[bytes]:
    """What waits for the durable subscriber, each message once."""
    with client(broker, "last") as last:
        last.publish("durable", b"end", qos=1)
    found: list[bytes] = []
    with mqtt.Wire.connect_tcp(broker.tcp) as wire:
        assert wire.connect("durable", clean=False).session_present
        while True:
            packet = wire.expect_publish("durable", qos=1, dup=False)
            wire.acknowledge(packet)
            if packet.payload == b"end":
                return found
            found.append(packet.payload)


def check_promises(sender: Sender, found: list[bytes]) -> None:
    """Everything acknowledged came, once and in order; of the rest, what came did so as well."""
    numbers = [int(payload.split()[0]) for payload in found]
    assert numbers == sorted(set(numbers))
    assert [each for each in found if each in set(sender.acknowledged)] == sender.acknowledged


def test_a_full_disk_refuses_durable_work_and_loses_nothing(disk: SmallDisk) -> None:
    """It fills up three times in the middle of traffic; each time room is made again."""
    with disk.broker(ENV) as broker:
        with client(broker, "durable", clean=False) as durable:
            durable.subscribe(("durable", 1))
            durable.disconnect()
        sender = Sender(broker)
        with client(broker, "subscriber") as subscriber, client(broker, "publisher") as publisher:
            subscriber.subscribe(("live", 2))
            for turn in range(3):
                assert not sender.send_until_refused(20)
                disk.fill()
                assert sender.send_until_refused(100)
                check_alarm(broker)
                exchange(subscriber, publisher, b"%d" % turn)
                assert disk.free() < 65_536
                disk.make_room()
                wait_until_well(broker)
        assert not sender.send_until_refused(5)
        assert len(sender.acknowledged) >= 65
        assert broker.terminate() == 0
        assert "Traceback" not in broker.stderr_text()
    disk.check_store()
    with disk.broker(ENV) as broker:
        check_promises(sender, drain(broker))
        assert broker.terminate() == 0


def test_a_broker_killed_while_its_disk_is_full_starts_again(disk: SmallDisk) -> None:
    """Its own queue fills the disk; it is killed there, and the disk is extended."""
    with disk.broker(ENV) as broker:
        with client(broker, "durable", clean=False) as durable:
            durable.subscribe(("durable", 1))
            durable.disconnect()
        sender = Sender(broker)
        assert sender.send_until_refused(2000)
        check_alarm(broker)
        broker.kill()
    disk.grow("32m")
    disk.check_store()
    with disk.broker(ENV) as broker:
        check_promises(sender, drain(broker))
        assert broker.terminate() == 0
