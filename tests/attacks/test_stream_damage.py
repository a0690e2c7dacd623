"""Flipped bytes in segments of streams.

In the last one of a partition: that partition is refused, and everything else is served. In an earlier one: it is told
before a reader meets it.
"""

import json
from pathlib import Path

import pytest
from pyarrow import flight

from tests.attacks.test_session_damage import health
from tests.conftest import BrokerFactory
from tests.support.flipped import flip
from tests.support.wire import PUBACK, ConnectionEnded, Wire, publish_packet
from tests.vmq.cli.program import Finished
from tests.vmq.cli.program import run as run_command
from vmq.testing.process import BrokerProcess

LISTEN = ("tcp://127.0.0.1:0", "http://127.0.0.1:0")
ENV = {
    "VMQ_STREAMS__KEPT__FILTERS": '["kept/#"]',
    "VMQ_STREAMS__KEPT__PARTITIONS": "2",
    "VMQ_STREAMS__KEPT__KEY": '"topic"',
}
TOPICS = 10


def run(data: Path, *arguments: str) -> Finished:
    return run_command("stream", *arguments, "--data-dir", str(data))


def is_acknowledged(wire: Wire, topic: str) -> bool:
    """Whether a message of QoS 1 is; if not, its publisher is cut off."""
    wire.send(publish_packet(topic, b"payload", qos=1, packet_id=1))
    try:
        return wire.recv_packet().type == PUBACK
    except ConnectionEnded:
        return False


def publish(broker: BrokerProcess, topic: str) -> bool:
    with Wire.connected(broker.tcp, "publisher") as wire:
        return is_acknowledged(wire, topic)


def test_one_flipped_byte_stops_one_partition(fresh_broker: BrokerFactory, tmp_path: Path) -> None:
    topics = [f"kept/{number}" for number in range(TOPICS)]
    broker = fresh_broker(LISTEN, tmp_path, ENV)
    for _ in range(2):
        assert all(publish(broker, topic) for topic in topics)
    assert broker.terminate() == 0
    (segment,) = (tmp_path / "streams" / "kept" / "0").glob("*.arrows")
    flip(segment, -9)

    broker = fresh_broker(LISTEN, tmp_path, ENV)
    broker.wait_log(
        "error partition 0 of stream 'kept' is damaged and refused: .*vmq stream repair"
    )
    status, found = health(broker)
    assert (status, found["status"]) == (200, "degraded")
    (reason,) = found["reasons"]
    assert reason.startswith("partition 0 of stream 'kept' is damaged and refused: ")
    assert str(segment) in reason
    assert "vmq stream repair" in reason
    assert health(broker, "/health/ready") == (200, {"status": "ok", "reasons": []})
    acknowledged = [topic for topic in topics if publish(broker, topic)]
    assert 0 < len(acknowledged) < TOPICS
    assert publish(broker, "not/kept")
    # Who is not concerned stays connected while others are refused.
    with Wire.connected(broker.tcp, "bystander") as wire:
        (refused, *_) = set(topics) - set(acknowledged)
        assert not publish(broker, refused)
        wire.ping()
    assert run(tmp_path, "repair").code == 1  # the broker runs
    assert broker.terminate() == 0

    repaired = run(tmp_path, "repair", "kept")
    assert repaired.code == 0, repaired.err
    assert b"damaged-1" in repaired.out
    assert run(tmp_path, "verify", "kept").code == 0
    broker = fresh_broker(LISTEN, tmp_path, ENV)
    assert health(broker) == (200, {"status": "ok", "reasons": []})
    assert all(publish(broker, topic) for topic in topics)


def sealed_segments(broker: BrokerProcess, data: Path) -> list[Path]:
    """Fills the first two segments of a partition; each message is most of one, so nothing is to be merged."""
    with Wire.connected(broker.tcp, "publisher") as wire:
        for number in range(3):
            wire.send(publish_packet("kept/0", bytes(60_000), qos=1, packet_id=number + 1))
            assert wire.recv_packet().type == PUBACK
    *sealed, _ = sorted((data / "streams" / "kept" / "0").glob("*.arrows"))
    assert len(sealed) == 2
    return sealed


SEALED = {**ENV, "VMQ_STREAMS__KEPT__PARTITIONS": "1", "VMQ_STREAMS__KEPT__COMPRESSION": "none"}
SEALED["VMQ_STREAMS__KEPT__SEGMENT_BYTES"] = "65536"


def test_a_flipped_byte_in_a_sealed_segment_is_told_though_nobody_reads_it(
    fresh_broker: BrokerFactory, tmp_path: Path
) -> None:
    broker = fresh_broker(LISTEN, tmp_path, SEALED)
    hurt, _ = sealed_segments(broker, tmp_path)
    assert broker.terminate() == 0
    flip(hurt, hurt.stat().st_size // 2)
    broker = fresh_broker(LISTEN, tmp_path, SEALED)
    broker.wait_log(f"error stream=kept partition=0: readers are refused from there on: {hurt}")
    status, found = health(broker)
    assert (status, found["status"]) == (200, "degraded")
    (reason,) = found["reasons"]
    assert reason.startswith(f"readers of a segment are refused from there on: {hurt} is damaged")
    assert publish(broker, "kept/0")


def test_what_a_reader_by_flight_meets_is_told(fresh_broker: BrokerFactory, tmp_path: Path) -> None:
    """Flight's process reads the file, and the broker tells of it, once, without waiting for its next scrub."""
    env = {**SEALED, "VMQ_BROKER__STREAM_SCRUB_RATE": "0"}
    broker = fresh_broker((*LISTEN, "grpc://127.0.0.1:0"), tmp_path, env)
    hurt, whole = sealed_segments(broker, tmp_path)
    flip(hurt, hurt.stat().st_size // 2)
    assert health(broker)[1]["status"] == "ok"
    url = next(each for each in broker.urls if each.startswith("grpc://"))
    with flight.connect(url) as client:
        for _ in range(2):
            ticket = json.dumps({"stream": "kept", "partition": 0, "start": 0}).encode()
            with pytest.raises(flight.FlightServerError, match="is damaged"):
                client.do_get(flight.Ticket(ticket)).read_all()
            (reason,) = health(broker)[1]["reasons"]
            told = f"readers of a segment are refused from there on: {hurt} is damaged"
            assert reason.startswith(told)
        assert broker.stderr_text().count("readers are refused from there on") == 1
        behind = json.dumps({"stream": "kept", "partition": 0, "start": int(whole.stem)}).encode()
        assert client.do_get(flight.Ticket(behind)).read_all().num_rows == 2
        with pytest.raises(flight.FlightServerError, match="no action 'examine'"):
            list(client.do_action(flight.Action("examine", ticket)))


def test_what_verify_finds_is_told_by_the_broker_that_runs(
    fresh_broker: BrokerFactory, tmp_path: Path
) -> None:
    env = {**SEALED, "VMQ_BROKER__STREAM_SCRUB_RATE": "0"}
    broker = fresh_broker(LISTEN, tmp_path, env)
    _, hurt = sealed_segments(broker, tmp_path)
    flip(hurt, hurt.stat().st_size // 2)
    assert health(broker)[1]["status"] == "ok"
    verified = run(tmp_path, "verify")
    verified.tells(1, f"{hurt} is damaged at byte")
    broker.wait_log(f"error stream=kept partition=0: readers are refused from there on: {hurt}")
    assert health(broker)[1]["status"] == "degraded"
