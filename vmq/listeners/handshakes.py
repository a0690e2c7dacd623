"""TLS handshakes by turns: of each turn of the event loop they take a share, and those that wait are served by address.

A handshake costs the server a signature: 0.4 ms in all with RSA of 2,048 bits, 4 ms with 4,096, 0.16 ms with ECDSA.
Whoever sends a thousand ClientHellos, and be it one over and over, would have everybody wait until all are answered.
"""

from collections.abc import Callable
from typing import Final

from vmq.core.context import Counters
from vmq.listeners.tls import Tls

#: Seconds of a turn of the event loop; a handshake that has begun is done.
SHARE: Final = 0.004


class Handshakes:
    """Whose handshake is next.

    Args:
        clock: monotonic seconds.
        call_soon: the event loop's.
        counters: where those that have to wait are counted.
    """

    def __init__(
        self,
        clock: Callable[[], float],
        call_soon: Callable[[Callable[[], None]], object],
        counters: Counters,
    ) -> None:
        self._clock = clock
        self._call_soon = call_soon
        self._counters = counters
        self._spent = 0.0
        self._has_turn = False
        #: Who waits, by address; the address whose turn it is stands in front.
        self._waiting: dict[str, dict[Tls, None]] = {}

    def due(self, tls: Tls, address: str) -> None:
        """A client has sent its part of a handshake: it goes on now, or by turns."""
        mine = self._waiting.get(address)
        if mine is not None and tls in mine:
            return
        if not self._waiting and self._spent < SHARE:
            self._serve(tls)
            return
        self._counters.tls_handshakes_queued += 1
        self._waiting.setdefault(address, {})[tls] = None

    def forget(self, tls: Tls, address: str) -> None:
        """It has ended, whatever its handshake was."""
        mine = self._waiting.get(address)
        if mine is not None:
            mine.pop(tls, None)
            if not mine:
                del self._waiting[address]

    def _serve(self, tls: Tls) -> None:
        began = self._clock()
        try:
            tls.go_on()
        finally:
            self._spent += self._clock() - began
            # Only a share that is used up is worth a call of the loop: a turn may begin with less than all of it.
            if self._spent >= SHARE:
                self._ask_for_turn()

    def _ask_for_turn(self) -> None:
        if not self._has_turn:
            self._has_turn = True
            self._call_soon(self._turn)

    def _turn(self) -> None:
        """The next turn of the event loop, with a share of its own."""
        self._has_turn = False
        self._spent = 0.0
        try:
            while self._waiting and self._spent < SHARE:
                address, mine = next(iter(self._waiting.items()))
                tls = next(iter(mine))
                del self._waiting[address], mine[tls]
                if mine:
                    self._waiting[address] = mine
                self._serve(tls)
        finally:
            if self._waiting:
                self._ask_for_turn()
