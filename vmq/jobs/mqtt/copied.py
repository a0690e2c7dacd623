"""An MQTT publisher is acknowledged when its job is on the hosts that are to have it."""

from collections.abc import Callable
from typing import Any

from vmq.durable import Durable
from vmq.jobs.commit import JobCommit
from vmq.jobs.queue import Job
from vmq.jobs.stock import NO_HOSTS


def acknowledge_when_copied(
    client: Any, commit: JobCommit, jobs: list[Job], failed: Callable[[str], None]
) -> None:
    """Holds the answers of this pass until jobs are on their hosts; calls `failed` with why if they are not in time."""
    copied = Durable()
    client.output.answer_after(copied, 1)

    def told(is_there: bool) -> None:
        if is_there:
            copied.advance(1)
        else:
            failed(NO_HOSTS)
        client.core.outbox.flush()

    deadline = commit.clock() + jobs[0].queue.rules.refuse_after
    commit.machine.sharing.wait(jobs, deadline, told)
