"""Brokers that are forked from a process which has imported everything: they start in a fraction of the time.

Such a broker is a process of its own, with its own pid, memory, files and end; only its imports are done already. What
it is forked from runs Python in one thread and opens nothing; it ends with the tests. The processes of a broker itself,
its workers and those that serve Flight, are forked likewise, from a child of it that does nothing else.
"""

import asyncio
import atexit
import fcntl
import gc
import importlib
import json
import os
import re
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from functools import cache
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import IO, Any, Final

#: What brokers run as processes of their own: workers, and what works for streams; then where the latter are started.
_WORKER: Final = "vmq.cli.start.worker"
_FRONT: Final = "vmq.streams.flight.front"
_HELPERS: Final = (
    *(_FRONT, "vmq.streams.column_process", "vmq.streams.replay.packet_process"),
    *("vmq.streams.replay.evaluator", "vmq.streams.sql.process"),
)
_STARTING: Final = ("vmq.streams.serving.process", "vmq.streams.helper")
#: What a broker imports in any case; and, with memory that others have not, what one with streams or in a cluster does,
#: and commands do.
_ALWAYS: Final = (
    *("vmq.cli.main", "vmq.cli.start.start", "vmq.cli.start.running", "vmq.startup.preflight"),
    *("vmq.broker", "vmq.http.app", "uvloop", "encodings.idna", "typer._click.decorators"),
)
_MORE: Final = (
    *("vmq.startup.clustering", "vmq.clustering.running.service", "vmq.clustering.raft.service"),
    *("vmq.clustering.streams.service", "vmq.clustering.streams.groups"),
    *("vmq.clustering.streams.handover", "vmq.clustering.streams.pages"),
    "vmq.streams.flight.service",
    *("vmq.streams.serving.service", "vmq.streams.replay.port", "vmq.streams.sql.running"),
    *("vmq.cli.start.worker", "vmq.workers.supervisor"),
    *("vmq.cli.mqtt.pub", "vmq.cli.mqtt.sub", "vmq.cli.mqtt.subscriber", "vmq.cli.mqtt.transport"),
    *("vmq.cli.data.stream", "vmq.streams.stored"),
    *_HELPERS,
    "vmq.streams.sql.engine",
)
#: Variables that count when an interpreter starts, or a library is loaded: with others it has to be started anew.
_EARLY: Final = ("PYTHON", "LD_", "MALLOC_", "GLIBC_")
_LARGEST: Final = 1 << 20
#: What says that a broker will have streams, workers or other nodes: in its command, its variables, and its file.
_SAYS_MORE: Final = re.compile(
    r"grpc(\+tls)?://|^--(workers|cluster-listen)|^VMQ_(CLUSTER|STREAMS)__|^\s*(\[(streams|cluster)|workers\b)",
    re.MULTILINE,
)
#: What lies in its folder if it has streams or has had workers, whatever it is told.
_KEPT: Final = ("streams", "workers")


def fork(arguments: Sequence[str], env: Mapping[str, str]) -> "Forked | None":
    """Starts `vmq ARGUMENTS` with this environment; None: it has to be started by an interpreter of its own."""
    if not hasattr(os, "fork") or not hasattr(socket, "send_fds"):
        return None
    early = _early(_own_env())
    if _early(env) != early:
        return None
    return _server_now(_wants_more(arguments, env)).fork(arguments, env)


def _wants_more(arguments: Sequence[str], env: Mapping[str, str]) -> bool:
    if arguments[:1] != ["start"]:  # any other command may need what streams need
        return True
    given = dict(pairwise(arguments))
    if any(Path(given.get("--data-dir", os.devnull), each).exists() for each in _KEPT):
        return True
    text = ""
    with suppress(OSError):  # the broker says so
        text = Path(given.get("--config", os.devnull)).read_text("utf-8", "replace")
    return any(map(_SAYS_MORE.search, (text, *arguments, *env)))


def fork_helpers() -> None:
    """Has what works for the streams of brokers in this process forked from now on, too."""
    if hasattr(os, "fork") and hasattr(socket, "send_fds"):
        _fork_helpers(lambda: _server_now(True))


def fork_from_one() -> None:
    """Starts what brokers are forked from, for this process and all that it forks from now on."""
    for more in (False, True):
        _server_now(more)


def _server_now(more: bool) -> "_Server":
    early = _early(_own_env())
    with _one_at_a_time:
        return _server(more, frozenset(early.items()))


def _fork_helpers(server: "Callable[[], _Server]") -> None:
    """In the place of `subprocess`, where such a process is started."""

    def start(command: Sequence[str], **given: Any) -> Any:
        if tuple(command[:3]) != (sys.executable, "-P", "-m") or command[3] not in _HELPERS:
            return subprocess.Popen(command, **given)  # noqa: S603 - what a test runs in its place
        pipes, files = "io", given["pass_fds"]
        return server().fork(command[4:], given["env"], command[3], pipes=pipes, files=files)

    for name in _STARTING:
        place: Any = importlib.import_module(name)
        place.subprocess = SimpleNamespace(**{**vars(subprocess), "Popen": start})


class _Worker:
    """What a supervisor sees of a worker that is forked."""

    def __init__(self, process: "Forked") -> None:
        self._process = process
        self.pid = process.pid

    @property
    def returncode(self) -> int | None:
        return self._process.returncode  # as `wait` found it

    async def wait(self) -> int:
        return await asyncio.to_thread(self._process.wait)


def _fork_workers(server: "_Server") -> None:
    """In the place of `asyncio.create_subprocess_exec`, where a worker is started."""
    process: Any = importlib.import_module("vmq.workers.process")
    begin = process.asyncio.create_subprocess_exec

    async def start(*command: str, **given: Any) -> Any:
        count = len(process.COMMAND)
        if command[:count] != process.COMMAND:
            return await begin(*command, **given)
        arguments, files = command[count:], given["pass_fds"]
        return _Worker(server.fork(arguments, given["env"], _WORKER, pipes="", files=files))

    process.asyncio = SimpleNamespace(**{**vars(asyncio), "create_subprocess_exec": start})


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
    """The process that forks, at the other end of a socket."""

    def __init__(self, orders: socket.socket) -> None:
        self._socket = orders  # other processes may have it, too: what it answers comes by a pipe

    def fork(
        self,
        arguments: Sequence[str],
        env: Mapping[str, str],
        module: str = "",
        pipes: str = "ioe",
        files: Sequence[int] = (),
    ) -> Forked:
        """Starts `vmq ARGUMENTS`, or a module with them; of its standard files those are pipes that are named.

        The others are this process's, but for the input, which is empty; `files` it has under the same numbers.
        """
        with ExitStack() as stack:
            ours: list[Any] = []
            ends: list[int] = []
            for number, name in enumerate("ioe"):
                if name in pipes:
                    found = os.pipe()
                    ours.append(os.fdopen(found[not number], "rb" if number else "wb", -number))
                    ends.append(found[bool(number)])
                else:
                    ours.append(None)
                    ends.append(os.dup(number) if number else os.open(os.devnull, os.O_RDONLY))
                stack.callback(os.close, ends[-1])
            status, status_end = os.pipe()
            stack.callback(os.close, status_end)
            order = {"module": module, "arguments": [*arguments], "env": {**env}, "files": [*files]}
            order["cwd"] = str(Path.cwd())
            given = [*ends, status_end, *files]
            socket.send_fds(self._socket, [json.dumps(order).encode()], given)
        pid = int.from_bytes(os.read(status, 8), "little")
        if not pid:
            raise ChildProcessError("the process that forks brokers has ended")
        return Forked(pid, ours[0], ours[1], ours[2], status)


_one_at_a_time: Final = threading.Lock()


@cache
def _server(more: bool, _early: frozenset[tuple[str, str]]) -> _Server:
    """One for the variables that this process has now: tests with Spark have others than those before them."""
    orders, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    imported = (*_ALWAYS, *(_MORE if more else ()))
    with other:
        process = subprocess.Popen(  # noqa: S603 - this interpreter, with modules named above
            [sys.executable, "-m", "vmq.testing.forks", str(other.fileno()), *imported],
            stdin=subprocess.DEVNULL,
            env=_own_env(),
            pass_fds=[other.fileno()],
        )

    def close() -> None:
        """It ends, and whoever it has forked goes on."""
        orders.close()
        process.wait()

    atexit.register(close)
    return _Server(orders)


# --- in the process that forks


def serve(orders: socket.socket) -> tuple[str, list[str]]:
    """Forks at each order until there are no more. Returns in a child: with its module, and the arguments."""
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
            raw, fds, _, _ = socket.recv_fds(orders, _LARGEST, 16)
            if not raw:
                sys.exit()
            pid = os.fork()
            if not pid:
                signal.set_wakeup_fd(-1)
                for each in (ended, wake, *children.values()):
                    os.close(each)
                orders.close()
                return _become(json.loads(raw), fds)
            children[pid] = fds.pop(3)
            for each in fds:
                os.close(each)
            # Whoever ordered it may have been killed, and others not.
            with suppress(BrokenPipeError):
                os.write(children[pid], pid.to_bytes(8, "little"))


def _reap(children: dict[int, int]) -> None:
    while children:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if not pid:
            return
        end = children.pop(pid)
        with suppress(BrokenPipeError):
            os.write(end, status.to_bytes(4, "little"))
        os.close(end)


def _become(order: dict[str, Any], fds: list[int]) -> tuple[str, list[str]]:
    """Makes the child what a new process would be."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    above = max((2, *order["files"])) + 1
    moved = [fcntl.fcntl(each, fcntl.F_DUPFD, above) for each in fds]
    for each in fds:
        os.close(each)
    for number, each in zip((0, 1, 2, None, *order["files"]), moved, strict=True):
        if number is not None:
            os.dup2(each, number)
        os.close(each)
    os.environ.clear()
    os.environ.update(order["env"])
    os.chdir(order["cwd"])
    gc.enable()
    return order["module"], order["arguments"]


def _fork_from_a_child() -> tuple[str, list[str]] | None:
    """Has a child fork what this process, a broker, starts. Returns in what is forked: its module, and arguments."""
    orders, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    if os.fork():
        other.close()
        server = _Server(orders)
        if _FRONT in sys.modules:
            _fork_helpers(lambda: server)
        _fork_workers(server)
        return None
    orders.close()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    return serve(other)


def main() -> None:
    """Imports what a broker needs, and forks brokers for whoever has the other end of the socket."""
    codes: list[int] = []
    atexit.register(_leave, codes)  # before the imports, which register what is to run first
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the tests say when brokers end
    orders = socket.socket(fileno=int(sys.argv[1]))
    for name in sys.argv[2:]:
        with suppress(ImportError):  # an extra that is not installed: who needs it will say so
            importlib.import_module(name)
    sources, options = (
        importlib.import_module(f"vmq.config.{each}") for each in ("sources", "options")
    )
    sources.type_problems(options.Config(), str)  # what it looks up of options it keeps
    gc.collect()
    gc.freeze()
    try:
        _serve_and_run(orders)
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            codes.append(end.code or 0)
        raise
    codes.append(0)


def _leave(codes: list[int]) -> None:
    """Ends with this code, and takes nothing apart that was imported: that takes longer than the start.

    All other exit functions have run by then, and threads have ended. Without a code the interpreter ends by itself.
    """
    if codes:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(codes[0])


def _serve_and_run(orders: socket.socket) -> None:
    module, arguments = serve(orders)
    # Once more in each worker, which may serve Flight.
    while _WORKER in sys.modules and (module == _WORKER or arguments[:1] == ["start"]):
        forked = _fork_from_a_child()
        if forked is None:
            break
        module, arguments = forked
    sys.argv = [module or "vmq", *arguments]
    _run(module, arguments)


def _run(module: str, arguments: list[str]) -> None:
    if module == _WORKER:
        os.setsid()  # a Ctrl-C of the terminal is for the supervisor
        sys.exit(importlib.import_module(_WORKER).run(*map(int, arguments)))
    elif module:
        importlib.import_module(module).main()
    else:
        importlib.import_module("vmq.__main__").run()


if __name__ == "__main__":
    main()
