"""Brokers that are forked from a process which has imported everything: they start in a fraction of the time.

Such a broker is a process of its own, with its own pid, memory, files and end; only its imports are done already. What
it is forked from runs Python in one thread and opens nothing; it ends with the tests.
"""

import atexit
import gc
import importlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import IO, Final

#: What a broker imports in any case, and what one with streams or in a cluster does: memory that others have not.
_ALWAYS: Final = ("vmq.cli.main", "vmq.cli.start.running", "vmq.http.app")
_MORE: Final = ("vmq.clustering.node.node", "vmq.streams.flight.service")
#: Variables that count when an interpreter starts, or a library is loaded: with others it has to be started anew.
_EARLY: Final = ("PYTHON", "LD_", "MALLOC_", "GLIBC_")
_LARGEST: Final = 1 << 20


def fork(
    arguments: Sequence[str], env: Mapping[str, str], *, more: bool = False
) -> "Forked | None":
    """Starts `vmq ARGUMENTS` with this environment; None: it has to be started by an interpreter of its own.

    `more`: it will have streams, or be in a cluster.
    """
    if not hasattr(os, "fork") or not hasattr(socket, "send_fds"):
        return None
    early = _early(_own_env())
    if _early(env) != early:
        return None
    with _one_at_a_time:
        server = _server(more, frozenset(early.items()))
    return server.fork(arguments, env)


def _own_env() -> dict[str, str]:
    return {**os.environ, "PYTHONUNBUFFERED": "1"}


def _early(env: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in env.items() if name.startswith(_EARLY)}


class Forked:
    """A process, as `subprocess.Popen` has it; what it reads and writes goes through pipes."""

    def __init__(
        self, pid: int, stdin: IO[bytes], stdout: IO[bytes], stderr: IO[bytes], status: int
    ) -> None:
        self.pid = pid
        self.stdin = stdin
        self.stdout = stdout
        self.stderr = stderr
        self.returncode: int | None = None
        self._status = status
        self._lock = threading.Lock()

    def poll(self) -> int | None:
        """Its exit code, negative for a signal; None while it runs."""
        return self._look(0.0)

    def wait(self, timeout: float | None = None) -> int:
        """Its exit code, when it has ended. Raises `subprocess.TimeoutExpired`."""
        found = self._look(timeout)
        if found is None:
            raise subprocess.TimeoutExpired(["vmq"], timeout or 0.0)
        return found

    def _look(self, timeout: float | None) -> int | None:
        with self._lock:
            if self.returncode is None:
                poll = select.poll()
                poll.register(self._status, select.POLLIN)
                if poll.poll(None if timeout is None else max(timeout, 0.0) * 1000):
                    raw = os.read(self._status, 4)
                    os.close(self._status)
                    status = int.from_bytes(raw, "little") if raw else signal.SIGKILL
                    self.returncode = os.waitstatus_to_exitcode(status)
            return self.returncode

    def send_signal(self, number: int) -> None:
        """Does nothing if it has ended."""
        if self.poll() is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def terminate(self) -> None:
        """SIGTERM."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """SIGKILL."""
        self.send_signal(signal.SIGKILL)


class _Server:
    """The process that forks."""

    def __init__(self, *imported: str) -> None:
        self._lock = threading.Lock()
        self._socket, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with other:
            self._process = subprocess.Popen(  # noqa: S603 - our own module
                [sys.executable, "-m", "vmq.testing.forks", str(other.fileno()), *imported],
                stdin=subprocess.DEVNULL,
                env=_own_env(),
                pass_fds=[other.fileno()],
            )
        atexit.register(self.close)

    def close(self) -> None:
        """It ends, and whoever it has forked goes on."""
        self._socket.close()
        self._process.wait()

    def fork(self, arguments: Sequence[str], env: Mapping[str, str]) -> Forked:
        given, into = os.pipe()
        out, out_end = os.pipe()
        err, err_end = os.pipe()
        status, status_end = os.pipe()
        ends = [given, out_end, err_end, status_end]
        order = json.dumps({"arguments": [*arguments], "env": {**env}, "cwd": str(Path.cwd())})
        try:
            with self._lock:
                socket.send_fds(self._socket, [order.encode()], ends)
                pid = int.from_bytes(self._socket.recv(8), "little")
            if not pid:
                raise ChildProcessError("the process that forks brokers has ended")
        finally:
            for each in ends:
                os.close(each)
        pipes = (os.fdopen(into, "wb", 0), os.fdopen(out, "rb"), os.fdopen(err, "rb"))
        return Forked(pid, *pipes, status)


_one_at_a_time: Final = threading.Lock()


@cache
def _server(more: bool, _early: frozenset[tuple[str, str]]) -> _Server:
    """One for the variables that this process has now: tests with Spark have others than those before them."""
    return _Server(*_ALWAYS, *(_MORE if more else ()))


# --- in the process that forks


def serve(orders: socket.socket) -> list[str]:
    """Forks at each order until there are no more. Returns in a child: with the arguments of its command."""
    ended, wake = os.pipe()
    for each in (ended, wake):
        os.set_blocking(each, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    #: Where the exit status of each child goes.
    children: dict[int, int] = {}
    while True:
        ready, _, _ = select.select([orders.fileno(), ended], [], [])
        if ended in ready:
            os.read(ended, 4096)
            _reap(children)
        if orders.fileno() in ready:
            raw, fds, _, _ = socket.recv_fds(orders, _LARGEST, 4)
            if not raw:
                sys.exit()
            pid = os.fork()
            if not pid:
                signal.set_wakeup_fd(-1)
                for each in (ended, wake, *children.values()):
                    os.close(each)
                orders.close()
                return _become(json.loads(raw), fds)
            for each in fds[:3]:
                os.close(each)
            children[pid] = fds[3]
            orders.send(pid.to_bytes(8, "little"))


def _reap(children: dict[int, int]) -> None:
    while children:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if not pid:
            return
        end = children.pop(pid)
        with suppress(BrokenPipeError):
            os.write(end, status.to_bytes(4, "little"))
        os.close(end)


def _become(order: dict[str, object], fds: list[int]) -> list[str]:
    """Makes the child what a new process would be."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for standard, each in enumerate(fds[:3]):
        os.dup2(each, standard)
    for each in fds:
        os.close(each)
    env, arguments = order["env"], order["arguments"]
    assert isinstance(env, dict)
    assert isinstance(arguments, list)
    os.environ.clear()
    os.environ.update(env)
    os.chdir(str(order["cwd"]))
    gc.enable()
    return arguments


def main() -> None:
    """Imports what a broker needs, and forks brokers for whoever has the other end of the socket."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the tests say when brokers end
    orders = socket.socket(fileno=int(sys.argv[1]))
    for name in sys.argv[2:]:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()
    arguments = serve(orders)
    sys.argv = ["vmq", *arguments]
    importlib.import_module("vmq.cli.main").run()


if __name__ == "__main__":
    main()
