"""`vmq ...` as its own process, for tests that see the command as a shell sees it."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout
from io import BytesIO, StringIO, TextIOWrapper
from re import search
from time import monotonic
from typing import IO, Any, NamedTuple

from vmq.cli.main import main
from vmq.testing.closing import Closing
from vmq.testing.forks import Forked, fork
from vmq.testing.process import BrokerProcess

#: Of a program that has asyncio: takes no cancellation.
STUBBORN = """
async def stubborn():
    while True:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            pass
"""

TIMEOUT = 60.0
#: The command, with the interpreter of the tests; and what of it has more to import than what forks it has imported.
VMQ = (sys.executable, "-m", "vmq")
OWN = ("demo", "spark", "bench", "open", "top")


class Finished(NamedTuple):
    code: int
    out: bytes
    err: str

    def tells(self, code: int, *texts: str) -> None:
        """It ended with this code, and these are among what it says of that."""
        assert self.code == code
        for text in texts:
            assert text in self.err

    def fails(self, code: int, *texts: str) -> None:
        """The same, and it put nothing out."""
        assert self.out == b""
        self.tells(code, *texts)


class _Stream:
    """Collects a pipe's bytes in a thread, so that a test can wait for some without polling."""

    def __init__(self, pipe: IO[bytes]) -> None:
        self._pipe = pipe
        self._data = b""
        self._ended = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        while chunk := os.read(self._pipe.fileno(), 65536):
            with self._changed:
                self._data += chunk
                self._changed.notify_all()
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def wait(self, pattern: str, occurrences: int, timeout: float) -> str:
        """Wait for that many lines that match; returns the last of them."""
        deadline = monotonic() + timeout
        with self._changed:
            while True:
                lines = self._data.decode(errors="backslashreplace").splitlines()
                found = [line for line in lines if search(pattern, line)]
                if len(found) >= occurrences:
                    return found[occurrences - 1]
                remaining = deadline - monotonic()
                if self._ended or remaining <= 0:
                    raise AssertionError(f"{pattern!r} did not come {occurrences}x in {lines}")
                self._changed.wait(remaining)

    def close(self) -> bytes:
        """Wait for the end of the pipe; returns everything."""
        self._thread.join(TIMEOUT)
        self._pipe.close()
        return self._data


class Program(Closing):
    """A running `vmq` command (or another one); a context manager that always ends it."""

    def __init__(
        self,
        *arguments: str | bytes,
        env: Mapping[str, str] | None = None,
        command: Sequence[str] = VMQ,
    ) -> None:
        whole = {**os.environ, **(env or {})}
        words = [each for each in arguments if isinstance(each, str)]
        process: subprocess.Popen[bytes] | Forked | None = None
        if tuple(command) == VMQ and len(words) == len(arguments) > 0 and words[0] not in OWN:
            process = fork(words, {**whole, "PYTHONUNBUFFERED": "1"})
        self.process = process or subprocess.Popen(
            [*command, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=whole,
        )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        assert self.process.stderr is not None
        self.stdin = self.process.stdin
        self.stdout = self.process.stdout
        self._out: _Stream | None = None
        self._err = _Stream(self.process.stderr)

    @property
    def out(self) -> _Stream:
        """What comes on stdout; a test that reads the pipe itself must not ask."""
        if self._out is None:
            self._out = _Stream(self.stdout)
        return self._out

    def wait_out(self, pattern: str, occurrences: int = 1, timeout: float = TIMEOUT) -> str:
        return self.out.wait(pattern, occurrences, timeout)

    def wait_err(self, pattern: str, occurrences: int = 1, timeout: float = TIMEOUT) -> str:
        return self._err.wait(pattern, occurrences, timeout)

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def finish(self, stdin: bytes = b"", timeout: float = TIMEOUT) -> Finished:
        """Give it the rest of its input, wait for its end, and return code and output."""
        out = self.out
        try:
            self.stdin.write(stdin)
            self.stdin.close()
        except BrokenPipeError:
            pass  # it did not want to hear more
        code = self.process.wait(timeout)
        return Finished(code, out.close(), self._err.close().decode(errors="backslashreplace"))

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        try:
            self.stdin.close()
        except BrokenPipeError:
            pass
        if not self.stdout.closed:
            self.out.close()
        self._err.close()


def here(*arguments: str) -> Finished:
    """Run a command to its end within this process: for those that ask a broker something and are done.

    A process of its own takes longer to begin than such a command to do its work.
    """
    out = TextIOWrapper(BytesIO(), encoding="utf-8", write_through=True)
    err = StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        code = main(arguments)
    data = out.buffer.getvalue()
    return Finished(code, data, err.getvalue())


def on(broker: BrokerProcess, *words: str) -> Finished:
    """Asks a broker, by the socket in its data directory."""
    return here(*words, "--data-dir", str(broker.data_dir))


def told(broker: BrokerProcess, *words: str) -> Any:
    """What it answers as JSON."""
    done = on(broker, *words, "--json")
    assert (done.code, done.err) == (0, "")
    return json.loads(done.out)


def run(
    *arguments: str | bytes, stdin: bytes = b"", env: Mapping[str, str] | None = None
) -> Finished:
    with Program(*arguments, env=env) as program:
        return program.finish(stdin)


def subscribed(*arguments: str | bytes, connections: int = 1) -> Program:
    """A running `vmq sub -d ...` whose subscription the broker has confirmed."""
    program = Program("sub", "-d", *arguments)
    try:
        program.wait_err("received SUBACK", connections)
    except BaseException:
        program.close()
        raise
    return program
