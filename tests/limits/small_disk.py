"""A file system of a few MiB in a mount namespace of its own, for a broker to fill."""

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.support.tools import require_tool
from vmq.testing.process import BrokerProcess

TIMEOUT = 60.0
LISTEN = ("tcp://127.0.0.1:0", "http://127.0.0.1:0")


class SmallDisk:
    """A tmpfs at `path`, which only processes that `enter` starts see there.

    It lives as long as its holder, a process that waits in the namespace: brokers come and go.
    """

    def __init__(self, path: Path, holder: int, enter: Sequence[str]) -> None:
        self.path = path
        self.enter = enter
        #: The same folder, as this process sees it.
        self.seen = Path(f"/proc/{holder}/root") / path.relative_to("/")
        self._ballast = self.seen / "ballast"

    def fill(self, leave: int = 0) -> None:
        """Leaves so many bytes free, about; without a number no room at all."""
        with self._ballast.open("ab", buffering=0) as file:
            # Meanwhile the broker may delete a file that it has merged.
            while self.free() > leave:
                with suppress(OSError):
                    file.write(bytes(1 << 16))

    def make_room(self) -> None:
        """What `fill` took is free again."""
        self._ballast.unlink()

    def grow(self, size: str) -> None:
        """The disk gets larger, as when an operator extends a volume."""
        self.run("mount", "-o", f"remount,size={size}", str(self.path))

    def free(self) -> int:
        status = os.statvfs(self.seen)
        return status.f_bavail * status.f_bsize

    def run(self, *command: str) -> str:
        """Run a command that sees the disk; it must end well. Returns its output."""
        done = subprocess.run(
            [*self.enter, *command], capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def check_store(self) -> None:
        """The store in it, whose broker has ended, is whole."""
        self.run(sys.executable, "-m", "vmq", "store", "check", "--data-dir", str(self.path))

    @contextmanager
    def broker(
        self, env: dict[str, str], listen: Sequence[str] = LISTEN
    ) -> Iterator[BrokerProcess]:
        """A broker whose data directory is the disk, with an HTTP listener."""
        args = ("--allow-anonymous",)
        with BrokerProcess.start(listen, self.seen, env, args) as process:
            yield process


@contextmanager
def small_disk(folder: Path, size: str) -> Iterator[SmallDisk]:
    """A disk of this size, mounted at a folder; skips the test where the kernel permits none."""
    script = 'mount -t tmpfs -o size="$1" tmpfs "$2" && echo mounted && exec cat'
    unshare = [require_tool("unshare"), "--user", "--map-root-user", "--mount"]
    holder = subprocess.Popen(
        [*unshare, "sh", "-c", script, "sh", size, str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert holder.stdin is not None
    assert holder.stdout is not None
    assert holder.stderr is not None
    try:
        if holder.stdout.readline() != "mounted\n":
            pytest.skip(f"no file system can be mounted here: {holder.stderr.read().strip()}")
        enter = [require_tool("nsenter"), f"--target={holder.pid}", "--user", "--mount", "--wd"]
        yield SmallDisk(folder, holder.pid, [*enter, "--preserve-credentials"])
    finally:
        holder.stdin.close()
        holder.wait(TIMEOUT)
        holder.stdout.close()
        holder.stderr.close()
