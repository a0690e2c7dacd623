"""`vmq stream` over a data folder."""

import json
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

import vmq
import vmq.streams
from tests.support.wire import PUBACK, Wire, publish_packet
from tests.vmq.streams.flight_support import Running
from tests.vmq.streams.support import options
from vmq.cli.main import main
from vmq.testing.process import BrokerProcess


@pytest.fixture
def data(tmp_path: Path) -> Path:
    running = Running(tmp_path / "streams", temp=options(filters=["a/+", "b"], partitions=2))
    for number in range(6):
        running.append("a/b", b"%d" % number, client_id=f"c{number}")
    running.close()
    return tmp_path


def answer(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    code = main(["stream", *map(str, arguments)])
    out, err = capsys.readouterr()
    assert (code, err) == (0, "")
    return out


def refusal(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str]:
    code = main(["stream", *map(str, arguments)])
    return code, capsys.readouterr().err


def test_list_and_show(capsys: pytest.CaptureFixture[str], data: Path) -> None:
    lines = answer(capsys, "list", "--data-dir", data).splitlines()
    assert lines[0].split() == ["stream", "filters", "partitions", "messages", "bytes"]
    assert lines[1].split()[:5] == ["temp", "a/+,", "b", "2", "6"]
    (row,) = json.loads(answer(capsys, "list", "--data-dir", data, "--json"))
    assert (row["stream"], row["origin"], row["messages"]) == ("temp", "config", 6)
    text = answer(capsys, "show", "temp", "--data-dir", data)
    assert "retention_age" in text
    assert "earliest" in text
    shown = json.loads(answer(capsys, "show", "temp", "--data-dir", data, "--json"))
    assert shown["filters"] == ["a/+", "b"]
    assert sum(each["end"] for each in shown["partitions"]) == 6


def test_verify(capsys: pytest.CaptureFixture[str], data: Path) -> None:
    assert answer(capsys, "verify", "--data-dir", data).splitlines()[-1] == "ok"
    assert answer(capsys, "verify", "temp", "--data-dir", data).splitlines()[-1] == "ok"
    path = max((data / "streams" / "temp").rglob("*.arrows"), key=lambda each: each.stat().st_size)
    raw = path.read_bytes()
    path.write_bytes(raw[:-9] + bytes([raw[-9] ^ 1]) + raw[-8:])
    code, err = refusal(capsys, "verify", "--data-dir", data)
    assert code == 1
    assert f"vmq: error: {path} is damaged at byte " in err


def test_export(capsys: pytest.CaptureFixture[str], data: Path, tmp_path: Path) -> None:
    path = tmp_path / "out.parquet"
    arguments = ("export", "temp", "--data-dir", data, "--parquet", path)
    assert answer(capsys, *arguments) == "6 messages\n"
    assert pq.read_table(path).num_rows == 6
    assert answer(capsys, *arguments, "-t", "b", "--columns", "topic, offset") == "0 messages\n"
    assert pq.read_table(path).column_names == ["topic", "offset"]
    assert refusal(capsys, *arguments, "--columns", "nope")[0] == 2
    assert refusal(capsys, *arguments, "-t", "a/#/b") == (
        2,
        "vmq: error: not a topic filter: misplaced # in filter 'a/#/b' [MQTT-4.7.1-2]\n",
    )
    found = refusal(capsys, *arguments[:-1], tmp_path / "no" / "out.parquet")
    assert found == (2, f"vmq: error: --parquet: there is no folder {tmp_path / 'no'}\n")


def test_what_is_not_there_is_said(
    capsys: pytest.CaptureFixture[str], data: Path, tmp_path: Path
) -> None:
    found = refusal(capsys, "show", "temq", "--data-dir", data)
    assert found == (1, "vmq: error: there is no stream 'temq'; there are: temp\n")
    empty = tmp_path / "empty"
    found = refusal(capsys, "list", "--data-dir", empty)
    assert found == (1, f"vmq: error: there are no streams in {empty}\n")


def test_without_the_libraries_it_says_which_extra_to_install(
    capsys: pytest.CaptureFixture[str], data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        vmq, "streams", vmq.streams
    )  # importing anew replaces it, until it is put back
    for name in [name for name in sys.modules if name.startswith("vmq.streams")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    code, err = refusal(capsys, "list", "--data-dir", data)
    assert code == 1
    assert "pip install 'vmq[streams]'" in err


def test_a_stream_is_made_and_deleted_in_a_running_broker(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    where = ("--data-dir", tmp_path / "data")
    for words in (("create", "s", "-t", "s/#"), ("delete", "s")):
        code, err = refusal(capsys, *words, *where)
        assert code == 1
        assert "no broker runs on" in err
    with BrokerProcess.start(data_dir=tmp_path / "data") as broker:
        wanted = ("create", "s", "-t", "s/#", "--partitions", 2, "--acks", "fsync", "--json")
        made = json.loads(answer(capsys, *wanted, *where))
        assert (made["stream"], made["origin"], made["partitions"]) == ("s", "command", 2)
        with Wire.connected(broker.tcp, "c") as wire:
            wire.ask(publish_packet("s/a", b"x", qos=1, packet_id=1), PUBACK)
        (row,) = json.loads(answer(capsys, "list", "--json", *where))
        assert (row["stream"], row["messages"], row["gathered"]) == ("s", 1, 1)
        shown = json.loads(answer(capsys, "show", "s", "--json", *where))
        assert (shown["durability"], shown["filters"], shown["gathered"]) == ("fsync", ["s/#"], 1)
        assert shown["acks"] == "leader"
        assert sum(each["end"] for each in shown["partitions"]) == 1
        assert "options" not in shown
        table = answer(capsys, "show", "s", *where)
        assert ("earliest" in table, "owner" in table, "joining" in table) == (True, False, False)
        found = refusal(capsys, "show", "t", *where)
        assert found == (1, "vmq: error: there is no stream 't'; there are: s\n")
        refused: list[tuple[int, tuple[str, ...], str]] = [
            (1, ("create", "s", "-t", "s/#"), "there is a stream 's' already"),
            (2, ("create", "A b", "-t", "s/#"), "is no name for a stream; accepted"),
            (2, ("create", "t", "-t", "s/#/x"), "filters"),
            (
                2,
                ("create", "t", "-t", "x", "--acks", "maybe"),
                'acks: "maybe" is not accepted; accepted: "none", "leader", "quorum", "memory", "os", "fsync"',
            ),
            (1, ("delete", "t"), "there is no stream 't'; there are: s"),
        ]
        for wrong, line, text in refused:
            code, err = refusal(capsys, *line, *where)
            assert (code, text in err) == (wrong, True), err
        deleted = json.loads(answer(capsys, "delete", "s", "--json", *where))
        assert (deleted["stream"], deleted["messages"]) == ("s", 1)
        assert json.loads(answer(capsys, "list", "--json", *where)) == []
        answer(capsys, "create", "again", "-t", "s/#", *where)
        told = answer(capsys, "delete", "again", *where)
        assert told == "deleted again (s/#): 0 messages on this node\n"
        answer(capsys, "create", "again", "-t", "s/#", *where)
        broker.kill()
    # The socket of a broker that was killed is still there, and leads nowhere.
    (row,) = json.loads(answer(capsys, "list", "--json", *where))
    assert row["stream"] == "again"
    assert "gathered" not in row
