"""Flipped bytes in a table of the store: the sessions whose records they were are refused, and all else is served."""

import json
import random
from pathlib import Path
from typing import Any

import pytest

from tests.attacks.size import size
from tests.attacks.test_damage import keys_in
from tests.conftest import BrokerFactory
from tests.support.until import reach
from tests.support.wire import PUBACK, ConnectionEnded, Wire, connect_packet, publish_packet
from tests.vmq.http.conftest import get
from tests.vmq.test_store_model import commit
from tests.vmq.workers.several import Several
from vmq.mqtt.message import Delivery, Message
from vmq.store.opening import open_store
from vmq.testing.process import BrokerProcess

CLIENTS = 30
MESSAGES = 60

LISTEN = ("tcp://127.0.0.1:0", "http://127.0.0.1:0")

#: Small tables, so that LevelDB merges them while the broker runs.
ENV = {"VMQ_STORE__WRITE_BUFFER_SIZE": "65536"}

REFUSED_UNAVAILABLE = 3


def payload(client: int, seq: int) -> bytes:
    """Bytes that are not compressed, and can be found in the files."""
    return random.Random(client * 1000 + seq).randbytes(150)


def make(data: Path) -> None:
    """Durable sessions with a queue each, in tables; a message of theirs all share."""
    store = open_store(data / "store", "os", lambda: None, write_buffer_size=1 << 18)
    sessions = [store.create_session(f"dev-{number:02}") for number in range(CLIENTS)]
    for number, session in enumerate(sessions):
        store.put_session(f"dev-{number:02}", session, 1, None)
        store.put_subscription(session, "all", 1)
        store.put_subscription(session, f"to/{number:02}", 1)
        for seq in range(1, MESSAGES + 1):
            message = Message(b"to/%02d" % number, payload(number, seq), 1, False)
            delivery = Delivery(message, 1, False, "")
            delivery.seq = seq
            store.put_waiting(session, delivery)
        store.put_retained(Message(b"kept/%02d" % number, payload(number, 0), 1, True))
    commit(store)
    store.db.close()
    open_store(data / "store", "os", lambda: None).db.close()


def flip(data: Path, wanted: bytes) -> Path:
    """Flips three bits where a payload lies."""
    for path in sorted((data / "store").glob("*.ldb")):
        raw = bytearray(path.read_bytes())
        at = raw.find(wanted)
        if at >= 0:
            for offset in (3, 40, 90):
                raw[at + offset] ^= 16
            path.write_bytes(raw)
            return path
    raise AssertionError("the payload is in no table")


def health(broker: BrokerProcess, path: str = "/health") -> tuple[int, dict[str, Any]]:
    answer = get(broker.http, path)
    return answer.status, json.loads(answer.body)


def connect(broker: BrokerProcess, client: str, clean: bool = False) -> tuple[Wire, int]:
    """A connection, and the return code of its CONNACK."""
    wire = Wire.connect_tcp(broker.tcp)
    wire.send(connect_packet(client, clean=clean))
    return wire, wire.recv_packet().body[1]


def drain(broker: BrokerProcess, client: str) -> list[bytes] | None:
    """What waits for a client, up to the end of what the store had; None: it is refused, or cut off on the way."""
    wire, code = connect(broker, client)
    with wire:
        if code:
            assert code == REFUSED_UNAVAILABLE
            return None
        found: list[bytes] = []
        try:
            while len(found) < MESSAGES:
                received = wire.expect_publish()
                wire.acknowledge(received)
                found.append(received.payload)
            wire.ping()
        except ConnectionEnded:
            return None
        return found


def publish(broker: BrokerProcess, topic: str, count: int = 1) -> None:
    with Wire.connected(broker.tcp, "publisher") as wire:
        for number in range(count):
            body = random.Random(number).randbytes(1000)
            wire.send(publish_packet(topic, body, qos=1, packet_id=number + 1))
            assert wire.recv_packet().type == PUBACK


def test_a_look_into_a_queue_tells_what_cannot_be_read_and_goes_on(
    fresh_broker: BrokerFactory, tmp_path: Path
) -> None:
    make(tmp_path)
    hurt = 17
    flip(tmp_path, payload(hurt, 30))
    several = Several(fresh_broker(LISTEN, tmp_path, ENV))
    for _ in range(2):  # it is damage that is met, and then damage that is known
        status, rows = several.api(
            "GET", "/queue", client_id=f"dev-{hurt}", limit=0, payload_bytes=150
        )
        assert status == 200
        lost = [row["position"] for row in rows["rows"] if row["state"] == "unreadable"]
        found = {
            row["position"]: row["payload"] for row in rows["rows"] if row["state"] == "stored"
        }
        assert 30 in lost
        assert lost == list(range(lost[0], lost[-1] + 1))  # a block
        assert lost[0] > 1 or lost[-1] < MESSAGES
        assert sorted([*lost, *found]) == list(range(1, MESSAGES + 1))
        for seq, text in found.items():
            assert bytes.fromhex(text) == payload(hurt, seq)
        reach(lambda: health(several.broker)[1]["reasons"])


def test_a_merge_that_meets_the_damage_cuts_nobody_off(
    fresh_broker: BrokerFactory, tmp_path: Path
) -> None:
    """LevelDB refuses every write from then on; nobody has asked for what is damaged yet."""
    make(tmp_path)
    flip(tmp_path, payload(17, 30))
    broker = fresh_broker(LISTEN, tmp_path, ENV)
    assert health(broker)[1]["status"] == "ok"
    with Wire.connected(broker.tcp, "durable", clean=False) as durable:
        publish(broker, "all", 600)
        broker.wait_log("error .*the store is damaged: .*dev-17")
        publish(broker, "all", 600)
        durable.ping()
    text = broker.stderr_text()
    assert "the store cannot write" not in text
    assert "the store is open again" not in text
    assert broker.terminate() == 0


@pytest.mark.parametrize("seed", range(size(3, 200)))
def test_whatever_bits_flip_others_get_all_and_publishers_are_answered(
    fresh_broker: BrokerFactory, tmp_path: Path, seed: int
) -> None:
    """Three bits anywhere in the tables: who is served gets everything that was stored, or nothing of it is known."""
    rng = random.Random(seed)
    make(tmp_path)
    path = rng.choice(sorted((tmp_path / "store").glob("*.ldb")))
    gone = keys_in(path)
    raw = bytearray(path.read_bytes())
    for _ in range(3):
        raw[rng.randrange(len(raw))] ^= 1 << rng.randrange(8)
    path.write_bytes(raw)
    broker = fresh_broker(LISTEN, tmp_path, ENV)
    with Wire.connected(broker.tcp, "bystander") as bystander:
        for number in range(CLIENTS):
            session = (number + 1).to_bytes(8, "big")
            concerned = b"sdev-%02d" % number in gone or any(key[1:9] == session for key in gone)
            found = drain(broker, f"dev-{number:02}")
            if found is None:
                assert concerned, number
            else:
                assert found == [payload(number, seq) for seq in range(1, MESSAGES + 1)], number
        publish(broker, "all", 100)
        bystander.ping()
    assert "the store cannot write" not in broker.stderr_text()
    assert health(broker, "/health/ready")[0] == 200
    assert broker.terminate() == 0
