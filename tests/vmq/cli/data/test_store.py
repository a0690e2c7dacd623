"""`vmq store check` and `vmq store repair`: what they show and how they exit."""

from pathlib import Path

import pytest

from tests.conftest import BrokerFactory
from tests.vmq.cli.program import run
from vmq.cli.main import main
from vmq.store import tools as store_tools
from vmq.store.tools import Progress, StoreReport


@pytest.fixture
def report() -> StoreReport:
    found = StoreReport()
    found.sessions, found.subscriptions, found.queued = 1, 2, 3
    found.inflight, found.retained, found.messages = 4, 5, 6
    return found


def counts(out: str) -> dict[str, str]:
    pairs = [line.split() for line in out.splitlines()]
    return {words[0]: words[1] for words in pairs if len(words) == 2}


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch, report: StoreReport) -> list[Path]:
    """The paths that the tools, which find nothing but `report`, were asked about."""
    paths: list[Path] = []

    def ask(path: Path, progress: Progress | None = None) -> StoreReport:
        paths.append(path)
        return report

    monkeypatch.setattr(store_tools, "check", ask)
    monkeypatch.setattr(store_tools, "repair", ask)
    return paths


@pytest.mark.parametrize("command", ["check", "repair"])
def test_a_good_store_is_counted(
    capsys: pytest.CaptureFixture[str], asked: list[Path], command: str
) -> None:
    assert main(["store", command, "--data-dir", "some/where"]) == 0
    out, err = capsys.readouterr()
    assert asked == [Path("some/where")]
    assert counts(out) == {
        "store": "count",
        "sessions": "1",
        "subscriptions": "2",
        "queued": "3",
        "inflight": "4",
        "retained": "5",
        "messages": "6",
    }
    assert out.endswith("ok\n")
    assert err == ""


@pytest.mark.parametrize("command", ["check", "repair"])
def test_problems_are_errors(
    capsys: pytest.CaptureFixture[str], asked: list[Path], report: StoreReport, command: str
) -> None:
    report.problems += ["a hole", "a stain"]
    report.notes.append("it was dark")
    assert main(["store", command, "--data-dir", "x"]) == 1
    out, err = capsys.readouterr()
    assert "ok" not in out
    assert "it was dark\n" in out
    first, second, last = err.splitlines()
    assert (first, second) == ("vmq: error: a hole", "vmq: error: a stain")
    assert last.startswith("vmq: error: the store is damaged")
    assert asked == [Path("x")]


def test_the_configuration_says_where_the_store_is(asked: list[Path], tmp_path: Path) -> None:
    file = tmp_path / "vmq.toml"
    file.write_text('[broker]\ndata_dir = "from/file"\n')
    assert main(["store", "check", "--config", str(file)]) == 0
    assert asked == [Path("from/file")]


@pytest.mark.parametrize("command", ["check", "repair"])
def test_no_store_is_an_error(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, command: str
) -> None:
    missing = tmp_path / "missing"
    assert main(["store", command, "--data-dir", str(missing)]) == 1
    err = capsys.readouterr().err
    assert str(missing) in err
    assert len(err.splitlines()) == 1


def test_the_store_of_a_broker_is_found_and_counted(fresh_broker: BrokerFactory) -> None:
    broker = fresh_broker()
    host, port = broker.tcp
    there = ["-h", host, "-p", str(port), "-q", "1"]
    assert run("sub", *there, "-c", "-i", "me", "-t", "a", "-t", "b/#", "-E").code == 0
    assert run("pub", *there, "-t", "a", "-m", "x", "--repeat", "3").code == 0
    assert run("pub", *there, "-t", "r", "-r", "-m", "x").code == 0

    running = run("store", "check", "--data-dir", str(broker.data_dir))
    running.tells(1, "in use")

    assert broker.terminate() == 0
    done = run("store", "check", "--data-dir", str(broker.data_dir))
    assert (done.code, done.err) == (0, "")
    found = counts(done.out.decode())
    assert (found["sessions"], found["subscriptions"], found["retained"]) == ("1", "2", "1")
    assert found["queued"] == "3"
