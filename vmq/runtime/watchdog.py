"""A thread that sees the event loop stand still, and says in the log whose code holds it up, and where.

The loop beats ten times a second (`vmq.runtime.monitor`). The thread counts its own steps since a beat, not
seconds: a machine that was stopped, or a process that gets no processor, holds up both alike, and nobody is blamed for
that.

Code in C that keeps the interpreter to itself (a regular expression that explodes, a sum over 10^9 numbers) stops this
thread too. Against it each step arms a timer of the kernel, which counts the time that the process has a processor;
it has `faulthandler` write down where every thread is, by a signal, for which no interpreter is needed. This
thread reads that once it runs again.

faulthandler follows the frames of all threads without stopping them: where Python runs meanwhile, it ends the process
by SIGSEGV sooner or later. So the timer may only expire while C holds the interpreter and all frames stand still.
That is why this thread arms it, which gets the interpreter soon wherever Python runs, and why no time counts in which
the process was stopped or waited for a processor, as `faulthandler.dump_traceback_later` would count it.
"""

import asyncio.base_events
import faulthandler
import logging
import re
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable
from types import FrameType
from typing import IO, Final, NamedTuple

from vmq_hooks.specs import CHAINS

log = logging.getLogger("vmq.watchdog")

#: Seconds between two beats of the loop; and between two steps of the thread, each of which costs more than a beat.
BEAT: Final = 0.1
STEP: Final = 2 * BEAT
#: Steps without a beat after which the loop is held up: the log says so within 0.6 seconds.
LATE: Final = 2
#: Seconds of processors without a step after which faulthandler writes down where the threads are.
HELD: Final = 1.0
#: Frames of a stack that the log shows.
SHOWN: Final = 8

#: Held by who has the signal and the timer, of which a process has one each. Two watchdogs would take them from each
#: other, and a timer whose signal nobody handles ends the process.
_dumping: Final = threading.Lock()

_THREAD: Final = re.compile(r"^(?:Current thread|Thread) 0x([0-9a-f]+)")
_FRAME: Final = re.compile(r'^  File "(.*)", line (\d+) in (.*)$')


class CodePlace(NamedTuple):
    """A line of code that is being executed."""

    file: str
    line: int
    function: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line} in {self.function}"


class Blame(NamedTuple):
    """Whose code it is: the plugin ("" = nobody's), the hook that it serves, if that is known, and where it stands."""

    plugin: str
    hook: str
    place: CodePlace


class Watchdog:
    """Watches one event loop.

    Args:
        owner: the plugin whose code a file is; None = none's.
        blocked: told of each plugin that holds the loop up; called in the watchdog's thread.
        dumps: whether faulthandler may be used, of which a process has but one: it is the first watchdog's that asks.
    """

    def __init__(
        self,
        owner: Callable[[str], str | None],
        blocked: Callable[[str], None],
        *,
        dumps: bool = False,
    ) -> None:
        self._owner = owner
        self._blocked = blocked
        #: Not buffered, for faulthandler moves the place in the file, too.
        self._dump: IO[bytes] | None = None
        if dumps:
            self._dump = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115 - closed by `stop`
        self._loop_thread = 0
        #: The frame that runs the loop: where it waits for events.
        self._base: FrameType | None = None
        self._beats = 0
        self._seen = 0
        self._steps = 0
        #: How bad it was that the loop was told to stand still; 0 = it was not.
        self._told = 0
        self._last = (time.monotonic(), time.process_time())
        #: What SIGPROF did before; None = it is not ours.
        self._former: signal._HANDLER = None
        #: Held until the end. A lock is waited for with a tenth of the code of an event.
        self._running = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="vmq-watchdog", daemon=True)

    # In the loop's thread

    def start(self) -> None:
        """Begins to watch the thread that calls it, which beats from now on."""
        self._loop_thread = threading.get_ident()
        is_main = threading.current_thread() is threading.main_thread()
        if self._dump is not None and is_main and _dumping.acquire(blocking=False):
            # What faulthandler leaves in its place, should a signal be under way when all ends.
            self._former = signal.signal(signal.SIGPROF, signal.SIG_IGN)
            faulthandler.register(signal.SIGPROF, file=self._dump, all_threads=True)
            # Before the thread does, which may be held at once.
            signal.setitimer(signal.ITIMER_PROF, HELD)
        self._running.acquire()
        self._thread.start()

    def beat(self) -> None:
        """The loop runs. To be called by a task of it, every `BEAT` seconds."""
        if self._base is None:
            self._base = base_of(sys._getframe(1))
        self._beats += 1

    def stop(self) -> None:
        """Ends the thread."""
        if self._running.locked():
            self._running.release()
            self._thread.join()
            self._running.release()  # the thread has it last
        if self._former is not None:
            signal.setitimer(signal.ITIMER_PROF, 0.0)
            faulthandler.unregister(signal.SIGPROF)
            signal.signal(signal.SIGPROF, self._former)
            self._former = None
            _dumping.release()
        if self._dump is not None:
            self._dump.close()
            self._dump = None

    # In the watchdog's thread

    def _run(self) -> None:
        while not self._running.acquire(timeout=STEP):
            if self._former is not None:
                signal.setitimer(signal.ITIMER_PROF, HELD)
            self.step(time.monotonic(), time.process_time())

    def step(self, now: float, cpu: float) -> None:
        """Looks at the loop, at monotonic second `now`, when the process has used `cpu` seconds of processors."""
        (before, used), self._last = self._last, (now, cpu)
        if now - before > HELD + STEP:
            self._was_held(now - before, cpu - used)
            self._steps = 0  # the loop could not run either
        if self._beats != self._seen:
            self._seen = self._beats
            if self._told:
                level = min(self._told, logging.WARNING)
                log.log(level, "event loop goes on after=%.1fs", self._steps * STEP)
            self._steps = self._told = 0
            return
        self._steps += 1
        if self._steps >= LATE and not self._told:
            self._tell()

    def _tell(self) -> None:
        """Says where the loop stands, if that can be seen; if not, the next step may see it."""
        frame = sys._current_frames().get(self._loop_thread)
        if frame is None or frame is self._base:
            # It waits for events, or for the processor; or compiled code runs, which has no frames: of that nothing is
            # told but how late the loop was.
            return
        self._told = self._say(places_of(frame, self._base), "blocked", self._steps * STEP)

    def _was_held(self, seconds: float, used: float) -> None:
        """This thread itself could not run for a while."""
        if used < seconds / 10:
            log.warning(
                "process was stopped for=%.1fs: by a signal, a suspended machine or other processes",
                seconds,
            )
            places: list[CodePlace] = []
        else:
            places = self._dumped()
        if places:
            how = "blocked by code that keeps the interpreter to itself"
            self._told = self._say(places, how, seconds)

    def _dumped(self) -> list[CodePlace]:
        """What faulthandler wrote of the loop's thread last, the innermost first; and forgets it."""
        if self._dump is None:
            return []
        self._dump.seek(0)
        text = self._dump.read().decode(errors="replace")
        self._dump.seek(0)
        self._dump.truncate()
        return places_in(text, self._loop_thread)

    def _say(self, places: list[CodePlace], how: str, seconds: float) -> int:
        """Tells who holds the loop up, and for how long so far; at which level of the log."""
        blame = blame_of(places, self._owner)
        if blame.plugin:
            self._blocked(blame.plugin)
        # What the broker itself takes time for, as when it starts, is no alarm.
        level = logging.ERROR if blame.plugin else logging.INFO
        text = f"event loop {how} for=%.1fs plugin=%s hook=%s at=%s stack=%s"
        log.log(
            level,
            text,
            seconds,
            blame.plugin or "none",
            blame.hook or "unknown",
            blame.place,
            " < ".join(map(str, places[:SHOWN])),
        )
        return level


def blame_of(places: Iterable[CodePlace], owner: Callable[[str], str | None]) -> Blame:
    """Whose code it is that runs, given the places of a stack, the innermost first.

    The plugin that was called last, and the innermost line of its own: what it calls is its affair.
    """
    first: CodePlace | None = None
    found: Blame | None = None
    for place in places:
        first = first or place
        plugin = owner(place.file)
        if found is None:
            if plugin is not None:
                found = Blame(plugin, "", place)
        elif plugin != found.plugin:
            continue
        if found is not None and place.function in CHAINS:
            return found._replace(hook=place.function)
    assert first is not None, "a stack has a place"
    return found or Blame("", "", first)


def base_of(callback: FrameType) -> FrameType | None:
    """The frame that runs the loop, given that of one of its callbacks.

    asyncio's own loop has several: some are made for each turn, and the outermost stays.
    """
    base = callback.f_back
    while (
        base is not None
        and base.f_back is not None
        and base.f_back.f_code.co_filename == asyncio.base_events.__file__
    ):
        base = base.f_back
    return base


def places_of(frame: FrameType | None, base: FrameType | None) -> list[CodePlace]:
    """The places of a stack above the frame that runs the loop, the innermost first."""
    places = []
    while frame is not None and frame is not base:
        places.append(CodePlace(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name))
        frame = frame.f_back
    return places


def places_in(text: str, thread: int) -> list[CodePlace]:
    """The places of one thread in what faulthandler wrote, of the last time that it is in there."""
    places: list[CodePlace] = []
    is_there = False
    for line in text.splitlines():
        head = _THREAD.match(line)
        if head is not None:
            is_there = int(head[1], 16) == thread
            places = [] if is_there else places
        found = _FRAME.match(line)
        if is_there and found is not None:
            places.append(CodePlace(found[1], int(found[2]), found[3]))
    return places
