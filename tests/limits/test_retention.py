"""Readers whose cursor retention has passed, and archives that cannot be had: a real broker, and what it says."""

import json
import re
from pathlib import Path
from random import Random

import pytest

from tests.support.until import reach
from tests.support.wire import (
    PUBACK,
    Wire,
    puback_packet,
    publish_packet,
    subscribe_packet,
)
from tests.vmq.http.conftest import get
from vmq.testing.process import BrokerProcess, BrokerStartError

LISTEN = ("tcp://127.0.0.1:0", "http://127.0.0.1:0")
STREAM = """
[streams.s]
filters = ["s/#"]
partitions = 1
retention_bytes = 200_000
segment_bytes = 65_536
"""
CURSOR = "$replay/@c;from=earliest/s/#"
GROUP = "$share/g/$stream/s;from=earliest/#"


def start(folder: Path, more: str = "") -> BrokerProcess:
    config = folder / "vmq.toml"
    config.write_text(STREAM + more)
    args = ("--allow-anonymous", "--config", str(config))
    return BrokerProcess.start(LISTEN, folder / "data", args=args)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """The place of an archive, which is no folder."""
    path = tmp_path / "store"
    path.write_text("no folder")
    return path


def publish(broker: BrokerProcess, numbers: range) -> None:
    """Messages of 5 KB that begin with their number: some ten are a segment."""
    with Wire.connect_tcp(broker.tcp) as wire:
        wire.connect("publisher")
        for number in numbers:
            payload = b"%05d" % number + Random(number).randbytes(5000)
            wire.send(publish_packet("s/x", payload, qos=1, packet_id=1))
            wire.expect(PUBACK)


def read(broker: BrokerProcess, topic_filter: str, count: int) -> list[int]:
    """The next messages of a reader, who acknowledges them and goes."""
    with Wire.connect_tcp(broker.tcp) as wire:
        wire.connect("reader")
        wire.send(subscribe_packet(1, (topic_filter, 1)))
        assert wire.recv_packet().codes == [1]
        found = []
        for _ in range(count):
            row = wire.recv_packet()
            found.append(int(row.payload[:5]))
            wire.send(puback_packet(row.packet_id))
        wire.send(b"\xc0\x00")
        while wire.recv_packet().raw != b"\xd0\x00":
            pass
        return found


def figure(broker: BrokerProcess, name: str) -> int:
    """A figure of /metrics, over all its labels."""
    lines = get(broker.http, "/metrics").body.decode().splitlines()
    found = [each for each in lines if each.partition("{")[0].partition(" ")[0] == name]
    assert found, f"no {name}"
    return int(sum(float(each.rpartition(" ")[2]) for each in found))


def reasons(broker: BrokerProcess) -> list[str]:
    found: list[str] = json.loads(get(broker.http, "/health").body)["reasons"]
    return found


def test_a_cursor_that_retention_has_passed_goes_on_with_what_is_left(tmp_path: Path) -> None:
    """Of a replay and of a group; the log says whose it is, and how much was lost is counted."""
    with start(tmp_path) as broker:
        publish(broker, range(20))
        for topic_filter in (CURSOR, GROUP):
            assert read(broker, topic_filter, 5) == list(range(5))
        publish(broker, range(20, 120))
        broker.wait_log(r"deleted .*/s/0/0+\.arrows by the retention")
        lost = 0
        for topic_filter in (CURSOR, GROUP):
            found = read(broker, topic_filter, 20)
            assert found == list(range(found[0], found[0] + 20))
            assert found[0] > 5
            lost += found[0] - 5
            said = broker.wait_log(
                rf"replay of stream=s partition=0 client=reader filter=\"{re.escape(topic_filter)}\" "
                r"goes on at offset=(\d+) instead of 5: retention has deleted what comes before"
            )
            assert int(said[1]) == found[0]
            assert read(broker, topic_filter, 1) == [found[-1] + 1]
        assert figure(broker, "stream_replay_lost_total") == lost


@pytest.mark.parametrize("required", [False, True])
def test_while_an_archive_cannot_be_had(tmp_path: Path, store: Path, required: bool) -> None:
    """What is more than may lie there goes and is counted, or stays if the archive must have it."""
    archive = f'archive = "file://{store}"\narchive_required = {str(required).lower()}\n'
    with start(tmp_path, archive) as broker:
        publish(broker, range(100))
        broker.wait_log(
            r"stream=s partition=0 cannot be archived to file://\S*/store: .*; it is tried again"
        )
        reach(lambda: any("cannot be archived" in each for each in reasons(broker)))
        if not required:
            broker.wait_log(
                "stream=s partition=0: 10 messages are deleted that the archive does not have"
            )
        store.unlink()
        publish(broker, range(100, 120))
        reach(lambda: any(store.rglob("*.parquet")) and not reasons(broker))
        first = read(broker, "$replay/earliest/s/#", 1)[0]
        assert first == figure(broker, "stream_unarchived_total")
        assert (first == 0) == required
        assert read(broker, "$replay/earliest/s/#", 120 - first) == list(range(first, 120))


def test_an_archive_that_is_required_and_that_there_is_not_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        BrokerStartError, match=r"streams\.s\.archive_required = true: there is no archive"
    ):
        start(tmp_path, "archive_required = true\n").close()
