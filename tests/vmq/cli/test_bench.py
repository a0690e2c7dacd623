"""`vmq bench` as a shell sees it."""

import json
import signal

import pytest

from tests.vmq.bench.bad_broker import BadBroker, every
from tests.vmq.bench.test_scenarios import url_of
from tests.vmq.cli.program import TIMEOUT, Program, here
from tests.vmq.cli.terminal.test_console import Terminal
from vmq.cli.main import main
from vmq.testing.process import BrokerProcess


def test_a_table_tells_what_was_measured(broker: BrokerProcess) -> None:
    done = here(
        *("bench", "pair", "-L", url_of(broker), "--pid", str(broker.pid)),
        *("--count", "400", "--pubs", "2", "-q", "1"),
    )
    assert (done.code, done.err) == (0, "")
    rows = dict(line.split("  ", 1) for line in done.out.decode().splitlines())
    assert rows["check"].strip() == "ok"
    assert "(400 in" in rows["received"]
    assert {"latency", "broker CPU", "broker memory", "load generator"} <= rows.keys()


def test_json_has_every_figure(broker: BrokerProcess) -> None:
    done = here("bench", "fan-out", "-L", url_of(broker), "--count", "50", "--subs", "3", "--json")
    assert (done.code, done.err) == (0, "")
    found = json.loads(done.out)
    assert (found["scenario"], found["sent"], found["received"]) == ("fan-out", 50, 150)
    assert found["latency_us"]["count"] == 150


def test_a_loss_is_a_failure() -> None:
    with BadBroker(every(50, "lose")) as bad:
        done = here("bench", "pair", "-L", bad.url, "--count", "500", "--pubs", "1")
    assert done.code == 1
    assert "10 lost" in done.out.decode()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_with_what_was_measured(number: signal.Signals) -> None:
    with BadBroker() as bad, Program("bench", "pair", "-L", bad.url, "--json") as program:
        assert bad.is_busy.wait(TIMEOUT)
        program.signal(number)
        done = program.finish()
    assert done.code == 130
    found = json.loads(done.out)
    assert found["end"] == "interrupted"
    assert found["received"] == found["sent"] > 0


def test_a_bar_is_drawn_on_a_terminal_and_wiped_at_the_end(
    broker: BrokerProcess, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    arguments = ("bench", "pair", "-L", url_of(broker), "--count", "200", "--rate", "400")
    assert main(arguments) == 0
    drawn = terminal.getvalue().split("\r\x1b[K")
    assert drawn[0] == drawn[-1] == ""
    assert any(line.endswith("% messages") for line in drawn)
    assert all(len(line) < 80 for line in drawn)
    assert "check" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("bench", "frog"), "no scenario 'frog'"),
        (("bench", "pair", "--subs", "3"), "--subs means nothing to the scenario pair"),
        (("bench", "pair", "-L", "http://x"), "expected mqtt://"),
        (("bench", "pair", "--runs", "2"), "belong to compare"),
        (("bench", "compare", "--pid", "1"), "compare starts its brokers itself"),
        (("bench", "compare", "--scenarios", "frog"), "no scenario 'frog'"),
        (("bench", "compare", "--brokers", "frog"), "no broker 'frog'"),
    ],
)
def test_a_wrong_command_line_is_refused(arguments: tuple[str, ...], reason: str) -> None:
    done = here(*arguments)
    done.tells(2, reason)
    assert done.out == b""


def test_a_broker_that_is_not_there_is_an_error(deaf_port: int) -> None:
    done = here("bench", "pair", "-L", f"mqtt://127.0.0.1:{deaf_port}")
    done.tells(1, "cannot connect: connection refused")
