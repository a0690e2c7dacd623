"""What producers were promised of their jobs, and who does them."""

from dataclasses import dataclass, field

from vmq.jobs.calls import CallWaiter
from vmq.jobs.queue import Job


@dataclass
class Promise:
    copies: int
    is_once: bool
    node: str
    key: bytes = b""
    is_told: bool = False
    is_done: bool = False
    done_at: float = 0.0
    deliveries: int = 0
    #: Deliveries that nothing explains: no worker gave it up or died.
    excused: int = 0
    #: It was added while something was wrong: another side of a split may have added another with its key.
    is_troubled: bool = False
    #: Its publisher had it added by a second node, since the first had died or was out of reach: both may give it.
    is_doubled: bool = False

    def stands_for(self, other: "Promise") -> bool:
        """Whether it was added with the same key, to be on as many hosts: of two of these the lower id stays."""
        return self.is_told and self.key == other.key != b"" and self.copies == other.copies


@dataclass
class TakenKey:
    """A key whose job a producer was told of: nobody adds another."""

    copies: int
    #: Disks that were lost before.
    losses: int
    #: What producers were told: one, or on each side of a split one.
    ids: set[bytes] = field(default_factory=set)


@dataclass
class Worker:
    """Takes one job at a time, at one node."""

    node: str
    waiter: CallWaiter | None = None
    job: bytes = b""
    until: float = 0.0
    boot: int = 0
    got: list[Job] = field(default_factory=list)
