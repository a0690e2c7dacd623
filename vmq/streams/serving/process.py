"""The process behind a Flight listener (`vmq.streams.flight.front`): starts it, and replaces it when it dies.

A thread sees to that: starting a process takes a while, and none of it is the event loop's business. The process
ends with this one, however that ends: it sees the end of its input.
"""

import logging
import os
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Final

import msgspec

from vmq.runtime.backoff import Backoff
from vmq.streams.flight.front import News, Orders

log = logging.getLogger("vmq.streams")

#: Seconds that a process has to end when it is told to.
GRACE: Final = 5.0
#: -P: the folder that the broker is started in holds no modules of ours.
COMMAND: Final = (sys.executable, "-P", "-m", "vmq.streams.flight.front")


class FlightProcess:
    """The process of one listener, from `start` to `stop`.

    Args:
        name: of the listener, for the log.
        orders: what the process is told; once it has found a port, it keeps it.
        folder: the descriptor by which `orders.inner` is reached.
        command: what is run.
    """

    def __init__(
        self, name: str, orders: Orders, folder: int, command: Sequence[str] = COMMAND
    ) -> None:
        self.name = name
        self.orders = orders
        self.folder = folder
        self.command = command
        #: How often it was started again.
        self.restarts = 0
        #: It serves.
        self.is_serving = False
        #: Its port; an OSError if it could not serve the first time.
        self.began: Future[int] = Future()
        self.process: subprocess.Popen[bytes] | None = None
        self.stopping = threading.Event()
        self.lock = threading.Lock()
        self.backoff = Backoff()
        self.thread = threading.Thread(target=self._run, name="vmq-flight", daemon=True)

    def start(self) -> "Future[int]":
        """Has it run from now on."""
        self.thread.start()
        return self.began

    def stop(self) -> None:
        """Ends it; blocks until it is gone."""
        with self.lock:
            self.stopping.set()
            process = self.process
        if process is not None:
            end(process)
        self.thread.join()

    def _run(self) -> None:
        while not self.stopping.is_set():
            since = time.monotonic()
            try:
                failure = self._live()
            except OSError as error:
                failure = f"it cannot be started: {error.strerror}"
            except Exception as error:
                log.exception("the Flight process cannot be looked after listener=%s", self.name)
                failure = str(error) or type(error).__name__
            self.is_serving = False
            if self.stopping.is_set():
                return
            if not self.began.done():
                self.began.set_exception(OSError(failure))
                return
            wait = self.backoff.after(time.monotonic() - since)
            text = 'the Flight process ended listener=%s reason="%s" again_in=%.1f'
            log.error(text, self.name, failure, wait)
            if not self.stopping.wait(wait):
                self.restarts += 1

    def _live(self) -> str:
        """One process from its start to its end; why it ended."""
        with self.lock:
            if self.stopping.is_set():
                return ""
            process = self.process = subprocess.Popen(  # noqa: S603  # this very program
                self.command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env=environment(),
                pass_fds=(self.folder,),
            )
        failure = ""
        try:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(msgspec.json.encode(self.orders) + b"\n")
            process.stdin.flush()
            for line in process.stdout:
                failure = self._hear(line) or failure
        except (OSError, msgspec.DecodeError) as error:
            failure = str(error)
        finally:
            code = end(process)
            if process.stdout is not None:
                process.stdout.close()
        return failure or f"exit code {code}"

    def _hear(self, line: bytes) -> str:
        """What it says; why it cannot serve, if it is that."""
        news = msgspec.json.decode(line, type=News)
        if news.port:
            self.orders = msgspec.structs.replace(self.orders, port=news.port)
            self.is_serving = True
            if not self.began.done():
                self.began.set_result(news.port)
            else:
                assert self.process is not None
                text = "the Flight process is ready listener=%s pid=%d"
                log.warning(text, self.name, self.process.pid)
        elif news.text:
            log.log(news.level, "the Flight process: %s", news.text)
        return news.failure


def end(process: "subprocess.Popen[bytes]") -> int:
    """Has a process end, if it has not yet; how it did."""
    assert process.stdin is not None
    try:
        process.stdin.close()
    except OSError:
        pass  # it did not take all that it was told
    try:
        return process.wait(GRACE)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait()


def environment() -> dict[str, str]:
    """This process', with its own paths of modules: the other one is to find the very same code."""
    found = os.pathsep.join(each for each in sys.path if each)
    return {**os.environ, "PYTHONPATH": found}
