"""What waits for a node that is down, for sessions that others have taken over meanwhile: it goes to those at once.

The node may come back at any moment, with its disk, and alive all the time on its side of a split: then what waits is
for its other sessions still, and of the sessions that have gone it must give nothing on that went from here.

- What never was under way to it, it cannot have. Of that, what is in front of a session's mark goes to the session.
  When all of it has, the marks are moved in front of it: so the node, should it come back, gives none of it to these
  sessions. What nobody there wants any more is taken out.
- What was under way when it went down it may have, and its followers, too. For as long as sessions are not adopted
  either (`cluster.adopt_after`) that waits for the node, lest QoS 2 comes twice; then it goes as well: better twice
  than never.
- What a publisher waits for still is left for the next look, which is soon.

How far this has come is in the store, with each step in the same commit: what is given is given once, whenever this
broker dies.
"""

import asyncio
from typing import Final

from vmq.clustering.delivery.outbox import PeerOutbox
from vmq.clustering.delivery.outboxes import Outboxes
from vmq.clustering.delivery.peers import KnownPeer
from vmq.clustering.directory.directory import Directory
from vmq.clustering.hinted_handoff.giving import Giving, read_batch
from vmq.clustering.hinted_handoff.route_intervals import Place, RouteIntervals
from vmq.clustering.hinted_handoff.wanted import may_have_marks
from vmq.clustering.messages.codec import AnyMessage, encode, with_only
from vmq.clustering.messages.publishes import RemotePublish
from vmq.clustering.messages.takeover import RedirectedPublish, RouteMarker, Who
from vmq.mqtt.topics import split_shared

#: Bytes of marks that are put in front of one batch: with it they fit a channel.
MARK_BYTES: Final = 16 * 1024 * 1024
#: Seconds between two looks whether there is room again.
_LOOK: Final = 0.1
#: Nothing was looked through before.
_UNKNOWN: Final = KnownPeer(0)
_BEHIND: Final = b"\0"
#: Records of sessions that are looked at in one go.
_RECORDS: Final = 500


class MovedSessions:
    """Whose what waits for a peer is: that of sessions which have left it, in front of their marks, and of all others.

    What is behind `end` is of no interest yet.
    """

    def __init__(self, peer: str, end: bytes) -> None:
        self._peer = peer
        self._end = (end + _BEHIND, 0)
        self.moved = RouteIntervals(peer)
        self.rest = RouteIntervals(peer)
        #: How each of them left.
        self.marks: dict[Who, RouteMarker] = {}
        #: Share groups of which somebody has left: mountpoint and the whole filter.
        self.groups: set[tuple[str, str]] = set()
        #: Batches with marks behind which one of them came that left it again: which marks of the batch they are.
        self.returns: dict[bytes, dict[int, Who]] = {}
        #: Whether `rest` has everybody who may want something.
        self.is_sure = True

    def read(self, marks: list[tuple[RouteMarker, Place, int]]) -> bool:
        """Takes all marks with their places, and which of the marks of their batch they are.

        Returns whether some are behind the end, or not there yet.
        """
        came: dict[Who, tuple[bytes, int]] = {}
        later: list[tuple[RouteMarker, Place]] = []
        for mark, place, number in marks:
            if place >= self._end:
                later.append((mark, place))
                continue
            self.moved.on_mark(mark, place)
            if mark.node == self._peer:
                came[mark.who] = place[0], number
            elif mark.source == self._peer:
                self._left(mark)
                if mark.who in came:
                    key, index = came.pop(mark.who)
                    self.returns.setdefault(key, {})[index] = mark.who
        self.rest = self.moved.rest()
        for mark, place in later:
            self.rest.on_mark(mark, place)
        return any(mark.source == self._peer != mark.node for mark, _ in later)

    def _left(self, mark: RouteMarker) -> None:
        self.marks[mark.who] = mark
        for topic_filter in mark.subscriptions:
            if split_shared(topic_filter)[0]:
                self.groups.add((mark.mountpoint, topic_filter))

    def is_wanted(self, found: bool, message: RemotePublish, place: Place) -> bool:
        """Whether a message is for somebody who has not left, as far as is known."""
        return not (found and self.is_sure) or bool(self.rest.find(message, place, _UNKNOWN))


class MovedOn:
    """What this node does of it.

    Args:
        outboxes: to the other nodes.
        directory: which node has which session.
        giving: gives messages to sessions elsewhere.
        patience: seconds for which what may be at a node waits for it.
    """

    def __init__(
        self, outboxes: Outboxes, directory: Directory, giving: Giving, patience: float
    ) -> None:
        self._outboxes = outboxes
        self._directory = directory
        self._giving = giving
        self.patience = patience
        #: Nodes that are down, and that sessions have left since somebody looked.
        self.changed: set[str] = set()

    async def hand_on(self, peer: str, outbox: PeerOutbox) -> None:
        """Looks through what waits for a node; nothing goes to it meanwhile."""
        outboxes = self._outboxes
        known = outboxes.known(peer)
        if not known.moved[1]:
            is_given_up = outboxes.away_for(peer) >= self.patience
            known.moved = (b"" if is_given_up else outbox.doubtful, outbox.unawaited())
            outboxes.save_known(peer)
        await outboxes.on_disk()
        found = await self._who_has_moved(peer, outbox, known.moved[1])
        if found.marks:
            await self._hand_on(peer, outbox, found, known)
        known.moved, known.given = (b"", b""), (b"", 0)
        outboxes.save_known(peer)
        if found.marks and outboxes.stand_in is not None:
            outboxes.stand_in.changed(peer)

    async def _who_has_moved(self, peer: str, outbox: PeerOutbox, end: bytes) -> MovedSessions:
        found = MovedSessions(peer, end)
        ignored = self._outboxes.left.get(peer, b"")
        marks: list[tuple[RouteMarker, Place, int]] = []
        last = outbox.key
        for key, raw in outbox.stored(b"", last):
            number = 0
            for index, mark in enumerate(read_batch(raw).messages if may_have_marks(raw) else ()):
                if isinstance(mark, RouteMarker):
                    if mark.source != peer or key > ignored:
                        marks.append((mark, (key, index), number))
                    number += 1
            await asyncio.sleep(0)
        is_more = found.read(marks)
        for count, (mountpoint, client_id, record) in enumerate(
            self._directory.records_while_written()
        ):
            if record.node == peer:
                who = (mountpoint, client_id)
                found.rest.end(who, record.subscriptions, (last + _BEHIND, 0))
            if count % _RECORDS == _RECORDS - 1:
                await asyncio.sleep(0)
        found.is_sure = peer not in self.changed  # who has left meanwhile is in neither
        if is_more or end < last:
            self.changed.add(peer)
        return found

    # --- batch by batch

    async def _hand_on(
        self, peer: str, outbox: PeerOutbox, found: MovedSessions, known: KnownPeer
    ) -> None:
        begin, end = known.moved
        has_rest = False
        for key, raw in outbox.stored(begin, end):
            has_rest |= await self._hand_on_batch(peer, outbox, (key, raw), found, known)
            await asyncio.sleep(0)
        if has_rest:
            self._bring_marks_forward(outbox, begin, end, found)

    def _bring_marks_forward(
        self, outbox: PeerOutbox, begin: bytes, end: bytes, found: MovedSessions
    ) -> None:
        """What has gone to sessions elsewhere, the node will not give to them again."""
        marks = list(found.marks.values())
        for key, raw in list(outbox.stored(begin, end)):
            returns = found.returns.get(key, {})
            if not marks and not returns:
                continue
            left: list[AnyMessage] = []
            size = number = 0
            while marks and size < MARK_BYTES:
                left.append(marks.pop())
                size += len(encode(left[-1]))
            parcel = read_batch(raw)
            for message in parcel.messages:
                left.append(message)
                if isinstance(message, RouteMarker):
                    if number in returns:
                        left.append(found.marks[returns[number]])
                    number += 1
            outbox.cut(key, raw, with_only(parcel, left))
        self._outboxes.changed(outbox)

    async def _hand_on_batch(
        self,
        peer: str,
        outbox: PeerOutbox,
        entry: tuple[bytes, bytes],
        found: MovedSessions,
        known: KnownPeer,
    ) -> bool:
        """Gives what is in a batch to who has moved; returns whether something of that stays for others, too."""
        key, raw = entry
        messages = read_batch(raw).messages
        done, kept = known.given, list[AnyMessage]()
        size, has_rest = 0, False

        def note(count: int) -> None:
            nonlocal raw
            left = with_only(read_batch(raw), [*kept, *messages[count:]])
            if left != raw:
                outbox.cut(key, raw, left)
                raw = left
                self._outboxes.changed(outbox)
            known.given = (key, len(kept))
            self._outboxes.save_known(peer)

        for index, message in enumerate(messages):
            place = (key, index)
            if place < done:
                kept.append(message)
                has_rest = has_rest or bool(
                    self._giving.find(message, place, found.moved, _UNKNOWN)
                )
                continue
            given, left = self._split(peer, message, place, found)
            is_shared = left is None and not given and isinstance(message, RemotePublish)
            while self._has_to_wait(message, given) and (given or is_shared):
                note(index)
                await asyncio.sleep(_LOOK)
            size += self._giving.give_each(given)
            if is_shared and isinstance(message, RemotePublish):
                self._giving.share(peer, message)
                size += len(message.payload)
            if left is not None:
                kept.append(left)
                has_rest = has_rest or bool(given)
            if size >= self._giving.STEP_BYTES:
                note(index + 1)
                size = 0
                await asyncio.sleep(0)
        if key >= done[0]:  # else an earlier life had come further
            note(len(messages))
        return has_rest

    def _split(
        self, peer: str, message: AnyMessage, place: Place, found: MovedSessions
    ) -> tuple[list[RedirectedPublish], AnyMessage | None]:
        """What of a message goes to who has moved, and what stays for the node; of a share group it is one of both."""
        if isinstance(message, RedirectedPublish):
            return self._split_clients(peer, message)
        if not isinstance(message, RemotePublish):
            return [], message
        if message.group:
            return [], None if (message.mountpoint, message.group) in found.groups else message
        given = self._giving.find(message, place, found.moved, _UNKNOWN)
        return given, message if found.is_wanted(bool(given), message, place) else None

    def _split_clients(
        self, peer: str, message: RedirectedPublish
    ) -> tuple[list[RedirectedPublish], RedirectedPublish | None]:
        here: list[str] = []
        gone: list[str] = []
        for client in message.clients:
            record = self._directory.record(message.mountpoint, client)
            (here if record is None or record.node == peer else gone).append(client)
        if not gone:
            return [], message
        given = [RedirectedPublish(message.mountpoint, gone, message.entry)]
        return given, RedirectedPublish(message.mountpoint, here, message.entry) if here else None

    def _has_to_wait(self, message: AnyMessage, found: list[RedirectedPublish]) -> bool:
        """Whether too much waits for a node that is up and takes some of it; who is down is sent it later."""
        up, outboxes = self._outboxes.up, self._outboxes
        receivers = self._giving.receivers(message, found)
        return any(outboxes.is_filling(each) for each in receivers & up)
