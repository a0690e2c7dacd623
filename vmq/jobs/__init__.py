"""Jobs: work that is given to one worker, and given again until it is acknowledged.

`connect` is for programs that talk to a broker; inside the process there is `broker.jobs`.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vmq.jobs.client import AsyncJobClient, AsyncTaken, JobClient, JobError, Taken, connect

__all__ = ["AsyncJobClient", "AsyncTaken", "JobClient", "JobError", "Taken", "connect"]


def __getattr__(name: str) -> object:
    # Late: the broker itself needs no client.
    if name in __all__:
        from vmq.jobs import client

        return getattr(client, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
