"""`vmq passwd`: where the password comes from, and how the commands exit."""

import getpass
import io
import json
import sys
from pathlib import Path
from unittest.mock import patch

import pytest

from vmq.cli import passwd
from vmq.cli.main import main
from vmq.runtime.audit import this_user


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "passwd"


def run(command: str, file: Path, user: str, password: bytes = b"", *options: str) -> int:
    """Standard input is a pipe with the password in it."""
    with patch.object(sys, "stdin", io.TextIOWrapper(io.BytesIO(password + b"\n"))):
        return main(["passwd", command, str(file), user, *options])


def test_added_checked_and_deleted(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("add", file, "bob", b"secret") == 0
    assert run("check", file, "bob", b"secret") == 0
    assert run("add", file, "bob", b"other") == 0
    assert run("check", file, "bob", b"other") == 0
    out, err = capsys.readouterr()
    assert out.splitlines() == ["bob: added", "bob: ok", "bob: new password", "bob: ok"]
    assert err == ""
    assert run("check", file, "bob", b"secret") == 1
    assert run("check", file, "eve", b"secret") == 1
    assert run("delete", file, "bob") == 0
    assert run("delete", file, "bob") == 1
    out, err = capsys.readouterr()
    assert out.splitlines() == ["bob: deleted"]
    assert [line.removeprefix("vmq: error: ") for line in err.splitlines()] == [
        "bob: wrong password",
        f"{file} has no user 'eve'",
        f"{file} has no user 'bob'",
    ]
    assert b"secret" not in file.read_bytes()


def test_only_the_first_line_of_a_pipe_counts(file: Path) -> None:
    assert run("add", file, "bob", b" two words \r\nmore") == 0
    assert run("check", file, "bob", b" two words ") == 0


def test_a_byte_order_mark_is_no_part_of_a_password(file: Path) -> None:
    assert run("add", file, "bob", b"\xef\xbb\xbfsecret\n") == 0
    assert run("check", file, "bob", b"secret") == 0


def test_a_terminal_is_asked_twice(
    file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    answers = ["a", "b", "a", "a", "a"]
    monkeypatch.setattr(passwd, "is_terminal", lambda stream: True)
    monkeypatch.setattr(getpass, "getpass", lambda prompt: answers.pop(0))
    assert main(["passwd", "add", str(file), "bob"]) == 1
    assert "the passwords differ" in capsys.readouterr().err
    assert not file.exists()
    assert main(["passwd", "add", str(file), "bob"]) == 0
    assert main(["passwd", "check", str(file), "bob"]) == 0
    assert not answers


def test_a_password_on_the_command_line_is_taken_with_a_warning(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["passwd", "add", str(file), "bob", "--password", "1"]) == 0
    assert "can be read by other users" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("user", "password", "problem"),
    [
        ("bob", b"", "the password is empty"),
        ("bob", b"a" * 65536, "the password is longer than 65535 bytes"),
        ("b:b", b"1", "a user name has no colon"),
    ],
)
def test_what_cannot_be_is_refused(
    file: Path, capsys: pytest.CaptureFixture[str], user: str, password: bytes, problem: str
) -> None:
    assert run("add", file, user, password) == 1
    assert problem in capsys.readouterr().err
    assert not file.exists()


def test_who_changes_users_stands_in_the_audit_log(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    audit, config = tmp_path / "audit.log", tmp_path / "vmq.toml"
    config.write_text(f'[log]\naudit_file = "{audit}"\n')
    given = ["--config", str(config)]
    for command, exit_code in (("add", 0), ("add", 0), ("delete", 0), ("delete", 1)):
        assert run(command, file, "bob", b"secret", *given) == exit_code
    assert run("add", file, "not told of", b"secret") == 0
    monkeypatch.setenv("VMQ_LOG__AUDIT_FILE", str(audit))
    assert run("add", file, "b:b", b"secret") == 1
    told = [json.loads(line) for line in audit.read_text().splitlines()]
    assert [(each["name"], each["parameters"]["user"], each["result"]) for each in told] == [
        ("add_user", "bob", "added"),
        ("add_user", "bob", "new password"),
        ("delete_user", "bob", "deleted"),
        ("delete_user", "bob", "no such user"),
        (
            "add_user",
            "b:b",
            "failed: a user name has no colon or line break, and does not begin with #",
        ),
    ]
    for each in told:
        assert (each["by"], each["peer"]) == (this_user(), "file")
        assert each["parameters"]["file"] == str(file)
    assert "secret" not in audit.read_text()
    monkeypatch.setenv("VMQ_LOG__AUDIT_FILE", str(tmp_path / "no" / "folder"))
    before = file.read_bytes()
    assert run("delete", file, "not told of") == 1
    assert file.read_bytes() == before, "what cannot be told is not done"
    assert "log.audit_file: cannot write" in capsys.readouterr().err


def test_a_broken_or_missing_file_is_named(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("check", file, "bob", b"1") == 1
    assert f"{file}: No such file" in capsys.readouterr().err
    file.write_text("nonsense\n")
    assert run("add", file, "bob", b"1") == 1
    assert f"{file}, line 1: accepted: NAME:HASH" in capsys.readouterr().err
