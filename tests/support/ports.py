"""Ports for whoever needs to know one before it listens, or comes back to it after its end.

A port that the system hands out (that of address 0) is only safe for who keeps it bound. Once it is let go, any
connection that anybody makes may get it as its own end; and who tries again and again to reach it on this machine may
in the end be connected to himself. Those here lie below the range that the system hands out (32768 and up).
"""

from __future__ import annotations

import socket
from random import SystemRandom

#: Not the generator of `random`: where that is seeded, two processes would find the same ports.
_RANDOM = SystemRandom()


def lasting_port(side_by_side: int = 1) -> int:
    """A free port that can be bound later and again; with `side_by_side`, the first of so many free ones."""
    while True:
        port = _RANDOM.randrange(10_000, 32_000)
        if all(_is_free(port + each) for each in range(side_by_side)):
            return port


def lasting_ports(count: int) -> list[int]:
    """So many different ones."""
    found: set[int] = set()
    while len(found) < count:
        found.add(lasting_port())
    return sorted(found)


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
