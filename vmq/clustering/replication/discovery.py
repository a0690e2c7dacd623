"""Finding the best copy of a session whose owner is dead, and having it brought here.

Everybody that is up is asked which copies they have; the best one is fetched, piece by piece, by asking for what comes
behind the piece before. Questions and answers may be lost, and are asked again. No clock and no loop here.
"""

from collections.abc import Callable, Iterable
from typing import Final

from vmq.clustering.messages.replication import (
    MAX_BYTES,
    AskCopies,
    CopiesFound,
    CopyLost,
    CopyPart,
    FetchCopy,
    OfferCopy,
    ReplicaMessage,
)
from vmq.clustering.replication.anti_entropy import records_behind
from vmq.clustering.replication.follower import Follower, SessionCopy, messages_of, rank
from vmq.clustering.replication.follower_state import RecordWriter
from vmq.clustering.replication.headers import CopyHeader
from vmq.store.store import Store

#: Seconds after which a question is repeated, and how often it is asked in all.
_AGAIN: Final = 0.5
_TRIES: Final = 4

#: Records in one piece.
_PIECE: Final = 500

#: For each client that was asked for: who has which copy.
Offers = list[list[tuple[str, OfferCopy]]]


class CopyQuestion:
    """What others are asked, and who has not answered."""

    def __init__(
        self, ask: AskCopies, waiting: set[str], done: Callable[[Offers], None], now: float
    ) -> None:
        self.ask = ask
        self.waiting = waiting
        self.done = done
        self.offers: Offers = [[] for _ in ask.clients]
        self.tries = 1
        self.again_at = now + _AGAIN


class CopyFetch:
    """A copy that comes over from another node."""

    def __init__(
        self,
        node: str,
        offer: OfferCopy,
        copy: SessionCopy,
        done: Callable[[SessionCopy | None], None],
        now: float,
    ) -> None:
        self.node = node
        self.offer = offer
        self.copy = copy
        self.done = done
        self.behind = b""
        self.tries = 1
        self.again_at = now + _AGAIN


class CopySearch:
    """Asks for copies, and answers those who ask.

    Args:
        node: the name of this one.
        store: the broker's.
        copies: those that are here.
        send: sends at most once.
    """

    def __init__(
        self, node: str, store: Store, copies: Follower, send: Callable[[str, ReplicaMessage], bool]
    ) -> None:
        self._node = node
        self._store = store
        self._copies = copies
        self._send = send
        self._ticket = 0
        self._questions: dict[int, CopyQuestion] = {}
        self._fetching: dict[int, CopyFetch] = {}

    @property
    def sources(self) -> set[str]:
        """The nodes from which copies are coming over."""
        return {each.node for each in self._fetching.values()}

    # --- asking

    def ask(
        self,
        clients: list[str],
        owner: str,
        up: Iterable[str],
        now: float,
        done: Callable[[Offers], None],
    ) -> None:
        """Asks who has copies of sessions of `owner`; `done` is told when all have answered, or had time to."""
        self._ticket += 1
        question = CopyQuestion(AskCopies(self._ticket, clients, owner), set(up), done, now)
        for at, client in enumerate(clients):
            own = self._copies.offer(client, owner)
            if own is not None:
                question.offers[at].append((self._node, own))
        if not question.waiting:
            done(question.offers)
            return
        self._questions[self._ticket] = question
        for node in sorted(question.waiting):
            self._send(node, question.ask)

    def find(
        self,
        scoped_id: str,
        owner: str,
        up: Iterable[str],
        now: float,
        done: Callable[[SessionCopy | None, str], None],
    ) -> None:
        """Has the best copy of a session of `owner` brought here; `done` is told of it and whom it comes from."""

        def answered(offers: Offers) -> None:
            found = [(node, offer) for node, offer in offers[0] if offer.owner == owner]
            self.fetch(scoped_id, found, now, done)

        self.ask([scoped_id], owner, up, now, answered)

    def fetch(
        self,
        scoped_id: str,
        found: list[tuple[str, OfferCopy]],
        now: float,
        done: Callable[[SessionCopy | None, str], None],
    ) -> None:
        """Has the best of these copies brought here; `done` as above."""
        # Of equally good ones that here is the cheapest.
        found.sort(key=lambda each: (rank(each[1]), each[0] == self._node, each[0]))
        self._try(scoped_id, found, now, done)

    def _try(
        self,
        scoped_id: str,
        found: list[tuple[str, OfferCopy]],
        now: float,
        done: Callable[[SessionCopy | None, str], None],
    ) -> None:
        """Takes the best of the copies that are left."""
        if not found:
            done(None, "")
            return
        node, offer = found.pop()
        if node == self._node:
            copy = self._copies.find(offer.copy, scoped_id)
            if copy is not None:
                done(copy, node)
            else:
                self._try(scoped_id, found, now, done)
            return

        def fetched(copy: SessionCopy | None) -> None:
            if copy is not None:
                done(copy, node)
            else:
                self._try(scoped_id, found, now, done)

        self._ticket += 1
        # Of a life of its own: nothing that the owner says concerns it.
        head = CopyHeader(offer.owner, offer.session, scoped_id, offer.life, 0, frozen_at=offer.at)
        copy = self._copies.create(head)
        self._fetching[self._ticket] = CopyFetch(node, offer, copy, fetched, now)
        self._send(node, FetchCopy(self._ticket, offer.copy, b""))

    def on_have(self, node: str, message: CopiesFound) -> None:
        question = self._questions.get(message.ticket)
        if question is None or node not in question.waiting:
            return
        question.waiting.discard(node)
        for offers, offer in zip(question.offers, message.offers, strict=False):
            if offer is not None:
                offers.append((node, offer))
        self._maybe_answered(message.ticket, question)

    def _maybe_answered(self, ticket: int, question: CopyQuestion) -> None:
        if not question.waiting:
            del self._questions[ticket]
            question.done(question.offers)

    def on_part(self, node: str, message: CopyPart, now: float) -> None:
        fetching = self._fetching.get(message.ticket)
        if fetching is None or fetching.node != node or message.behind != fetching.behind:
            return
        messages = messages_of(message.bodies)
        for key, value in message.changes:
            self._copies.change(fetching.copy, key, value, False, messages)
        if message.last:
            fetching.behind = message.last
            fetching.tries = 1
            fetching.again_at = now + _AGAIN
            self._send(node, FetchCopy(message.ticket, fetching.offer.copy, message.last))
            return
        del self._fetching[message.ticket]
        fetching.copy.head.offline_at = message.offline_at
        self._copies.finish(fetching.copy)
        fetching.done(fetching.copy)

    def on_lost(self, node: str, message: CopyLost) -> None:
        fetching = self._fetching.get(message.ticket)
        if fetching is not None and fetching.node == node:
            self._give_up(message.ticket, fetching)

    def _give_up(self, ticket: int, fetching: CopyFetch) -> None:
        del self._fetching[ticket]
        self._copies.drop(fetching.copy)
        fetching.done(None)

    def peer_down(self, node: str) -> None:
        """Nobody waits for an answer of a node that cannot be reached."""
        for ticket, question in list(self._questions.items()):
            question.waiting.discard(node)
            self._maybe_answered(ticket, question)
        for ticket, fetching in list(self._fetching.items()):
            if fetching.node == node:
                self._give_up(ticket, fetching)

    def tick(self, now: float) -> None:
        """Asks again, and gives up on who does not answer."""
        for ticket, question in list(self._questions.items()):
            if now < question.again_at:
                continue
            question.tries += 1
            question.again_at = now + _AGAIN
            if question.tries > _TRIES:
                question.waiting.clear()
            for node in sorted(question.waiting):
                self._send(node, question.ask)
            self._maybe_answered(ticket, question)
        for ticket, fetching in list(self._fetching.items()):
            if now < fetching.again_at:
                continue
            fetching.tries += 1
            fetching.again_at = now + _AGAIN
            if fetching.tries > _TRIES:
                self._give_up(ticket, fetching)
            else:
                self._send(fetching.node, FetchCopy(ticket, fetching.offer.copy, fetching.behind))

    # --- answering

    def on_ask(self, node: str, message: AskCopies) -> None:
        offers = [self._copies.offer(client, message.owner) for client in message.clients]
        self._send(node, CopiesFound(message.ticket, offers))

    def on_fetch(self, node: str, message: FetchCopy) -> None:
        copy = self._copies.find(message.copy)
        if copy is None:
            self._send(node, CopyLost(message.ticket))
            return
        writer = RecordWriter(self._store)
        last = b""
        for key, value in records_behind(self._store, copy.number, message.behind):
            writer.add(key, value)
            if len(writer.changes) >= _PIECE or writer.size >= MAX_BYTES // 2:
                last = key
                break
        self._send(
            node,
            CopyPart(
                message.ticket,
                message.behind,
                last,
                writer.changes,
                writer.bodies,
                copy.head.offline_at,
            ),
        )
