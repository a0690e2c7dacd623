"""`vmq ...` on a terminal, as a person sees it."""

import fcntl
import os
import pty
import select
import struct
import subprocess
import termios
from time import monotonic
from typing import Any

from tests.vmq.cli.program import TIMEOUT, VMQ


class OnTerminal:
    """A running command whose input and output are a terminal; it ends with the context."""

    def __init__(self, *arguments: str) -> None:
        self._master, self._slave = pty.openpty()
        fcntl.ioctl(self._slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        self.before = self.settings()
        self.out = b""
        self.process = subprocess.Popen(
            [*VMQ, *arguments],
            stdin=self._slave,
            stdout=self._slave,
            stderr=self._slave,
            env={**os.environ, "TERM": "xterm-256color", "PYTHONUNBUFFERED": "1"},
            start_new_session=True,
        )

    def settings(self) -> list[Any]:
        """What the terminal does with what comes."""
        return termios.tcgetattr(self._slave)

    def press(self, keys: bytes) -> None:
        """Presses keys."""
        os.write(self._master, keys)

    def wait(self, text: bytes) -> None:
        deadline = monotonic() + TIMEOUT
        while text not in self.out:
            assert self._read(deadline - monotonic()), (text, self.out)

    def end(self) -> int:
        """Waits for the end; returns the exit code."""
        deadline = monotonic() + TIMEOUT
        while self.process.poll() is None:
            assert monotonic() < deadline, self.out
            self._read(0.1)
        while self._read(0):
            pass
        return self.process.returncode

    def _read(self, seconds: float) -> bool:
        ready, _, _ = select.select([self._master], [], [], max(0.0, seconds))
        if ready:
            self.out += os.read(self._master, 65_536)
        return bool(ready)

    def __enter__(self) -> "OnTerminal":
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self._master)
        os.close(self._slave)
