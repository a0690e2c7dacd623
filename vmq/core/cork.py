"""Holds back small writes to one peer within a turn of the event loop, so that they leave as one.

Where a turn finds hundreds of connections readable that all publish to one subscriber, each is a pass of its own, and
would be a system call of its own for the subscriber. So the first write of a turn goes at once. One that follows it
closely is corked, with all that come behind, until the turn is over, for `LONGEST` seconds at most, or until they are
`LARGEST` bytes. A peer that is written to now and then is never corked, and the event loop then makes no extra turn.
Where a cork held back a single write, it was for nothing: the next `SPARED` close ones go at once.

It is like the algorithm of RFC 896, without its wait for the peer; TCP_NODELAY stays set.
"""

import logging
from collections.abc import Callable
from typing import Final

from vmq.core.output import Outbox, Output
from vmq.core.states import FAILED

log = logging.getLogger("vmq.output")

#: Seconds between two passes that write to a peer, from which on the later write is not held back.
CLOSE: Final = 50e-6
#: Seconds that anything is held back, and then until the pass that is at work is over.
LONGEST: Final = 200e-6
#: Bytes that are not held back any longer.
LARGEST: Final = 65_536
#: Writes that are not held back after one that was for nothing.
SPARED: Final = 8

#: Later than any clock shows.
NEVER: Final = float("inf")


class Cork:
    """The outputs of a broker that hold writes back.

    Args:
        clock: monotonic seconds.
        call_soon: has something done when the present turn of the event loop is over.
    """

    def __init__(
        self, clock: Callable[[], float], call_soon: Callable[[Callable[[], None]], None]
    ) -> None:
        self.clock = clock
        self.call_soon = call_soon
        #: Writes of passes that are so many seconds apart are close; 0: nothing is held back.
        self.close: float = CLOSE
        self.outputs: list[CorkedOutput] = []
        #: When the present pass began, 0.0 outside of one.
        self.now: float = 0.0
        #: When what was held back first has been for `LONGEST`.
        self.until: float = NEVER
        #: The end of this turn is asked for.
        self.is_due = False

    def hold(self, output: "CorkedOutput", now: float) -> None:
        """One output more holds back."""
        if not self.outputs:
            self.until = now + LONGEST
        self.outputs.append(output)
        if not self.is_due:
            self.is_due = True
            self.call_soon(self.end_turn)

    def end_turn(self) -> None:
        self.is_due = False
        self.pull()

    def pull(self) -> None:
        """Writes all that is held back."""
        outputs = self.outputs
        self.outputs = []
        self.until = NEVER
        for output in outputs:
            try:
                output.uncork()
            except Exception:
                log.exception("cannot write to %s", output.describe())
                output.finish("internal error", FAILED)
                output.outbox.flush()


class CorkedOutput(Output):
    """An output whose writes may be held back. Subclasses bring `send`."""

    def __init__(self, outbox: Outbox, cork: Cork) -> None:
        super().__init__(outbox)
        self.cork = cork
        #: What is held back, in order; None unless the output is among the cork's.
        self.corked: list[bytes] | None = None
        self.corked_bytes: int = 0
        #: The writes of how many passes that are.
        self.corked_passes: int = 0
        #: So many close writes more go at once.
        self.spared: int = 0
        #: When the pass began that wrote last.
        self.written_at: float = 0.0

    def send(self, pieces: list[bytes]) -> None:
        """Hands pieces to the transport."""

    def put(self, pieces: list[bytes]) -> None:
        """Writes the pieces of a pass, now or within the cork's bounds."""
        cork = self.cork
        now = cork.now
        if now == 0.0:
            now = cork.clock()
        corked = self.corked
        if corked is None:
            is_close = now - self.written_at < cork.close and not self.closing
            if not is_close or self.spared > 0:
                if is_close:
                    self.spared -= 1
                self.written_at = now
                self.send(pieces)
                return
            self.written_at = now
            self.corked = pieces
            self.count(pieces)
            cork.hold(self, now)
        else:
            self.written_at = now
            corked.extend(pieces)
            self.count(pieces)
        if self.closing or self.corked_bytes >= LARGEST:
            self.send_corked()
        if now >= cork.until:
            cork.pull()

    def count(self, pieces: list[bytes]) -> None:
        self.corked_passes += 1
        size = 0
        for piece in pieces:
            size += len(piece)
        self.corked_bytes += size

    def send_corked(self) -> None:
        """Writes what is held back, before anything else may be done with the transport; more may follow."""
        corked = self.corked
        if corked:
            self.corked = []
            self.corked_bytes = 0
            self.send(corked)

    def uncork(self) -> None:
        """Writes what is held back; what comes next is judged anew."""
        self.spared = SPARED if self.corked_passes == 1 else 0
        self.corked_passes = 0
        corked = self.corked
        self.corked = None
        self.corked_bytes = 0
        if corked:
            self.send(corked)
