"""`vmq config check` and `vmq config show`."""

import json
from pathlib import Path

import pytest

from vmq.cli.main import main


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VMQ_QUEUE__DROP", "oldest")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "vmq.toml"
    path.write_text('[log]\nlevel = "debug"\n[listeners.a]\nurl = "tcp://[::1]:1884"\n')
    return path


def rows(text: str) -> dict[str, list[str]]:
    return {line.split()[0]: line.split()[1:] for line in text.splitlines()}


def test_show_has_a_line_for_each_option_with_value_and_origin(
    capsys: pytest.CaptureFixture[str], file: Path
) -> None:
    assert main(["config", "show", "--config", str(file)]) == 0
    table = rows(capsys.readouterr().out)
    assert table["option"] == ["value", "from"]
    assert table["log.level"] == ['"debug"', str(file)]
    assert table["listeners.a.url"] == ['"tcp://[::1]:1884"', str(file)]
    assert table["listeners.a.allow_anonymous"] == ["(unset)", "default"]
    assert table["queue.drop"] == ['"oldest"', "environment", "VMQ_QUEUE__DROP"]
    assert table["queue.max_inflight_messages"] == ["20", "default"]
    assert "listeners.tcp.url" not in table


def test_show_as_json(capsys: pytest.CaptureFixture[str], file: Path) -> None:
    assert main(["config", "show", "--json", "--config", str(file)]) == 0
    tree = json.loads(capsys.readouterr().out)
    assert tree["queue.drop"] == {"value": "oldest", "origin": "environment VMQ_QUEUE__DROP"}
    assert tree["session.upgrade_outgoing_qos"] == {"value": False, "origin": "default"}


def test_check_says_ok_and_where_it_would_listen(
    capsys: pytest.CaptureFixture[str], file: Path
) -> None:
    assert main(["config", "check", "--config", str(file)]) == 0
    out = capsys.readouterr().out
    assert out.startswith("ok: 3 values set")
    assert "listener a: tcp://[::1]:1884 (anonymous clients: yes)" in out


@pytest.mark.parametrize("command", ["check", "show"])
def test_every_error_is_a_line_and_the_exit_code_is_2(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, command: str
) -> None:
    path = tmp_path / "wrong.toml"
    path.write_text('[queue]\nmax_inflight_messages = "many"\nsize = 1\n')
    assert main(["config", command, "--config", str(path)]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    lines = err.splitlines()
    assert len(lines) == 2
    for line, key in zip(lines, ("max_inflight_messages", "size"), strict=True):
        assert line.startswith(f"vmq: error: {path}: queue.{key} = ")


def test_a_missing_file_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "check", "--config", "/nonexistent.toml"]) == 2
    assert "/nonexistent.toml" in capsys.readouterr().err
