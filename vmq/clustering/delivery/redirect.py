"""What waited for a node that is no member any more, and is for somebody else now.

- What was for partitions of streams goes to who owns them now.
- What was for a share group goes to another member of it.
- What was for clients without a durable session is dropped and counted: they were gone with their node.

What is given leaves this outbox in the same commit of the store in which it enters another one, so it is given once
whenever this broker dies. If the node is let in again meanwhile, what is sent to it from then on is its own.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Final, Protocol

from vmq.clustering.delivery.dropped import NODE_REMOVED
from vmq.clustering.delivery.outbox import PeerOutbox
from vmq.clustering.delivery.outboxes import Outboxes
from vmq.clustering.messages.codec import (
    AnyMessage,
    MessageBatch,
    WireError,
    decode_parcel,
    without,
)
from vmq.clustering.messages.publishes import RemotePublish
from vmq.clustering.messages.streams import Append

log = logging.getLogger("vmq.cluster")

#: Bytes that are given in one go.
STEP_BYTES: Final = 256 * 1024
#: Seconds until it is looked again whether there is room for more.
_LOOK: Final = 0.1
#: Seconds until the store is read again that could not be.
_AGAIN: Final = 1.0


class StreamRedirect(Protocol):
    """The streams of this node."""

    def is_here(self, message: Append) -> bool:
        """Whether what waited for a node that will not have it goes into a log of this one."""

    def take_back(self, message: Append) -> int | None:
        """Has who owns the partition now get it; not 0 if this node's streams are yet to write it."""

    async def written(self) -> None:
        """Returns when they have."""


class Redirect:
    """All outboxes of one node that are looked through.

    Args:
        outboxes: to the other nodes.
        share: gives a message of a node for a share group to a member of it.
        streams: take what was for the streams of a node.
    """

    def __init__(
        self,
        outboxes: Outboxes,
        share: Callable[[str, RemotePublish], None],
        streams: StreamRedirect,
    ) -> None:
        self._outboxes = outboxes
        self._share = share
        self._streams = streams
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def start(self, members: Iterable[str]) -> None:
        """Begins, or goes on with what an earlier life has left; `members` of a node that is none is empty."""
        self._outboxes.on_lost = self._begin
        present = set(members)
        if present:
            self._outboxes.lose_others(present)

    async def stop(self) -> None:
        """Leaves what is left to the next life."""
        self._outboxes.on_lost = lambda _: None
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _begin(self, peer: str) -> None:
        self._tasks[peer] = asyncio.get_running_loop().create_task(self._run(peer))

    async def _run(self, peer: str) -> None:
        """Looks through an outbox until all is given, and tries again what fails for now."""
        outboxes = self._outboxes
        outbox, done = outboxes.outbox(peer), b""
        while (end := outboxes.lost[peer]) != done:  # it may be let in, and be gone again meanwhile
            try:
                await outboxes.dispatch.on_disk()
                for key, raw in outbox.stored(b"", end):
                    await self._give_batch(peer, outbox, key, raw)
            except Exception:  # of the store, or a defect: what waits must not stay here for ever
                log.exception("cannot look through what waits for %s; it is tried again", peer)
                await asyncio.sleep(_AGAIN)
                continue
            done = end
        del self._tasks[peer]  # in the same pass: what is lost from now on is for another task
        outboxes.given(peer)

    async def _give_batch(self, peer: str, outbox: PeerOutbox, key: bytes, raw: bytes) -> None:
        """Gives what is in a batch to whom it is for now, and with each step notes how far that is."""
        try:
            parcel = decode_parcel(raw)[0]
        except WireError as error:
            log.error("what waited for node %s is lost: %s", peer, error)
            outbox.cut(key, raw, b"")
            return
        size = 0
        here = await self._take_here(parcel)

        def note(count: int) -> None:
            nonlocal raw
            left = without(parcel, count)
            outbox.cut(key, raw, left)
            raw = left
            self._outboxes.dispatch.changed(outbox)

        for index, message in enumerate(parcel.messages):
            while _is_shared(message) and any(map(self._outboxes.is_filling, self._outboxes.up)):
                note(index)
                await asyncio.sleep(_LOOK)
            if index not in here:
                size += await self._give(peer, message)
            if size >= STEP_BYTES:
                note(index + 1)
                size = 0
                await asyncio.sleep(0)
        note(len(parcel.messages))
        await asyncio.sleep(0)

    async def _take_here(self, parcel: MessageBatch) -> set[int]:
        """Puts into the streams of this node what is theirs now; returns the places of those, once they are safe.

        First of all: streams have commits of their own. What this broker has then put there when it dies comes again.
        """
        places = set()
        for place, each in enumerate(parcel.messages):
            if isinstance(each, Append) and self._streams.is_here(each):
                self._streams.take_back(each)
                places.add(place)
        if places:
            await self._streams.written()
        return places

    async def _give(self, peer: str, message: AnyMessage) -> int:
        """Gives a message of which nothing is to be left; returns how many bytes that was."""
        if isinstance(message, Append):
            size = len(message.payload)
            commit = self._streams.take_back(message)
            if commit is None:
                self._outboxes.dropped.add(peer, [message], size, NODE_REMOVED)
            elif commit:
                await self._streams.written()  # its owner became this node just now
            return size
        if not isinstance(message, RemotePublish):
            return 0
        size = len(message.topic) + len(message.payload)
        if message.group:  # what it had had of that, who left said
            self._share(peer, message)
        else:
            self._outboxes.dropped.add(peer, [message], size, NODE_REMOVED)
        return size


def _is_shared(message: AnyMessage) -> bool:
    return isinstance(message, RemotePublish) and bool(message.group)
