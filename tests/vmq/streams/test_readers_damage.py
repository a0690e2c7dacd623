"""In front of a damaged batch nothing is lost to readers of any kind: each gets what lies there, then the reason."""

import json
import random
from pathlib import Path

import vmq.streams
from tests.support.flipped import flip
from tests.support.wire import PUBACK, Wire, publish_packet
from tests.vmq.cli.program import here
from vmq.streams.client.errors import GroupError
from vmq.streams.log.errors import DamagedError
from vmq.streams.stored import StoredPartition
from vmq.testing.process import BrokerProcess

CONFIG = """
[listeners.a]
url = "tcp://127.0.0.1:0"

[listeners.f]
url = "grpc://127.0.0.1:0"

[streams.s]
filters = ["s/#"]
segment_bytes = 65536
"""
COUNT = 900


def fill(broker: BrokerProcess) -> None:
    noise = random.Random(1)
    with Wire.connected(broker.tcp, "c") as wire:
        for first in range(0, COUNT, 50):
            for packet in range(1, 51):
                payload = b"%d " % (first + packet - 1) + noise.randbytes(300)
                wire.send(publish_packet("s/t", payload, qos=1, packet_id=packet))
            for _ in range(50):
                wire.expect(PUBACK)


def damage(folder: Path) -> list[int]:
    """Flips a bit in the middle of a segment; returns the offsets in front of the batch that it is in."""
    paths = sorted(folder.glob("*.arrows"))
    assert len(paths) > 3
    flip(paths[1], paths[1].stat().st_size * 2 // 3)
    found: list[int] = []
    try:
        for span in StoredPartition(folder, "s", 0).spans():
            found += range(span.offset, span.end)
    except DamagedError:
        return found
    raise AssertionError("nothing is damaged")


def of_group(server: str) -> list[int]:
    """What a program that is a member of a group gets, until it is refused."""
    found: list[int] = []
    try:
        with vmq.streams.group("s", "g", server=server, start="earliest") as member:
            for rows in member:
                found += rows.column("offset").to_pylist()
    except GroupError as error:
        assert error.code == "damaged"
    return found


def test_each_reader_gets_what_lies_in_front_of_damage(tmp_path: Path) -> None:
    config = tmp_path / "vmq.toml"
    config.write_text(CONFIG)
    where = ("--data-dir", str(tmp_path / "data"))
    arguments = ("--config", str(config))
    with BrokerProcess.start((), tmp_path / "data", None, arguments) as broker:
        fill(broker)
    wanted = damage(tmp_path / "data" / "streams" / "s" / "0")
    assert 0 < len(wanted) < COUNT
    with BrokerProcess.start((), tmp_path / "data", None, arguments) as broker:
        told = here("stream", "tail", "s", "--from", "0", "-n", str(COUNT), "--json", *where)
        assert told.code
        assert "is damaged at byte" in told.err
        assert [json.loads(line)["offset"] for line in told.out.splitlines()] == wanted
        server = next(url for url in broker.urls if url.startswith("grpc://"))
        assert of_group(server) == wanted
        with Wire.connected(broker.tcp, "r") as wire:
            wire.subscribe(("$replay/earliest/s/#", 0))
            found = [int(wire.recv_packet().payload.split()[0]) for _ in wanted]
            assert found == wanted
