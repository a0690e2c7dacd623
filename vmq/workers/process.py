"""One worker, as its supervisor sees it: a process that is started, told what to do, and started again when it ends."""

import asyncio
import logging
import os
import signal
import socket
import sys
from asyncio.subprocess import DEVNULL, Process
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Final

from vmq.http.dashboard.reading import Reading
from vmq.runtime.backoff import Backoff
from vmq.workers.asking import PATIENCE
from vmq.workers.control import (
    Alive,
    BeginWorker,
    Channel,
    DoorCount,
    Follow,
    Followed,
    Message,
    Rotate,
    Watch,
    WorkerFailed,
    WorkerReady,
    WorkerSettings,
)
from vmq.workers.handover import Handed, hand_over, pair

log = logging.getLogger("vmq.workers")

#: Seconds that a process has to end which has closed its end of the channel.
_GRACE: Final = 10.0
#: Seconds without a sign of life after which a process that is to stop is killed; and between two looks at that.
_LAST_SILENCE: Final = 30.0
_LOOK: Final = 1.0
#: Readings of its figures that are kept until somebody takes them.
_READINGS: Final = 4
#: What a service manager tells the supervisor, and nobody else is to answer.
_NOT_FOR_WORKERS: Final = frozenset({"NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"})


class WorkerState(Enum):
    """Where a worker stands."""

    STARTING = "starting"
    RUNNING = "running"
    WAITING = "waiting to be started again"
    STOPPED = "stopped"

    def __str__(self) -> str:
        return self.value


class Doors:
    """Connections of listeners that were handed to a process: what it told of them, and what it has not told yet."""

    def __init__(self) -> None:
        self._given: Counter[str] = Counter()
        self._told: Mapping[str, DoorCount] = {}

    def given(self, listener: str) -> None:
        """One more was handed over."""
        self._given[listener] += 1

    def told(self, counts: Mapping[str, DoorCount]) -> None:
        """What the process says."""
        self._told = counts

    def connections(self, listener: str) -> int:
        """Those that are open, and those that it has not taken yet."""
        told = self._told.get(listener, DoorCount(0, 0))
        return told.connections + self._given[listener] - told.taken


class Worker:
    """A worker and the processes that it has been.

    Args:
        number: which one, from 1.
        begin: what a new process is told.
        command: what is run, behind it the descriptors of its ends: of the channel, and of where connections come.
        silence: seconds without a sign of life after which the process is ended; None = it may be silent.
    """

    def __init__(
        self,
        number: int,
        begin: Callable[[], BeginWorker],
        command: Sequence[str],
        silence: float | None = None,
    ) -> None:
        self.number = number
        self.state = WorkerState.STOPPED
        #: How often it was started again.
        self.restarts = 0
        #: Why it does not run, if it does not.
        self.trouble = ""
        #: Why its process serves no clients; "": it does.
        self.shut = ""
        self.doors = Doors()
        #: Set once: by its first readiness, or its first end before that.
        self.begun = asyncio.Event()
        self._begin = begin
        self._command = tuple(command)
        self._silence = silence
        self._backoff = Backoff()
        self._process: Process | None = None
        self._channel: Channel | None = None
        self._passing: socket.socket | None = None
        self._readings: deque[Reading] = deque(maxlen=_READINGS)
        self._is_watched = False
        self._heard = 0.0
        self._ending = asyncio.Event()
        self._answers: list[asyncio.Future[str]] = []
        self._task: asyncio.Task[None] | None = None

    @property
    def pid(self) -> int:
        """The process that it is now; 0 = none."""
        process = self._process
        return 0 if process is None or process.returncode is not None else process.pid

    @property
    def is_running(self) -> bool:
        """Whether it serves."""
        return self.state is WorkerState.RUNNING

    @property
    def is_there(self) -> bool:
        """Whether it serves or is about to."""
        return self.state in (WorkerState.STARTING, WorkerState.RUNNING)

    # --- its life

    def start(self) -> None:
        """Has it run from now on, until `stop`."""
        self.state = WorkerState.STARTING
        self._task = asyncio.get_running_loop().create_task(self._run())
        self._task.add_done_callback(self._told)

    async def stop(self) -> None:
        """Ends it in order, which may take its time; returns when it is gone. One that hangs meanwhile is killed."""
        self._ending.set()
        self.signal(signal.SIGTERM)
        if self._task is None:
            return
        loop = asyncio.get_running_loop()
        self._heard = loop.time()
        while not (await asyncio.wait([self._task], timeout=_LOOK))[0]:
            self._end_silent(loop.time(), _LAST_SILENCE)

    def signal(self, number: int) -> None:
        """Sends its process a signal, if there is one."""
        if self.pid:
            try:
                os.kill(self.pid, number)
            except ProcessLookupError:
                pass  # it ends just now

    def _told(self, task: "asyncio.Task[None]") -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            log.critical("worker is left alone number=%d", self.number, exc_info=error)

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while not self._ending.is_set():
            began = loop.time()
            self.state = WorkerState.STARTING
            try:
                code = await self._live()
            except OSError as error:
                self.trouble = f"cannot start a process: {error.strerror}"
            else:
                self.trouble = self.trouble or _ending_of(code)
            self._forget()
            self.begun.set()
            if self._ending.is_set():
                break
            wait = self._backoff.after(loop.time() - began)
            self.state = WorkerState.WAITING
            text = 'worker ended number=%d reason="%s" again_in=%.1f'
            log.error(text, self.number, self.trouble, wait)
            try:
                async with asyncio.timeout(wait):
                    await self._ending.wait()
            except TimeoutError:
                self.restarts += 1
        self.state = WorkerState.STOPPED

    async def _live(self) -> int:
        """One process from its start to its end; returns how it ended."""
        ours, theirs = socket.socketpair()
        self._passing, receiving = pair()
        files = (theirs.fileno(), receiving.fileno())
        try:
            process = await asyncio.create_subprocess_exec(
                *self._command,
                *map(str, files),
                stdin=DEVNULL,
                env=_environment(),
                pass_fds=files,
                # A Ctrl-C of the terminal is for the supervisor, which passes on what is meant for workers.
                start_new_session=True,
            )
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
            receiving.close()
        self._process = process
        self._channel = channel = await Channel.over(ours)
        if self._ending.is_set():  # `stop` came while there was no process yet
            self.signal(signal.SIGTERM)
        self.trouble = ""
        self._heard = asyncio.get_running_loop().time()
        channel.send(self._begin())
        hearing = asyncio.create_task(self._hear(channel))
        exiting = asyncio.create_task(process.wait())
        await asyncio.wait([hearing, exiting], return_when=asyncio.FIRST_COMPLETED)
        if not exiting.done() and not self._ending.is_set():
            # It has closed its end: it is about to go, or can be told nothing any more.
            await asyncio.wait([exiting], timeout=_GRACE)
            self.signal(signal.SIGKILL)
        code = await exiting
        hearing.cancel()  # a process of its own may still hold the other end
        await channel.close()
        return code

    async def _hear(self, channel: Channel) -> None:
        while (message := await channel.receive()) is not None:
            self._on_message(message)

    def _on_message(self, message: Message) -> None:
        self._heard = asyncio.get_running_loop().time()
        match message:
            case WorkerReady(shut):
                self.shut = shut
                self.state = WorkerState.RUNNING
                self.begun.set()
                log.info("worker ready number=%d pid=%d", self.number, self.pid)
            case WorkerFailed():
                self.trouble = message.reason
            case Followed() if self._answers:
                _answer(self._answers.pop(0), message.refusal)
            case Alive(reading, doors, shut):
                self.shut = shut
                self.doors.told(doors)
                if reading is not None:
                    self._readings.append(reading)
            case _:
                pass

    def _forget(self) -> None:
        self._process = self._channel = None
        if self._passing is not None:
            self._passing.close()
            self._passing = None
        self._readings.clear()
        self._is_watched = False
        self.doors = Doors()
        for each in self._answers:
            # It begins anew with the configuration as it is by then.
            _answer(each, "")
        self._answers.clear()

    # --- what it is told and asked

    async def follow(self, settings: WorkerSettings, *, is_read: bool = False) -> str:
        """Has it take over a configuration, `is_read`: with the files that it names; returns why it did not, if so.

        Who starts later, starts with it. One that hangs holds nobody up for long.
        """
        if self._channel is None:
            return ""
        answer: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._answers.append(answer)
        self._channel.send(Follow(settings, is_read))
        try:
            async with asyncio.timeout(PATIENCE):
                return await answer
        except TimeoutError:  # it keeps its place among the answers
            return f"worker {self.number} has not answered for {PATIENCE:g} s"

    def watch(self, *, is_watched: bool) -> None:
        """Tells it whether anybody looks at its figures."""
        if self.is_running and self._channel is not None and is_watched != self._is_watched:
            self._is_watched = is_watched
            self._channel.send(Watch(is_watched))

    def rotate(self) -> None:
        """Has it open its log file anew, once it serves. Who starts later, does so by itself."""
        if self._channel is not None:
            self._channel.send(Rotate())

    def take_readings(self) -> list[Reading]:
        """What it told of its figures since they were taken before."""
        found = list(self._readings)
        self._readings.clear()
        return found

    def hand_over(self, handed: Handed, file: int) -> bool:
        """Gives it a connection; False: it takes none now."""
        if self._passing is None or not hand_over(self._passing, handed, file):
            return False
        self.doors.given(handed.listener)
        return True

    def look(self, now: float) -> None:
        """Ends a process that has given no sign of life for too long."""
        if self._silence is not None and self.is_running:
            self._end_silent(now, self._silence)

    def _end_silent(self, now: float, silence: float) -> None:
        if now - self._heard > silence:
            self.trouble = f"no sign of life for {silence:g} s"
            log.error('worker hangs number=%d reason="%s"', self.number, self.trouble)
            self.signal(signal.SIGKILL)

    def problem(self) -> str | None:
        """Why it does not serve now; None if it does."""
        if self.is_running:
            return None
        trouble = f": {self.trouble}" if self.trouble else ""
        return f"worker {self.number} is {self.state}{trouble}"


def _answer(awaited: "asyncio.Future[str]", refusal: str) -> None:
    if not awaited.done():  # who waited may be gone: a stop does not wait for a reload
        awaited.set_result(refusal)


def _ending_of(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"killed by signal {-code}"


def _environment() -> dict[str, str]:
    """The supervisor's, with its own paths of modules: a worker is to find the very same code."""
    environment = {
        name: value for name, value in os.environ.items() if name not in _NOT_FOR_WORKERS
    }
    environment["PYTHONPATH"] = os.pathsep.join(each for each in sys.path if each)
    return environment


#: A worker; -P: the folder that it is started in holds no modules of ours.
COMMAND: Final = (sys.executable, "-P", "-m", "vmq.cli.start.worker")
