"""Somebody who follows a page: runs the commands of its blocks one after the other, in an empty folder.

Commands of vmq that end by themselves run in the test's process, since to begin a program takes longer than most of
them do. `vmq start`, `vmq sub` and what else goes on are programs, which end with the page. Ports are not the page's.
"""

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from io import BytesIO, TextIOWrapper
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from tests.support.pages import ROOT
from tests.support.tools import require_tool
from tests.vmq.cli.program import Program, here, subscribed
from vmq.testing import BrokerProcess
from vmq.testing.closing import Closing
from vmq.testing.ports import lasting_port

_FENCED: Final = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_PORT: Final = re.compile(r"(?P<before>-p |(?:127\.0\.0\.1|10\.0\.0\.\d+):)(?P<port>\d{4,5})\b")
_JOB: Final = re.compile(r"\bD-[\w-]{8,}")
_DEFAULT_PORT: Final = "127.0.0.1:1883"
_TIMEOUT: Final = 60


class Command(NamedTuple):
    """A command of a page, and what the page says that it begins to print (None: nothing is said)."""

    line: str
    output: str | None = None


def unmarked(page: Path) -> list[str]:
    """The blocks of a page that say no language."""
    return [text for language, text in _FENCED.findall(page.read_text("utf-8")) if not language]


def commands(page: Path) -> Iterator[Command]:
    """The commands of a page, in order; of one that is not there none."""
    if not page.is_file():
        return
    for language, text in _FENCED.findall(page.read_text("utf-8")):
        if language == "sh":
            yield from map(Command, text.replace("\\\n", " ").splitlines())
        elif language == "console":
            for each in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
                line, _, output = each.partition("\n")
                yield Command(line, output)


class Reader(Closing):
    """One who follows a page; a context manager that ends what was started.

    `broker` is the one that is there already, if the page does not start one.
    """

    def __init__(
        self, folder: Path, patch: pytest.MonkeyPatch, broker: BrokerProcess | None = None
    ) -> None:
        self.folder = folder
        self.patch = patch
        self._running: list[Closing] = []
        self._brokers = 0
        #: What goes on and is to print something.
        self._following: list[Program] = []
        #: Addresses of the page, and the ports that stand for theirs.
        self._ports: dict[str, str] = {}
        self._said = ""
        patch.chdir(folder)
        patch.setenv("MAKEFLAGS", "")
        if broker is not None:
            self.use(broker)

    def keep(self, what: Closing) -> None:
        """Has something go on until the page ends, or its broker is stopped."""
        self._running.append(what)

    def start_broker(self, config: str) -> BrokerProcess:
        """Starts the broker that the page speaks of, with a file of configuration, at other ports than its."""
        broker = BrokerProcess.start((), self.folder / "data", args=("--config", config))
        self.keep(broker)
        self.use(broker)
        return broker

    def use(self, broker: BrokerProcess) -> None:
        """Has a broker be the one that the page speaks of."""
        self.patch.setenv("VMQ_BROKER__DATA_DIR", str(broker.data_dir))
        self._ports[_DEFAULT_PORT] = str(broker.port)
        for url in broker.urls:
            if url.startswith("http://"):
                self._ports["127.0.0.1:8888"] = url.rpartition(":")[2]

    def write(self, name: str, text: str) -> None:
        """Writes a file of the page's, with the ports of this reader."""
        path = self.folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(self._moved(text), encoding="utf-8")

    def run(self, command: Command) -> None:
        """Runs a command. It succeeds, and prints what the page says."""
        line = self._moved(command.line)
        if " D-..." in line:
            line = line.replace("D-...", self._job())
        words = shlex.split(os.path.expandvars(line), comments=True)
        if words[-1] == "&":
            del words[-1]
        said = self._vmq(words[1:], command) if words[0] == "vmq" else self._other(words)
        if command.output is not None:
            assert said.startswith(command.output), said
        self._said += said

    def finish(self) -> None:
        """What went on has printed something: the page shows it for that."""
        for each in self._following:
            each.wait_out(r"\S")

    def close(self) -> None:
        for each in reversed(self._running):
            each.close()

    def _vmq(self, words: list[str], command: Command) -> str:
        match words:
            case ["start", *_]:
                return self._start(words)
            case ["sub", *rest] if "-C" not in rest:
                self._goes_on(subscribed(*self._to_the_broker(rest)), is_shown=True)
                return ""
            case ["stream", "tail", *rest] if "-f" in rest:
                self._goes_on(Program(*words), is_shown=True)
                return ""
            case ["pub" | "sub" as verb, *rest]:
                words = [verb, *self._to_the_broker(rest)]
            case ["bench", *rest]:
                words = ["bench", *rest, *(() if "-L" in rest else ("-L", self._url))]
            case ["store", *_]:
                self._stop()
        if "<" in words:
            at = words.index("<")
            given = (self.folder / words[at + 1]).read_bytes()
            words = words[:at]
        else:
            given = b"secret\n"
        self.patch.setattr(sys, "stdin", TextIOWrapper(BytesIO(given)))
        done = here(*words)
        assert done.code == 0 or command.output is not None, f"{command.line}: {done}"
        return done.out.decode()

    def _other(self, words: list[str]) -> str:
        folder = self.folder
        if words[0] == "make":  # it is there, and make knows how; what it does is tested elsewhere
            words, folder = ["make", "--dry-run", *words[1:]], ROOT
        done = subprocess.run(
            [require_tool(words[0]), *words[1:]],
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=_TIMEOUT,
            check=False,
        )
        assert done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"
        return done.stdout

    def _start(self, words: list[str]) -> str:
        self._brokers += 1
        if self._brokers > 1 and "--data-dir" not in words:  # another machine
            words = [*words, "--data-dir", f"data-{self._brokers}"]
        if "--config" not in words and "--listen" not in words:
            port = "0" if self._brokers > 1 else self._port(_DEFAULT_PORT)
            words = [*words, "--listen", f"tcp://127.0.0.1:{port}"]
        program = Program(*words)
        self._goes_on(program, is_shown=False)
        program.wait_out("^vmq ready: ")
        return ""

    def _stop(self) -> None:
        """Ends the brokers: the page says that they are stopped."""
        for each in self._running:
            each.close()
        self._running.clear()

    def _goes_on(self, program: Program, *, is_shown: bool) -> None:
        self._running.append(program)
        if is_shown:
            self._following.append(program)

    def _job(self) -> str:
        """The id of the last job that was printed."""
        said = self._following[-1].wait_out(_JOB.pattern) if self._following else self._said
        return str(_JOB.findall(said)[-1])

    def _to_the_broker(self, words: list[str]) -> list[str]:
        is_told = "-p" in words or "-L" in words
        return words if is_told else [*words, "-p", self._port(_DEFAULT_PORT)]

    @property
    def _url(self) -> str:
        return f"mqtt://127.0.0.1:{self._port(_DEFAULT_PORT)}"

    def _port(self, address: str) -> str:
        return self._ports.setdefault(address, str(lasting_port()))

    def _moved(self, text: str) -> str:
        """A text of the page with this reader's ports, and with his own folder for that of all temporary files."""

        def there(found: re.Match[str]) -> str:
            before, port = found["before"], found["port"]
            if before == "-p ":
                return before + self._port(f"127.0.0.1:{port}")
            return f"127.0.0.1:{self._port(before + port)}"

        return _PORT.sub(there, text).replace("/tmp/", f"{self.folder}/")
