"""What the thread of the groups tells the rest of the node."""

from typing import Protocol

from vmq_cluster.raft.effects import Committed


class Outside(Protocol):
    """Who is told what happens; called in the thread."""

    def send(self, peer: str, raw: bytes) -> None:
        """An envelope for a member, by its name in groups."""

    def on_led(self, group: str, leader: str, term: int) -> None:
        """A group has another leader, as far as is known here; "": none."""

    def on_committed(self, committed: Committed) -> None:
        """A group has committed more."""

    def on_uncertain(self, group: str, first: int, end: int, given_up: bool) -> None:
        """Rows may be missing; or are, by an operator's word."""

    def on_unknown(self, group: str) -> None:
        """A member of a group speaks that is not open here."""

    def on_pass(self) -> None:
        """A pass ends: what was told in it may be handed on."""
