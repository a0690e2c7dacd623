"""For how long publishers of a node wait for clients there to have what flows to them: then it is written nowhere.

See `vmq.clustering.slots.owned.OwnedSlot.when_had`, and `vmq.persistence.patience` for what they wait for. And for how
long owners elsewhere wait for what clients here have acknowledged, so that it goes with something else.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from vmq.clustering.front.sessions import SessionNode
from vmq.persistence.patience import SPAN, Patience

#: Seconds that an origin which knows already waits to be told what its client has.
LATER: Final = 0.01


class SlotPatience:
    """That of one node.

    Args:
        machines: whose publishers they are.
        soon: has effects carried out.
    """

    def __init__(self, machines: SessionNode, soon: Callable[[], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._machines: Final = machines
        self._soon: Final = soon
        self._patience: Final = Patience()
        self._timer: asyncio.TimerHandle | None = None
        self._late: asyncio.TimerHandle | None = None
        self._later: asyncio.TimerHandle | None = None

    def begin(self) -> None:
        """Publishers wait, if they did not already."""
        if self._timer is None:
            self._machines.here.answered = 0
            self._patience.begin(self._machines.awaited(), 0, self._loop.time())
            # Acknowledgements of clients elsewhere may be late by a span.
            span = 2 * SPAN if self._machines.are_far() else SPAN
            self._timer = self._loop.call_later(span, self._look)

    def begin_late(self) -> None:
        """What may be late goes to owners elsewhere after a span, if nothing else does before."""
        if self._late is None:
            self._late = self._loop.call_later(SPAN, self._send_late)

    def begin_later(self) -> None:
        """What nearly always nobody waits for goes to other nodes at last."""
        if self._later is None:
            self._later = self._loop.call_later(LATER, self._send_later)

    def _send_later(self) -> None:
        self._later = None
        if self._machines.effects.later:
            self._machines.effects.send_later(True)
            self._soon()

    def _send_late(self) -> None:
        self._late = None
        if self._machines.front.late:
            self._machines.front.flush_late(True)
            self._soon()

    def end(self) -> None:
        """Nobody waits any more."""
        for timer in (self._timer, self._late, self._later):
            if timer is not None:
                timer.cancel()
        self._timer = self._late = self._later = None

    def _look(self) -> None:
        """A span is over."""
        patience, machines = self._patience, self._machines
        lacked, answered = machines.awaited(), machines.here.answered
        if patience.goes_on(lacked, answered, self._loop.time()):
            self._timer = self._loop.call_later(SPAN, self._look)
            return
        self._timer = None
        patience.judge(lacked, answered)
        machines.slots.turns.hasty, patience.hasty = patience.hasty, 0
        if lacked:
            machines.hurry()
            self._soon()
