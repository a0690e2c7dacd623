"""Redis and PostgreSQL as processes of a test's own."""

import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.support.tools import missing, require_tool
from tests.support.until import reach


@contextmanager
def redis_server(folder: Path) -> Iterator[str]:
    """A Redis that keeps nothing, on a Unix socket; yields its URL."""
    program = require_tool("redis-server")
    path = folder / "redis.sock"
    command = [
        program,
        "--port",
        "0",
        "--unixsocket",
        str(path),
        "--save",
        "",
        "--dir",
        str(folder),
    ]
    with _running(command, folder / "redis.log", path):
        yield f"unix://{path}"


@contextmanager
def postgresql_server() -> Iterator[str]:
    """A PostgreSQL with an empty database, on a Unix socket; yields its URL."""
    programs = sorted(Path("/usr/lib/postgresql").glob("*/bin"))
    found = shutil.which("initdb") or (programs and programs[-1] / "initdb")
    if not found:
        missing("postgresql")
    # PostgreSQL does not run as root, and the path of a socket has at most 107 bytes.
    user = "postgres" if os.geteuid() == 0 else None
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
        with _running(serve, folder / "log", folder / ".s.PGSQL.5432", user):
            reach(lambda: "ready" in (data / "postmaster.pid").read_text())
            yield f"postgresql://vmq@/postgres?host={folder}"
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _running(
    command: Sequence[str], log: Path, listens: Path, user: str | None = None
) -> Iterator[None]:
    """A process that has made its socket; ended with the context."""
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, stdout=output, stderr=subprocess.STDOUT, user=user, cwd=log.parent
        )
    try:
        reach(lambda: process.poll() is not None or _accepts(listens))
        assert process.poll() is None, log.read_text()
        yield
    finally:
        # With SIGTERM, PostgreSQL would wait for its clients.
        process.send_signal(2)
        process.wait()


def _accepts(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as probe:
        return path.exists() and probe.connect_ex(str(path)) == 0
