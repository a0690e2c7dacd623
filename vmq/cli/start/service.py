"""Tells systemd how the service stands: ready, reloading, stopping, still alive.

The protocol is a datagram of NAME=VALUE lines to the socket that $NOTIFY_SOCKET names (sd_notify(3)).
Without that variable nobody asks, and nothing is said.
"""

import logging
import os
import socket
import time
from collections.abc import Mapping

logger = logging.getLogger("vmq.cli")


class Notifier:
    """The connection to the service manager, if there is one.

    Args:
        environ: the environment, of which NOTIFY_SOCKET, WATCHDOG_USEC and WATCHDOG_PID are read.
    """

    def __init__(self, environ: Mapping[str, str]) -> None:
        address = environ.get("NOTIFY_SOCKET", "")
        # A name that begins with @ is in the abstract name space, which is written with a zero.
        self._address = "\0" + address[1:] if address.startswith("@") else address
        #: Seconds within which the manager wants a sign of life; None = it wants none.
        self.watchdog_seconds = _watchdog_seconds(environ) if address else None

    def ready(self, status: str) -> None:
        """The service does its work; `status` is shown to people."""
        self._send("READY=1", f"STATUS={status}")

    def reloading(self) -> None:
        """The configuration is read anew; `ready` follows."""
        self._send("RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1000}")

    def stopping(self) -> None:
        """The service ends in an orderly way."""
        self._send("STOPPING=1", "STATUS=saving")

    def alive(self) -> None:
        """The service is still at work; to be called well within `watchdog_seconds`."""
        if self.watchdog_seconds is not None:
            self._send("WATCHDOG=1")

    def _send(self, *lines: str) -> None:
        if not self._address:
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sock:
                sock.setblocking(False)
                sock.sendto("\n".join(lines).encode(), self._address)
        except OSError as error:
            # It waits for us, and will do what it does with services that stay silent.
            logger.warning("cannot notify the service manager: %s", error)


def _watchdog_seconds(environ: Mapping[str, str]) -> float | None:
    """How long the manager waits for a sign of life of this process."""
    try:
        microseconds = int(environ.get("WATCHDOG_USEC", "0"))
        whose = int(environ.get("WATCHDOG_PID") or os.getpid())
    except ValueError:
        return None
    return microseconds / 1_000_000 if microseconds > 0 and whose == os.getpid() else None
