"""What other nodes say of slots, handed to the machines in bites: between them clients and heartbeats have their turn.

Who joins or leaves has something to say of each slot at once. What is left of it waits in its order, as long as the
life of its link lasts: what waits when that breaks is lost, as what is under way is, and said again.
"""

import asyncio
import logging
import math
from collections import deque
from collections.abc import Callable
from typing import Final

from vmq.clustering.front.sessions import SessionNode
from vmq.clustering.messages.base import NodeMessage
from vmq.clustering.messages.slots import Beat

log = logging.getLogger("vmq.cluster")

#: Seconds after which no other message is taken in a turn of the loop.
BITE: Final = 0.005
#: Frames of a peer that may wait. What comes beyond holds the loop up, and so, by its socket, who sends it.
MOST_FRAMES: Final = 16


class SlotIntake:
    """What comes to one node.

    Args:
        machines: which take it.
        store_of: the store of a peer; None: it has not said which, and what it says is lost.
        now: this node's clock, in milliseconds.
        soon: has carried out what comes of it.
    """

    def __init__(
        self,
        machines: SessionNode,
        store_of: Callable[[str], int | None],
        now: Callable[[], int],
        soon: Callable[[], None],
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._machines = machines
        self._store_of = store_of
        self._now = now
        self._soon = soon
        #: What is left of frames, by peer: whose turn is next comes first.
        self._waiting: dict[str, deque[deque[NodeMessage]]] = {}
        #: The next bite is due; without that nothing waits.
        self._is_due = False

    def take(self, peer: str, messages: list[NodeMessage]) -> None:
        """Takes what one frame of a peer has: what is soon done at once, the rest in turns to come."""
        frames = self._waiting.setdefault(peer, deque())
        frames.append(deque(messages))
        if not self._is_due:
            self._bite()
        elif len(frames) > MOST_FRAMES:
            self._take(peer, frames.popleft(), math.inf)

    def lose(self, peer: str) -> None:
        """The link to a peer broke: what waits was said in a life that is over."""
        self._waiting.pop(peer, None)

    def end(self) -> None:
        """The node stops: nothing that waits is taken."""
        self._waiting.clear()

    def _go_on(self) -> None:
        self._bite()
        self._soon()

    def _bite(self) -> None:
        """Takes what there is time for of the peer whose turn it is, which then comes behind the others."""
        peer = next(iter(self._waiting), None)
        if peer is not None:
            frames = self._waiting.pop(peer)
            ends = self._loop.time() + BITE
            while frames:
                self._take(peer, frames[0], ends)
                if not frames[0]:
                    frames.popleft()
                if self._loop.time() >= ends:
                    break
            if frames:
                self._waiting[peer] = frames
        self._is_due = bool(self._waiting)
        if self._is_due:
            self._loop.call_soon(self._go_on)

    def _take(self, peer: str, messages: deque[NodeMessage], ends: float) -> None:
        """Takes one of them, and more until the loop's clock says this; what cannot be taken costs itself alone."""
        store = self._store_of(peer)
        if store is None:
            messages.clear()
            return
        machines = self._machines
        reach, own = machines.here.reach, machines.here.store
        known, is_unheard = reach.incarnation(store), False
        try:
            machines.wake(self._now())
            while messages:
                each = messages.popleft()
                self._take_one(peer, store, each)
                is_unheard = is_unheard or (isinstance(each, Beat) and own not in each.hears)
                if self._loop.time() >= ends:
                    break
            machines.finish()
            if is_unheard or reach.incarnation(store) != known:
                machines.beat(store)  # both are in reach before their next heartbeats
        except Exception:  # a defect here, which the peer must not pay for
            log.exception("cannot go on after what node %s says of slots", peer)
            messages.clear()

    def _take_one(self, peer: str, store: int, message: NodeMessage) -> None:
        try:
            self._machines.take(store, message)
        except Exception:  # a defect here, or in what it sent: what follows must not pay for it
            log.exception("cannot take a %s of node %s", type(message).__name__, peer)
