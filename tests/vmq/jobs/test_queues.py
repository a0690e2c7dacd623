"""Which queues there are, and how many."""

import pytest

from vmq.jobs.queues import JobQueues, JobRefusedError
from vmq.jobs.rules import JobRules


def test_queues_are_counted_by_who_made_them() -> None:
    queues = JobQueues(lambda _: JobRules())
    queues.max_queues_per_user = 2
    for name in (b"a", b"b"):
        queues.queue(name, 0.0, "u")
    with pytest.raises(JobRefusedError, match=r"^OOM user 'u' has made .*max_job_queues_per_user"):
        queues.queue(b"c", 0.0, "u")
    # Which there are may be used; others, and the broker itself, have queues of their own.
    assert queues.queue(b"a", 0.0, "u").maker == "u"
    for name, user in ((b"d", "v"), (b"e", ""), (b"f", None), (b"g", None), (b"h", None)):
        assert queues.queue(name, 0.0, user).maker == user
    queues.queue(b"i", 0.0, "")
    with pytest.raises(JobRefusedError, match="clients without a user name have"):
        queues.queue(b"j", 0.0, "")
    # One that nobody uses makes room.
    queues.queue(b"a", 2.0, "u")
    queues.queue(b"c", 2.0, "u")
    assert b"b" not in queues.queues
    assert queues.made == {"u": 2}
    queues.drop_idle(1000.0)
    assert queues.made == {}
