"""Readers whose cursor retention has passed, and archives that cannot be had: a real broker, and what it says."""

import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from random import Random

import pytest

from tests.support import wire as mqtt
from tests.support.until import reach
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
BY_AGE = STREAM.replace("retention_bytes = 200_000", 'retention_age = "1h"\nsegment_age = "1h"')
#: Has a program begin with a clock that is some hours ahead, whatever it is.
AHEAD = """
import time
plain, plain_ns = time.time, time.time_ns
time.time = lambda: plain() + {seconds}
time.time_ns = lambda: plain_ns() + {seconds} * 10**9
"""
CURSOR = "$replay/@c;from=earliest/s/#"
GROUP = "$share/g/$stream/s;from=earliest/#"


def start(
    folder: Path, more: str = "", stream: str = STREAM, launcher: Sequence[str] = ()
) -> BrokerProcess:
    config = folder / "vmq.toml"
    config.write_text(stream + more)
    args = ("--allow-anonymous", "--config", str(config))
    return BrokerProcess.start(LISTEN, folder / "data", args=args, launcher=launcher)


def later(folder: Path, seconds: int) -> list[str]:
    """What has a command run with a clock that is so far ahead."""
    modules = folder / "ahead"
    modules.mkdir()
    (modules / "sitecustomize.py").write_text(AHEAD.format(seconds=seconds))
    run = "import os, sys; os.environ['PYTHONPATH'] = sys.argv[1]; os.execv(sys.argv[2], sys.argv[2:])"
    return [sys.executable, "-c", run, str(modules)]


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """The place of an archive, which is no folder."""
    path = tmp_path / "store"
    path.write_text("no folder")
    return path


def publish(broker: BrokerProcess, numbers: range) -> None:
    """Messages of 5 KB that begin with their number: some ten are a segment."""
    with mqtt.Wire.connected(broker.tcp, "publisher") as wire:
        for number in numbers:
            payload = b"%05d" % number + Random(number).randbytes(5000)
            wire.ask(mqtt.publish_packet("s/x", payload, qos=1, packet_id=1), mqtt.PUBACK)


def read(broker: BrokerProcess, topic_filter: str, count: int) -> list[int]:
    """The next messages of a reader, who acknowledges them and goes."""
    with mqtt.Wire.connected(broker.tcp, "reader") as wire:
        wire.send(mqtt.subscribe_packet(1, (topic_filter, 1)))
        assert wire.recv_packet().codes == [1]
        found = []
        for _ in range(count):
            row = wire.recv_packet()
            found.append(int(row.payload[:5]))
            wire.send(mqtt.puback_packet(row.packet_id))
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
        broker.wait_log(r"deleted .*/s/0/0+70\.arrows by the retention")  # the last of all
        for topic_filter in (CURSOR, GROUP):
            assert read(broker, topic_filter, 20) == list(range(80, 100))
            broker.wait_log(
                rf"replay of stream=s partition=0 client=reader filter=\"{re.escape(topic_filter)}\" "
                "goes on at offset=80 instead of 5: retention has deleted what comes before"
            )
            assert read(broker, topic_filter, 1) == [100]
        assert figure(broker, "stream_replay_lost_total") == 2 * 75


@pytest.mark.parametrize("has_archive", [False, True])
def test_a_cursor_of_what_has_grown_too_old_goes_on_with_what_is_left(
    tmp_path: Path, has_archive: bool
) -> None:
    """All of it, newer than the cursor or not, if nobody has published since; what an archive has is not lost."""
    archive = f'archive = "file://{tmp_path}/store"\n' if has_archive else ""
    with start(tmp_path, archive, BY_AGE) as broker:
        publish(broker, range(25))
        for topic_filter in (CURSOR, GROUP):
            assert read(broker, topic_filter, 5) == list(range(5))
    with start(tmp_path, archive, BY_AGE, later(tmp_path, 7200)) as broker:
        publish(broker, range(25, 45))  # a segment that is sealed has what is old looked at
        broker.wait_log(r"deleted .*/s/0/0+20\.arrows by the retention")
        first = 5 if has_archive else 25
        for topic_filter in (CURSOR, GROUP):
            assert read(broker, topic_filter, 10) == list(range(first, first + 10))
            if not has_archive:
                broker.wait_log(
                    rf"replay of stream=s partition=0 client=reader filter=\"{re.escape(topic_filter)}\" "
                    r"goes on at offset=25 instead of 5: retention has deleted what comes before"
                )
        assert figure(broker, "stream_replay_lost_total") == 2 * (first - 5)
        assert read(broker, "$replay/earliest/s/#", 1) == [0 if has_archive else 25]


def test_what_somebody_deletes_in_an_archive_is_passed_as_retention_is(tmp_path: Path) -> None:
    archive = f'archive = "file://{tmp_path}/store"\n'
    with start(tmp_path, archive) as broker:
        publish(broker, range(15))
        for topic_filter in (CURSOR, GROUP):
            assert read(broker, topic_filter, 5) == list(range(5))
        publish(broker, range(15, 120))
        broker.wait_log(r"deleted .*/s/0/0+30\.arrows by the retention")
        for each in sorted((tmp_path / "store").rglob("*.parquet"))[:3]:
            each.unlink()
        with mqtt.Wire.connected(broker.tcp, "waits") as wire:
            wire.send(mqtt.subscribe_packet(1, ("$replay/earliest/s/#", 0)))
            assert wire.recv_packet().codes == [0]
            broker.wait_log("0000.arrows cannot be fetched from")
            publish(broker, range(120, 140))  # a segment that is sealed has the archive looked at
            broker.wait_log(r"files of file:.* are gone: it begins at offset=30, not at 0 any more")
            assert wire.recv_packet().payload[:5] == b"00030"
        for topic_filter in (CURSOR, GROUP):
            assert read(broker, topic_filter, 5) == list(range(30, 35))


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
