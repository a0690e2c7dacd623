import signal
from pathlib import Path

import pytest

from tests.vmq.cli.on_terminal import OnTerminal
from tests.vmq.cli.program import here
from vmq.testing.process import BrokerProcess


def test_without_a_broker_it_says_so(tmp_path: Path) -> None:
    done = here("top", "--data-dir", str(tmp_path))
    done.tells(1, "no broker runs on")


def test_an_order_that_there_is_not(tmp_path: Path) -> None:
    done = here("top", "--sort", "colour", "--data-dir", str(tmp_path))
    assert "accepted: queue, unacked, dropped, client" in done.err


def test_a_pipe_gets_no_screen(broker: BrokerProcess) -> None:
    here("top", "--data-dir", str(broker.data_dir)).fails(1, "vmq top draws on a terminal")


@pytest.mark.parametrize(("by", "code"), [(b"q", 0), (b"\x03", 0), (signal.SIGHUP, 129)])
def test_however_it_ends_the_terminal_is_as_it_was(
    broker: BrokerProcess, by: bytes | signal.Signals, code: int
) -> None:
    with OnTerminal("top", "--data-dir", str(broker.data_dir)) as top:
        top.wait(b"clients")
        assert top.settings() != top.before
        if isinstance(by, bytes):
            top.press(by)
        else:
            top.process.send_signal(by)
        assert top.end() == code
        assert top.settings() == top.before
        for mode in (b"1049", b"1000"):  # the alternate screen, the mouse
            assert top.out.rfind(b"\x1b[?%sl" % mode) > top.out.rfind(b"\x1b[?%sh" % mode)
