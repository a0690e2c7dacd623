"""The consumer groups of a cluster on one node: what its members have, and the coordinator that it may be.

Who leads the log of the groups (`vmq.clustering.raft.cursors`) coordinates them. Nodes find it by what is known of the
log's leader; who gets no answer asks all.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from itertools import count
from typing import TYPE_CHECKING, Final

from vmq.clustering.delivery.outboxes import Outboxes
from vmq.clustering.messages.groups import GroupTalk
from vmq.clustering.raft.produce import DONE
from vmq.clustering.raft.records import GroupRecords, node_of
from vmq.streams.groups.coordinator import Answers, GroupCoordinator
from vmq.streams.groups.copying import Copying
from vmq.streams.groups.port import GroupHere
from vmq.streams.groups.records import GroupKey, GroupPlace, encode_row, pairs
from vmq.streams.groups.share import BEAT, LEASE, GroupShare
from vmq.streams.groups.steps import PublishStep, StepNumber
from vmq.streams.groups.talk import (
    AskGroups,
    ChangeGroup,
    FoundGroup,
    FoundGroups,
    Grant,
    GroupBeat,
    GroupChanged,
    Saying,
    decode_saying,
    encode_saying,
)
from vmq.streams.log.errors import PassingError, StreamError
from vmq_cluster.node import ClusterNode
from vmq_cluster.raft.placement import apart, order

if TYPE_CHECKING:
    from vmq.clustering.raft.service import GroupService

log = logging.getLogger("vmq.cluster")

#: Seconds between two looks at who has moved.
_TICK: Final = 0.2
#: Seconds without an answer after which all nodes are asked, a question is asked again, and an operator hears of it.
_ASK_ALL: Final = 1.5
_AGAIN: Final = 0.5
_PATIENCE: Final = 5.0
#: Seconds that members' last words have at the end of a node.
_LAST: Final = 1.0


class NodeShare:
    """A part of a group, and whose it is; None: its members are gone."""

    def __init__(self, share: GroupShare) -> None:
        self.share = share
        self.group: GroupHere | None = None
        self.beaten = float("-inf")
        #: Since when it has no lease, and whether somebody was told.
        self.waits_since: float | None = None
        self.is_told = False
        #: Who waits for the answer to a beat, by its number.
        self.waiters: list[tuple[int, asyncio.Future[None]]] = []


class ClusterGroups:
    """The groups of one node.

    Args:
        node: this one; it runs.
        outboxes: to the other nodes.
        service: the replicas of this node.
        clock: monotonic seconds.
        wall_clock: seconds since 1970.
    """

    def __init__(
        self,
        node: ClusterNode,
        outboxes: Outboxes,
        service: "GroupService",
        clock: Callable[[], float],
        wall_clock: Callable[[], float],
    ) -> None:
        self.node = node
        self.name = node.name
        self.outboxes = outboxes
        self.service = service
        self.records = GroupRecords(node)
        self.clock = clock
        self.loop = asyncio.get_running_loop()
        self.shares: dict[GroupKey, NodeShare] = {}
        self.coordinator = GroupCoordinator(lambda: int(wall_clock() * 1000))
        self.questions: dict[int, Callable[[str, FoundGroups | GroupChanged], None]] = {}
        self.numbers = count(1)
        self.step_numbers = count(1)
        #: Who waits for the coordinator to decide on steps.
        self.steps: dict[tuple[str, StepNumber], asyncio.Future[bool]] = {}
        self.timer: asyncio.TimerHandle | None = None
        self.is_soon = False
        self.is_closed = False
        #: Told what nodes say of what other hosts keep.
        self.on_copy: Callable[[str, Copying], None] = lambda _node, _saying: None
        service.on_cursors = self.on_leading
        service.on_long_cursors = self.on_long

    # What members ask for (`vmq.streams.groups.port`)

    def share_of(self, key: GroupKey) -> GroupShare:
        """This node's part of a group."""
        known = self.shares.get(key)
        if known is None:
            thread = self.service.thread
            share = GroupShare(key, thread.host.boot, thread.name, self.step_numbers)
            known = self.shares[key] = NodeShare(share)
        return known.share

    def begin(self, key: GroupKey, group: GroupHere) -> None:
        """The group has members on this node."""
        self.records.put(b"1", "readers")  # the cluster is to have a log for them
        self.shares[key].group = group
        self.on_changed(key)

    def end(self, key: GroupKey) -> None:
        """It has none any more."""
        self.shares[key].group = None
        self.on_changed(key)

    def on_changed(self, _key: GroupKey) -> None:
        """The coordinator is to hear at once."""
        if not self.is_soon and not self.is_closed:
            self.is_soon = True
            self.loop.call_soon(self.look)

    async def kept(self, key: GroupKey) -> None:
        """Returns once the coordinator keeps where the group's members on this node are now.

        Raises:
            PassingError: it does not answer.
        """
        each = self.shares[key]
        self.beat(each, self.clock())
        self.outboxes.flush()
        waiter: asyncio.Future[None] = self.loop.create_future()
        each.waiters.append((each.share.number, waiter))
        try:
            async with asyncio.timeout(_PATIENCE):
                await waiter
        except TimeoutError:
            raise PassingError("the coordinator of the group does not answer") from None
        finally:
            each.waiters = [other for other in each.waiters if other[1] is not waiter]

    async def decided(self, key: GroupKey, step: PublishStep) -> bool:
        """Whether the coordinator accepts a step that is on the disk; however long that takes."""
        share = self.share_of(key)
        waiter: asyncio.Future[bool] = self.loop.create_future()
        self.steps[step.store, step.number] = waiter
        share.ask(step)
        self.on_changed(key)
        try:
            return await waiter
        finally:
            del self.steps[step.store, step.number]

    async def settle(self) -> None:
        """Returns when the coordinator has what members gave back, or a while later: the node stops."""
        until = self.loop.time() + _LAST
        while self.shares and self.loop.time() < until:  # noqa: ASYNC110 - the coordinator decides
            await asyncio.sleep(_TICK / 4)

    def close(self) -> None:
        """Nothing more is said."""
        self.is_closed = True
        if self.timer is not None:
            self.timer.cancel()
        self.coordinator.resign()

    # Time

    def look(self) -> None:
        """Says what is to be said, and has the coordinator do what it has to."""
        self.is_soon = False
        if self.is_closed:
            return
        now = self.clock()
        for key, each in list(self.shares.items()):
            self.look_at(key, each, now)
        self.coordinate()
        self.outboxes.flush()
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None
        if self.shares or self.coordinator.groups or self.coordinator.beats:
            self.timer = self.loop.call_later(_TICK, self.look)

    def look_at(self, key: GroupKey, each: NodeShare, now: float) -> None:
        """One group."""
        share, group = each.share, each.group
        effects = share.expire(now)
        if group is None:
            if share.is_over or (now >= share.lease_until and not share.steps):
                del self.shares[key]  # nothing is left to be said, or it would count for nothing
                return
        else:
            group.obey(effects)
            self.tell_of_silence(key, each, now)
        if share.is_dirty or now - each.beaten >= BEAT or (group is not None and group.moved()):
            self.beat(each, now)

    def tell_of_silence(self, key: GroupKey, each: NodeShare, now: float) -> None:
        """Says, once, that members get nothing for want of a coordinator."""
        if now < each.share.lease_until:
            each.waits_since, each.is_told = None, False
        elif each.waits_since is None:
            each.waits_since = now
        elif now - each.waits_since > LEASE and not each.is_told:
            each.is_told = True
            text = "group=%s: its members on this node get nothing until most of the nodes that vote can be reached"
            log.warning(text, key.group)

    def beat(self, each: NodeShare, now: float) -> None:
        """Tells the coordinator what the members of a group have."""
        share, group = each.share, each.group
        each.beaten = now
        if group is None:
            beat = share.beat(now, share.positions, share.deliveries, {})
        else:
            beat = share.beat(now, *group.progress(), group.clients())
            group.settle()
        self.say(beat, ask_all=share.lease_until < now + LEASE - _ASK_ALL)

    # The coordinator

    def on_leading(self, term: int, places: dict[GroupKey, GroupPlace]) -> None:
        """This node leads the log of the groups, or (0) does not."""
        if term:
            self.coordinator.lead(term, places, self.clock())
        else:
            self.coordinator.resign()

    def on_long(self) -> None:
        """The log is long."""
        self.coordinator.rewrite()
        self.coordinate()

    def coordinate(self) -> None:
        """Has an entry committed, if one is due."""
        coordinator = self.coordinator
        if self.is_closed or not coordinator.is_due(self.clock()):
            return
        rows = [encode_row(each) for each in coordinator.propose(self.clock())]
        entry = coordinator.under_way

        def answer(status: int) -> None:
            if coordinator.under_way is entry and entry is not None:
                self.tell(coordinator.committed() if status == DONE else coordinator.failed())
                self.coordinate()

        cursors, service = self.service.cursors, self.service
        if cursors is not None:
            in_loop = service.passes.in_loop(answer)
            service.thread.post(cursors.propose, coordinator.term, rows, in_loop)

    def tell(self, answers: Answers) -> None:
        """The coordinator says something to nodes."""
        for node, answer in answers:
            self.send(node, answer)

    # What is said

    def say(self, saying: Saying, *, ask_all: bool) -> None:
        """Says something to the coordinator."""
        cursors = self.service.cursors
        name = "" if cursors is None else self.service.places.leaders.get(cursors.name, "")
        leader = node_of(name)
        if leader and not ask_all:
            self.send(leader, saying)
            return
        for node in (self.name, *(self.node.up if self.node.is_running else ())):
            self.send(node, saying)

    def send(self, node: str, saying: Saying) -> None:
        """Says something to a node, perhaps this one."""
        if node == self.name:
            self.loop.call_soon(self.hear, node, saying)
        else:
            self.outboxes.send_quick(node, GroupTalk(encode_saying(saying)))

    def on_talk(self, peer: str, message: GroupTalk) -> None:
        """A peer says something."""
        try:
            saying = decode_saying(message.payload)
        except ValueError as error:
            log.warning("what %s says of consumer groups is passed over: %s", peer, error)
            return
        self.hear(peer, saying)
        self.outboxes.flush()

    def hear(self, node: str, saying: Saying) -> None:
        """Something is said."""
        if self.is_closed:
            return
        match saying:
            case GroupBeat():
                self.coordinator.on_beat(node, saying, self.clock())
                self.coordinate()
            case Grant():
                self.on_grant(saying)
            case AskGroups():
                for part in self.coordinator.on_ask(saying):
                    self.send(node, part)
            case ChangeGroup():
                self.coordinator.on_change(node, saying)
                self.coordinate()
            case FoundGroups() | GroupChanged():
                take = self.questions.get(saying.question)
                if take is not None:
                    take(node, saying)
            case _:
                self.on_copy(node, saying)
        if self.coordinator.groups and self.timer is None:
            self.timer = self.loop.call_later(_TICK, self.look)

    def on_grant(self, grant: Grant) -> None:
        """The coordinator says what members have."""
        each = self.shares.get(GroupKey(grant.group, grant.reads))
        if each is None:
            return
        effects = each.share.on_grant(grant, self.clock())
        for number, waiter in each.waiters:
            if number <= each.share.answered and not waiter.done():
                waiter.set_result(None)
        for name, is_accepted in each.share.decided.items():
            decided = self.steps.get(name)
            if decided is not None and not decided.done():
                decided.set_result(is_accepted)
        if each.group is not None:
            each.group.obey(effects)
            if grant.error:
                each.group.refuse(grant.error)
        if each.share.is_dirty or each.share.is_over:
            self.on_changed(each.share.key)

    # What other hosts keep of commits that publish

    @property
    def store(self) -> str:
        """The name of this node's store."""
        return self.service.thread.name

    def pass_on(self, node: str, saying: Copying) -> None:
        """Says something to a node."""
        self.send(node, saying)
        self.outboxes.flush()

    def keepers(self) -> list[str]:
        """Nodes that can be reached, one of each host that is not this node's."""
        if not self.node.is_running:
            return []
        names, labels = self.records.nodes(), self.records.labels()
        own = labels.get(self.store, self.store)
        up = [names[each] for each in self.node.up if each in names]
        others = [each for each in order(self.store, up) if labels.get(each, each) != own]
        return [node_of(each) for each in apart(others, labels)]

    def has_hosts(self) -> bool:
        """Whether there is another host than this node's."""
        return self.service.hosts > 1

    def is_lost(self, store: str) -> bool:
        """Whether a node has another store, or is no member."""
        if not self.node.is_running:
            return False
        node = node_of(store)
        is_member = node == self.name or node in self.node.members
        return not is_member or self.records.nodes().get(node, store) != store

    # What an operator asks

    async def listed(self, group: str) -> list[FoundGroup]:
        """The groups of a name, or all.

        Raises:
            StreamError: nobody answers.
        """
        if self.service.cursors is None:
            return []
        parts: dict[tuple[str, int], list[FoundGroup]] = {}
        found: list[FoundGroup] = []

        def take(node: str, answer: FoundGroups | GroupChanged) -> bool:
            if not isinstance(answer, FoundGroups):
                return False
            # Who coordinated before may answer as well, and so may who was asked before.
            part = parts.setdefault((node, answer.question), [])
            part.extend(answer.groups)
            if answer.is_last:
                found[:] = part
            return answer.is_last

        await self.asked(lambda number: AskGroups(number, group), take)
        return found

    async def change(
        self, key: GroupKey, positions: Mapping[int, int] | None, stream: str = ""
    ) -> None:
        """Has a group begin elsewhere in a stream, or forgotten.

        Raises:
            StreamError: it has members, or nobody answers.
        """
        errors: list[str] = []
        numbers = None if positions is None else pairs(dict(positions))

        def take(_node: str, answer: FoundGroups | GroupChanged) -> bool:
            if isinstance(answer, GroupChanged):
                errors.append(answer.error)
            return bool(errors)

        await self.asked(lambda number: ChangeGroup(number, *key, numbers, stream), take)
        if errors[0]:
            raise StreamError(errors[0])

    async def asked(
        self,
        ask: Callable[[int], Saying],
        take: Callable[[str, FoundGroups | GroupChanged], bool],
    ) -> None:
        """Asks the coordinator until it has answered: all nodes, if whoever is thought to be it did not.

        An answer counts whenever it comes: on a busy machine each may take longer than it takes to ask again.

        Raises:
            StreamError: it does not.
        """
        done = asyncio.Event()
        asked: list[int] = []

        def heard(node: str, answer: FoundGroups | GroupChanged) -> None:
            if take(node, answer):
                done.set()

        try:
            async with asyncio.timeout(_PATIENCE):
                while not done.is_set():
                    number = next(self.numbers)
                    self.questions[number] = heard
                    asked.append(number)
                    self.say(ask(number), ask_all=len(asked) > 1)
                    self.outboxes.flush()
                    with suppress(TimeoutError):
                        async with asyncio.timeout(_AGAIN):
                            await done.wait()
        except TimeoutError:
            raise StreamError(
                "no coordinator of consumer groups answers: that takes most of the nodes that vote; "
                "see vmq cluster status"
            ) from None
        finally:
            for number in asked:
                del self.questions[number]
