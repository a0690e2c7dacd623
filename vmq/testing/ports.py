"""Ports for whoever needs to know one before it listens, or comes back to it after its end.

A port that the system hands out (that of address 0) is only safe for who keeps it bound. Once it is let go, any
connection that anybody makes may get it as its own end; and who tries again and again to reach it on this machine may
in the end be connected to himself. Those here lie below the range that the system hands out (32768 and up), and each
process that runs tests has some for itself.
"""

from __future__ import annotations

import fcntl
import os
import socket
import tempfile
from functools import cache
from itertools import cycle
from pathlib import Path
from random import SystemRandom
from typing import Final

_FIRST: Final = 10_000
#: Ports of a process, and processes that may run at a time.
_EACH: Final = 200
_BLOCKS: Final = 110


def lasting_port(side_by_side: int = 1) -> int:
    """A free port that can be bound later and again; with `side_by_side`, the first of so many free ones."""
    for _ in range(_EACH):
        port = next(_own())
        if all(_is_free(port + each) for each in range(side_by_side)):
            return port
    raise AssertionError("no port is free")


def lasting_ports(count: int) -> list[int]:
    """So many different ones."""
    return [lasting_port() for _ in range(count)]


@cache
def _own() -> cycle[int]:
    """The ports of this process, in turns of two: there is room for two side by side."""
    # Not the generator of `random`: where that is seeded, all would look at the same ones first.
    for block in SystemRandom().sample(range(_BLOCKS), _BLOCKS):
        path = Path(tempfile.gettempdir()) / f"vmq-test-ports-{os.getuid()}-{block}"
        fd = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(fd)
            continue
        start = _FIRST + block * _EACH  # the lock ends with the process
        return cycle(range(start, start + _EACH, 2))
    raise AssertionError("too many processes run tests")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
