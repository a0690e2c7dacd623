"""A look at a session that another node has: that one is asked, and answers at once or not at all."""

import asyncio
from collections.abc import Mapping
from typing import Final

from vmq.clustering.delivery.outboxes import Outboxes
from vmq.clustering.messages.sessions import AskSession, SessionFound
from vmq.clustering.running.service import SlotService
from vmq.core.registry import Registry
from vmq.runtime.session_figures import SessionFigures, figures_of

#: Seconds that a node has to answer.
PATIENCE: Final = 2.0
#: Subscriptions that an answer has at most: one that is longer might hold up what else goes that way.
_MOST: Final = 10_000


class SessionQuestions:
    """Those of one node.

    Args:
        outboxes: to the other nodes; of them only what arrives at most once.
        registries: this node's topic trees.
        slots: where durable sessions are, if they are in slots.
    """

    def __init__(
        self,
        outboxes: Outboxes,
        registries: Mapping[str, Registry],
        slots: SlotService | None = None,
    ) -> None:
        self._slots = slots
        self._outboxes = outboxes
        self._registries = registries
        self._last = 0
        self._asked: dict[int, asyncio.Future[SessionFigures | None]] = {}
        outboxes.on(AskSession, self._on_ask)
        outboxes.on(SessionFound, self._on_found)

    async def ask_owner(self, client_id: str) -> SessionFigures | None:
        """What the owner of a session says that is in a slot; None: there is none, or it does not answer."""
        slots = self._slots
        if slots is None:
            return None
        owner = slots.owner_of(client_id)
        if owner == slots.name:
            return slots.status.figures(client_id)
        return await self.ask(owner, "", client_id, of_owner=True) if owner else None

    async def ask(
        self, peer: str, mountpoint: str, client_id: str, *, of_owner: bool = False
    ) -> SessionFigures | None:
        """What a node says of a session; None: it does not have it, or does not answer."""
        self._last += 1
        number = self._last
        answer = asyncio.get_running_loop().create_future()
        self._asked[number] = answer
        try:
            question = AskSession(number, mountpoint, client_id, of_owner)
            if not self._outboxes.send_quick(peer, question):
                return None
            return await asyncio.wait_for(answer, PATIENCE)
        except TimeoutError:
            return None
        finally:
            del self._asked[number]

    def _on_ask(self, peer: str, message: AskSession) -> None:
        registry = self._registries.get(message.mountpoint)
        subscriber = None if registry is None else registry.subscribers.get(message.client_id)
        found = None
        if message.of_owner:
            found = None if self._slots is None else self._slots.status.figures(message.client_id)
            if found is not None and len(found.subscriptions) > _MOST:
                found = None
        elif (
            registry is not None
            and subscriber is not None
            and len(subscriber.subscriptions) <= _MOST
        ):
            found = figures_of(registry, subscriber)
        self._outboxes.send_quick(peer, SessionFound(message.question, found))

    def _on_found(self, _peer: str, message: SessionFound) -> None:
        answer = self._asked.get(message.question)
        if answer is not None and not answer.done():
            answer.set_result(message.figures)
