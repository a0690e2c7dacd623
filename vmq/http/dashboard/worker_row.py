"""What page and `vmq top` show of each of several workers."""

from msgspec import Struct


class WorkerRow(Struct, frozen=True, array_like=True):
    """One of several workers: what it is and does now.

    `cpu` is percent of a core, `lag` milliseconds, `received` and `sent` messages a second, `memory` bytes.
    """

    number: int
    state: str
    pid: int
    restarts: int
    connections: float = 0.0
    received: float = 0.0
    sent: float = 0.0
    cpu: float = 0.0
    lag: float = 0.0
    memory: float = 0.0
