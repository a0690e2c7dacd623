"""The brokers that vmq is compared with: how to find, configure, start and stop them.

The configurations are fair: loopback only, nobody asked for credentials, no limits on queues and windows that would
drop messages, TCP_NODELAY, no logging of traffic, durable state in a fresh temporary folder.
"""

import importlib.metadata
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import vmq_hooks

from vmq import version
from vmq.bench.load.address import Address
from vmq.bench.load.options import BenchError

#: Seconds that a broker has to start, and to stop when asked.
_START: Final = 30.0
_STOP: Final = 10.0
_POLL: Final = 0.05
_TRIES: Final = 3
#: Debian keeps mosquitto where only root looks.
_FOLDERS: Final = os.pathsep.join(("/usr/sbin", "/usr/local/sbin", "/usr/local/bin"))
_PROBE: Final = b"\x10\x11\x00\x04MQTT\x04\x02\x00\x3c\x00\x05probe"


@dataclass(frozen=True)
class BenchPeer:
    """A broker that is installed here; `command` writes its configuration and returns the command line."""

    name: str
    version: str
    command: Callable[[Path, int], list[str]]
    env: Mapping[str, str] = field(default_factory=dict)


def find_peers(names: Sequence[str]) -> tuple[list[BenchPeer], list[str]]:
    """Those of the named brokers that are installed, and the names of those that are not.

    Raises:
        ValueError: a name that means no broker to us.
    """
    for name in names:
        if name not in _FINDERS:
            raise ValueError(f"no broker {name!r}; known are {', '.join(_FINDERS)}")
    found = [(name, _FINDERS[name]()) for name in names]
    return [peer for _, peer in found if peer], [name for name, peer in found if not peer]


def known_peers() -> list[str]:
    """The names of all brokers that we could start."""
    return list(_FINDERS)


def _find_vmq() -> BenchPeer:
    def command(folder: Path, port: int) -> list[str]:
        # -P, and the path of this very package: whatever the current folder holds.
        return [
            *(sys.executable, "-P", "-m", "vmq", "start", "--log-level", "warning"),
            *("--listen", f"tcp://127.0.0.1:{port}", "--data-dir", str(folder / "data")),
        ]

    env = {
        "PYTHONPATH": os.pathsep.join(
            str(Path(str(each.__file__)).parents[1]) for each in (version, vmq_hooks)
        ),
        "VMQ_QUEUE__MAX_INFLIGHT_MESSAGES": "0",
        "VMQ_QUEUE__MAX_ONLINE_MESSAGES": "-1",
    }
    kind = "compiled" if version.is_compiled() else "interpreted"
    return BenchPeer("vmq", f"{version.__version__} {kind}", command, env)


def _find_mosquitto() -> BenchPeer | None:
    program = _which("mosquitto")
    if program is None:
        return None

    def command(folder: Path, port: int) -> list[str]:
        lines = [
            f"listener {port} 127.0.0.1",
            "allow_anonymous true",
            "set_tcp_nodelay true",
            "max_inflight_messages 0",
            "max_queued_messages 0",
            "persistence false",
            "log_dest stderr",
            "log_type error",
        ]
        if os.geteuid() == 0:
            lines.append("user root")  # another user could not read the folder
        return [program, "-c", _write(folder / "mosquitto.conf", lines)]

    return BenchPeer("mosquitto", _version(program, "-h"), command)


def _find_nats() -> BenchPeer | None:
    program = _which("nats-server")
    if program is None:
        return None

    def command(folder: Path, port: int) -> list[str]:
        lines = [
            "server_name: bench",
            'listen: "127.0.0.1:-1"',
            f'jetstream {{ store_dir: "{folder / "jetstream"}" }}',
            f'mqtt {{ listen: "127.0.0.1:{port}", max_ack_pending: 65535 }}',
        ]
        return [program, "-c", _write(folder / "nats.conf", lines)]

    return BenchPeer("nats-server", _version(program, "--version"), command)


def _find_amqtt() -> BenchPeer | None:
    try:
        version = importlib.metadata.version("amqtt")
    except importlib.metadata.PackageNotFoundError:
        return None

    def command(folder: Path, port: int) -> list[str]:
        lines = [
            "listeners:",
            "  default:",
            "    type: tcp",
            f"    bind: 127.0.0.1:{port}",
            "plugins:",
            "  amqtt.plugins.authentication.AnonymousAuthPlugin:",
            "    allow_anonymous: true",
        ]
        module = "amqtt.scripts.broker_script"
        return [sys.executable, "-P", "-m", module, "-c", _write(folder / "amqtt.yaml", lines)]

    return BenchPeer("amqtt", version, command)


_FINDERS: Final[dict[str, Callable[[], BenchPeer | None]]] = {
    "vmq": _find_vmq,
    "mosquitto": _find_mosquitto,
    "nats-server": _find_nats,
    "amqtt": _find_amqtt,
}


def _which(name: str) -> str | None:
    return shutil.which(name) or shutil.which(name, path=_FOLDERS)


def _write(path: Path, lines: Sequence[str]) -> str:
    path.write_text("\n".join(lines) + "\n")
    return str(path)


def _version(program: str, option: str) -> str:
    """The version number that a program tells, "" if it tells none."""
    try:
        done = subprocess.run(  # noqa: S603  # a program that we found in a system's folder
            [program, option], capture_output=True, text=True, timeout=10, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    for word in (done.stdout + done.stderr).split():
        if word.lstrip("v")[:1].isdigit() and "." in word:
            return word.lstrip("v").rstrip(",;")
    return ""


class RunningPeer:
    """A broker of our own; a context manager that ends the process and removes its folder, whatever happens."""

    def __init__(self, peer: BenchPeer) -> None:
        self.peer = peer
        self._folder: Path | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._port = 0

    def __enter__(self) -> Self:
        self._folder = Path(tempfile.mkdtemp(prefix=f"vmq-bench-{self.peer.name}-"))
        try:
            for left in reversed(range(_TRIES)):
                try:
                    self._start(self._folder)
                except BenchError:
                    # Perhaps somebody else took the port just then.
                    self._stop()
                    if not left:
                        raise
                else:
                    break
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def address(self) -> Address:
        """Where it listens."""
        return Address("mqtt", "127.0.0.1", self._port)

    @property
    def pid(self) -> int:
        """Its process."""
        assert self._process is not None
        return self._process.pid

    def _start(self, folder: Path) -> None:
        self._port = _free_port()
        log = folder / "log"
        with log.open("wb") as output:
            # In a session of its own: Ctrl-C is for us, and the broker must last until we have asked it to stop.
            self._process = subprocess.Popen(  # noqa: S603
                self.peer.command(folder, self._port),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env={**_clean_environment(), **self.peer.env},
                start_new_session=True,
            )
        deadline = time.monotonic() + _START
        while not _answers(self._port):
            if self._process.poll() is not None:
                last = log.read_text(errors="replace").strip()[-300:]
                raise BenchError(f"{self.peer.name} ended while starting: {last}")
            if time.monotonic() > deadline:
                raise BenchError(f"{self.peer.name} does not answer {_START:.0f} s after its start")
            time.sleep(_POLL)

    def _stop(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.terminate()
        try:
            process.wait(_STOP)
        except subprocess.TimeoutExpired:
            pass
        finally:
            if process.poll() is None:
                # The session is the broker's own: its children go with it.
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()

    def close(self) -> None:
        """Ends the process and removes the folder. May be called again."""
        try:
            self._stop()
        finally:
            if self._folder is not None:
                shutil.rmtree(self._folder, ignore_errors=True)
                self._folder = None


def _clean_environment() -> dict[str, str]:
    """Our environment without options for vmq."""
    return {name: value for name, value in os.environ.items() if not name.startswith("VMQ_")}


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port


def _answers(port: int) -> bool:
    """Whether a broker answers CONNECT there."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=2) as probe:
            probe.sendall(_PROBE)
            return probe.recv(4)[:1] == b"\x20"
    except OSError:
        return False
