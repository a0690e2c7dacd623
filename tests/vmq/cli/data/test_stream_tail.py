"""`vmq stream tail` of a real broker, and of the folder that it leaves."""

import base64
import json
import signal
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from tests.support.wire import PUBACK, Wire, publish_packet
from tests.vmq.cli.program import Program
from vmq.cli.admin.client import AdminClient
from vmq.cli.data import stream_tail
from vmq.cli.main import main
from vmq.http.stream_tail import LIMIT
from vmq.streams.log.message import StreamMessage
from vmq.testing.process import BrokerProcess

SENT = [(f"s/{number % 3}", b"%d" % number) for number in range(12)]
BINARY = b"\xff\x00" + b"x" * 300


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    config = tmp_path / "vmq.toml"
    config.write_text(
        '[streams.s]\nfilters = ["s/#"]\npartitions = 2\nkey = "topic"\n'
        '[streams.t]\nfilters = ["t"]\n'
    )
    data_dir = tmp_path / "data"
    with BrokerProcess.start(data_dir=data_dir, args=["--config", str(config)]) as broker:
        yield broker


def publish(broker: BrokerProcess, *messages: tuple[str, bytes]) -> None:
    with Wire.connected(broker.tcp, "c") as wire:
        for topic, payload in messages:
            wire.ask(publish_packet(topic, payload, qos=1, packet_id=1), PUBACK)


def tail(
    capsys: pytest.CaptureFixture[str], data_dir: Path, *arguments: object
) -> tuple[int, list[str], str]:
    code = main(["stream", "tail", *map(str, arguments), "--data-dir", str(data_dir)])
    out, err = capsys.readouterr()
    return code, out.splitlines(), err


def told(capsys: pytest.CaptureFixture[str], data_dir: Path, *arguments: object) -> list[list[str]]:
    """Topic and payload of each line."""
    code, lines, err = tail(capsys, data_dir, *arguments)
    assert (code, err) == (0, "")
    return [line.split()[2:] for line in lines]


def check_reading(capsys: pytest.CaptureFixture[str], data_dir: Path) -> None:
    """What is the same for a broker that runs and for one that does not."""
    words = [[topic, payload.decode()] for topic, payload in SENT]
    assert told(capsys, data_dir, "s") == words[-10:]
    assert told(capsys, data_dir, "s", "-n", 3) == words[-3:]
    assert told(capsys, data_dir, "s", "-n", 0) == []
    assert told(capsys, data_dir, "s", "-n", 2, "--topic", "s/1") == [["s/1", "7"], ["s/1", "10"]]
    assert told(capsys, data_dir, "s", "--from", "earliest") == words
    assert told(capsys, data_dir, "s", "--from", "latest") == []
    assert told(capsys, data_dir, "s", "--from", "2020-01-01", "-n", 4) == words[:4]
    assert told(capsys, data_dir, "t") == []
    by_partition = [told(capsys, data_dir, "s", "--partition", number) for number in (0, 1)]
    assert sorted(by_partition[0] + by_partition[1]) == sorted(words)
    assert told(capsys, data_dir, "s", "--partition", 0, "--from", 2) == by_partition[0][2:]
    for arguments, wrong, text in (
        (("x",), 1, "there is no stream 'x'; there are: s, t"),
        (("s", "--partition", 2), 2, "stream 's' has no partition 2; accepted: 0 to 1"),
        (("s", "--from", 99), 2, "offset 99 of stream 's', partition 0, is out of range; accepted"),
        (("s", "--from", "then"), 2, "--from: 'then'; accepted: earliest, latest, an offset as in"),
        (("s", "-t", "a/#/b"), 2, "not a topic filter: misplaced # in filter 'a/#/b'"),
        (("s", "-t", "t/#"), 2, "stream 's' keeps no topic of t/#; it keeps: s/#"),
    ):
        code, lines, err = tail(capsys, data_dir, *arguments)
        assert (code, lines) == (wrong, [])
        assert err.startswith(f"vmq: error: {text}")


def test_of_a_broker_that_runs_and_of_one_that_is_stopped(
    capsys: pytest.CaptureFixture[str], broker: BrokerProcess
) -> None:
    publish(broker, *SENT)
    check_reading(capsys, broker.data_dir)
    broker.kill()
    check_reading(capsys, broker.data_dir)
    code, lines, err = tail(capsys, broker.data_dir, "s", "-f")
    assert (code, lines) == (1, [])
    assert "no broker runs there, so nothing follows" in err
    code, lines, err = tail(capsys, broker.data_dir / "elsewhere", "s")
    assert (code, lines) == (1, [])
    assert "there are no streams in" in err


def test_payloads_are_shown_as_what_they_are(
    capsys: pytest.CaptureFixture[str], broker: BrokerProcess
) -> None:
    publish(broker, ("t", b"two\nlines"), ("t", BINARY), ("t", "é".encode() * 200), ("t", b""))
    code, lines, _ = tail(capsys, broker.data_dir, "t", "--bytes", 5)
    assert code == 0
    assert [line.split(" ", 2)[2] for line in lines] == [
        "t two\\nl... (9 bytes)",
        "t 0xff00787878... (302 bytes)",
        "t éé... (400 bytes)",
        "t ",
    ]
    when, place = lines[1].split()[:2]
    assert when.endswith("Z")
    assert place == "0/1"
    _, lines, _ = tail(capsys, broker.data_dir, "t", "--json", "--bytes", 5)
    found = [json.loads(line) for line in lines]
    assert [each["encoding"] for each in found] == ["text", "base64", "text", "text"]
    assert found[0] == {
        "timestamp": found[0]["timestamp"],
        "partition": 0,
        "offset": 0,
        "topic": "t",
        "qos": 1,
        "retain": False,
        "client_id": "c",
        "key": "c",
        "headers": [],
        "payload": "two\nlines",
        "encoding": "text",
    }
    assert base64.b64decode(found[1]["payload"]) == BINARY
    assert found[2]["payload"] == "é" * 200


def test_it_follows_until_ctrl_c(broker: BrokerProcess) -> None:
    publish(broker, *SENT)
    where = ("--data-dir", str(broker.data_dir))
    with Program("stream", "tail", "s", "-f", "-n", "1", "-t", "s/2", *where) as program:
        assert program.wait_out("s/").endswith("s/2 11")
        publish(broker, ("s/1", b"not wanted"), ("s/2", b"wanted"), ("s/2", b"and this"))
        assert program.wait_out("s/", 3).endswith("s/2 and this")
        program.signal(signal.SIGINT)
        done = program.finish()
    assert (done.code, done.err) == (130, "")
    found = [line.split(b" ", 2)[2] for line in done.out.splitlines()]
    assert found == [b"s/2 11", b"s/2 wanted", b"s/2 and this"]


def test_following_ends_with_enough_messages_with_the_stream_and_with_the_broker(
    capsys: pytest.CaptureFixture[str], broker: BrokerProcess
) -> None:
    where = ("--data-dir", str(broker.data_dir))
    assert main(["stream", "create", "u", "-t", "u", "--retention-age", "1m", *where]) == 0
    assert main(["stream", "alter", "u", "--retention-age", "2m", *where]) == 0
    assert capsys.readouterr().err.count(": m is a month") == 2
    publish(broker, ("u", b"1"), ("t", b"1"))
    arguments = ("stream", "tail", "-f", "--from", "earliest", *where)
    with (
        Program(*arguments, "u", "-n", "2") as counting,
        Program(*arguments, "u") as of_stream,
        Program(*arguments, "t") as of_broker,
    ):
        for each in (counting, of_stream, of_broker):
            each.wait_out(" 1$")
        publish(broker, ("u", b"2"))
        done = counting.finish()
        assert (done.code, done.err, len(done.out.splitlines())) == (0, "", 2)
        of_stream.wait_out(" 2$")
        assert main(["stream", "delete", "u", *where]) == 0
        ended = of_stream.finish()
        assert (ended.code, ended.err) == (1, "vmq: error: stream 'u' was deleted\n")
        assert broker.terminate() == 0
        ended = of_broker.finish()
        assert (ended.code, ended.err) == (1, "vmq: error: the broker stops\n")


def test_nobody_reads_on(broker: BrokerProcess) -> None:
    publish(broker, *SENT)
    where = ("--data-dir", str(broker.data_dir))
    with Program("stream", "tail", "s", "-f", *where) as program:
        assert program.stdout.readline()
        program.stdout.close()
        publish(broker, ("s/1", b"x"))
        assert program.process.wait(60) == 141
        assert program._err.close() == b""


def test_callers_are_bounded(capsys: pytest.CaptureFixture[str], broker: BrokerProcess) -> None:
    publish(broker, ("t", b"x"))
    client = AdminClient(None, str(broker.data_dir))
    with ExitStack() as stack:
        for _ in range(LIMIT):
            lines = client.stream("/stream/tail?stream=t&follow=true", 20)
            stack.enter_context(closing(lines))  # type: ignore[type-var]
            assert json.loads(next(lines))["topic"] == "t"
        code, out, err = tail(capsys, broker.data_dir, "t")
        assert (code, out) == (1, [])
        assert "callers follow streams already" in err


def test_a_line_has_colours_on_a_terminal_only(monkeypatch: pytest.MonkeyPatch) -> None:
    message = StreamMessage(
        timestamp=1_772_366_400_250_000,
        partition=3,
        offset=7,
        topic="a\x1b[31m",
        qos=0,
        retain=False,
        client_id=None,
        key=None,
        headers=None,
        size=1,
        payload=b"x",
    )
    line = "2026-03-01T12:00:00.250Z 3/7 a\\x1b[31m x"
    assert stream_tail.as_line(message, 0) == line
    monkeypatch.setattr("vmq.cli.terminal.console.has_colour", lambda _stream: True)
    coloured = stream_tail.as_line(message, 0)
    assert coloured == "\x1b[2m2026-03-01T12:00:00.250Z 3/7\x1b[0m \x1b[36ma\\x1b[31m\x1b[0m x"
