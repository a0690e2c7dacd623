"""Turns: so many work at a time, the others wait, and no address makes another one wait for all of its own.

For work that devices want all at once, when they come back after an outage: checking passwords, asking a server.
"""

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from vmq_hooks.deadline import off_the_clock

#: Of so many turns in a row one goes to those who come after others, as long as both wait.
SHARE: Final = 4

Waiter = asyncio.Future[None]


class TurnsClosedError(Exception):
    """There are no more turns."""


class Turns:
    """Who may work now. Addresses take turns, and those who wait at one address stand in line there.

    What a client only waits is no time of the plugin's: its deadline stands still meanwhile. A client that goes away
    loses its place.

    Args:
        at_once: how many work at a time.
    """

    def __init__(self, at_once: int) -> None:
        self._free = at_once
        self._is_closed = False
        self._first = _Lines()
        self._after = _Lines()
        self._given = 0

    @property
    def waiting(self) -> int:
        """How many wait."""
        return self._first.waiting + self._after.waiting

    @asynccontextmanager
    async def turn(self, network: str, *, after_others: bool = False) -> AsyncIterator[None]:
        """One turn.

        Args:
            network: whose: `Peer.network`.
            after_others: of addresses that failed lately: they get every fourth turn while others wait.

        Raises:
            TurnsClosedError: `close` was called.
        """
        await self._wait(self._after if after_others else self._first, network)
        try:
            yield
        finally:
            self._free += 1
            self._give()

    def close(self) -> None:
        """Has everybody who waits, and whoever still comes, get TurnsClosedError."""
        self._is_closed = True
        for lines in (self._first, self._after):
            while lines.waiting:
                waiter = lines.take()
                if not waiter.done():
                    waiter.set_exception(TurnsClosedError())

    async def _wait(self, lines: "_Lines", network: str) -> None:
        if self._is_closed:
            raise TurnsClosedError
        if self._free and not self.waiting:
            self._free -= 1
            return
        waiter: Waiter = asyncio.get_running_loop().create_future()
        lines.put(network, waiter)
        try:
            with off_the_clock():
                await waiter
        except asyncio.CancelledError:
            if waiter.cancelled():
                lines.remove(network, waiter)
            elif waiter.exception() is None:  # its turn came as it left
                self._free += 1
                self._give()
            raise

    def _give(self) -> None:
        while self._free and self.waiting:
            self._given += 1
            turn_of_others = self._given % SHARE == 0
            lines = self._after if turn_of_others or not self._first.waiting else self._first
            if not lines.waiting:
                lines = self._first
            waiter = lines.take()
            if not waiter.done():  # else its client has just left
                self._free -= 1
                waiter.set_result(None)


class _Lines:
    """One line a network; taking goes round the networks."""

    def __init__(self) -> None:
        self.waiting = 0
        #: The network whose turn it is in front. Ordered dictionaries, since both ends change.
        self._lines: OrderedDict[str, OrderedDict[Waiter, None]] = OrderedDict()

    def put(self, network: str, waiter: Waiter) -> None:
        self._lines.setdefault(network, OrderedDict())[waiter] = None
        self.waiting += 1

    def take(self) -> Waiter:
        network, line = next(iter(self._lines.items()))
        waiter, _ = line.popitem(last=False)
        if line:
            self._lines.move_to_end(network)
        else:
            del self._lines[network]
        self.waiting -= 1
        return waiter

    def remove(self, network: str, waiter: Waiter) -> None:
        line = self._lines.get(network)
        if line is None or waiter not in line:
            return
        del line[waiter]
        self.waiting -= 1
        if not line:
            del self._lines[network]
