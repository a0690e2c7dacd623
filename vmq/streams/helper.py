"""A process beside the broker that is asked by its pipes, with a deadline: one that is late is killed."""

import os
import select
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Final

#: Bytes that are read at once.
_PIECE: Final = 1 << 16


@contextmanager
def until_nobody_asks() -> Iterator[None]:
    """What such a process does until its end: it ends without a word once whoever asks has gone.

    Nor does it wait for threads of libraries, which need not end one by one.
    """
    with suppress(BrokenPipeError):
        yield
    os._exit(0)


class SpareProcess:
    """A process that has started before it is asked for: loading libraries takes longer than most questions.

    The first one is not; there is another after each `refill`, until nobody has taken it for `idle` seconds.

    Args:
        command: what is run.
        idle: seconds.
    """

    def __init__(self, command: Sequence[str], idle: float) -> None:
        self.command = command
        self.idle = idle
        self.waiting: HelperProcess | None = None
        self._lock = threading.Lock()
        self._timer: threading.Timer | None = None

    def take(self) -> "HelperProcess":
        """The one that waits, or one that starts now.

        Raises:
            OSError: it cannot be started.
        """
        found = self._swap(None)
        if found is not None and found.is_alive:
            return found
        if found is not None:
            found.end()
        return HelperProcess(self.command)

    def refill(self) -> None:
        """Has one wait from now on, if it can be started."""
        with suppress(OSError):  # whoever asks next is told
            self._end(self._swap(self.take()))

    def close(self) -> None:
        """Ends it."""
        self._end(self._swap(None))

    def _swap(self, process: "HelperProcess | None") -> "HelperProcess | None":
        """Puts one in the place of the one that waits."""
        with self._lock:
            before, self.waiting = self.waiting, process
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            if process is not None:
                self._timer = threading.Timer(self.idle, self.close)
                self._timer.daemon = True
                self._timer.start()
        return before

    def _end(self, process: "HelperProcess | None") -> None:
        if process is not None:
            process.end()


class HelperProcess:
    """A process that runs, until `end`. One thread at a time talks to it.

    Args:
        command: what is run; it finds the modules that this process finds.
        descriptors: those of this process that it has, too.

    Raises:
        OSError: it cannot be started.
    """

    def __init__(self, command: Sequence[str], descriptors: Sequence[int] = ()) -> None:
        found = os.pathsep.join(each for each in sys.path if each)
        self._process = subprocess.Popen(  # noqa: S603  # this very program
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": found},
            bufsize=0,
            pass_fds=descriptors,
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._sink = self._process.stdin.fileno()
        self._source = self._process.stdout.fileno()
        os.set_blocking(self._sink, False)

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        """Whether it runs."""
        return self._process.poll() is None

    def has_said(self) -> bool:
        """Whether something can be read of it at once, or its end is known."""
        poll = select.poll()
        poll.register(self._source, select.POLLIN)
        return bool(poll.poll(0))

    def write(self, data: bytes, until: float) -> None:
        """Tells it something.

        Raises:
            TimeoutError: it has not taken it until then (monotonic).
            OSError: it is gone.
        """
        left = memoryview(data)
        while left:
            self._wait(until, writing=True)
            left = left[os.write(self._sink, left[:_PIECE]) :]

    def read(self, count: int, until: float) -> bytes:
        """The next bytes that it says.

        Raises:
            TimeoutError: they have not come until then (monotonic).
            EOFError: it has ended.
            OSError: it is gone.
        """
        found = bytearray()
        while len(found) < count:
            self._wait(until, writing=False)
            piece = os.read(self._source, min(_PIECE, count - len(found)))
            if not piece:
                raise EOFError("its process has ended")
            found += piece
        return bytes(found)

    def _wait(self, until: float, *, writing: bool) -> None:
        left = until - time.monotonic()
        if left > 0:
            poll = select.poll()
            if writing:
                poll.register(self._sink, select.POLLOUT)
            else:
                poll.register(self._source, select.POLLIN)
            if poll.poll(left * 1000):
                return
        raise TimeoutError

    def kill(self) -> None:
        """It computes nothing more; `end` is due."""
        self._process.kill()

    def end(self) -> int:
        """Ends it; its exit code, below 0 the signal that ended it."""
        self._process.kill()
        code = self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        return code
