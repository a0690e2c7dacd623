"""`vmq demo`, up to where Spark begins; the whole of it is run in tests/spark."""

from pathlib import Path

import pytest

from vmq.cli.demo import Demo
from vmq.cli.main import main
from vmq.cli.terminal.console import CliError


@pytest.fixture(autouse=True)
def _without_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vmq.cli.demo.require_spark", lambda: None)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--window", "soon"), "--window: 'soon' is no duration"),
        (("--devices", "1"), "Invalid value for '--devices'"),
        (("--seconds", "-1"), "Invalid value for '--seconds'"),
    ],
)
def test_wrong_options_are_named(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], said: str
) -> None:
    assert main(["demo", *arguments]) == 2
    assert said in capsys.readouterr().err


def test_a_folder_that_is_there_is_left_alone(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main(["demo", "--keep", str(tmp_path)]) == 2
    assert "is there already" in capsys.readouterr().err
    (tmp_path / "file").touch()
    assert main(["demo", "--keep", str(tmp_path / "file" / "x")]) == 1
    assert "Not a directory" in capsys.readouterr().err


def test_a_broker_that_does_not_start_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vmq.cli.demo.CONFIG", "[queue]\ndrop = 'x'\n")
    demo = Demo(tmp_path, 40, "10s")
    try:
        with pytest.raises(CliError, match=r"did not start:(.|\n)*queue\.drop"):
            demo._start_broker()
    finally:
        demo.close()
    assert demo.broker is not None
    assert demo.broker.poll() == 2
