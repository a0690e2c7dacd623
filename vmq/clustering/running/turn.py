"""When what came of events is carried out: once a turn of the event loop."""

import asyncio
from collections.abc import Callable
from typing import Final

#: Times that a turn carries out what came of what it carried out, before it lets others run.
PASSES: Final = 3


class LoopTurn:
    """The turns of one node.

    Args:
        carry_out: carries out what there is; more may come of that, which it says by `soon`.
        end: follows when that is done; whether more waits for the next turn.
    """

    def __init__(self, carry_out: Callable[[], None], end: Callable[[], bool]) -> None:
        self._loop = asyncio.get_running_loop()
        self._carry_out = carry_out
        self._end = end
        #: Something has come that is not carried out.
        self._is_due = False
        self._is_running = False

    def soon(self) -> None:
        """Something has come: it is carried out in this turn of the loop, or the next."""
        if not self._is_due:
            self._is_due = True
            if not self._is_running:
                self._loop.call_soon(self.run)

    def run(self) -> None:
        """Carries out what there is, and what comes of that, as far as it is soon done."""
        self._is_running = True
        try:
            for _ in range(PASSES):
                self._is_due = False
                self._carry_out()
                if not self._is_due:
                    break
        finally:
            self._is_running = False
            is_due, self._is_due = self._is_due, False
            if is_due:
                self.soon()
        if self._end():
            self.soon()
