"""What waits here for a node that is down is kept by others as well: the side of the publisher's node.

As long as the node of a durable session is up, a publisher's acknowledgement waits until its store has the message, and
those of its copies. When it is down, the message waits in this store alone, which may be lost for good before that node
is back. So it goes to as many others as keep a session, named with the clients that it is for, and the acknowledgement
waits for those. Should this node be gone then, they give it to these clients' sessions, wherever they are
(`vmq.clustering.hinted_handoff.hints_in`).

Nobody waits when nobody else is up. What was deposited is deposited again with other nodes when one that has it cannot
be reached, and all of it is told to be forgotten once it has arrived. Deposits travel on the outboxes: kept until they
are safe, in order.
"""

import logging
from collections import deque
from collections.abc import Iterable
from typing import Final

from vmq.clustering.delivery.outbox import PeerOutbox
from vmq.clustering.delivery.outbox_storage import place_of
from vmq.clustering.delivery.outboxes import Outboxes
from vmq.clustering.directory.directory import Directory
from vmq.clustering.directory.records import Record
from vmq.clustering.directory.rendezvous import ranked
from vmq.clustering.hinted_handoff.wanted import WantedRoutes
from vmq.clustering.messages.codec import AnyMessage, decode_parcel
from vmq.clustering.messages.publishes import RemotePublish
from vmq.clustering.messages.replication import HintedPublish, HintsBegin, HintsNeeded, KeepHints
from vmq.clustering.messages.takeover import RouteMarker

log = logging.getLogger("vmq.cluster")

#: Bytes of batches that are read at once, and above which no more are until some are kept.
_STEP: Final = 1024 * 1024


class OutgoingHint:
    """One that others are to keep, and how many of them have not said that they do."""

    __slots__ = ("key", "open", "size")

    def __init__(self, key: bytes, size: int) -> None:
        self.key = key
        self.size = size
        self.open = 0


class PeerHints:
    """One node that is down, or too slow, and who keeps what waits for it."""

    def __init__(self, keepers: list[str]) -> None:
        self.keepers = keepers
        #: Made when a message waits.
        self.wishes: WantedRoutes | None = None
        #: The last batch that they were asked to keep, and the last that all of them do.
        self.last = b""
        self.safe = b""
        #: Batches that not all of them have, and their bytes.
        self.open: deque[OutgoingHint] = deque()
        self.size = 0
        #: Who was to keep it before, and need not once these have it.
        self.former: set[str] = set()
        #: More is being read for them.
        self.is_busy = False
        #: Counts how often the keepers were chosen anew: what the ones before say is of no interest.
        self.turn = 0


class HintsOut:
    """All that this node has others keep.

    Args:
        name: this node's.
        count: how many nodes have each message, this one included.
        timeout: seconds after which a node that is up and confirms nothing is waited for no longer.
        outboxes: to the other nodes.
        directory: which node has which session.
    """

    def __init__(
        self, name: str, count: int, timeout: float, outboxes: Outboxes, directory: Directory
    ) -> None:
        self._name = name
        self._wanted = count - 1
        self._timeout = timeout
        self._outboxes = outboxes
        self._directory = directory
        self._members: set[str] = set()
        self._all: dict[str, PeerHints] = {}
        #: Of nodes for which something is kept, the last batch of that and who has it.
        self._given: dict[str, tuple[bytes, set[str]]] = {}
        #: The batch that somebody has waited for longest, by node, and since when it is that one.
        self._awaited: dict[str, tuple[bytes, float]] = {}
        #: Messages that were deposited since the start.
        self.deposited = 0
        directory.on_owner(self._on_owner)

    # --- what the outboxes ask

    def keeps(self, peer: str) -> bool:
        """Whether others get what waits for a peer, and acknowledgements are to wait for them."""
        return peer in self._all

    def more(self, peer: str) -> None:
        """More for a peer can be read from the disk."""
        depositing = self._all.get(peer)
        outbox = self._outboxes.find_lane(peer)
        if depositing is None or outbox is None or depositing.is_busy:
            return
        depositing.is_busy = True
        if depositing.size < _STEP:
            # Read at once: what is sent changes the store.
            for key, raw in _some(outbox.parcels(depositing.last)):
                if not self._deposit_parcel(peer, depositing, outbox, key, raw):
                    break
        depositing.is_busy = False
        self._settle(peer, depositing)

    def changed(self, peer: str) -> None:
        """What waits for a peer is less, or for fewer sessions, than before: whoever keeps it gets it anew."""
        last, keepers = self._given.pop(peer, (b"", set[str]()))
        for keeper in sorted(keepers & self._members):
            self.tell(keeper, but=peer)
        if last and peer in self._all:
            self._choose_anew(peer)

    def peer_down(self, peer: str) -> bool:
        """A peer cannot be reached any more; whether others are to keep what waits for it."""
        for owner, depositing in list(self._all.items()):
            if peer in depositing.keepers:
                self._choose_anew(owner)
        return peer in self._members and self._begin(peer)

    # --- who is there

    def set_members(self, members: Iterable[str]) -> None:
        """These are the other members."""
        self._members = set(members)
        # Until others have the sessions of a node that was taken out, what is for those waits as before.
        for peer in self._outboxes.lost - self._all.keys():
            self._begin(peer)
        for owner, depositing in list(self._all.items()):
            if not self._members.issuperset(depositing.keepers):
                self._choose_anew(owner)

    def peer_up(self, peer: str) -> None:
        """A member can be reached."""
        self._all.pop(peer, None)  # who waits for what was deposited waits for the peer itself now
        for other in self._members - self._outboxes.up:
            if other not in self._all:
                self._begin(other)

    # --- how it is done

    def _begin(self, peer: str) -> bool:
        keepers = self._choose(peer)
        if keepers:
            self._all[peer] = PeerHints(keepers)
            self.more(peer)
        return bool(keepers)

    def _find_wishes(
        self, peer: str, depositing: PeerHints, outbox: PeerOutbox
    ) -> WantedRoutes | None:
        """What is wanted of what was not deposited yet; None: that is not known yet."""
        wishes = depositing.wishes
        if wishes is None:
            sessions = (
                ((mountpoint, client_id), record)
                for mountpoint, client_id, record in self._directory.records()
                if record.node == peer and not record.clean
            )
            # The marks of those that have gone by now are in front of that key, though maybe not on the disk yet.
            wishes = depositing.wishes = WantedRoutes(peer, sessions, depositing.last, outbox.key)
        if not wishes.is_ready:
            wishes.look(outbox.parcels(wishes.looked), self._outboxes.left.get(peer, b""))
        return wishes if wishes.is_ready else None

    def _choose(self, peer: str) -> list[str]:
        others = (each for each in self._outboxes.up if each in self._members and each != peer)
        return ranked(self._name + "\0" + peer, others)[: self._wanted]

    def _choose_anew(self, peer: str) -> None:
        """Somebody who was to keep what waits for a node cannot be reached: others get all of it."""
        depositing = self._all[peer]
        depositing.former.update(depositing.keepers)
        depositing.keepers = self._choose(peer)
        depositing.former.difference_update(depositing.keepers)
        depositing.last = depositing.safe = b""
        depositing.wishes = None
        depositing.open.clear()
        depositing.size = 0
        depositing.turn += 1
        if depositing.keepers:
            self.more(peer)
            return
        del self._all[peer]
        outbox = self._outboxes.find_lane(peer)
        if outbox is not None:
            outbox.settle()

    def _on_owner(
        self, mountpoint: str, client_id: str, before: Record | None, after: Record | None
    ) -> None:
        depositing = None if after is None or after.clean else self._all.get(after.node)
        if after is None or depositing is None or depositing.wishes is None:
            return
        if before is None or before.node == after.node:  # else there is a mark on the outbox
            depositing.wishes.add((mountpoint, client_id), after.subscriptions)

    def _deposit_parcel(
        self, peer: str, depositing: PeerHints, outbox: PeerOutbox, key: bytes, raw: bytes
    ) -> bool:
        """Has others keep what is in a batch; False if it is not known yet who wants that."""
        parcel, _ = decode_parcel(raw)
        wishes = depositing.wishes
        if any(isinstance(each, RemotePublish) and each.qos for each in parcel.messages):
            wishes = self._find_wishes(peer, depositing, outbox)
            if wishes is None:
                return False
        messages = [] if wishes is None else self._kept(parcel.messages, wishes)
        depositing.last = key
        entry = OutgoingHint(key, len(raw))
        depositing.open.append(entry)
        depositing.size += entry.size
        if not messages:
            return True
        self.deposited += len(messages)
        keepers, turn = list(depositing.keepers), depositing.turn
        _, before = self._given.get(peer, (b"", set[str]()))
        self._given[peer] = (key, before.union(keepers))
        place = (parcel.life, parcel.number)
        deposit = KeepHints(self._outboxes.store_name, peer, *place, messages, keepers)
        entry.open = len(keepers)

        def done(has_arrived: bool) -> None:
            if not has_arrived:
                log.warning("no room to have others keep what waits for node=%s", peer)
            if depositing.turn == turn and self._all.get(peer) is depositing:
                entry.open -= 1
                self.more(peer)

        for keeper in keepers:
            self._outboxes.send(keeper, deposit, done)
        return True

    def _kept(self, messages: list[AnyMessage], wishes: WantedRoutes) -> list[HintedPublish]:
        """Those of a batch that are to be kept, with who is to have them; the marks in it change who that is."""
        found: list[HintedPublish] = []
        for each in messages:
            if isinstance(each, RouteMarker):
                wishes.on_mark(each, self._directory.record(*each.who))
            elif isinstance(each, RemotePublish) and each.qos:
                found += _kept(each, wishes)
        return found

    def _settle(self, peer: str, depositing: PeerHints) -> None:
        """Nobody waits any more for what is kept."""
        while depositing.open and not depositing.open[0].open:
            entry = depositing.open.popleft()
            depositing.size -= entry.size
            depositing.safe = entry.key
        outbox = self._outboxes.find_lane(peer)
        if outbox is not None:
            outbox.settle_up_to(depositing.safe)  # also who sent again what is kept long since
        if depositing.former and not depositing.open and outbox is not None:
            if next(iter(outbox.parcels(depositing.last)), None) is None:
                former, depositing.former = sorted(depositing.former), set()
                for each in former:  # else two would give it
                    self.tell(each, but=peer)

    # --- what is needed no longer

    def tick(self, now: float) -> None:
        """To be called a few times a second: goes on, and tells keepers when what they have has arrived."""
        for peer in list(self._all):
            if self._outboxes.find_lane(peer) is None:
                del self._all[peer]
            self.more(peer)
        self._look_who_is_slow(now)
        arrived: set[str] = set()
        for peer, (last, keepers) in list(self._given.items()):
            if self._oldest(peer) > last:
                arrived |= keepers
                del self._given[peer]
        for keeper in sorted(arrived & self._members):
            self.tell(keeper)

    def _look_who_is_slow(self, now: float) -> None:
        """Who is up and takes nothing must not hold up acknowledgements any more than who is down."""
        for peer in sorted(self._members & self._outboxes.up):
            outbox = self._outboxes.find_lane(peer)
            key = b"" if outbox is None else outbox.awaited
            if not key:
                self._awaited.pop(peer, None)
                if peer in self._all:
                    del self._all[peer]
            elif self._awaited.get(peer, (b"", 0.0))[0] != key:
                self._awaited[peer] = (key, now)
            elif peer not in self._all and now >= self._awaited[peer][1] + self._timeout:
                log.warning(
                    "acknowledgements wait no longer for node=%s: it confirms nothing", peer
                )
                if not self._begin(peer) and outbox is not None:
                    outbox.settle()

    def _oldest(self, peer: str) -> bytes:
        """The key of the first that waits for a peer; if nothing does, one behind all."""
        outbox = self._outboxes.find_lane(peer)
        if outbox is None:
            return b"\xff"
        return next(iter(outbox.parcels(b"")), (b"\xff", b""))[0]

    def tell(self, keeper: str, but: str = "") -> None:
        """Tells somebody what is still needed, but for what waits for one node."""
        left = []
        for peer in sorted((self._members | self._outboxes.lost) - {but}):
            oldest = self._oldest(peer)
            if oldest != b"\xff":
                left.append(HintsBegin(peer, *place_of(oldest)))
        self._outboxes.send(keeper, HintsNeeded(self._outboxes.store_name, left))


def _some(parcels: Iterable[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """The first of them."""
    found = []
    size = 0
    for each in parcels:
        found.append(each)
        size += len(each[1])
        if size >= _STEP:
            break
    return found


def _kept(publish: RemotePublish, wishes: WantedRoutes) -> list[HintedPublish]:
    """A message with those who are to have it."""
    if publish.group:
        return [HintedPublish(publish, [])]
    return [HintedPublish(_at(publish, qos), clients) for qos, clients in wishes.find(publish)]


def _at(publish: RemotePublish, qos: int) -> RemotePublish:
    flags = publish.flags & ~3 | qos
    return RemotePublish(publish.topic, publish.payload, flags, publish.mountpoint)
