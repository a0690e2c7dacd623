"""Takes connections off a listening socket, no faster than the event loop can follow.

An event loop's own server empties the whole backlog in one pass, or takes one client a pass however many there are:
thousands of handshakes stand before the next message of a client that is long in, or a fleet that comes back waits for
minutes. This one takes a batch a pass. A pass that lasts too long halves the batch and has the rest wait, in the
kernel's backlog, for as long as the pass lasted: accepting never gets more than about half of a busy loop, and never
nothing.

To look for one more than there is costs a system call. A pass looks for one alone while clients
come one by one, and for twice as many as the last where that found all that it looked for.

While they come one by one, uvloop's own server can take them, which costs less (`SingleServer`). It knows no
pause and no want of files: at the first sign of either, or of a crowd, it gives the socket back.
"""

import asyncio
import errno
import logging
import os
from collections.abc import Callable
from socket import SOCK_STREAM, socket
from typing import Any, Final

from mypy_extensions import mypyc_attr

from vmq.core.context import Core
from vmq.listeners.single_server import SingleServer, end_of_files, has_file
from vmq.listeners.sockets import AcceptedSocket

log = logging.getLogger("vmq.listeners")

#: The most connections that one pass of the loop takes.
LARGEST_BATCH: Final = 64
#: So many passes in a row that found the one that they looked for: more may be waiting.
ONE_BY_ONE: Final = 4
#: After so many looks in a row that found one client, and nobody behind, uvloop's server takes them.
ALONE: Final = 8
#: Seconds: nobody waits longer for the next batch.
LONGEST_PAUSE: Final = 1.0
#: Seconds to wait for file descriptors or memory.
WANT_PAUSE: Final = 0.5
#: Seconds between the first two lines of the log about the same, and at most.
SILENCE: Final = 10.0
LONGEST_SILENCE: Final = 600.0


# It holds numbers only.
@mypyc_attr(acyclic=True)
class Accepted:
    """An accepted connection's descriptor, with what uvloop wants to know of a socket that it takes.

    A socket of Python would cost two system calls more: it looks at the descriptor, and has to be told not to block.
    """

    def __init__(self, family: int, file: int) -> None:
        self.family = family
        self.type = int(SOCK_STREAM)
        self.file = file

    def fileno(self) -> int:
        return self.file

    def begin(self) -> None:
        """An event loop is about to take it; uvloop sees itself to it that it does not block."""

    def hand_over(self) -> None:
        """The transport closes it from now on. When it did, uvloop calls `close` here: that number may be another's."""
        self.file = -1

    def close(self) -> None:
        file = self.file
        self.file = -1
        if file >= 0:
            os.close(file)


# It holds numbers only.
@mypyc_attr(acyclic=True)
class Told:
    """What the log has heard of something: of what goes on it hears more and more rarely."""

    def __init__(self) -> None:
        self.until: float = 0.0
        self.silence: float = 0.0

    def is_due(self, now: float) -> bool:
        """Whether it hears of it now, in seconds of the core's clock."""
        if now < self.until:
            return False
        goes_on = now < self.until + self.silence
        self.silence = min(2 * self.silence, LONGEST_SILENCE) if goes_on else SILENCE
        self.until = now + self.silence
        return True


class Acceptor:
    """Accepts on one socket from its making until `close`.

    Args:
        name: the listener's, for the log.
        sock: a listening socket that does not block; closed by `close`.
        arrive: takes each connected socket (`Accepted`, `AcceptedSocket`) and its peer's address; owns the socket from
            then on.
        core: clock, counters, and how late the loop was lately.
        max_drift: seconds that the loop may be late before accepting pauses.
    """

    def __init__(
        self,
        name: str,
        sock: socket,
        arrive: Callable[[Any, Any], None],
        core: Core,
        max_drift: float,
    ) -> None:
        self.name = name
        self.sock = sock
        self.arrive = arrive
        self.core = core
        self.max_drift = max_drift
        #: The most that a pass takes, for the time that it may last.
        self.batch: int = LARGEST_BATCH
        #: How many a pass looks for, if the batch allows it.
        self.expected: int = 1
        #: Passes in a row that found as many.
        self.found: int = 0
        self.is_closed = False
        #: A batch was full, and it is not known yet how long the pass lasted that it is part of.
        self.measuring = False
        #: A pause is over: one batch is taken, however late the loop is.
        self.is_due = False
        self.resuming: asyncio.TimerHandle | None = None
        self.told_late = Told()
        self.told_want = Told()
        #: The log has heard that nobody could be let in, and not yet that somebody was.
        self.is_wanting = False
        #: From this number on files are the broker's own; the last client's was the last below it.
        self.end: int = end_of_files()
        self.is_short = False
        #: When somebody was kept out last.
        self.wanted_at: float = 0.0
        # `socket.accept` would make enums of family and type for each connection.
        self.accept: Callable[[], tuple[int, Any]] = sock._accept  # type: ignore[attr-defined]
        self.family = int(sock.family)
        self.proto = sock.proto
        self.loop = asyncio.get_running_loop()
        self.is_uvloop = type(self.loop).__module__.partition(".")[0] == "uvloop"
        #: Takes clients that come one by one, instead of `on_ready`.
        self.server: SingleServer | None = None
        #: Looks in a row that found one client, and nobody behind.
        self.alone: int = 0
        self.loop.add_reader(sock.fileno(), self.on_ready)

    def close(self) -> None:
        """Accepts nobody any more; who still waits to be accepted is refused."""
        if self.is_closed:
            return
        self.is_closed = True
        self.loop.remove_reader(self.sock.fileno())
        if self.server is not None:
            self.server.stop()
        if self.resuming is not None:
            self.resuming.cancel()
        self.sock.close()

    def use_server(
        self, backlog: int, offer: Callable[[], Any], may_offer: Callable[[], bool]
    ) -> None:
        """Has uvloop's server, if that is the event loop, take clients that come one by one.

        Args:
            backlog: how many may wait.
            offer: makes what takes the bytes of a client that is in already.
            may_offer: whether the next client may come in without having been looked at.
        """
        if self.is_uvloop:
            core, drift = self.core, self.max_drift
            self.server = SingleServer(
                self.sock, backlog, core, drift, offer, may_offer, self.take_back
            )
            self.let_server()

    def let_server(self) -> None:
        if self.server is not None and self.server.start():
            self.loop.remove_reader(self.sock.fileno())

    def take_back(self) -> None:
        """The server takes nobody any more: clients come through `on_ready` again."""
        self.alone = 0
        self.loop.add_reader(self.sock.fileno(), self.on_ready)

    def look_at_all(self) -> None:
        """There are other limits: whoever comes next is looked at first."""
        if self.server is not None:
            self.server.give_back()

    def on_ready(self) -> None:
        """Somebody waits to be let in."""
        # libuv may look at the sockets several times in one pass.
        if self.measuring or self.is_closed:
            return
        late = self.core.loop_lag
        if late > self.max_drift and not self.is_due:
            self.pause_for_drift(late)
            return
        self.is_due = False
        began = self.core.clock()
        most = min(self.expected, self.batch)
        taken = 0
        try:
            while taken < most:
                if self.is_short and not has_file(self.sock.fileno(), self.end):
                    self.pause_for_want(OSError(errno.EMFILE, os.strerror(errno.EMFILE)))
                    return
                file, address = self.accept()
                taken += 1
                self.is_short = file >= self.end - 1
                if self.is_uvloop:
                    self.arrive(Accepted(self.family, file), address)
                else:
                    self.arrive(AcceptedSocket(self.family, self.proto, file), address)
        except (BlockingIOError, ConnectionAbortedError, InterruptedError):
            self.expected = max(1, taken)
            self.found = 0
            self.alone = self.alone + 1 if taken == 1 else 0
            if self.is_wanting and taken:
                self.tell_over(began)
            if self.alone >= ALONE:
                self.let_server()
            return
        except OSError as error:
            # No files or no memory left; or a fault that trying again at once would not mend.
            self.pause_for_want(error)
            return
        self.found += 1
        if self.is_wanting:
            self.tell_over(began)
        if most == self.expected and (most > 1 or self.found >= ONE_BY_ONE):
            self.expected = min(2 * most, LARGEST_BATCH)
        if most > 1:
            # Runs when all else that is to be done in this pass is done.
            self.measuring = True
            self.loop.call_soon(self.measure, began, most)

    def measure(self, began: float, taken: int) -> None:
        """So many were taken, and the pass around it is done: was it quick enough for more?"""
        self.measuring = False
        if self.is_closed:
            return
        late = self.core.clock() - began
        if late > self.max_drift:
            self.batch = max(1, taken // 2)
            self.pause_for_drift(late)
        elif self.batch < LARGEST_BATCH:
            self.batch += 1

    def pause_for_drift(self, late: float) -> None:
        self.core.counters.accept_paced += 1
        if self.told_late.is_due(self.core.clock()):
            text = "accepting slower listener=%s: the event loop is %d ms late"
            log.warning(text, self.name, late * 1000)
        self.pause(min(late, LONGEST_PAUSE))

    def pause_for_want(self, error: OSError) -> None:
        """Whoever waits stays in the backlog: others may go, and free what is missing."""
        self.core.counters.accept_failed += 1
        self.wanted_at = self.core.clock()
        if self.told_want.is_due(self.wanted_at):
            self.is_wanting = True
            log.error("cannot accept listener=%s: %s", self.name, error.strerror)
        self.pause(WANT_PAUSE)

    def has_wanted(self) -> bool:
        """Whether somebody was kept out lately."""
        return self.wanted_at > 0.0 and self.core.clock() < self.wanted_at + SILENCE

    def tell_over(self, now: float) -> None:
        """Somebody was let in: the log hears of it once nobody has been kept out for a while."""
        if now > self.wanted_at + SILENCE:
            self.is_wanting = False
            log.warning("accepting again listener=%s", self.name)

    def pause(self, seconds: float) -> None:
        self.loop.remove_reader(self.sock.fileno())
        self.resuming = self.loop.call_later(seconds, self.resume)

    def resume(self) -> None:
        self.resuming = None
        self.is_due = True
        self.loop.add_reader(self.sock.fileno(), self.on_ready)
