"""The owner of a slot: chooses followers, gathers forks, takes messages.

An owner **serves** when every node in reach has handed in what it has of the slot that this state does not include,
or has said that it has nothing: before that it takes no message and attaches nobody. So who takes over is a matter of
speed, never of safety.
"""

from collections.abc import Callable
from functools import partial

from vmq.clustering.messages.fronts import Offer, OfferedMessage, OfferTaken
from vmq.clustering.messages.slots import (
    AskFork,
    ForkIncluded,
    NoFork,
    SlotStored,
    SlotView,
    StatePart,
    TakeTurn,
)
from vmq.clustering.slots.attachments import Attachments
from vmq.clustering.slots.copies import RecordSet
from vmq.clustering.slots.flow import FlowRun
from vmq.clustering.slots.here import LocalNode
from vmq.clustering.slots.merge import has_all_of, merge
from vmq.clustering.slots.owned import OwnedSlot
from vmq.clustering.slots.placement import choose
from vmq.clustering.slots.records import all_records, load_state
from vmq.clustering.slots.state import SlotState
from vmq.clustering.slots.words import NO_LINEAGE, Dot, includes
from vmq_cluster.errors import StorageError


class SlotOwner(OwnedSlot):
    """One slot in one lineage, which is of this incarnation.

    Args:
        disk: the records of the state, which are whole.
        set_view: has everybody know a view.
    """

    def __init__(
        self,
        here: LocalNode,
        slot: int,
        view: SlotView,
        state: SlotState,
        disk: RecordSet,
        set_view: Callable[[int, SlotView], None],
    ) -> None:
        super().__init__(here, slot, view, state, disk)
        self._set_view = set_view
        self.cleared = {}
        #: Who was asked for forks.
        self._asked: set[int] = set()
        self._forks: dict[int, list[StatePart]] = {}
        #: Whose copies may go when a version is safe and the followers are whole.
        self._leftover: dict[int, int] = {}
        #: Whose offers were not taken, or came out of turn: they are to offer from the oldest.
        self._refused: set[int] = set()
        self._offers: dict[int, tuple[int, int]] = {}
        #: What was offered by which store, whose client has all of it.
        self._had: dict[int, list[Dot]] = {}
        #: The next owner, by plan.
        self.wish: int = 0
        #: The followers to be, by plan; none: those that there are may stay.
        self.planned: tuple[int, ...] = ()
        self.attachments = Attachments(self)

    def flush(self, is_due: bool) -> None:
        """The turn is over; `is_due`: what it changed does not wait for more.

        What is written of messages at QoS 1 that are sent now, nobody waits for: most are acknowledged before that.
        """
        self.tell_had()
        if self._had:
            self._tell_had()
        self.release(is_due)
        self.attachments.deliver()
        self.release(False)
        self._release_leftovers()
        self.attachments.flush()

    def publish(self) -> None:
        super().publish()
        self.state.cool(self.attachments.serving, self.here.ahead)

    def is_idle(self) -> bool:
        """Whether a turn that does not concern it may pass it over."""
        return not (self._commits or self.waits() or self._leftover)

    def is_behind(self) -> bool:
        """Whether it has changed what is no version yet."""
        return self.state.has_changed() or bool(self.state.late)

    def is_at_rest(self) -> bool:
        """Whether nothing of it waits for a heartbeat."""
        return (
            not (self.wish or self.planned or self._refused)
            and self.serves(self.here.store)
            and self.followers.are_whole(self.view.followers)
            and self.attachments.are_at_rest()
        )

    # Followers

    def look(self) -> None:
        """Time has passed, or who is in reach has changed."""
        reach = self.here.reach
        up = reach.up()
        for store in [each for each in self.cleared if each not in up]:
            self.forget(store)
        self._asked.intersection_update(up)
        if self.wish not in reach.heirs():
            self.wish = 0  # before it is chosen as a follower that nobody hears
        self._choose_followers()
        for store in up:
            if store not in self._asked:
                self._asked.add(store)
                included = sorted(self.state.included.items())
                self.here.send(store, AskFork(self.slot, self.view, included))
        if self.wish and self.wish in self.view.followers:
            progress = self.followers.progress.get(self.wish)
            if progress is not None and progress.is_whole and progress.stored >= self._stored:
                self.here.send(self.wish, TakeTurn(self.slot, self.view))
        self.attachments.look()
        self._retry()

    def forget(self, store: int) -> None:
        """A peer is out of reach, or has begun another life: what it said counts no more."""
        self.cleared.pop(store, None)
        self._asked.discard(store)
        self._forks.pop(store, None)
        self._leftover.pop(store, None)
        self.followers.progress.pop(store, None)
        self.attachments.subscribers.groups.lost_a_peer()

    def _choose_followers(self) -> None:
        followers = self.view.followers
        chosen = self._wanted_followers()
        reach = self.here.reach
        if not chosen and (
            (followers and not reach.is_settled()) or any(map(reach.is_up, followers))
        ):
            return  # they may be there still; better one that is about to leave than nobody
        if set(chosen) != set(followers):
            view = SlotView(self.view.epoch, self.view.owner, self.view.number + 1, tuple(chosen))
            dropped = [each for each in followers if each not in chosen]
            self._set_view(self.slot, view)
            self.followers.keep_only(view.followers)
            for store in dropped:
                if store in self.cleared:
                    self._tell_included(store)
        for store in self.view.followers:
            if store in self.cleared and store not in self.followers.progress:
                self._begin_follower(store)

    def _wanted_followers(self) -> list[int]:
        """Nodes of as many other hosts as are to have copies; besides the next owner, which may be of this host.

        One that is to follow by plan comes before another one goes: that has the last whole copy, perhaps.
        """
        reach, wish, planned = self.here.reach, self.wish, self.planned
        fit = reach.fit()
        followers = [each for each in self.view.followers if each in fit]
        count = min(self.here.replicas - 1, reach.other_hosts())
        if not wish and len(followers) == len(self.view.followers):
            are_whole = self.followers.are_whole(self.view.followers)
            if len(followers) == count:
                missing = [each for each in planned if each in fit and each not in followers]
                return [*followers, *missing[:1]] if are_whole else followers
            if not are_whole and set(planned).intersection(followers):
                return followers
        followers.sort(key=lambda store: store not in planned)
        hosts = {store: reach.host_of(store) for store in fit}
        if wish in hosts and wish not in followers:
            followers.insert(0, wish)
        chosen = choose(self.slot, hosts, count, followers)
        return [*chosen, wish] if wish and wish not in chosen else chosen

    def _begin_follower(self, store: int) -> None:
        self.state.tell_late()
        self.publish()
        self._leftover.pop(store, None)
        has, state = self.cleared[store], self.state
        self.followers.begin(self.view, store, has, state.version, lambda: all_records(state))

    def on_stored(self, store: int, message: SlotStored) -> None:
        if message.lineage == self.view.lineage and store in self.view.followers:
            self.followers.on_stored(store, message)

    # Forks

    def serves(self, store: int) -> bool:
        """Whether it takes anything that comes by way of a store.

        Who is just in reach again may have been served by another owner, whom it hears and this node does not yet: of
        what that one has finished at QoS 2 nothing is known here until its fork has joined.
        """
        reach = self.here.reach
        if not reach.is_settled() or not self.has_heard(reach.up()):
            return False
        return store == self.here.store or (store in self.cleared and reach.is_caught_up(store))

    def on_no_fork(self, store: int, message: NoFork) -> None:
        if message.accepted != self.view.lineage:
            return
        has = message.lineage, message.version
        self.cleared[store] = has
        lacks = self.state.lacks
        if lacks != NO_LINEAGE and has_all_of(lacks, message.current, self.state.included):
            self.state.resolve()
            self.attachments.on_merge()
        if store in self.view.followers:
            self._begin_follower(store)
        elif has[1]:
            self._tell_included(store)
        self._retry()

    def on_fork(self, store: int, part: StatePart) -> None:
        """A state that this one does not include comes in parts."""
        if part.index == 0:
            self._forks[store] = []
        parts = self._forks.get(store)
        if parts is None or part.index != len(parts):
            return
        parts.append(part)
        if not part.is_last:
            return
        del self._forks[store]
        if not includes(self.state.included, part.lineage, part.version):
            # If this disk fails to give what it joins, it is to come again.
            self._asked.discard(store)
            records = {key: value or b"" for each in parts for key, value in each.records}
            merge(self.state, load_state(records), part.current)
            self._asked.add(store)
            self.attachments.on_merge()
        self.cleared[store] = part.lineage, part.version
        if store in self.view.followers:
            self._begin_follower(store)
        else:
            self._tell_included(store)
        self._retry()

    def _tell_included(self, store: int) -> None:
        """Has a node delete its copy, once nothing in it is only there."""
        self.cleared[store] = NO_LINEAGE, 0  # of what it has, nothing may be left soon
        self._leftover[store] = self.version_now()

    def _release_leftovers(self) -> None:
        """Copies go that all followers include: these are whole, not only as far as somebody waits for it."""
        if not self._leftover or not self.followers.are_whole(self.view.followers):
            return
        safe, told = self.safe_version(), sorted(self.state.included.items())
        for store, version in list(self._leftover.items()):
            if version <= safe:
                del self._leftover[store]
                self.here.send(store, ForkIncluded(self.slot, self.view, told))

    def _retry(self) -> None:
        """It may serve now: whoever was not answered, tries again."""
        if self.serves(self.here.store):
            if self.has_all_forks():
                self.state.forget_forks()
            ready = sorted(filter(self.serves, self._refused))
            self._refused.difference_update(ready)
            for store in ready:
                self._tell_taken(store, [], again=True)
            self.attachments.retry()

    # Messages

    def on_offer(self, store: int, offer: Offer, is_patient: Callable[[], bool]) -> bool:
        """Takes what was not seen; the answer comes when it is safe; returns whether anybody waits for that.

        For the origin's own client nobody does, while there is patience: see `OwnedSlot.when_had`.
        """
        if offer.lineage != self.view.lineage:
            return True
        if not self.serves(store):
            self.refuse(store)
            return True
        if not self._is_in_turn(store, offer):
            return True
        self._offers[store] = offer.link, offer.index + 1
        self.here.heard_of(offer.clock)
        try:
            dots = self._take_all(store, offer.messages, is_patient)
        except StorageError:
            self.refuse(store)  # it is to offer all of it again
            raise
        if not dots:
            return False
        self.when_safe(lambda: self._tell_taken(store, dots))
        return True

    def _tell_taken(self, store: int, dots: list[Dot], again: bool = False) -> None:
        """An origin is told what is safe of what it offered, or that it is to offer all `again`."""
        clock = self.here.clock
        self.here.send(store, OfferTaken(self.slot, self.view.lineage, dots, again, clock))

    def _take_all(
        self, store: int, messages: list[OfferedMessage], is_patient: Callable[[], bool]
    ) -> list[Dot]:
        """Takes what was not seen; returns what is to be told as soon as it is safe."""
        dots: list[Dot] = []
        for message in messages:
            run = self._take_run(message)
            full = "" if run is not None else self.take(message)
            if full:
                self.attachments.held.hold(full, store, message.dot)
            elif run is not None and run.front == store and is_patient():
                # The origin, whose client it is for, knows first when that has it; it is told all the same.
                self.when_had(run, partial(self._on_had, run, store, message.dot))
            else:
                dots.append(message.dot)
        return dots

    def _on_had(self, run: FlowRun, store: int, dot: Dot) -> None:
        if run.done == run.count:
            self._had.setdefault(store, []).append(dot)
        else:  # it took too long, and is safe
            self._tell_taken(store, [dot])

    def _tell_had(self) -> None:
        """What clients have, their fronts know: these are told when something else is said."""
        had, self._had = self._had, {}
        for store, dots in had.items():
            taken = OfferTaken(self.slot, self.view.lineage, dots, False, self.here.clock)
            self.here.effects.later.append((store, taken))

    def refuse(self, store: int) -> None:
        """It takes nothing now; that origin is told when it does."""
        self._refused.add(store)
        self._offers.pop(store, None)

    def _is_in_turn(self, store: int, offer: Offer) -> bool:
        """Whether everything that was offered before it was taken."""
        return offer.index == 0 or self._offers.get(store) == (offer.link, offer.index)

    def take(self, message: OfferedMessage) -> str:
        """Messages join the queues of those who want them, unless they were seen; returns whose is full, or ""."""
        (origin, place), topic, qos = message.dot, message.topic, message.qos
        group, retain, but = message.group, message.retain, message.but
        for at, payload in enumerate([message.payload, *message.more]):
            self._take_one((origin, place + at), topic, payload, qos, group, retain, but)
        return self.attachments.subscribers.take_full()

    def _take_one(
        self, dot: Dot, topic: bytes, payload: bytes, qos: int, group: str, retain: bool, but: str
    ) -> None:
        """It is seen when it is queued, not before: what fails is taken when it is offered again."""
        if dot not in self.state.context:
            self.attachments.subscribers.take(dot, topic, payload, qos, group, retain, but)
            self.state.see(dot)

    def _take_run(self, message: OfferedMessage) -> FlowRun | None:
        """Messages at QoS 1 flow to their client; None: they are to be taken one by one."""
        if message.qos != 1:
            return None
        topic, payloads, but = message.topic, [message.payload, *message.more], message.but
        flows = self.attachments.flows
        return flows.take(message.dot, topic, payloads, message.group, message.retain, but)

    def take_here(
        self, dot: Dot, topic: bytes, payload: bytes, qos: int, group: str, retain: bool, but: str
    ) -> bool:
        """A message of this node joins the queues; False: its publisher is to wait for room in one."""
        self._take_one(dot, topic, payload, qos, group, retain, but)
        full = self.attachments.subscribers.take_full()
        if full:
            self.attachments.held.hold(full, self.here.store, dot)
        return not full
