"""Servers of others, which vmq is measured beside."""

import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

from tests.support.until import reach
from vmq.testing.ports import lasting_port


@contextmanager
def started(program: str, *options: str, port: int) -> Iterator[tuple[int, int]]:
    """Process id and port of a server that listens on loopback; it says nothing, and is killed at the end."""
    found = shutil.which(program, path="/usr/sbin:/usr/local/sbin:/usr/bin:/usr/local/bin")
    assert found is not None, f"needs {program}"
    quiet = subprocess.DEVNULL
    process = subprocess.Popen([found, *options], stdout=quiet, stderr=quiet)

    def accepts() -> bool:
        assert process.poll() is None, f"{program} has ended"
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", port)) == 0

    try:
        reach(accepts)
        yield process.pid, port
    finally:
        process.kill()
        process.wait()


@contextmanager
def redis() -> Iterator[tuple[int, int]]:
    """A Redis that keeps nothing on disk."""
    port = lasting_port()
    options = ("--port", str(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no")
    with started("redis-server", *options, port=port) as server:
        yield server
