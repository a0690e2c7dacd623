"""Plumtree: epidemic broadcast along a tree that mends itself.

After Leitao, Pereira and Rodrigues, "Epidemic Broadcast Trees" (SRDS 2007). Flooding reaches everybody and costs a
message per link; a tree costs one per node and breaks with its first link. Plumtree takes the tree out of the flood
and keeps the flood as its safety net.

- A node **pushes** a broadcast **eagerly** to some of its neighbours, and announces it to the rest, **lazily**: a
  short I_HAVE, gathered with others for a moment.
- All links begin as eager. Who gets a broadcast a second time answers PRUNE, and the link becomes lazy both ways.
  After the first broadcasts the links that are left are a spanning tree: n - 1 pushes a broadcast.
- Who hears of a broadcast that does not come waits for `graft_timeout`, then sends GRAFT to one who announced it:
  send it, and push from now on. So a break of the tree is mended by the first broadcast that it keeps from passing.

The tree is shared by all senders. What differs from the paper: the overlay is given (`vmq_cluster.overlay`), I_HAVE
carries no distance, for the tree is not tuned for latency, and PRUNE is sent only for what came twice by way of the
tree: what anti-entropy brought first says nothing about the links. Every memory is bounded, and whatever falls over
the edge (announcements to a slow peer, announced broadcasts that never come) is left to anti-entropy, which stands
behind all of this.

What a broadcast is about belongs to its `Stream`. GRAFT is answered with what the stream holds now, so an
overwritten value is not sent on, and a node that knows better than a broadcast does not pass it on.
"""

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, Protocol

from vmq_cluster.effects import Outbox
from vmq_cluster.errors import MalformedError
from vmq_cluster.messages import MAX_IDS, Gossip, Graft, IHave, MessageId, Prune
from vmq_cluster.options import Options
from vmq_cluster.overlay import neighbours

#: So many broadcasts are remembered, to tell what comes twice.
MAX_RECENT: Final = 16_384


class Stream(Protocol):
    """What is broadcast: knows what it has seen, and takes in what is new."""

    def is_seen(self, origin: int, number: int) -> bool:
        """Whether this broadcast need not be asked for."""

    def deliver(self, origin: int, number: int, payload: bytes) -> bool:
        """Takes in a broadcast; returns whether it was news, which are to be passed on.

        Raises:
            MalformedError: the payload makes no sense.
        """

    def payload(self, origin: int, number: int) -> bytes | None:
        """What to send to one who asks for this broadcast; nothing if it no longer matters."""


@dataclass(slots=True)
class Missing:
    """A broadcast that was announced and has not come."""

    deadline: float
    announcers: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Counters:
    """What happened since the start."""

    pushed: int = 0
    duplicates: int = 0
    grafts: int = 0
    prunes: int = 0
    lazy_dropped: int = 0
    missing_dropped: int = 0
    given_up: int = 0


class Plumtree:
    """The broadcasts of one node."""

    def __init__(
        self, name: str, streams: dict[int, Stream], options: Options, outbox: Outbox
    ) -> None:
        self._name = name
        self._streams = streams
        self._options = options
        self._outbox = outbox
        self.counters = Counters()
        #: Neighbours to push to, and to announce to. A peer is in one of them, or in none.
        self.eager: set[str] = set()
        self.lazy: set[str] = set()
        self._up: set[str] = set()
        self._announcements: dict[str, list[MessageId]] = {}
        self._next_lazy = 0.0
        #: What came by way of the tree and when, the oldest first.
        self._recent: OrderedDict[MessageId, float] = OrderedDict()
        #: The time of the last tick.
        self._now = 0.0
        #: In the order of their deadlines: each is put at the end with the same timeout.
        self._missing: OrderedDict[MessageId, Missing] = OrderedDict()

    def set_peers(self, up: Iterable[str]) -> None:
        """These peers can be reached now: new neighbours begin as eager."""
        self._up = set(up)
        wanted = neighbours(self._name, self._up)
        known = self.eager | self.lazy
        self.eager = (self.eager & wanted) | (wanted - known)
        self.lazy &= wanted
        for peer in sorted(known - wanted):
            self._announcements.pop(peer, None)
        fresh = sorted(wanted - known)
        if fresh and self._recent:
            self._catch_up(fresh)

    def broadcast(self, message: MessageId, payload: bytes) -> None:
        """Sends what this node has to say on its way."""
        self._remember(message)
        self._push(message, payload, "")

    def on_gossip(self, peer: str, message: Gossip) -> None:
        """A broadcast was pushed here."""
        stream = self._stream(message.id)
        if message.id in self._recent:
            self.counters.duplicates += 1
            self._make_lazy(peer)
            self.counters.prunes += 1
            self._outbox.send(peer, Prune())
            return
        _, origin, number = message.id
        fresh = not stream.is_seen(origin, number)
        if fresh:
            fresh = stream.deliver(origin, number, message.payload)
        self._remember(message.id)
        self._missing.pop(message.id, None)
        self._make_eager(peer)
        if fresh:
            self._push(message.id, message.payload, peer)

    def on_i_have(self, peer: str, message: IHave, now: float) -> None:
        """A peer can be asked for broadcasts, some of which may not have come."""
        for each in message.ids:
            stream = self._stream(each)
            if each in self._recent or stream.is_seen(each[1], each[2]):
                continue
            missing = self._missing.get(each)
            if missing is None:
                if len(self._missing) >= self._options.max_missing:
                    self.counters.missing_dropped += 1
                    continue
                missing = self._missing[each] = Missing(now + self._options.graft_timeout)
            if peer not in missing.announcers:
                missing.announcers.append(peer)

    def on_graft(self, peer: str, message: Graft) -> None:
        """A peer asks for a broadcast that it missed, and for the next ones."""
        stream = self._stream(message.id)
        self._make_eager(peer)
        payload = stream.payload(message.id[1], message.id[2])
        if payload is not None:
            self._outbox.send(peer, Gossip(message.id, payload))

    def on_prune(self, peer: str) -> None:
        """A peer gets broadcasts from elsewhere."""
        self._make_lazy(peer)

    def tick(self, now: float) -> None:
        """Announces what has gathered; asks for what has not come."""
        self._now = now
        if now >= self._next_lazy:
            self._next_lazy = now + self._options.lazy_interval
            self._announce()
        while self._missing:
            message, missing = next(iter(self._missing.items()))
            if missing.deadline > now:
                break
            del self._missing[message]
            self._maybe_graft(message, missing, now)

    # --- how it is done

    def _catch_up(self, peers: list[str]) -> None:
        """Announces the latest broadcasts to new neighbours, whose old ones may have died on the way."""
        since = self._now - 2 * self._options.heartbeat_timeout
        latest: list[MessageId] = []
        for message, came in reversed(self._recent.items()):
            if came < since or len(latest) >= self._options.max_lazy:
                break
            latest.append(message)
        if latest:
            for peer in peers:
                self._announcements[peer] = list(reversed(latest))

    def _stream(self, message: MessageId) -> Stream:
        stream = self._streams.get(message[0])
        if stream is None:
            raise MalformedError(f"a broadcast of stream {message[0]}, which does not exist")
        return stream

    def _push(self, message: MessageId, payload: bytes, source: str) -> None:
        gossip = Gossip(message, payload)
        for peer in sorted(self.eager):
            if peer != source:
                self.counters.pushed += 1
                self._outbox.send(peer, gossip)
        for peer in sorted(self.lazy):
            if peer != source:
                waiting = self._announcements.setdefault(peer, [])
                if len(waiting) < self._options.max_lazy:
                    waiting.append(message)
                else:
                    self.counters.lazy_dropped += 1

    def _announce(self) -> None:
        for peer, waiting in self._announcements.items():
            for at in range(0, len(waiting), MAX_IDS):
                self._outbox.send(peer, IHave(waiting[at : at + MAX_IDS]))
        self._announcements.clear()

    def _maybe_graft(self, message: MessageId, missing: Missing, now: float) -> None:
        if self._stream(message).is_seen(message[1], message[2]):
            return  # anti-entropy brought it
        while missing.announcers:
            peer = missing.announcers.pop(0)
            if peer in self._up:
                self._make_eager(peer)
                self.counters.grafts += 1
                self._outbox.send(peer, Graft(message))
                missing.deadline = now + self._options.graft_timeout
                self._missing[message] = missing
                return
        self.counters.given_up += 1

    def _remember(self, message: MessageId) -> None:
        self._recent[message] = self._now
        if len(self._recent) > MAX_RECENT:
            self._recent.popitem(last=False)

    def _make_eager(self, peer: str) -> None:
        if peer in self.lazy:
            self.lazy.discard(peer)
            self.eager.add(peer)

    def _make_lazy(self, peer: str) -> None:
        if peer in self.eager:
            self.eager.discard(peer)
            self.lazy.add(peer)
