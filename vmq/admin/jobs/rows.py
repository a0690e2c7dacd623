"""What an operator is told of jobs and their queues."""

from typing import Annotated

from msgspec import Meta, Struct

from vmq.admin.payloads import Encoding
from vmq.admin.trees import Mountpoint


class JobQueueRow(Struct, frozen=True, kw_only=True):
    """One queue."""

    queue: str
    mountpoint: Mountpoint
    depth: Annotated[int, Meta(description="Jobs that are queued")]
    jobs: Annotated[
        int,
        Meta(description="All that are not done; of a node alone those that no other one counts"),
    ]
    dead: Annotated[int, Meta(description="Its dead letters that are queued")]
    workers: Annotated[int, Meta(description="Workers that wait for a job")]
    paused: Annotated[str, Meta(description="none, in, out or all")]
    oldest: Annotated[float, Meta(description="Seconds since the oldest queued job was added")]
    came: Annotated[int, Meta(description="Jobs that were added since the broker's start")]
    went: Annotated[int, Meta(description="Times that one was given to a worker since then")]


class JobQueueDetails(Struct, frozen=True, kw_only=True):
    """One queue with the options that hold for it."""

    queue: str
    mountpoint: Mountpoint
    depth: int
    jobs: int
    dead: int
    workers: int
    paused: str
    oldest: float
    came: int
    went: int
    retry: list[int]
    ttl: int
    priority: int
    maxlen: int
    max_deliveries: int
    dead_ttl: int
    dead_maxlen: int
    key_window: int
    max_run: int
    refuse_after: int
    persistence: str
    replicate: int
    when_split: str
    groups: Annotated[list[str], Meta(description="Each has its jobs in QUEUE@GROUP")] = []
    missing: Annotated[list[str], Meta(description="Nodes that did not tell their figures")] = []


class JobRow(Struct, frozen=True, kw_only=True):
    """One job."""

    id: str
    queue: str
    mountpoint: Mountpoint
    state: Annotated[
        str, Meta(description="queued; delayed; active = a worker has it, or it is set aside; dead")
    ]
    priority: int
    age: Annotated[float, Meta(description="Seconds since it was added")]
    created: Annotated[str, Meta(description="When that was, as in 2030-01-31T06:00:00.123456789Z")]
    next: Annotated[
        float | None,
        Meta(description="Seconds until it is due, or given again; null = it is queued"),
    ]
    ttl: Annotated[float, Meta(description="Seconds that are left of its time to live")]
    retry: Annotated[int, Meta(description="Seconds until it is given again; 0 = never")]
    deliveries: Annotated[int, Meta(description="Times that it was given to workers")]
    nacks: int
    repeats: int
    key: str
    reason: Annotated[str, Meta(description="Why it is a dead letter")]
    history: Annotated[list[str], Meta(description="Its failures: when, and what")]
    size: Annotated[int, Meta(description="Bytes of the body")]
    topic: Annotated[str, Meta(description="Where a delayed message goes; empty = it is none")] = ""
    body: Annotated[str, Meta(description="What is to be done; of a delayed message its payload")]
    encoding: Encoding
    truncated: bool


class JobAdded(Struct, frozen=True):
    """The job that was added, or has the key."""

    id: str


class JobsChanged(Struct, frozen=True):
    """How many jobs it concerned."""

    jobs: int


class QueuePaused(Struct, frozen=True):
    """What is paused now."""

    queue: str
    paused: str
