"""Publishes at QoS 1 as a session does: what grows becomes one publication; and a client that takes it."""

from abc import ABC, abstractmethod
from collections import deque
from functools import partial
from typing import Final

from hypothesis import strategies as st

from tests.simulator.sessions.client import one_by_one
from vmq.clustering.front.sessions import SessionNode
from vmq.clustering.messages.fronts import SessionStep
from vmq.clustering.origin.outbox import Publication
from vmq.clustering.slots.words import PUBACK, SEND

CLIENT: Final = "c"


#: What may happen to a `Subscribed` wherever its slot is: its methods, and what they are given.
STEPS: Final = (
    st.tuples(
        st.just("publish"),
        st.sampled_from(["t", "u"]),
        st.lists(st.binary(max_size=3), min_size=1, max_size=70),
        st.booleans(),
    ),
    st.tuples(st.just("acknowledge"), st.integers(1, 9)),
    st.tuples(st.just("acknowledge_last")),
    st.tuples(st.just("look")),
    st.tuples(st.just("tick")),
)


class Subscribed(ABC):
    """A client of a node that takes and acknowledges, and what was published for it."""

    def __init__(self, node: SessionNode) -> None:
        self.near = node
        #: How many connections it had.
        self.number = 0
        #: What the client got, and what it has not acknowledged.
        self.got: list[bytes] = []
        self.open: deque[int] = deque()
        self.published: list[bytes] = []
        self.safe: list[bytes] = []

    @abstractmethod
    def target(self, topic: str) -> tuple[int, str]:
        """Where the messages of a topic go."""

    def publish(self, topic: str, payloads: list[bytes], are_one: bool = True) -> None:
        """Each payload is made another than all before. `are_one`: as what a publisher sends in one pass."""
        payloads = [b"%d %s" % (at, each) for at, each in enumerate(payloads, len(self.published))]
        self.published += payloads
        origin, target, name = self.near.origin, self.target(topic), topic.encode()
        told = object() if are_one else None
        run: list[bytes] = []
        for payload in payloads:
            if origin.grow(target, name, payload, False, "", told):
                run.append(payload)
            else:
                run = [payload]
                publication = Publication(name, payload, 1, 0, partial(self.safe.extend, run))
                origin.publish(origin.reserve([target]), publication, told)
        self.near.finish()
        self.take()

    @abstractmethod
    def take(self) -> None:
        """What the nodes want done; `take_steps` is a part of it."""

    def take_steps(self) -> None:
        """What is for the client."""
        steps, self.near.effects.steps = self.near.effects.steps, []
        for number, step in steps:
            for each in one_by_one([step]):
                if number == self.number and each.kind == SEND:
                    self.open.append(each.packet)
                    if not each.is_again or each.payload not in self.got:
                        self.got.append(each.payload)

    def connect(self) -> None:
        """The client comes, over a connection in place of what it had: packet ids of that are nothing to it."""
        self.number += 1
        self.open.clear()
        self.near.connect(self.number, CLIENT)
        self.take()

    def acknowledge(self, count: int) -> None:
        packets = [self.open.popleft() for _ in range(min(count, len(self.open)))]
        run = b"".join(b"\x40\x02" + each.to_bytes(2, "big") for each in packets)
        self.near.front.acknowledge(self.number, run)
        self.near.finish()
        self.take()

    def acknowledge_last(self) -> None:
        """Out of turn."""
        if self.open:
            self.near.front.step(self.number, SessionStep(PUBACK, self.open.pop()))
            self.near.finish()
            self.take()
