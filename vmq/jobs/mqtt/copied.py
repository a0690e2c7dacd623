"""An MQTT publisher is acknowledged when its job is on the hosts that are to have it."""

from collections.abc import Callable
from typing import Any

from vmq.disk.durable import Durable
from vmq.jobs.commit import JobCommit
from vmq.jobs.queue import Job
from vmq.jobs.stock import NO_HOSTS


def acknowledge_when_copied(
    client: Any,
    commit: JobCommit,
    jobs: list[Job],
    failed: Callable[[str], None],
    is_copied: Callable[[], None] | None = None,
) -> None:
    """Holds the answers of this pass until jobs are on their hosts; calls `is_copied` then, or `failed` with why they
    are not in time.
    """
    copied = Durable()
    client.output.answer_after(copied, 1)

    def told(is_there: bool) -> None:
        if is_there:
            if is_copied is not None:
                is_copied()
            copied.advance(1)
        else:
            failed(NO_HOSTS)
        client.core.outbox.flush()

    deadline = commit.clock() + jobs[0].queue.rules.refuse_after
    commit.machine.sharing.wait(jobs, deadline, told)
