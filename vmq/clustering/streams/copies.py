"""Whether the node that is to own a partition next has the copy that it was given.

A node makes no copy where it has rows of its own, or owns the partition by what it knows; another node may have begun
one anew, a disk may be lost. So the giver asks, once the copy has begun and again at its end, before it says who the
next owner is, and deletes what it has. With the second answer the copy is the partition, and its node says that it is
the owner. Whatever the records say in the end, its rows count, and come to who owns them then.
"""

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Final

from vmq.clustering.delivery.outboxes import Outboxes
from vmq.clustering.delivery.questions import Questions
from vmq.clustering.messages.streams import AskCopy, CopyFound

if TYPE_CHECKING:
    from vmq.clustering.streams.view import StreamsView
    from vmq.streams.log.partition import Partition

#: Seconds until a question is asked again.
_AGAIN: Final = 0.5


class GivenCopies:
    """What one node asks others of copies, and what it answers. Made in the event loop.

    Args:
        streams: the node's.
        outboxes: to the other nodes.
    """

    def __init__(self, streams: "StreamsView", outboxes: Outboxes) -> None:
        self._streams = streams
        self._outboxes = outboxes
        self._questions = Questions[CopyFound](streams.now(), _AGAIN)
        #: The last question of each peer, and what comes of it: it may be asked again.
        self._answers: dict[str, tuple[int, asyncio.Future[bool]]] = {}
        #: Copies that become partitions of this node, which does not say so yet.
        self.coming: set[Partition] = set()
        outboxes.on(AskCopy, self._on_ask)
        outboxes.on(CopyFound, self._questions.on_answer)

    async def is_whole(
        self, node: str, stream: str, partition: int, end: int, *, counts: bool = False
    ) -> bool:
        """Whether a node has the copy that this one gives it, whole up to an offset; it is its own then if it `counts`.

        False as well if the node cannot be reached.
        """

        def say(question: int) -> bool:
            is_up = node in self._streams.up()
            if is_up:
                asked = AskCopy(question, stream, partition, end, counts)
                self._outboxes.send_quick(node, asked)
            return is_up

        found = await self._questions.first(say, None)
        return found is not None and found.is_whole

    def _on_ask(self, peer: str, asked: AskCopy) -> None:
        number, answer = self._answers.get(peer, (0, None))
        if answer is None or number != asked.question:
            answer = self._look(peer, asked)
            self._answers[peer] = asked.question, answer
        elif not answer.done():
            return  # one answer is enough, however long the disk takes
        answer.add_done_callback(partial(self._answer, peer, asked.question))

    def _look(self, peer: str, asked: AskCopy) -> "asyncio.Future[bool]":
        """What the writer says, behind all that it has to write."""
        catalog = self._streams.catalog
        stream = None if catalog is None else catalog.streams.get(asked.stream)
        if stream is None or asked.partition >= len(stream.partitions) or stream.is_replicated:
            none: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
            none.set_result(False)
            return none
        from vmq.streams.log.given import has_copy  # needs what only streams need

        place = stream.partitions[asked.partition]
        look = partial(has_copy, place, peer, asked.end, counts=asked.counts)
        found = asyncio.wrap_future(stream.appender.commits.writer.call(look))
        if asked.counts:
            self.coming.add(place)
            found.add_done_callback(partial(self._come, peer, place))
        return found

    def _come(self, peer: str, partition: "Partition", found: "asyncio.Future[bool]") -> None:
        self.coming.discard(partition)
        name, number = partition.stream, partition.number
        if _is_so(found) and self._streams.owner(name, number) == peer:
            self._streams.set_owner(name, number, self._streams.own_name)

    def _answer(self, peer: str, question: int, found: "asyncio.Future[bool]") -> None:
        is_whole = _is_so(found)
        self._outboxes.send_quick(peer, CopyFound(question, is_whole))
        if not is_whole and self._streams.handover is not None:
            self._streams.handover.look_later()  # rows of this node's own may be why: they go first


def _is_so(found: "asyncio.Future[bool]") -> bool:
    return not found.cancelled() and found.exception() is None and found.result()
