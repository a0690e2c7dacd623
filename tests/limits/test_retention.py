"""Readers whose cursor retention has passed, and an archive that cannot be had: a real broker, and what it says."""

import json
import re
from pathlib import Path
from random import Random

from tests.support import wire as mqtt
from tests.support.metrics import figure
from tests.support.until import reach
from tests.vmq.http.conftest import get
from vmq.testing.process import BrokerProcess

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


def test_while_an_archive_cannot_be_had(tmp_path: Path) -> None:
    """What is more than may lie there goes, and is counted."""
    store = tmp_path / "store"
    store.write_text("no folder")
    with start(tmp_path, f'archive = "file://{store}"\n') as broker:
        publish(broker, range(100))
        broker.wait_log(
            r"stream=s partition=0 cannot be archived to file://\S*/store: .*; it is tried again"
        )
        reach(lambda: any("cannot be archived" in each for each in reasons(broker)))
        broker.wait_log(
            "stream=s partition=0: 10 messages are deleted that the archive does not have"
        )
        store.unlink()
        publish(broker, range(100, 120))
        reach(lambda: any(store.rglob("*.parquet")) and not reasons(broker))
        first = read(broker, "$replay/earliest/s/#", 1)[0]
        assert first == figure(broker, "stream_unarchived_total") > 0
        assert read(broker, "$replay/earliest/s/#", 120 - first) == list(range(first, 120))
