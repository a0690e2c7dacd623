"""A broker as a process of its own, for tests that see it only from outside, and kill it."""

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic
from typing import IO, Any, Self
from urllib.parse import urlsplit

from vmq.config.embedding import as_toml
from vmq.testing.closing import Closing
from vmq.testing.forks import Forked, fork
from vmq.testing.ports import lasting_port

START_TIMEOUT = 60.0
STOP_TIMEOUT = 60.0
LOG_TIMEOUT = 30.0
#: What it says once its listeners accept, though it may be a node that has no place in its cluster.
READY = "vmq (?:ready|serves nobody):"
#: The command, with the interpreter of the tests.
VMQ = (sys.executable, "-m", "vmq")


class BrokerStartError(RuntimeError):
    """The broker ended, or stayed silent, before it was ready.

    `returncode` is its exit code, or None if it was still running when the time was up.
    """

    def __init__(self, message: str, returncode: int | None, stderr: str) -> None:
        super().__init__(f"{message} (exit code {returncode})\n{stderr}")
        self.returncode = returncode
        self.stderr = stderr


class _Lines:
    """Collects a pipe's lines in a thread, so that a test can wait for one without polling."""

    def __init__(self, pipe: IO[bytes]) -> None:
        self._pipe = pipe
        self._lines: list[str] = []
        self._ended = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        for raw in self._pipe:
            with self._changed:
                self._lines.append(raw.decode("utf-8", "backslashreplace"))
                self._changed.notify_all()
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def text(self) -> str:
        """Everything read so far."""
        with self._changed:
            return "".join(self._lines)

    def has_ended(self) -> bool:
        """Whether nothing more can come."""
        with self._changed:
            return self._ended

    def wait(self, pattern: str, timeout: float) -> re.Match[str] | None:
        """The first match of `pattern` in a line; None when the pipe ended or time is up."""
        wanted = re.compile(pattern)
        deadline = monotonic() + timeout
        seen = 0
        with self._changed:
            while True:
                while seen < len(self._lines):
                    found = wanted.search(self._lines[seen])
                    if found is not None:
                        return found
                    seen += 1
                remaining = deadline - monotonic()
                if self._ended or remaining <= 0:
                    return None
                self._changed.wait(remaining)

    def wait_until(self, holds: Callable[[Sequence[str]], bool], timeout: float) -> bool:
        """Whether something holds of all lines so far, at the latest when the pipe ended or time is up."""
        deadline = monotonic() + timeout
        with self._changed:
            while not holds(self._lines):
                remaining = deadline - monotonic()
                if self._ended or remaining <= 0:
                    return False
                self._changed.wait(remaining)
        return True

    def wait_end(self) -> None:
        """Wait for the end of the pipe; the process is gone."""
        self._thread.join(STOP_TIMEOUT)

    def close(self) -> None:
        """Wait for the end of the pipe (the process is gone) and close it."""
        self.wait_end()
        self._pipe.close()


class BrokerProcess(Closing):
    """A running `python -m vmq start`; a context manager that always ends the process.

    `listen` names the listeners (port 0: any free port), `env` holds further environment
    variables, `args` further arguments. Without `data_dir` the broker gets a new temporary
    folder, which goes away with it.
    """

    def __init__(
        self, command: Sequence[str], env: Mapping[str, str], data_dir: Path, *, owns_data_dir: bool
    ) -> None:
        self._command = [*command]
        self._env = env
        self._owns_data_dir = owns_data_dir
        #: The configuration that it was given, if it was written for it.
        self._config: Path | None = None
        self.data_dir = data_dir
        self.urls: list[str] = []
        self._launch()

    def _launch(self) -> None:
        env = {**os.environ, "PYTHONUNBUFFERED": "1", **self._env}
        process: subprocess.Popen[bytes] | Forked | None = None
        if self._command[: len(VMQ)] == [*VMQ]:
            process = fork(self._command[len(VMQ) :], env)
        if process is None:
            process = subprocess.Popen(  # noqa: S603 - the test's own command
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=env,
            )
        self._process = process
        if process.stdin is not None:
            process.stdin.close()
        assert process.stdout is not None
        assert process.stderr is not None
        self._out = _Lines(process.stdout)
        self._err = _Lines(process.stderr)

    @classmethod
    def start(
        cls,
        listen: Sequence[str] = ("tcp://127.0.0.1:0",),
        data_dir: Path | None = None,
        env: Mapping[str, str] | None = None,
        args: Sequence[str] = (),
        *,
        launcher: Sequence[str] = (),
        timeout: float = START_TIMEOUT,
    ) -> Self:
        """Start a broker and wait until all its listeners accept.

        `launcher` is a command that becomes the one behind it, as nsenter does.

        Raises BrokerStartError if that does not happen within `timeout` seconds.
        """
        folder = data_dir or Path(tempfile.mkdtemp(prefix="vmq-test-"))
        command = [*VMQ, "start", "--data-dir", str(folder)]
        for url in listen:
            command += ["--listen", url]
        command = [*launcher, *command, *args]
        broker = cls(command, env or {}, folder, owns_data_dir=data_dir is None)
        try:
            broker._wait_ready(timeout)
        except BaseException:
            broker.close()
            raise
        return broker

    @classmethod
    def configured(cls, **options: Any) -> Self:
        """Start a broker by the keywords of `vmq.Broker`: `listen`, `users`, `acl`, `plugins`, any section.

        Without `listen` and `listeners` it listens at a port of 127.0.0.1 that is its own for as long as the test's
        process lives, so it can be killed and started again. Raises as `start`, and ConfigError.
        """
        if not {"listen", "listeners"} & set(options):
            options["listen"] = f"tcp://127.0.0.1:{lasting_port()}"
        given = options.pop("data_dir", None)
        folder = Path(tempfile.mkdtemp(prefix="vmq-test-")) if given is None else Path(given)
        config = folder.with_name(f"{folder.name}.toml")
        try:
            config.write_text(as_toml(options), encoding="utf-8")
            broker = cls.start((), folder, args=("--config", str(config)))
        except BaseException:
            if given is None:
                shutil.rmtree(folder, ignore_errors=True)
            raise
        broker._owns_data_dir = given is None
        broker._config = config
        return broker

    def restart(self, timeout: float = START_TIMEOUT) -> None:
        """Start it again as it was started before, with its data, once it has ended; kills it if it runs."""
        if self.is_running():
            self.kill()
        self._out.close()
        self._err.close()
        self._launch()
        self._wait_ready(timeout)

    @contextmanager
    def stall(self) -> Iterator[None]:
        """It does nothing for as long as the block runs (SIGSTOP, SIGCONT)."""
        self._process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self._process.send_signal(signal.SIGCONT)

    def _wait_ready(self, timeout: float) -> None:
        ready = self._out.wait(rf"^{READY} ([^(]+)", timeout)
        if ready is not None:
            self.urls = ready[1].split()
            return
        returncode: int | None = None
        # As its log tells the time: what it says last may be the last moment, after a start that took all the others.
        now = datetime.now(UTC).isoformat(timespec="milliseconds").removesuffix("+00:00")
        message = f"broker not ready after {timeout} s, at {now}Z"
        if self._out.has_ended():
            message = "broker ended before it was ready"
            returncode = self._process.wait(STOP_TIMEOUT)
            self._err.close()
        raise BrokerStartError(message, returncode, self.stderr_text())

    @property
    def pid(self) -> int:
        """The process id of the broker."""
        return self._process.pid

    @property
    def tcp(self) -> tuple[str, int]:
        """Host and port of the first TCP listener."""
        parts = urlsplit(self._url("tcp"))
        assert parts.hostname is not None
        assert parts.port is not None
        return parts.hostname, parts.port

    @property
    def url(self) -> str:
        """The URL of the first listener, as clients write it."""
        scheme, _, rest = self.urls[0].partition("://")
        return {"tcp": "mqtt", "tls": "mqtts"}.get(scheme, scheme) + "://" + rest

    @property
    def host(self) -> str:
        """The host of the first TCP listener."""
        return self.tcp[0]

    @property
    def port(self) -> int:
        """The port of the first TCP listener."""
        return self.tcp[1]

    @property
    def ws(self) -> str:
        """The URL of the first WebSocket listener."""
        return self._url("ws")

    @property
    def http(self) -> str:
        """The URL of the first HTTP listener."""
        return self._url("http")

    def _url(self, scheme: str) -> str:
        for url in self.urls:
            if url.startswith(f"{scheme}://"):
                return url
        raise LookupError(f"no {scheme} listener among {self.urls}")

    def stderr_text(self) -> str:
        """What the broker has logged so far; all of it once it has ended."""
        if not self.is_running():
            self._err.wait_end()
        return self._err.text()

    def wait_log(self, pattern: str, timeout: float = LOG_TIMEOUT) -> re.Match[str]:
        """Wait until a line of the log matches the regular expression, and return the match."""
        found = self._err.wait(pattern, timeout)
        if found is None:
            raise AssertionError(f"no log line matches {pattern!r}; {self._last_lines()}")
        return found

    def wait_out(self, pattern: str) -> re.Match[str]:
        """Wait until a line of stdout matches the regular expression, and return the match."""
        found = self._out.wait(pattern, LOG_TIMEOUT)
        if found is None:
            raise AssertionError(f"no line of stdout matches {pattern!r}")
        return found

    def wait_count(self, count: int, pattern: str) -> None:
        """Wait until so many lines of the log match the regular expression."""
        wanted = re.compile(pattern)

        def told(lines: Sequence[str]) -> bool:
            return sum(wanted.search(each) is not None for each in lines) >= count

        self.wait_logs(f"{count} times {pattern}", told)

    def wait_logs(
        self, what: str, holds: Callable[[Sequence[str]], bool], timeout: float = LOG_TIMEOUT
    ) -> None:
        """Wait until something holds of all lines of the log so far; `what` names it."""
        if not self._err.wait_until(holds, timeout):
            raise AssertionError(f"the log does not say that {what}; {self._last_lines()}")

    def _last_lines(self) -> str:
        return "the last ones:\n" + "".join(self.stderr_text().splitlines(keepends=True)[-20:])

    def is_running(self) -> bool:
        """Whether the process still lives."""
        return self._process.poll() is None

    def terminate(self, timeout: float = STOP_TIMEOUT) -> int:
        """Ask the broker to stop (SIGTERM), wait for its end, and return its exit code."""
        self._process.terminate()
        return self.wait(timeout)

    def wait(self, timeout: float = STOP_TIMEOUT) -> int:
        """Wait until the broker has ended by itself; return its exit code."""
        return self._process.wait(timeout)

    def kill(self) -> None:
        """End the broker with SIGKILL and wait for its end. The data dir stays."""
        self._process.kill()
        self._process.wait()

    def close(self) -> None:
        """End the process however it stands, and remove the data dir if this object made it."""
        if self.is_running():
            self._process.terminate()
            try:
                self._process.wait(STOP_TIMEOUT)
            except subprocess.TimeoutExpired:
                self.kill()
        self._out.close()
        self._err.close()
        if self._owns_data_dir:
            shutil.rmtree(self.data_dir, ignore_errors=True)
        if self._config is not None:
            self._config.unlink(missing_ok=True)
