"""The command line itself: help, versions, and what wrong options meet."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rich.text import Text
from typer.main import get_command

import vmq
from tests.vmq.cli.program import Program, here
from vmq.cli.main import COMMANDS as ALL_COMMANDS
from vmq.cli.main import PANELS, app_of, main

COMMANDS = [
    ["start"],
    ["pub"],
    ["sub"],
    ["config", "check"],
    ["config", "show"],
    ["store", "check"],
    ["store", "repair"],
    ["stream", "list"],
    ["stream", "show"],
    ["stream", "verify"],
    ["stream", "export"],
]


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """The error that a wrong command line ends in: a line of its own, and exit code 2."""
    assert main(arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("vmq: error: ")
    assert len(err.splitlines()) == 1
    return err


def test_what_cannot_be_written_is_an_error_and_a_reader_that_goes_is_none() -> None:
    command = [sys.executable, "-m", "vmq", "--version"]
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, check=False)
    said = b"vmq: error: cannot write: No space left on device\n"
    assert (done.returncode, done.stderr) == (1, said)
    source, sink = os.pipe()
    os.close(source)
    with os.fdopen(sink, "wb") as pipe:
        done = subprocess.run(command, stdout=pipe, stderr=subprocess.PIPE, check=False)
    assert (done.returncode, done.stderr) == (141, b"")
    closed = ["sh", "-c", '"$@" >&-', "sh", *command]
    done = subprocess.run(closed, stderr=subprocess.PIPE, check=False)
    assert (done.returncode, done.stderr) == (0, b"")


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"vmq {vmq.__version__}\n"


@pytest.mark.parametrize(
    ("argument", "own"), [("--version", set()), ("why", {"vmq.cli.admin.why"})]
)
def test_the_commands_that_were_not_called_cost_nothing(argument: str, own: set[str]) -> None:
    script = """
import sys
from vmq.cli.main import COMMANDS, main
main([sys.argv[1], "--help"])
print(*({f"vmq.cli.{each.split(':')[0]}" for each in COMMANDS.values()} & set(sys.modules)))
"""
    command = [sys.executable, "-c", script, argument]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert set(done.stdout.splitlines()[-1].split()) == own


@pytest.fixture(scope="module")
def helps() -> dict[str, str]:
    """The help of the program, "", and of each command, in a wide pipe.

    By a program of its own, because Typer reads the environment once; and by one, since each takes long to start.
    """
    script = """
import sys
from vmq.cli.main import main
for each in sys.argv[1:]:
    assert main([*each.split(), "--help"]) == 0
    print(end="\\0")
"""
    names = ["", *(" ".join(each) for each in COMMANDS)]
    forced = {"GITHUB_ACTIONS": "", "FORCE_COLOR": "", "PY_COLORS": ""}
    command = (sys.executable, "-c", script)
    with Program(
        *names, env={"COLUMNS": "200", "TERMINAL_WIDTH": "200", **forced}, command=command
    ) as program:
        done = program.finish()
    assert (done.code, done.err) == (0, "")
    return dict(zip(names, done.out.decode().split("\0"), strict=False))


def test_without_a_command_the_help_is_shown() -> None:
    done = here()
    assert done.code == 2
    assert b"vmq pub -t sensors/kitchen" in done.out
    assert done.err == ""


def test_the_help_names_every_command(helps: dict[str, str]) -> None:
    for command, *_ in COMMANDS:
        assert f" {command} " in helps[""]


def test_the_help_groups_the_commands(helps: dict[str, str]) -> None:
    panels = re.split(r"^╭─ (.+?) ─+╮$", helps[""], flags=re.MULTILINE)
    shown = {
        title: set(re.findall(r"^│ (\S+)", text, flags=re.MULTILINE))
        for title, text in zip(panels[1::2], panels[2::2], strict=True)
    }
    assert shown.pop("Options")
    assert shown == {title: set(commands) for title, commands in PANELS.items()}
    assert sum(map(len, PANELS.values())) == len(ALL_COMMANDS)


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_every_command_has_help_with_examples(command: list[str], helps: dict[str, str]) -> None:
    text = helps[" ".join(command)]
    assert "Examples:" in text
    assert f"vmq {' '.join(command)}" in text
    assert "\x1b" not in text
    assert not re.search(r"^╭─ \S*[a-z][A-Z]", text, flags=re.MULTILINE), "the name of a class"


def words_of(command: Any) -> Iterator[str]:
    """All that the help of a command and of those below it says, before Rich lays it out."""
    yield command.help or ""
    yield from (getattr(each, "help", None) or "" for each in command.params)
    for each in getattr(command, "commands", {}).values():
        yield from words_of(each)


def test_brackets_in_a_help_are_shown_and_not_taken_for_markup() -> None:
    styles = {
        each.style
        for text in words_of(get_command(app_of(ALL_COMMANDS)))
        for each in Text.from_markup(text).spans
    }
    assert styles == {"bold"}


@pytest.mark.parametrize(
    ("command", "letters"),
    [
        ("pub", "-h -p -L -i -u -P -k -q -t -d -m -f -n -s -l -r"),
        ("sub", "-h -p -L -i -u -P -k -q -t -d -v -C -W -c -R -T -N -U -F -E"),
    ],
)
def test_the_letters_are_those_of_the_mosquitto_clients(
    helps: dict[str, str], command: str, letters: str
) -> None:
    words = helps[command].split()
    assert [letter for letter in letters.split() if letter not in words] == []


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["pob"], "pub"),
        (["pub", "--nonsense"], "--nonsense"),
        (["pub", "-t", "a", "-m", "x", "-q", "3"], "-q"),
        (["pub", "-t", "a", "-m", "x", "-p", "0"], "-p"),
        (["pub", "-t", "a", "-m", "x", "-p", "none"], "-p"),
        (["pub", "-t", "a", "-m", "x", "-k", "65536"], "-k"),
        (["pub", "-t", "a", "-m", "x", "--repeat", "0"], "--repeat"),
        (["pub", "-t", "a", "-m"], "-m"),
        (["pub", "-m", "x"], "topic is needed"),
        (["pub", "-t", "a"], "exactly one of"),
        (["pub", "-t", "a", "-m", "x", "-n"], "exactly one of"),
        (["pub", "-t", "a", "-l", "--repeat", "2"], "--repeat"),
        (["pub", "-t", "a/#", "-m", "x"], "wildcard"),
        (["pub", "-t", "", "-m", "x"], "empty"),
        (["pub", "-t", "a\udcff", "-m", "x"], "UTF-8"),
        (["pub", "-t", "a" * 65536, "-m", "x"], "65535"),
        (["pub", "-t", "a", "-m", "x", "-P", "y"], "needs -u"),
        (["pub", "-t", "a", "-m", "x", "-L", "mqtt://b", "-h", "c"], "cannot be combined"),
        (["pub", "-t", "a", "-m", "x", "-L", "b:1"], "-L/--url: expected"),
        (["pub", "-t", "a", "-m", "x", "-L", "mqtt://b", "--cert", "c"], "go with mqtts://"),
        (["pub", "-t", "a", "-m", "x", "--will-payload", "x"], "needs --will-topic"),
        (["pub", "-t", "a", "-m", "x", "--will-topic", "+"], "wildcard"),
        (["sub"], "topic is needed"),
        (["sub", "-t", "a/#/b"], "-t/--topic"),
        (["sub", "-t", "a", "-T", "a+"], "-T/--filter-out"),
        (["sub", "-t", "a", "-U", "#a"], "-U/--unsubscribe"),
        (["sub", "-t", "a", "-c"], "needs -i"),
        (["sub", "-t", "a", "-C", "0"], "-C"),
        (["sub", "-t", "a", "-W", "0"], "-W"),
        (["sub", "-t", "a", "-F", "%z"], "'%z'"),
        (["sub", "-t", "a", "-R", "--retained-only"], "cannot be combined"),
    ],
    ids=lambda value: " ".join(value)[:40] if isinstance(value, list) else None,
)
def test_wrong_options_are_explained_in_a_line(
    capsys: pytest.CaptureFixture[str], arguments: list[str], expected: str
) -> None:
    assert expected in refused(capsys, *arguments)


def test_a_message_file_that_cannot_be_read(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pub", "-t", "a", "-f", "/nonexistent"]) == 1
    assert capsys.readouterr().err == (
        "vmq: error: cannot read /nonexistent: No such file or directory\n"
    )


def test_certificates_to_trust_have_one_name(capsys: pytest.CaptureFixture[str]) -> None:
    for command in ("pub", "sub", "bench"):
        assert main([command, "--help"]) == 0
        shown = capsys.readouterr().out
        assert "--cafile" in shown
        assert not re.search(r"--ca\b", shown)
    # What bench called it before is still taken.
    for word in ("--cafile", "--ca"):
        assert main(["bench", "pair", "-L", "mqtts://127.0.0.1:1", word, "/no/such.pem"]) == 1
        assert "--cafile: /no/such.pem: No such file or directory" in capsys.readouterr().err
        assert "no --url, --pid, --cafile" in refused(capsys, "bench", "compare", word, "x")
