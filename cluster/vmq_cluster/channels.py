"""Channels: bytes from one node to another, in two lanes.

**Reliable**: payloads are numbered, kept until the peer says that it has handed them on, and sent again when the
link was broken or nothing was acknowledged for a while. The peer takes each number once, in order. Numbers belong
to an epoch of the sender, so that a sender that starts again is told from one that repeats itself. If the receiver
starts again, what it handed on and had not acknowledged comes twice: whoever must not take it twice keeps the
payloads' own identities. Who has to store what it takes sets `holds`, and the peer hears of it at `confirm` only; what
was handed on and waits for that is bounded, and what comes on top is not taken.

**Unreliable**: at most once, to a peer that is up, never kept.

What a pass sends to a peer goes out together at its end (`flush`). What waits for a peer reliably, whoever sends it
bounds; of the other kind what does not fit is dropped, and counted. A peer that is down costs bytes and stops nobody.
"""

from collections import deque
from collections.abc import Iterable
from typing import Any, Final

from vmq_cluster.effects import Acknowledged, Arrived, Outbox
from vmq_cluster.errors import ClusterError
from vmq_cluster.identity import Identity
from vmq_cluster.messages import MAX_MESSAGES, MAX_PAYLOAD, Received, Reliable, Unreliable
from vmq_cluster.options import Options

#: What a payload costs besides its bytes.
OVERHEAD: Final = 64
_MAX_BACKOFF: Final = 16


class Outgoing:
    """What waits for one peer."""

    def __init__(self, oldest: int = 1) -> None:
        #: Payloads not acknowledged, with tickets; the first has the number `oldest`.
        self.waiting: deque[tuple[bytes, Any]] = deque()
        self.oldest = oldest
        self.size = 0
        #: How many of them are under way, and their size.
        self.sent = 0
        self.sent_size = 0
        #: When to send them again, and how much longer to wait then.
        self.deadline = 0.0
        self.backoff = 1
        self.unreliable: list[bytes] = []
        self.unreliable_size = 0

    def rewind(self) -> None:
        """What is under way is to be sent again."""
        self.sent = 0
        self.sent_size = 0


class Incoming:
    """How far this node has come with what one peer sends."""

    def __init__(self) -> None:
        #: The epoch of the peer, the number that comes next, and the one up to which the peer may forget.
        self.epoch = 0
        self.expected = 1
        self.confirmed = 0
        #: What was handed on and is to be confirmed, with receipts and sizes, also of earlier epochs.
        self.held: deque[tuple[tuple[int, int], int]] = deque()
        self.held_size = 0


class Channels:
    """The channels from and to one node."""

    def __init__(self, identity: Identity, options: Options, outbox: Outbox) -> None:
        self._identity = identity
        self._options = options
        self._outbox = outbox
        self._up: set[str] = set()
        self._outgoing: dict[str, Outgoing] = {}
        #: The next numbers for those that are members no more: should one come back, it remembers the ones before.
        self._next_numbers: dict[str, int] = {}
        #: Peers to which something is under way.
        self._sending: set[str] = set()
        #: Peers that something is to be sent to, or told about.
        self._touched: set[str] = set()
        self._incoming: dict[str, Incoming] = {}
        #: Payloads are only acknowledged when `confirm` says that they are safe.
        self.holds = False
        #: Peers to which an acknowledgement is due.
        self._acks: set[str] = set()
        #: What was dropped since the start.
        self.dropped_bytes = 0

    # --- sending

    def send(self, peer: str, payload: bytes, ticket: Any = None) -> None:
        """Sends reliably.

        Raises:
            ClusterError: the peer is no member, or the payload is too long for any channel.
        """
        outgoing = self._checked(peer, payload)
        self._touched.add(peer)
        outgoing.waiting.append((payload, ticket))
        outgoing.size += len(payload) + OVERHEAD

    def send_unreliable(self, peer: str, payload: bytes) -> bool:
        """Sends at most once; returns whether the peer is up and there was room.

        Raises:
            ClusterError: the peer is no member, or the payload is too long for any channel.
        """
        outgoing = self._checked(peer, payload)
        size = len(payload) + OVERHEAD
        self._touched.add(peer)
        is_full = outgoing.unreliable_size + size > self._options.unreliable_bytes
        if peer not in self._up or (is_full and outgoing.unreliable):
            self.dropped_bytes += len(payload)
            return False
        outgoing.unreliable.append(payload)
        outgoing.unreliable_size += size
        return True

    def may_overtake(self, peer: str, payload: bytes) -> bool:
        """Whether what goes to a peer at most once may go now: it is up, and nothing of that kind waits for it.

        Raises:
            ClusterError: the peer is no member, or the payload is too long for any channel.
        """
        outgoing = self._checked(peer, payload)
        return peer in self._up and not outgoing.unreliable

    def next_place(self, peer: str, payload: bytes) -> tuple[int, int, int] | None:
        """Where a reliable payload stands that goes now: epoch, oldest number that is kept, its own number.

        None: it has to wait for its turn, or for the peer.

        Raises:
            ClusterError: the peer is no member, or the payload is too long for any channel.
        """
        outgoing = self._checked(peer, payload)
        waits = outgoing.sent < len(outgoing.waiting)
        size = outgoing.size + len(payload) + OVERHEAD
        is_full = outgoing.sent and size > self._options.window_bytes
        if peer not in self._up or waits or is_full:
            return None
        return self._identity.epoch, outgoing.oldest, outgoing.oldest + outgoing.sent

    def went(self, peer: str, payload: bytes, ticket: Any, now: float) -> None:
        """A payload is under way at its `next_place`."""
        outgoing = self._outgoing[peer]
        size = len(payload) + OVERHEAD
        outgoing.waiting.append((payload, ticket))
        outgoing.size += size
        outgoing.sent += 1
        outgoing.sent_size += size
        outgoing.deadline = now + self._options.resend_timeout * outgoing.backoff
        self._sending.add(peer)

    def waiting(self, peer: str) -> tuple[int, int]:
        """How many payloads wait for a peer or for its acknowledgement, and what they count in bytes."""
        outgoing = self._outgoing.get(peer)
        return (0, 0) if outgoing is None else (len(outgoing.waiting), outgoing.size)

    def forget(self, peer: str) -> None:
        """Nothing that waits for a peer goes to it any more; nobody is told of the tickets."""
        outgoing = self._outgoing.get(peer)
        if outgoing is not None:
            outgoing.oldest += len(outgoing.waiting)
            outgoing.waiting.clear()
            outgoing.size = 0
            outgoing.rewind()
            self._sending.discard(peer)

    def _checked(self, peer: str, payload: bytes) -> Outgoing:
        outgoing = self._outgoing.get(peer)
        if outgoing is None:
            raise ClusterError(f"{peer!r} is no other member of the cluster")
        if len(payload) > MAX_PAYLOAD:
            raise ClusterError(f"a payload of {len(payload)} bytes; the limit is {MAX_PAYLOAD}")
        return outgoing

    # --- peers

    def set_members(self, others: Iterable[str]) -> None:
        """These are the other members now; what waits for one that is no more is lost."""
        wanted = set(others)
        for peer in [peer for peer in self._outgoing if peer not in wanted]:
            outgoing = self._outgoing[peer]
            self.dropped_bytes += sum([len(payload) for payload, _ in outgoing.waiting])
            self._next_numbers[peer] = outgoing.oldest + len(outgoing.waiting)
            del self._outgoing[peer]
            self._touched.discard(peer)
        for peer in sorted(wanted):
            if peer not in self._outgoing:
                self._outgoing[peer] = Outgoing(self._next_numbers.pop(peer, 1))

    def set_peers(self, up: Iterable[str]) -> None:
        """These peers can be reached now: to new ones everything goes again."""
        before, self._up = self._up, set(up)
        for peer in sorted(self._up - before):
            outgoing = self._outgoing.get(peer)
            if outgoing is not None:
                outgoing.rewind()
                outgoing.backoff = 1
                self._touched.add(peer)

    # --- the receiving end

    def on_reliable(self, peer: str, message: Reliable) -> None:
        """Numbered payloads of a frame."""
        arrived = self.take(peer, message.epoch, message.oldest, message.first, message.payloads)
        if arrived is not None:
            self._outbox.emit(arrived)

    def take(
        self, peer: str, epoch: int, oldest: int, first: int, payloads: list[bytes]
    ) -> Arrived | None:
        """Numbered payloads, some of which may have been here before; returns those that are handed on now."""
        incoming = self._incoming.get(peer)
        if incoming is None:
            self._incoming[peer] = incoming = Incoming()
        if epoch < incoming.epoch:
            return None
        if epoch > incoming.epoch or oldest > incoming.expected:
            # A new life of the sender; or an earlier one of this node acknowledged more than this one has seen.
            incoming.epoch = epoch
            incoming.expected = oldest
            incoming.confirmed = oldest - 1
        while incoming.held and (epoch, 0) < incoming.held[0][0] < (epoch, oldest):
            incoming.held_size -= incoming.held.popleft()[1]  # the sender waits for them no more
        end = first + len(payloads)
        is_full = incoming.held_size >= self._options.held_bytes
        if not first <= incoming.expected < end or is_full:
            self._acks.add(peer)  # what was said before may have been lost
            return None
        fresh = payloads[incoming.expected - first :]
        receipt = (epoch, end - 1)
        incoming.expected = end
        if self.holds:
            size = sum(map(len, fresh)) + OVERHEAD * len(fresh)
            incoming.held.append((receipt, size))
            incoming.held_size += size
        else:
            incoming.confirmed = end - 1
            self._acks.add(peer)
        return Arrived(peer, reliable=True, payloads=fresh, receipt=receipt)

    def confirm(self, peer: str, receipt: tuple[int, int]) -> None:
        """What arrived with this receipt is safe, and all that came before it."""
        incoming = self._incoming.get(peer)
        if incoming is None:
            return
        while incoming.held and incoming.held[0][0] <= receipt:
            incoming.held_size -= incoming.held.popleft()[1]
        epoch, number = receipt
        if epoch == incoming.epoch and incoming.confirmed < number < incoming.expected:
            incoming.confirmed = number
            self._acks.add(peer)

    def on_unreliable(self, peer: str, message: Unreliable) -> None:
        self._outbox.emit(Arrived(peer, reliable=False, payloads=message.payloads))

    def on_received(self, peer: str, message: Received) -> None:
        """The peer has everything up to a number."""
        outgoing = self._outgoing.get(peer)
        if outgoing is None or message.epoch != self._identity.epoch:
            return
        count = min(message.number - outgoing.oldest + 1, len(outgoing.waiting))
        if count <= 0:
            return
        tickets = []
        for at in range(count):
            payload, ticket = outgoing.waiting.popleft()
            size = len(payload) + OVERHEAD
            outgoing.size -= size
            if at < outgoing.sent:
                outgoing.sent_size -= size
            if ticket is not None:
                tickets.append(ticket)
        outgoing.oldest += count
        outgoing.sent = max(outgoing.sent - count, 0)
        outgoing.deadline = 0.0
        outgoing.backoff = 1
        self._touched.add(peer)
        if tickets:
            self._outbox.emit(Acknowledged(peer, tickets))

    # --- the end of a pass

    def tick(self, now: float) -> None:
        """Sends again what was not acknowledged in time."""
        for peer in sorted(self._sending):
            outgoing = self._outgoing.get(peer)
            if outgoing is None or not outgoing.sent or peer not in self._up:
                self._sending.discard(peer)
            elif now >= outgoing.deadline > 0:
                outgoing.rewind()
                outgoing.backoff = min(outgoing.backoff * 2, _MAX_BACKOFF)
                self._touched.add(peer)

    def flush(self, now: float) -> None:
        """Sends what has gathered."""
        if not self._acks and not self._touched:
            return
        for peer in sorted(self._acks):
            incoming = self._incoming[peer]
            self._outbox.send(peer, Received(incoming.epoch, incoming.confirmed))
        self._acks.clear()
        for peer in sorted(self._touched):
            outgoing = self._outgoing[peer]
            if peer in self._up:
                self._send_batches(peer, outgoing, now)
            else:
                self.dropped_bytes += sum(map(len, outgoing.unreliable))
            if outgoing.unreliable:
                outgoing.unreliable = []
                outgoing.unreliable_size = 0
        self._touched.clear()

    def _send_batches(self, peer: str, outgoing: Outgoing, now: float) -> None:
        if outgoing.unreliable:
            for batch in self._batches(outgoing.unreliable):
                self._outbox.send(peer, Unreliable(batch))
        if not outgoing.waiting:
            return
        window = self._options.window_bytes
        room = []
        first = outgoing.sent
        for at in range(first, len(outgoing.waiting)):
            payload = outgoing.waiting[at][0]
            if outgoing.sent_size >= window:
                break
            room.append(payload)
            outgoing.sent_size += len(payload) + OVERHEAD
        number = outgoing.oldest + first
        for batch in self._batches(room):
            epoch = self._identity.epoch
            self._outbox.send(peer, Reliable(epoch, outgoing.oldest, number, batch))
            number += len(batch)
        outgoing.sent += len(room)
        if outgoing.sent:
            self._sending.add(peer)
        if outgoing.sent and (room or outgoing.deadline == 0.0):
            outgoing.deadline = now + self._options.resend_timeout * outgoing.backoff

    def _batches(self, payloads: list[bytes]) -> list[list[bytes]]:
        if len(payloads) == 1:
            return [payloads]
        batches: list[list[bytes]] = []
        batch: list[bytes] = []
        size = 0
        for payload in payloads:
            full = size + len(payload) > self._options.batch_bytes or len(batch) >= MAX_MESSAGES
            if batch and full:
                batches.append(batch)
                batch, size = [], 0
            batch.append(payload)
            size += len(payload)
        if batch:
            batches.append(batch)
        return batches
