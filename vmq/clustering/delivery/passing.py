"""Messages to other processes of this machine that go without the store: those at QoS 1 for clean sessions.

Such a session ends with its process. So its message need not survive more than the end of this one, and for that it is
enough that the system has taken it whole, as it is for what a commit writes (`store.durability = "os"`): the peer reads
what stands in its socket. Until the peer confirms it, it is in memory, and goes again when a link broke; it goes into
the store after all where the system does not take it at once, or the peer goes down before it has it.

A batch is what one pass publishes; where passes come in bunches, what all passes of a turn of the event loop do: that
is one payload, and wakes the peer up once.

What share groups get goes by the store: if the peer ends, another one's member is to have it. So does what is to come
once, at QoS 2, and whatever comes behind something that is in the store alone.
"""

from collections.abc import Callable
from functools import partial
from typing import Final

from vmq.clustering.delivery.outbox import PeerOutbox
from vmq.clustering.messages.codec import address
from vmq.clustering.messages.publishes import QOS, RemotePublish
from vmq.clustering.messages.streams import Append
from vmq.core.context import Core
from vmq.core.output import Output
from vmq_cluster.errors import ClusterError
from vmq_cluster.node import ClusterNode
from vmq_cluster.transport.bunches import LONGEST

#: A batch is closed when it has so many bytes, few beside what a socket takes; longer messages go by the store.
BATCH: Final = 32 * 1024


class Passing:
    """What passes from this node to its neighbours.

    Args:
        core: the broker's.
        node: this node.
        keep: has the next commit hold the outbox's batches that went into the store.
        after: does something when all that is in the store now is safe.
    """

    def __init__(
        self,
        core: Core,
        node: ClusterNode,
        keep: Callable[[PeerOutbox], None],
        after: Callable[[Callable[[], None]], None],
    ) -> None:
        self._core = core
        self._node = node
        self._keep = keep
        self._after = after

    def take(
        self, outbox: PeerOutbox, message: RemotePublish | Append, room: int, publisher: Output
    ) -> bool:
        """Takes a message for a peer that is up, if it may go without the store.

        The publisher's answers of this pass wait until it is safe: they leave behind it.
        """
        if not self._may(outbox, message):
            return False
        before, passed = outbox.key, outbox.passed
        if outbox.add(message, room, passes=True) <= 0:
            return False
        core, now = self._core, self._core.cork.now
        if outbox.key is not before:
            passed.wanted += 1
            outbox.began = now
            if now and outbox.comes(now):
                core.after_turn(partial(self._end_turn, outbox))
            else:
                core.outbox.leading.append(partial(self.hand_over, outbox))
        elif now != outbox.came:
            outbox.comes(now)
            if now - outbox.began > LONGEST:
                core.outbox.leading.append(partial(self.hand_over, outbox))
        publisher.answer_after(passed, passed.wanted)
        return True

    def _end_turn(self, outbox: PeerOutbox) -> None:
        self.hand_over(outbox)
        self._core.outbox.flush()

    def _may(self, outbox: PeerOutbox, message: RemotePublish | Append) -> bool:
        if not outbox.may_pass():  # first: it says no to all messages of a batch for the store
            return False
        if not isinstance(message, RemotePublish) or message.group or message.flags & QOS != 1:
            return False
        if len(message.payload) > BATCH:
            return False
        if outbox.passes:
            if outbox.gathered() < BATCH:
                return True
            self.hand_over(outbox)
        return outbox.may_pass() and self._node.is_running and self._node.is_near(outbox.peer)

    def hand_over(self, outbox: PeerOutbox) -> None:
        """Sends the batch that gathers, if it is one that passes."""
        if not outbox.passes:
            return
        entry = outbox.pass_on()
        parcel = address(entry.payload, outbox.target, outbox.hurries(entry))
        try:
            is_safe = self._node.send_through(outbox.peer, parcel, entry)
        except ClusterError:  # it is no member any more, or this node cannot write for the time
            outbox.take_back()
            is_safe = False
        if is_safe:
            outbox.passed.advance(outbox.passed.wanted)
        else:
            outbox.keep(entry)
            self._have_kept(outbox)

    def keep_all(self, outbox: PeerOutbox) -> None:
        """Puts what went to a peer without the store, and is not confirmed, into it: the peer may not have it."""
        self.hand_over(outbox)
        if outbox.keep_all():
            self._have_kept(outbox)

    def _have_kept(self, outbox: PeerOutbox) -> None:
        self._keep(outbox)
        self._after(partial(self._safe, outbox, outbox.passed.wanted))

    def _safe(self, outbox: PeerOutbox, number: int) -> None:
        outbox.passed.advance(number)
        self._core.outbox.flush()
