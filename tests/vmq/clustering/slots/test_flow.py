"""What flows through a slot is what would be there one by one: for the client, in the state, and on the disk."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.vmq.clustering.slots.publishing import CLIENT, STEPS, Subscribed
from vmq.clustering.front.sessions import SessionNode
from vmq.clustering.messages.fronts import SessionStep
from vmq.clustering.slots.flow import SendingRun
from vmq.clustering.slots.here import LocalNode
from vmq.clustering.slots.reach import Reach
from vmq.clustering.slots.records import load_state
from vmq.clustering.slots.state import SlotState
from vmq.clustering.slots.words import SUBSCRIBE, incarnation_of

#: Bytes in front of the key of a record: that it is one, its slot, and the number of the set.
PREFIX = 7
WINDOW = 7


class Stream(Subscribed):
    """A node without others, a publisher, and a client that takes and acknowledges."""

    def __init__(self, window: int = WINDOW) -> None:
        here = LocalNode(incarnation_of(1, 1), Reach(1, "x", 1000, 200), replicas=1, window=window)
        super().__init__(SessionNode(here, 1))
        self.now = 0
        #: What is on the disk, and what it has been told to write.
        self.disk: dict[bytes, bytes] = {}
        self.runs = 0
        self.near.slots.found()
        self.tick()
        self.connect()
        self.near.front.step(self.number, SessionStep(SUBSCRIBE, 1, filters=[("#", 1)]))
        self.near.finish()
        for slot, ticket, begun, _ in self.near.effects.routes:
            for each in begun:
                self.near.routes.add(each, slot)
            self.near.announced(slot, ticket)
        self.tick()
        self.write()

    @property
    def state(self) -> SlotState:
        return self.near.slots.owners[0].state

    def tick(self) -> None:
        self.now += 100
        self.near.tick(self.now)
        self.take()

    def target(self, topic: str) -> tuple[int, str]:
        (found,) = self.near.routes.targets(topic)
        return found

    def take(self) -> None:
        self.runs += sum(isinstance(step, SendingRun) for _, step in self.near.effects.steps)
        self.take_steps()

    def look(self) -> None:
        """Somebody wants to see each message."""
        assert len(self.state.messages) == len(self.state.queues.get(CLIENT, {}))

    def write(self) -> None:
        number, writes, _ = self.near.effects.begin_commit()
        for key, value in writes.items():
            if value is None:
                self.disk.pop(key, None)
            else:
                self.disk[key] = value
        self.near.on_stored(number)
        self.take()

    def check(self) -> None:
        """What is on the disk is what is in memory, when nothing is late."""
        self.tick()
        self.write()
        loaded = load_state({k[PREFIX:]: v for k, v in self.disk.items() if k[:1] == b"S"})
        state = self.state
        waiting = [state.messages[dot].payload for dot in state.queues.get(CLIENT, {})]
        assert [loaded.messages[dot].payload for dot in loaded.queues.get(CLIENT, {})] == waiting
        assert loaded.queues == state.queues
        assert loaded.sizes == state.sizes
        mine, theirs = state.registers[CLIENT], loaded.registers[CLIENT]
        assert theirs.last_packet == mine.last_packet
        assert [(k, s.dot, s.qos) for k, s in theirs.window.items()] == [
            (k, s.dot, s.qos) for k, s in mine.window.items()
        ]
        assert loaded.context == state.context
        table = self.near.front.connections[self.number].table
        assert list(table) == list(self.open)
        assert sorted(mine.window) == sorted(self.open)


FLOW = st.lists(
    st.one_of(*STEPS, *(st.tuples(st.just(each)) for each in ("write", "connect", "check"))),
    max_size=25,
)


@settings(max_examples=100, deadline=None)
@given(FLOW, st.sampled_from([-1, 0, 20]))
def test_what_flows_is_as_if_one_by_one(steps: list[tuple[Any, ...]], window_bytes: int) -> None:
    there = Stream()
    limits = there.near.here.limits.all
    limits.window_bytes = window_bytes
    for name, *rest in steps:
        getattr(there, name)(*rest)
    there.connect()
    there.tick()  # for what this connection does not acknowledge in its turn, nobody waits longer
    for _ in range(len(there.published) + 2):
        there.acknowledge(WINDOW)
        there.write()
    # Those that a client had before they were written may be told before earlier ones, which were written.
    assert sorted(there.safe) == sorted(there.published)
    assert list(dict.fromkeys(there.got)) == there.published
    there.check()
    assert not there.state.messages
    assert not there.state.blocks
    kinds = [key[PREFIX : PREFIX + 1] for key in there.disk if key[:1] == b"S"]
    assert not {b"m", b"q", b"i"} & set(kinds)


def test_a_burst_flows_and_each_message_comes_once() -> None:
    there = Stream()
    for turn in range(40):
        there.publish("t", [b"%d" % turn] * 100)
        while there.open:
            there.write()
            there.acknowledge(WINDOW)
    assert there.got == there.published == there.safe
    assert there.runs >= 40
    assert not there.state.flows


def test_packet_ids_begin_again_after_the_last() -> None:
    there = Stream(window=1000)
    for _ in range(35):
        there.publish("t", [b"x"] * 1000)
        there.write()
        assert len(set(there.open)) == 1000
        there.check()
        there.acknowledge(1000)
    assert there.got == there.published
