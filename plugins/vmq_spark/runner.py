"""Keeps a pipeline's driver running: starts it, starts it anew when it fails, and stops it."""

import asyncio
import contextlib
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import msgspec

from vmq_spark import status
from vmq_spark.checkpoints import drop_unfinished
from vmq_spark.driver import GRACE, HOPELESS
from vmq_spark.errors import PipelineError
from vmq_spark.locks import take_lock
from vmq_spark.settings import Settings, local_path
from vmq_spark.status import Progress, RunnerStatus, State

COMMAND: Final = (sys.executable, "-m", "vmq_spark.driver")
#: Seconds before a driver that failed is started anew: the first time, and at most.
FIRST_DELAY: Final = 1.0
LONGEST_DELAY: Final = 60.0
#: A driver that lived for so many seconds was well: the next failure is a first one.
STEADY: Final = 60.0
#: Seconds that what a driver has started may go on without it.
LINGER: Final = 10.0


class Runner:
    """Runs one pipeline in the foreground.

    Args:
        settings: what the driver is told.
        say: gets a line whenever something has changed.
        command: the driver.
    """

    def __init__(
        self,
        settings: Settings,
        say: Callable[[str], None],
        *,
        command: Sequence[str] = COMMAND,
        first_delay: float = FIRST_DELAY,
    ) -> None:
        self.settings = settings
        self.say = say
        self.command = command
        self.first_delay = first_delay
        self.folder = Path(settings.folder)
        self.stopping = asyncio.Event()
        #: A query has run: what the broker refuses from now on may pass.
        self.has_run = False
        self.status = RunnerStatus(
            source=settings.source,
            master=settings.master,
            server=settings.connection.get("server", ""),
            pid=os.getpid(),
            since=time.time(),
        )

    def stop(self) -> None:
        """Has `run` end, soon and cleanly."""
        self.stopping.set()

    async def run(self) -> int:
        """Runs the pipeline until it has finished, is stopped (both 0), or cannot be run (2).

        Raises:
            PipelineError: it runs already.
        """
        locks = self._take_locks()
        try:
            return await self._keep_running(locks)
        finally:
            for each in locks:
                os.close(each)

    def _take_locks(self) -> list[int]:
        """The pipeline's, and that of its checkpoint if that lies on this machine elsewhere."""
        folders = [self.folder]
        checkpoint = local_path(self.settings.checkpoint)
        if checkpoint is not None and not checkpoint.is_relative_to(self.folder):
            folders.append(checkpoint)
        taken: list[int] = []
        for each in folders:
            each.mkdir(mode=0o700, parents=True, exist_ok=True)
            lock = take_lock(each)
            if lock is None:
                for other in taken:
                    os.close(other)
                raise PipelineError(
                    f"the pipeline {self.settings.name!r} runs already: {each} is in use"
                )
            taken.append(lock)
        return taken

    async def _keep_running(self, locks: Sequence[int]) -> int:
        delay = self.first_delay
        while not self.stopping.is_set():
            began = time.monotonic()
            code = await self._live(locks)
            if self.stopping.is_set() or code == 0:
                break
            progress = status.read(self.folder).progress
            self.has_run = self.has_run or bool(progress.queries)
            error = progress.error or ended_how(code)
            self.status.error = error
            if code == HOPELESS:
                self._tell("failed")
                self.say(error)
                return HOPELESS
            if time.monotonic() - began > STEADY:
                delay = self.first_delay
            self.status.restarts += 1
            self._tell("waiting")
            self.say(f"{error}; starting again in {delay:.0f} s")
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.stopping.wait(), delay)
            delay = min(delay * 2, LONGEST_DELAY)
        self._tell("stopped" if self.stopping.is_set() else "finished")
        return 0

    async def _live(self, locks: Sequence[int]) -> int:
        """One life of the driver, and of all that it starts; returns its exit code."""
        work = self.folder / "scratch"
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir()
        checkpoint = local_path(self.settings.checkpoint)
        if checkpoint is not None:
            drop_unfinished(checkpoint)
        status.write(self.folder, Progress())
        self._tell("starting")
        process = await asyncio.create_subprocess_exec(
            *self.command,
            stdin=asyncio.subprocess.PIPE,
            env=environment(self.settings, work),
            # Ctrl-C is for us: the driver stops when we say so.
            start_new_session=True,
            # It holds the locks too: while it lives, even without us, nobody else may start.
            pass_fds=locks,
        )
        assert process.stdin is not None
        self.status.driver = process.pid
        self._tell("running")
        settings = msgspec.structs.replace(self.settings, is_new=not self.has_run)
        process.stdin.write(msgspec.json.encode(settings) + b"\n")
        ended = asyncio.create_task(process.wait())
        wanted = asyncio.create_task(self.stopping.wait())
        try:
            await asyncio.wait({ended, wanted}, return_when=asyncio.FIRST_COMPLETED)
            process.stdin.close()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(asyncio.shield(ended), GRACE)
        finally:
            wanted.cancel()
            await _end_group(process.pid)
            await ended
            self.status.driver = 0
        return ended.result()

    def _tell(self, state: State) -> None:
        self.status.state = state
        status.write(self.folder, self.status)


async def _end_group(group: int) -> None:
    """Waits for what a driver leaves behind (its JVM clears up and ends), and kills what does not end.

    The next driver must not meet a JVM that still writes to the same checkpoint.
    """
    deadline = time.monotonic() + LINGER
    with contextlib.suppress(ProcessLookupError):
        while time.monotonic() < deadline:
            os.killpg(group, 0)
            await asyncio.sleep(0.05)
        os.killpg(group, signal.SIGKILL)


def environment(settings: Settings, work: Path) -> dict[str, str]:
    """What Spark is to find in its environment; what the user has set there wins."""
    ours = {"SPARK_LOCAL_DIRS": str(work), "PYSPARK_DRIVER_PYTHON": sys.executable}
    if settings.master.startswith("local"):
        ours |= {"SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}
    return ours | os.environ


def ended_how(code: int) -> str:
    """What an exit code says where the driver could not."""
    if code < 0:
        return f"the driver was ended by {signal.Signals(-code).name}"
    return f"the driver ended with exit code {code}"
