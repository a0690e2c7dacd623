from pathlib import Path

from tests.conftest import BrokerFactory
from tests.vmq.cli.program import run


def test_without_a_broker_it_says_so(tmp_path: Path) -> None:
    done = run("top", "--data-dir", str(tmp_path))
    done.tells(1, "no broker runs on")


def test_an_order_that_there_is_not(tmp_path: Path) -> None:
    done = run("top", "--sort", "colour", "--data-dir", str(tmp_path))
    assert "accepted: queue, unacked, dropped, client" in done.err


def test_a_pipe_gets_no_screen(fresh_broker: BrokerFactory) -> None:
    done = run("top", "--data-dir", str(fresh_broker().data_dir))
    assert (done.code, done.out) == (1, b"")
    assert "vmq top draws on a terminal" in done.err
