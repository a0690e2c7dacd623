"""When what came of events is carried out: once a turn of the loop, with one commit and one frame to each peer."""

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from vmq.clustering.front.sessions import SessionNode
from vmq.clustering.running.disk import SlotDisk
from vmq.clustering.running.fronts import SlotFronts
from vmq.clustering.running.links import LinkLives
from vmq.clustering.running.patience import SlotPatience
from vmq.clustering.running.taking import BITE
from vmq.clustering.running.told import SlotNews
from vmq.clustering.slots.words import split_scope
from vmq.core.context import Core

log = logging.getLogger("vmq.cluster")

#: Times that a turn carries out what came of what it carried out, before it lets others run.
PASSES: Final = 3


class LoopTurn:
    """The turns of one node.

    Args:
        machines: whose effects they are.
        links: by which messages go to other nodes.
        disk: to which the machines write.
        core: the broker's.
        announce: has other nodes know of routes.
    """

    #: Where packets for clients go.
    fronts: SlotFronts

    def __init__(
        self,
        machines: SessionNode,
        links: LinkLives,
        disk: SlotDisk,
        core: Core,
        announce: Callable[[], None],
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._machines = machines
        self._links = links
        self._disk = disk
        self._core = core
        self._announce = announce
        self._news = SlotNews(core)
        #: For how long publishers wait for clients.
        self.patience = SlotPatience(machines, self.soon)
        #: Other nodes, by their stores.
        self.names: dict[int, str] = {}
        #: Whether anything is carried out.
        self.is_on: Callable[[], bool] = _never
        #: Hands rows in that sessions know (`vmq.clustering.running.rows`).
        self.hand_in: Callable[[], None] = _nothing
        #: Something has come that is not carried out.
        self._is_due = False
        self._is_running = False
        #: Until when what concerns many slots goes on, by the loop's clock: what is left of it waits for the next turn.
        self._ends = 0.0
        machines.here.has_time = self._has_time

    def _has_time(self) -> bool:
        return self._loop.time() < self._ends

    def soon(self) -> None:
        """Something has come: it is carried out in this turn of the loop, or the next."""
        if not self._is_due:
            self._is_due = True
            if not self._is_running:
                self._loop.call_soon(self.run)

    def run(self) -> None:
        """Goes on with looks, carries out what there is, and what comes of that, as far as it is soon done."""
        self._is_running = True
        has_more = False
        try:
            if self.is_on():
                self._ends = self._loop.time() + BITE
                has_more = self._machines.go_on()
                for _ in range(PASSES):
                    self._is_due = False
                    self._pass()
                    if not self._is_due:
                        break
                has_more = self._end() or has_more
        finally:
            self._is_running = False
            is_due, self._is_due = self._is_due, False
            if is_due or has_more:
                self.soon()

    def _pass(self) -> None:
        machines, effects = self._machines, self._machines.effects
        machines.finish()
        if effects.writes:
            self._disk.commit(effects, self._on_stored)
        self._carry_out()

    def _on_stored(self, number: int) -> None:
        """A commit is on disk: now, or a thread has written it."""
        self._machines.on_stored(number)
        if not self._is_running or self._machines.effects.writes:
            self.soon()

    def _end(self) -> bool:
        """What goes out once a turn; whether there is more for peers."""
        has_more = self._links.flush()
        self.fronts.resume()
        self._core.outbox.flush()
        if self._machines.slots.turns.awaiting:
            self.patience.begin()
        if self._machines.front.late:
            self.patience.begin_late()
        if self._machines.effects.later:
            self.patience.begin_later()
        return has_more

    def _carry_out(self) -> None:
        effects, fronts = self._machines.effects, self.fronts
        if effects.sent:
            sent, effects.sent = effects.sent, []
            for store, message in sent:
                name = self.names.get(store)
                if name is not None:
                    self._links.send(name, message)
        refused, effects.refused = effects.refused, []
        present, effects.present = effects.present, []
        steps, effects.steps = effects.steps, []
        acknowledged, effects.acknowledged = effects.acknowledged, []
        closed, effects.closed = effects.closed, []
        for number in refused:
            fronts.refused(number)
        for each in present:
            self._hand(each.connection, fronts.arrived, each)
        for number, step in steps:
            self._hand(number, fronts.step, number, step)
        if self._machines.front.rows:
            self.hand_in()
        for number, packet_id, _ in acknowledged:
            self._hand(number, fronts.acknowledged, number, packet_id)
        for number in closed:
            self._hand(number, fronts.closed, number)
        if effects.routes or effects.presence:
            self._announce()
        if effects.dropped or effects.kept or effects.expired or effects.unread:
            self._news.tell(effects)

    def _hand(self, number: int, hand: Callable[..., None], *what: object) -> None:
        """Hands a client what is its own. If that fails, it must not go on behind what it never got."""
        try:
            hand(*what)
        except Exception:  # a defect: other clients must not pay for it
            _, name = split_scope(self.fronts.client_of(number))
            text = "internal error, client=%s: it is cut off, and goes on where it was when it comes again"
            log.exception(text, name)
            self.fronts.cut_off(number)


def _never() -> bool:
    return False


def _nothing() -> None:
    pass
