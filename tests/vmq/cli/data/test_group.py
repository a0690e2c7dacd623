"""`vmq group` of a real broker, with a member that reads, and when it has gone."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.until import reach
from tests.support.wire import PUBACK, Wire, puback_packet, publish_packet, subscribe_packet
from vmq.cli.main import main
from vmq.cli.terminal.console import FAILURE, USAGE
from vmq.testing.process import BrokerProcess

CONFIG = """
[streams.s]
filters = ["s/#"]
partitions = 2
key = "topic"
"""
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    config = tmp_path / "vmq.toml"
    config.write_text(CONFIG)
    args = ("--config", str(config), "--allow-anonymous")
    with BrokerProcess.start(data_dir=tmp_path / "data", args=args) as broker:
        yield broker


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], broker: BrokerProcess) -> Run:
    def ask(*arguments: str) -> tuple[int, str, str]:
        code = main(["group", *arguments, "--data-dir", str(broker.data_dir)])
        return code, *capsys.readouterr()

    return ask


def shown(run: Run) -> dict[str, Any]:
    code, out, _ = run("show", "g", "--json")
    assert code == 0
    found: dict[str, Any] = json.loads(out)
    return found


def lags(run: Run) -> list[tuple[int, int, str]]:
    """Of each partition position, lag and client."""
    return [(each["position"], each["lag"], each["client"]) for each in shown(run)["partitions"]]


def read(wire: Wire, count: int) -> None:
    """Takes so many messages, and waits until the broker knows."""
    for _ in range(count):
        wire.send(puback_packet(wire.recv_packet().packet_id))
    wire.send(b"\xc0\x00")
    while wire.recv_packet().raw != b"\xd0\x00":
        pass


def test_a_group_and_its_member(broker: BrokerProcess, run: Run) -> None:
    with Wire.connected(broker.tcp, "m") as wire:
        for number in range(6):
            wire.ask(publish_packet(f"s/{number % 3}", b"x", qos=1, packet_id=1), PUBACK)
        wire.send(subscribe_packet(1, ("$share/g/$stream/s;from=earliest", 1)))
        assert wire.recv_packet().codes == [1]
        read(wire, 6)
        (group,) = json.loads(run("list", "--json")[1])
        assert group == {
            "group": "g", "stream": "s", "filter": "#", "where": "", "members": 1, "lag": 0
        }  # fmt: skip
        assert lags(run) == [(2, 0, "m"), (4, 0, "m")]
        for refused in (("reset", "g", "--to", "earliest"), ("delete", "g")):
            code, _, err = run(*refused)
            assert (code, "accepted: when they have gone" in err) == (FAILURE, True)
    reach(lambda: not shown(run)["members"])
    code, _, err = run("reset", "g", "--to", "yesterday")
    assert (code, "FROM is earliest" in err) == (USAGE, True)
    assert run("reset", "g", "--to", "-1h")[0] == 0
    assert lags(run) == [(0, 2, ""), (0, 4, "")]
    assert ["g", "s", "#", '""', "0", "6"] in [each.split() for each in run("list")[1].splitlines()]
    assert run("delete", "g")[0] == 0
    assert json.loads(run("list", "--json")[1]) == []
    code, _, err = run("show", "g")
    assert (code, err) == (FAILURE, "vmq: error: there is no group 'g'\n")
