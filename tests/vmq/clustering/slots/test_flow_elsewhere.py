"""What flows through a slot of another node comes as through one of this: for the client, and in the owner's state."""

from collections import deque
from typing import Any, Final

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.vmq.clustering.slots.publishing import CLIENT, STEPS, Subscribed
from vmq.clustering.front.sessions import SessionNode
from vmq.clustering.messages import fronts
from vmq.clustering.messages.base import NodeMessage
from vmq.clustering.slots.flow import PACKETS
from vmq.clustering.slots.here import LocalNode
from vmq.clustering.slots.reach import Reach
from vmq.clustering.slots.words import SUBSCRIBE, incarnation_of

WINDOW = 7
ENCODER: Final = msgspec.msgpack.Encoder()
DECODER: Final[msgspec.msgpack.Decoder[Any]] = msgspec.msgpack.Decoder(fronts.SessionMessage)


class Pair(Subscribed):
    """Node 1 with a publisher and a client, and node 2, which owns the client's slot."""

    def __init__(self, window: int = WINDOW) -> None:
        self.nodes: dict[int, SessionNode] = {}
        for store, other in (1, 2), (2, 1):
            reach = Reach(store, "xyz"[store], 1000, 200)
            reach.set_members({other: "xyz"[other]})
            here = LocalNode(incarnation_of(store, 1), reach, replicas=1, window=window)
            self.nodes[store] = SessionNode(here, 1)
        super().__init__(self.nodes[1])
        self.far = self.nodes[2]
        #: What is under way from each node, encoded.
        self.wires: dict[int, deque[bytes]] = {1: deque(), 2: deque()}
        #: How many messages of each kind went.
        self.sent: dict[type[NodeMessage], int] = {}
        self.now = self.life = 0
        self.link()
        self.tick()
        self.far.slots.take_over(0)
        self.tick()
        self.connect()
        self.settle()
        self.near.front.step(self.number, fronts.SessionStep(SUBSCRIBE, 1, filters=[("#", 1)]))
        self.near.finish()
        self.settle()

    def link(self) -> None:
        """The link breaks, with what was under way, and is whole again."""
        for store, node in self.nodes.items():
            self.wires[store].clear()
            node.on_break(3 - store, False)
            node.effects.sent.clear()
        self.life += 1
        for store, node in self.nodes.items():
            node.on_link(3 - store, self.life)
            node.beat(3 - store)
        self.take()

    def tick(self) -> None:
        self.now += 200
        for node in self.nodes.values():
            node.tick(self.now)
        self.settle()

    def target(self, topic: str) -> tuple[int, str]:
        return 0, ""

    def look(self) -> None:
        """Somebody wants to see each message of the owner, and each packet id of the front: some may be held there."""
        state = self.far.slots.owners[0].state
        assert len(state.messages) == len(state.queues.get(CLIENT, {}))
        assert {*self.open} <= self.near.front.connections[self.number].table.keys()

    def take(self) -> None:
        for store, node in self.nodes.items():
            effects = node.effects
            while effects.writes:
                node.on_stored(effects.begin_commit()[0])
            sent, effects.sent = effects.sent, []
            for _, message in sent:
                self.sent[type(message)] = self.sent.get(type(message), 0) + 1
                self.wires[store].append(ENCODER.encode(message))
            routes, effects.routes = effects.routes, []
            for slot, ticket, *_ in routes:
                node.announced(slot, ticket)
        self.take_steps()

    def carry(self, store: int, count: int) -> None:
        """So many messages of a node come to the other, in one frame."""
        wire = self.wires[store]
        messages = [DECODER.decode(wire.popleft()) for _ in range(min(count, len(wire)))]
        node = self.nodes[3 - store]
        for each in messages:
            each.check()
            node.take(store, each)
        node.finish()
        self.take()

    def settle(self) -> None:
        """Until there is nothing to be said."""
        self.take()
        while any(self.wires.values()):
            for store in self.nodes:
                self.carry(store, 1000)
        self.near.effects.present.clear()

    def go_on(self) -> None:
        """The client takes all that comes."""
        while True:
            self.settle()
            if not self.open:
                return
            self.acknowledge(WINDOW)


FLOW = st.lists(
    st.one_of(
        *STEPS,
        st.tuples(st.just("carry"), st.sampled_from([1, 2]), st.integers(1, 5)),
        st.tuples(st.just("settle")),
        st.tuples(st.just("link")),
    ),
    max_size=30,
)


@settings(max_examples=100, deadline=None)
@given(FLOW)
def test_each_message_comes_once_in_order_whenever_links_break(
    steps: list[tuple[Any, ...]],
) -> None:
    there = Pair()
    for name, *rest in steps:
        getattr(there, name)(*rest)
    there.tick()
    there.go_on()
    there.tick()
    there.tick()
    # Of what the client has, its publisher is told at once: earlier ones of another topic may still be written.
    assert sorted(there.safe) == sorted(there.published)
    assert there.got == there.published
    state = there.far.slots.owners[0].state
    assert (state.messages, state.blocks, state.registers[CLIENT].window) == ({}, {}, {})
    assert not there.near.front.connections[there.number].table
    assert there.near.origin.waiting() == 0


def test_a_burst_goes_in_runs() -> None:
    there = Pair(window=50)
    there.sent.clear()
    there.publish("t", [b"x"] * 100)
    there.settle()
    assert len(there.open) == 50
    there.acknowledge(50)
    there.settle()
    there.acknowledge(50)
    there.settle()
    assert there.got == there.safe == there.published
    assert there.sent[fronts.Offer] == 1
    assert fronts.OfferTaken not in there.sent
    assert (there.sent[fronts.ToClient], there.sent[fronts.FromClient]) == (2, 2)


def test_packet_ids_begin_again_after_the_last() -> None:
    there = Pair(window=1000)
    for _ in range(PACKETS // 1000 + 2):
        there.publish("t", [b"x"] * 1000)
        there.settle()
        assert len(set(there.open)) == 1000
        there.acknowledge(1000)
    there.settle()
    assert there.got == there.safe == there.published


def test_what_the_client_has_is_not_sent_again_by_another_connection() -> None:
    there = Pair()
    there.publish("t", [b"x"] * WINDOW)
    there.settle()
    there.acknowledge(3)
    there.link()
    there.settle()
    there.tick()
    there.connect()
    there.go_on()
    there.tick()
    assert there.got == there.published


def test_what_the_origins_own_client_has_its_publisher_knows_at_once_and_nobody_writes() -> None:
    there = Pair()
    there.tick()
    commits = there.far.effects.number
    there.publish("t", [b"x"] * WINDOW)
    there.settle()
    assert there.far.awaited() == WINDOW
    assert there.far.are_far()
    there.acknowledge(WINDOW - 1)
    assert there.safe == []
    there.acknowledge(1)
    assert there.safe == there.published
    there.settle()
    assert there.far.effects.number == commits


def test_a_publisher_waits_for_no_client_that_is_slow() -> None:
    there = Pair()
    there.publish("t", [b"x"] * WINDOW)
    there.settle()
    there.acknowledge(2)
    there.far.hurry()
    there.settle()
    assert there.safe == there.published
    there.go_on()
    there.tick()
    assert there.got == there.published
    assert there.near.origin.waiting() == 0


def test_what_is_offered_again_is_safe_before_all_of_it_is_had() -> None:
    there = Pair()
    there.publish("t", [b"x"] * (2 * WINDOW))
    there.settle()
    there.acknowledge(WINDOW)
    assert there.safe == []
    there.link()
    there.tick()
    assert there.safe == there.published
    there.go_on()
    assert there.got == there.published


def test_an_acknowledgement_goes_with_what_else_goes_there_or_soon() -> None:
    there = Pair()
    there.publish("t", [b"x"])
    there.settle()
    there.sent.clear()
    there.acknowledge(1)
    assert (there.sent, list(there.near.front.late)) == ({}, [there.number])
    there.publish("t", [b"x"])
    assert there.sent == {fronts.Offer: 1, fronts.FromClient: 1}
    there.settle()
    there.sent.clear()
    there.acknowledge(1)
    there.near.front.flush_late(True)
    there.take()
    assert there.sent == {fronts.FromClient: 1}
    there.publish("t", [b"x"] * 4)
    there.settle()
    there.sent.clear()
    there.acknowledge(1)  # half of the window is not free
    assert there.sent[fronts.FromClient] == 1
