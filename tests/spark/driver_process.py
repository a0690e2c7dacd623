"""A driver as `tests.spark.driver` as its own process, with what it says of how far it has come up."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from time import monotonic
from typing import Final

import psutil

from tests.spark.sessions import QUICK_JAVA
from tests.spark.support import executors_environment

#: What a driver passes through until both of its queries run, in order. The first and `OFFSETS` are seen from outside.
PROCESS: Final = "process"
OFFSETS: Final = "offsets"
STAGES: Final = (PROCESS, "python", "session", "query 1", OFFSETS, "batch 1", "query 2", "batch 2")
UP: Final = STAGES[-1]
#: What a driver's line begins with that names a stage, or why it ends.
REACHED: Final = "reached: "
FAILED: Final = "failed: "
#: Seconds between two looks into the checkpoint.
LOOK: Final = 0.02


class DriverProcess:
    """One life of the driver, from its start to its end.

    Args:
        arguments: of `module`.
        folder: where its queries have their checkpoints.
        log: what it says on standard error is appended here.
        module: the program, a `tests.spark.driver.main`.
    """

    def __init__(
        self, arguments: Sequence[str], folder: Path, log: Path, module: str = "tests.spark.driver"
    ) -> None:
        self.offsets = folder / "landing" / "offsets"
        self.before = self.batches()
        with log.open("ab") as errors:
            self.process = subprocess.Popen(
                [sys.executable, "-m", module, *arguments],
                env={**os.environ, **executors_environment(), **QUICK_JAVA},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                encoding="utf-8",
                errors="replace",
            )
        #: Stage -> when it was reached.
        self.reached = {PROCESS: monotonic()}
        #: Why it ended by itself, in one line; empty = it did not say.
        self.failure = ""
        self.lines: list[str] = []
        self.has_ended = False
        self.changed = threading.Condition()
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            with self.changed:
                if line.startswith(REACHED):
                    self.reached[line.removeprefix(REACHED).strip()] = monotonic()
                elif line.startswith(FAILED):
                    self.failure = line.removeprefix(FAILED).strip()
                else:
                    self.lines.append(line)
                self.changed.notify_all()
        with self.changed:
            self.has_ended = True
            self.changed.notify_all()

    def batches(self) -> set[str]:
        """The batches that the first query has planned so far."""
        try:
            return {each.name for each in self.offsets.iterdir() if each.name.isdigit()}
        except FileNotFoundError:
            return set()

    def wait(self, stage: str, seconds: float) -> bool:
        """Whether a stage is reached, at the latest after some seconds or when the driver has ended."""
        deadline = monotonic() + seconds
        with self.changed:
            while stage not in self.reached:
                left = deadline - monotonic()
                if self.has_ended or left <= 0:
                    return False
                if OFFSETS not in self.reached and self.batches() - self.before:
                    self.reached[OFFSETS] = monotonic()
                    continue
                self.changed.wait(min(LOOK, left))
        return True

    def is_running(self) -> bool:
        return self.process.poll() is None

    def workers(self) -> list[psutil.Process]:
        """All Python processes that Spark has: they plan, run tasks, or make such ones."""
        try:
            family = psutil.Process(self.process.pid).children(recursive=True)
        except psutil.NoSuchProcess:
            return []
        return [each for each in family if is_python(each)]

    def finish(self, seconds: float) -> str:
        """Waits for its end; returns its last line."""
        self.process.wait(seconds)
        self.reader.join(seconds)
        return self.lines[-1] if self.lines else ""

    def kill(self) -> None:
        """SIGKILL for it and all that it has started; what it starts meanwhile does not get away."""
        if self.is_running():
            self.process.send_signal(signal.SIGSTOP)
            family = psutil.Process(self.process.pid).children(recursive=True)
            self.process.kill()
            for each in family:
                end(each)
            psutil.wait_procs(family)
        self.process.wait()
        self.reader.join()
        assert self.process.stdout is not None
        self.process.stdout.close()


def is_python(process: psutil.Process) -> bool:
    """Whether a process is one of Spark's Python processes."""
    try:
        return any(each.startswith("pyspark.") for each in process.cmdline())
    except psutil.NoSuchProcess:
        return False


def end(process: psutil.Process) -> None:
    """SIGKILL, if it is still there."""
    try:
        process.kill()
    except psutil.NoSuchProcess:
        return
