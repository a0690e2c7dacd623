"""A look at sessions that other nodes have: these are asked, and answer at once or not at all."""

from collections.abc import AsyncIterator, Mapping
from typing import TYPE_CHECKING, Final

from vmq.clustering.delivery.questions import Questions
from vmq.clustering.messages.sessions import (
    DISCONNECT,
    MOST_AWAY,
    NOTHING,
    UNSUBSCRIBE,
    AskAway,
    AskSession,
    AwayFound,
    AwaySession,
    SessionFound,
)
from vmq.core.registry import Registry
from vmq.core.subscriber import Subscriber
from vmq.runtime.own_sessions import SessionFigures, disconnect, figures_of, unsubscribe

if TYPE_CHECKING:
    from vmq.clustering.delivery.outboxes import Outboxes
    from vmq.clustering.running.service import SlotService

#: Seconds that a node has to answer.
PATIENCE: Final = 2.0
#: Subscriptions that an answer has at most: one that is longer might hold up what else goes that way.
_MOST: Final = 10_000


class SessionQuestions:
    """Those of one node.

    Args:
        outboxes: to the other nodes; of them only what arrives at most once.
        registries: this node's topic trees.
        slots: where durable sessions are.
    """

    def __init__(
        self,
        outboxes: "Outboxes",
        registries: Mapping[str, Registry],
        slots: "SlotService",
    ) -> None:
        self._slots = slots
        self._outboxes = outboxes
        self._registries = registries
        self._sessions = Questions[SessionFound]()
        self._away = Questions[AwayFound]()
        outboxes.on(AskSession, self._on_ask)
        outboxes.on(AskAway, self._on_ask_away)
        outboxes.on(SessionFound, self._sessions.on_answer)
        outboxes.on(AwayFound, self._away.on_answer)

    async def ask_owner(
        self, client_id: str, does: int = NOTHING, topic_filter: str = ""
    ) -> SessionFigures | None:
        """What the owner of a session says that is in a slot; None: there is none, or it does not answer.

        Then it does with it what it is told to: see `AskSession`.
        """
        slots = self._slots
        owner = slots.owner_of(client_id)
        if owner == slots.name:
            return _at_owner(slots, client_id, does, topic_filter)
        if not owner:
            return None
        return await self.ask(
            owner, "", client_id, of_owner=True, does=does, topic_filter=topic_filter
        )

    async def ask(
        self,
        peer: str,
        mountpoint: str,
        client_id: str,
        *,
        of_owner: bool = False,
        does: int = NOTHING,
        topic_filter: str = "",
    ) -> SessionFigures | None:
        """What a node says of a session, before it does with it what it is told to.

        None: it does not have it, or does not answer.
        """
        asked = mountpoint, client_id, of_owner, does, topic_filter
        answer = await self._sessions.first(
            lambda number: self._outboxes.send_quick(peer, AskSession(number, *asked)), PATIENCE
        )
        return None if answer is None else answer.figures

    async def away(self) -> AsyncIterator[tuple[str, list[AwaySession] | None]]:
        """The sessions in slots of other nodes whose clients are away, by node; None: it does not answer."""
        slots = self._slots
        for peer in slots.peers():
            slot, after = 0, ""
            while slot >= 0:
                answer = await self._ask_away(peer, slot, after)
                if answer is None:
                    yield peer, None
                    break
                yield peer, answer.sessions
                slot, after = answer.slot, answer.after

    async def _ask_away(self, peer: str, slot: int, after: str) -> AwayFound | None:
        return await self._away.first(
            lambda number: self._outboxes.send_quick(peer, AskAway(number, slot, after)), PATIENCE
        )

    def _on_ask(self, peer: str, message: AskSession) -> None:
        registry = self._registries.get(message.mountpoint)
        subscriber = None if registry is None else registry.subscribers.get(message.client_id)
        found = None
        if message.of_owner:
            who, does = message.client_id, message.does
            found = _at_owner(self._slots, who, does, message.topic_filter)
        elif registry is not None and subscriber is not None:
            found = figures_of(registry, subscriber)
            _do(registry, subscriber, message.does, message.topic_filter)
        if found is not None and len(found.subscriptions) > _MOST:
            found = None
        self._outboxes.send_quick(peer, SessionFound(message.question, found))

    def _on_ask_away(self, peer: str, message: AskAway) -> None:
        found = self._slots.status.away_from(message.slot, message.after, MOST_AWAY)
        sessions, slot, after = found
        self._outboxes.send_quick(peer, AwayFound(message.question, sessions, slot, after))


def _at_owner(
    slots: "SlotService", client_id: str, does: int, topic_filter: str
) -> SessionFigures | None:
    """The session of a slot of this node as it is, before something is done with it."""
    found = slots.status.figures(client_id)
    if found is not None and does == UNSUBSCRIBE:
        slots.unsubscribe(client_id, topic_filter)
    return found


def _do(registry: Registry, subscriber: Subscriber, does: int, topic_filter: str) -> None:
    """Does with a session of this node what another node asks for."""
    if does == DISCONNECT:
        disconnect(subscriber)
    elif does == UNSUBSCRIBE:
        unsubscribe(registry, subscriber, topic_filter)
    registry.core.outbox.flush()
