"""Servers of others as processes of a test's own, ended with their context."""

import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from os import geteuid
from pathlib import Path

from tests.support.tools import missing, require_tool
from tests.support.until import reach
from vmq.testing.ports import lasting_port

#: A port of loopback, or the path of a Unix socket.
Address = int | Path


def _accepts(address: Address) -> bool:
    if isinstance(address, Path):
        with socket.socket(socket.AF_UNIX) as probe:
            return address.exists() and probe.connect_ex(str(address)) == 0
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", address)) == 0


@contextmanager
def serving(
    command: Sequence[str], log: Path, address: Address, user: str | None = None
) -> Iterator[int]:
    """A program that accepts at an address; yields its process id. What it says is added to its log."""
    program = require_tool(command[0])
    with log.open("ab") as output:
        process = subprocess.Popen(
            [program, *command[1:]],
            stdout=output,
            stderr=subprocess.STDOUT,
            user=user,
            cwd=log.parent,
        )
    try:
        reach(lambda: process.poll() is not None or _accepts(address))
        assert process.poll() is None, log.read_text()
        yield process.pid
    finally:
        # With SIGTERM, PostgreSQL would wait for its clients.
        process.send_signal(signal.SIGINT)
        process.wait()


@contextmanager
def mosquitto(folder: Path, *options: str, port: int = 0) -> Iterator[tuple[int, int]]:
    """A mosquitto on loopback; yields its process id and its port. `options` are lines of its configuration."""
    port = port or lasting_port()
    config = folder / "mosquitto.conf"
    # As root it would become the user mosquitto, who cannot read a test's folder.
    lines = (f"listener {port} 127.0.0.1", "user root", *options, "")
    config.write_text("\n".join(lines))
    with serving(["mosquitto", "-c", str(config)], folder / "mosquitto.log", port) as process:
        yield process, port


@contextmanager
def redis(folder: Path) -> Iterator[tuple[int, int]]:
    """A Redis that keeps nothing on disk; yields its process id and its port."""
    port = lasting_port()
    options = ["--port", str(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]
    with serving(["redis-server", *options], folder / "redis.log", port) as process:
        yield process, port


@contextmanager
def postgresql() -> Iterator[str]:
    """A PostgreSQL with an empty database, on a Unix socket; yields its URL."""
    programs = sorted(Path("/usr/lib/postgresql").glob("*/bin"))
    found = shutil.which("initdb") or (programs and programs[-1] / "initdb")
    if not found:
        missing("postgresql")
    # PostgreSQL does not run as root, and the path of a socket has at most 107 bytes.
    user = "postgres" if geteuid() == 0 else None
    folder = Path(tempfile.mkdtemp(prefix="vmq-pg-"))
    data = folder / "data"
    try:
        if user:
            shutil.chown(folder, user)
        initialise = [str(found), "-D", str(data), "-U", "vmq", "-A", "trust", "--no-sync"]
        subprocess.run(initialise, check=True, capture_output=True, user=user, cwd=folder)
        serve = [str(Path(found).with_name("postgres")), "-D", str(data), "-F"]
        serve += ["-c", "listen_addresses=", "-c", f"unix_socket_directories={folder}"]
        # It writes "ready" into this file, once it accepts.
        with serving(serve, folder / "log", folder / ".s.PGSQL.5432", user):
            reach(lambda: "ready" in (data / "postmaster.pid").read_text())
            yield f"postgresql://vmq@/postgres?host={folder}"
    finally:
        shutil.rmtree(folder, ignore_errors=True)
