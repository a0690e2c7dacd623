"""Fences: asking another node whether it has seen certain writes to the metadata; see `routing.subscribe_barrier`."""

from typing import Annotated

from msgspec import Meta, field

from vmq.clustering.messages.base import NodeMessage
from vmq_cluster.clocks import NodeClock
from vmq_cluster.errors import MalformedError
from vmq_cluster.messages import WireClock

_Number = Annotated[int, Meta(ge=1, lt=1 << 62)]


class BarrierRequest(NodeMessage, frozen=True, tag=3):
    """Asks to be told when these dots have been seen."""

    number: _Number
    clock: WireClock

    def check(self) -> None:
        """Refuses what is no clock."""
        _check(self.clock)


class BarrierReached(NodeMessage, frozen=True, tag=4):
    """They have. `clock`: what this life of the node had written before it said so; versions before say none."""

    number: _Number
    clock: WireClock = field(default_factory=dict)

    def check(self) -> None:
        """Refuses what is no clock."""
        _check(self.clock)


def _check(clock: WireClock) -> None:
    try:
        NodeClock.checked(clock)
    except MalformedError as error:
        raise ValueError(str(error)) from None
