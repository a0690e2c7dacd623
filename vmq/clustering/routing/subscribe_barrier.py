"""`suback_after = "cluster"`: a SUBACK waits until every node that is up routes to the subscription.

What the SUBSCRIBE wrote into the metadata has dots (`vmq_cluster.clocks`). A **fence** names them, and a node answers
it once its clock contains them: routes follow the metadata within the step that brings it. Writes and fences travel
apart; both may get lost, and writes come again, so fences do too. A node that goes down is no longer waited for, and
nobody is for longer than a limit: the subscription holds here in any case, and there it comes. Only who is patient
waits for every member, until it is back.

Who waits for news is told once this node has seen all that the others had written before they answered, and what that
is: nothing is missing here then of what was written there without the subscription, and only that may have been.
"""

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Final, Literal, NamedTuple

from vmq.clustering.delivery.outboxes import Outboxes
from vmq.clustering.directory.directory import Directory
from vmq.clustering.directory.records import SUBSCRIBERS
from vmq.clustering.messages.barrier import BarrierReached, BarrierRequest
from vmq.core.hook_sites import Pending
from vmq.core.ports import Propagation
from vmq.core.registry import Registry
from vmq.core.subscriber import Subscriber
from vmq_cluster.clocks import NodeClock
from vmq_cluster.effects import Changed, Resumed
from vmq_cluster.node import ClusterNode

log = logging.getLogger("vmq.cluster")

#: Seconds after which a node that has not answered is asked again.
AGAIN_AFTER: Final = 1.0
#: Fences of one node that are kept here until they can be answered; those beyond are answered when they come again.
_MOST_KEPT: Final = 1000


#: Those that are up, no longer than the limit, which is told; all members, however long; those that are up, and what
#: they have written, no longer than the limit.
Kind = Literal["hasty", "patient", "news"]


class _Asked(NamedTuple):
    """What somebody waits for."""

    prefix: str
    keys: Callable[[], Iterable[bytes]]
    kind: Kind


class _Wait:
    """What one pass wrote, and who waits for it."""

    def __init__(
        self,
        fence: BarrierRequest,
        nodes: set[str],
        waiting: dict[Pending, None],
        began: float,
        kind: Kind,
    ) -> None:
        self.fence = fence
        self.nodes = nodes
        self.waiting = waiting
        self.began = began
        self.kind = kind
        #: For news: what nodes had written when they answered, and by peer what of that is not here.
        self.heard = NodeClock()
        self.news: dict[str, NodeClock] = {}


class SubscribeBarrier:
    """The fences of one node and those that it was sent.

    Args:
        node: which runs.
        outboxes: to the other nodes.
        flushes: put what the pass changed into the metadata.
        limit: seconds that a SUBACK waits at most.
        clock: monotonic seconds.
        call_soon: calls back at the end of the pass.
        call_later: calls back after so many seconds.
    """

    def __init__(
        self,
        node: ClusterNode,
        outboxes: Outboxes,
        flushes: Sequence[Callable[[], None]],
        limit: float,
        clock: Callable[[], float],
        call_soon: Callable[[Callable[[], None]], object],
        call_later: Callable[[float, Callable[[], None]], object],
        prefixes: Iterable[str] = (SUBSCRIBERS,),
    ) -> None:
        """`prefixes` are those of the metadata that anybody waits for."""
        self._node = node
        self._outboxes = outboxes
        self._flushes = flushes
        self._limit = limit
        self._clock = clock
        self._call_soon = call_soon
        self._call_later = call_later
        self._up: set[str] = set()
        self._number = 0
        #: Who subscribed in this pass, with the keys that hold it.
        self._gathering: dict[Pending, _Asked] = {}
        self._waits: dict[int, _Wait] = {}
        #: The number of the wait that somebody is in.
        self._number_of: dict[Pending, int] = {}
        self._is_watching = False
        #: Fences that cannot be answered yet, by peer and number.
        self._kept: dict[str, dict[int, NodeClock]] = {}
        #: SUBACKs that were sent before all nodes had answered.
        self.given_up = 0
        outboxes.on(BarrierRequest, self._on_fence)
        outboxes.on(BarrierReached, self._on_passed)
        node.on(Resumed, lambda _: self._send())
        for each in prefixes:
            node.watch_steps(each, self._on_changes)

    # --- here

    def wait(
        self,
        keys: Callable[[], Iterable[bytes]],
        prefix: str = SUBSCRIBERS,
        kind: Kind = "hasty",
    ) -> Pending | None:
        """What is there when every node that is up has seen what is written; None if none is up.

        `keys` says, at the end of the pass, under which keys of the metadata that is.
        """
        if not self._up and kind != "patient":
            return None
        pending = Pending(lambda: self._cancel(pending))
        if not self._gathering:
            self._call_soon(self._send)
        self._gathering[pending] = _Asked(prefix, keys, kind)
        return pending

    def set_up(self, up: Iterable[str]) -> None:
        """These other nodes can be reached now."""
        self._up = set(up)
        for peer in self._kept.keys() - self._up:
            del self._kept[peer]
        members = self._members()
        for number, wait in list(self._waits.items()):
            wait.nodes &= members if wait.kind == "patient" else self._up
            self._maybe_finish(number, wait)

    def _members(self) -> set[str]:
        """The other ones, whether they are up or not."""
        return self._node.members.keys() - {self._node.name}

    def _cancel(self, pending: Pending) -> None:
        """Its connection is no more."""
        self._gathering.pop(pending, None)
        number = self._number_of.pop(pending, 0)
        if number:
            waiting = self._waits[number].waiting
            del waiting[pending]
            if not waiting:
                del self._waits[number]

    def _send(self) -> None:
        """The pass is over: what it wrote gets its fence."""
        gathered, self._gathering = self._gathering, {}
        if not gathered:
            return
        kinds: dict[Kind, dict[Pending, _Asked]] = {}
        for each, asked in gathered.items():
            kinds.setdefault(asked.kind, {})[each] = asked
        if not self._node.is_running:
            self._gathering = kinds.pop("patient", {})  # it may run again
            for others in kinds.values():
                _finish(others, NodeClock())
            return
        self._flush()
        for kind, those in kinds.items():
            self._begin(those, kind)
        self._look_later()

    def _flush(self) -> None:
        for flush in self._flushes:
            flush()

    def _begin(self, gathered: dict[Pending, _Asked], kind: Kind) -> None:
        dots = NodeClock()
        for each in gathered.values():
            for dot in self._node.dots(each.prefix, each.keys()):
                dots.add(dot)
        self._number += 1
        waiting = dict.fromkeys(gathered)
        self._number_of |= dict.fromkeys(gathered, self._number)
        fence = BarrierRequest(self._number, dots.runs)
        nodes = self._members() if kind == "patient" else set(self._up)
        wait = _Wait(fence, nodes, waiting, self._clock(), kind)
        self._waits[self._number] = wait
        self._ask(wait)
        self._maybe_finish(self._number, wait)

    def _ask(self, wait: _Wait) -> None:
        for peer in sorted(wait.nodes & self._up - wait.news.keys()):
            self._outboxes.send_quick(peer, wait.fence)

    def _on_passed(self, peer: str, passed: BarrierReached) -> None:
        wait = self._waits.get(passed.number)
        # What was written after the first answer went to the subscription.
        if wait is not None and peer in wait.nodes and peer not in wait.news:
            wait.news[peer] = NodeClock.checked(passed.clock if wait.kind == "news" else {})
            wait.heard.merge(wait.news[peer])
            self._hear_news(passed.number, wait)

    def _hear_news(self, number: int, wait: _Wait) -> None:
        """Who waits for what others had written may have it now."""
        for peer, clock in list(wait.news.items()):
            if self._node.has_seen(clock):
                del wait.news[peer]
                wait.nodes.discard(peer)
        self._maybe_finish(number, wait)

    def _maybe_finish(self, number: int, wait: _Wait) -> None:
        if not wait.nodes:
            del self._waits[number]
            for each in wait.waiting:
                del self._number_of[each]
            _finish(wait.waiting, wait.heard)

    def _look_later(self) -> None:
        if self._waits and not self._is_watching:
            self._is_watching = True
            self._call_later(min(AGAIN_AFTER, self._limit), self._look)

    def _look(self) -> None:
        """Asks again, and gives up what took too long."""
        self._is_watching = False
        now = self._clock()
        runs = self._node.is_running
        members = self._members() if runs else set()
        for number, wait in list(self._waits.items()):
            if wait.kind == "patient" and runs:
                wait.nodes &= members
                self._maybe_finish(number, wait)
            if wait.kind == "patient" or (runs and now - wait.began < self._limit):
                self._ask(wait)
                if wait.news:  # the last of it may be nothing that is watched
                    self._hear_news(number, wait)
                continue
            if wait.kind == "hasty":
                self.given_up += len(wait.waiting)
                names = " ".join(sorted(wait.nodes))
                log.warning("SUBACK sent before these nodes have the subscriptions: %s", names)
            wait.nodes.clear()
            self._maybe_finish(number, wait)
        self._look_later()

    # --- there

    def _on_fence(self, peer: str, fence: BarrierRequest) -> None:
        clock = NodeClock.checked(fence.clock)
        if self._node.has_seen(clock):
            self._answer(peer, fence.number)
            return
        kept = self._kept.setdefault(peer, {})
        if len(kept) < _MOST_KEPT:
            kept[fence.number] = clock

    def _answer(self, peer: str, number: int) -> None:
        """What this pass has published so far went without the subscriptions, too."""
        self._flush()
        self._outboxes.send_quick(
            peer, BarrierReached(number, self._node.machine.metadata.own_dots().runs)
        )

    def _on_changes(self, _: list[Changed]) -> None:
        for number, wait in list(self._waits.items()):
            if wait.news:
                self._hear_news(number, wait)
        for peer, kept in self._kept.items():
            for number, clock in list(kept.items()):
                if self._node.has_seen(clock):
                    del kept[number]
                    self._answer(peer, number)


def _finish(waiting: Iterable[Pending], heard: NodeClock) -> None:
    for pending in waiting:
        pending.finish(heard)


class BarrierPropagation(Propagation):
    """Has SUBACKs wait for barriers of their own."""

    def __init__(self, barrier: SubscribeBarrier, directory: Directory) -> None:
        super().__init__()
        self._barrier = barrier
        self._directory = directory

    def wait(
        self, registry: Registry, subscriber: Subscriber, filters: list[str]
    ) -> Pending | None:
        return self._barrier.wait(lambda: self._directory.keys(registry, subscriber, filters))
