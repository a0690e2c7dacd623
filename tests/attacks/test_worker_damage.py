"""What one of several workers has on disk is damaged: the whole tells which, and the others serve."""

import random
from contextlib import closing
from pathlib import Path
from typing import Any

import plyvel

from tests.attacks.test_stream_damage import is_acknowledged
from tests.conftest import BrokerFactory
from tests.support.until import reach
from tests.support.wire import PUBACK, Wire, connect_packet, publish_packet
from tests.vmq.cli.program import run
from tests.vmq.workers.several import ARGS, LISTEN, Several

CLIENTS = 8
MESSAGES = 40
HURT = 5


STREAM = {
    "VMQ_STREAMS__KEPT__FILTERS": '["kept/#"]',
    "VMQ_STREAMS__KEPT__PARTITIONS": "6",
    "VMQ_STREAMS__KEPT__KEY": '"topic"',
}


def start(factory: BrokerFactory, data: Path, env: dict[str, str] | None = None) -> Several:
    return Several(factory((LISTEN[0], LISTEN[2]), data, env, ARGS))


def degraded(several: Several) -> list[str]:
    """What is wrong, while all that is new is served."""
    status, found = several.get("/health")
    assert (status, found["status"]) == (200, "degraded")
    assert several.get("/health/ready") == (200, {"status": "ok", "reasons": []})
    # A machine that is busy with other things may keep an event loop waiting.
    return [each for each in found["reasons"] if "event loop" not in each]


# --- the message store


def payload(client: int, number: int) -> bytes:
    """Bytes that are not compressed, and can be found in the files."""
    return random.Random(client * 1000 + number).randbytes(150)


def flip_in_a_table(data: Path, wanted: bytes) -> None:
    """Flips bits where a payload lies, whichever worker has it; what is in the log comes to a table before."""
    for slots in (data / "cluster" / "slots", data / "workers" / "2" / "cluster" / "slots"):
        with closing(plyvel.DB(str(slots))):
            pass
        for path in slots.glob("*.ldb"):
            raw = bytearray(path.read_bytes())
            if (at := raw.find(wanted)) >= 0:
                raw[at + 40] ^= 16
                path.write_bytes(raw)
                return
    raise AssertionError("the payload is in no table")


def drain(several: Several, client: str) -> list[bytes]:
    """What waits for a client, whichever worker it comes to."""
    with Wire.connected(several.broker.tcp, client, clean=False) as wire:
        found: list[bytes] = []
        while len(found) < MESSAGES:
            received = wire.expect_publish()
            wire.acknowledge(received)
            found.append(received.payload)
        return found


def fill(factory: BrokerFactory, data: Path, env: dict[str, str] | None = None) -> None:
    """Durable sessions of one worker with messages that wait, of which one block is then damaged."""
    several = start(factory, data, env)
    for client in range(CLIENTS):
        with several.client_on(2, f"dev-{client}", clean=False) as wire:
            wire.subscribe((f"to/{client}", 1))
    with several.client_on(2, "publisher") as wire:
        for client in range(CLIENTS):
            for number in range(MESSAGES):
                wire.send(
                    publish_packet(f"to/{client}", payload(client, number), qos=1, packet_id=1)
                )
                assert wire.recv_packet().type == PUBACK
    assert several.broker.terminate() == 0
    flip_in_a_table(data, payload(HURT, MESSAGES // 2))


def test_a_damaged_table_of_one_worker_costs_its_sessions_alone(
    fresh_broker: BrokerFactory, tmp_path: Path
) -> None:
    fill(fresh_broker, tmp_path)
    several = start(fresh_broker, tmp_path)
    with Wire.connect_tcp(several.broker.tcp) as wire:
        wire.send(connect_packet(f"dev-{HURT}", clean=False))
        # What is in a block may be messages of that client alone, or what its slot is read by.
        several.broker.wait_log(
            f"what waits for client=dev-{HURT} cannot be read|is not served", 30
        )
    for number in (1, 2):
        several.client_on(number, f"new-{number}", clean=False).close()
    for client in set(range(CLIENTS)) - {HURT}:
        found = drain(several, f"dev-{client}")
        assert found == [payload(client, number) for number in range(MESSAGES)]
    assert several.broker.is_running()


# --- streams


def publish(several: Several, worker: int, topic: str) -> bool:
    with several.client_on(worker, f"publisher-{worker}") as wire:
        return is_acknowledged(wire, topic)


def owners(several: Several) -> list[dict[str, Any]]:
    _, found = several.api("GET", "/stream", name="kept")
    partitions: list[dict[str, Any]] = found["partitions"]
    return partitions


def flip_in_a_partition(folder: Path) -> int:
    """Flips a bit of a partition that has messages; returns its number."""
    for number in range(6):
        path = max((folder / str(number)).glob("*.arrows"))
        raw = bytearray(path.read_bytes())
        if b"payload" in raw:
            raw[-9] ^= 8
            path.write_bytes(raw)
            return number
    raise AssertionError("no partition has messages")


def test_a_damaged_partition_of_one_worker_is_refused_by_all_and_the_others_are_served(
    fresh_broker: BrokerFactory, tmp_path: Path
) -> None:
    env = {**STREAM, "VMQ_STREAMS__KEPT__COMPRESSION": "none"}
    several = start(fresh_broker, tmp_path, env)
    reach(lambda: {each["owner"] for each in owners(several)} == {"n-1", "n-2"})
    topics = [f"kept/{number}" for number in range(16)]
    assert all(publish(several, 1, topic) for topic in topics)
    reach(lambda: sum((each["end"] or 0) for each in owners(several)) == len(topics))
    assert several.broker.terminate() == 0
    number = flip_in_a_partition(tmp_path / "workers" / "2" / "streams" / "kept")

    several = start(fresh_broker, tmp_path, env)
    text = f"partition {number} of stream 'kept' is damaged"
    reach(lambda: len(degraded(several)) == 2)
    first, second = sorted(degraded(several))
    assert first.startswith(f"worker 1: {text} on node 'n-2' and refused: ")
    assert second.startswith(f"worker 2: {text} and refused: ")
    answers = [[publish(several, worker, topic) for topic in topics] for worker in (1, 2)]
    assert answers[0] == answers[1]
    assert 0 < answers[0].count(False) < len(topics)
    assert publish(several, 2, "not/kept")
    assert several.broker.terminate() == 0

    assert b"damaged-1" in run("stream", "repair", "--data-dir", str(tmp_path)).out
    several = start(fresh_broker, tmp_path, env)
    assert not any("damaged" in each for each in several.get("/health")[1]["reasons"])
    assert all(publish(several, worker, topic) for worker in (1, 2) for topic in topics)
