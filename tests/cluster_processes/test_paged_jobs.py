"""Jobs with copies and keys that are paged out, while nodes are killed: what was added is done."""

import random
from collections import Counter
from typing import Any

import pytest
import redis

from tests.cluster_processes.jobs import JobCluster, Jobs, job_cluster
from tests.support.until import reach

#: Memory of which an eighth is used up by a few thousand jobs: queues above 8,192 are paged out then.
ENV = {"VMQ_LIMITS__MAX_JOB_MEMORY": str(16 << 20)}
BATCHES, BATCH = 25, 800
KEYS = 500


def batch(client: Jobs, number: int) -> list[bytes]:
    """Adds many jobs at once; their ids."""
    bodies = [b"%d" % (number * BATCH + each) for each in range(BATCH)]
    options = ("REPLICATE", 2, "RETRY", 2)
    found = client("ADDJOBS", "many", 60_000, *options, "JOBS", *bodies)
    return [each for each in found if isinstance(each, bytes)]


def paged_out(jobs: JobCluster) -> int:
    return sum(int(each("INFO")["paged_jobs"]) for each in jobs.clients.values())


def with_keys(client: Jobs, first: int) -> dict[bytes, bytes]:
    """Adds jobs with keys; their ids."""
    pipe: Any = client.redis.pipeline(transaction=False)  # it has no types for commands
    keys = [b"k%d" % (first + each) for each in range(100)]
    for key in keys:
        pipe.execute_command(
            *("ADDJOB", "many", key, 60_000, "REPLICATE", 2, "RETRY", 2, "KEY", key)
        )
    return dict(zip(keys, pipe.execute(), strict=True))


@pytest.mark.timeout(400)
def test_what_is_paged_out_is_done_though_its_holders_are_killed() -> None:
    draw = random.Random(3)
    with job_cluster("a", "b", "c", env=ENV) as jobs:
        added: set[bytes] = set()
        keyed: dict[bytes, bytes] = {}
        for number in range(BATCHES):
            added.update(batch(jobs["a"], number))
            if len(keyed) < KEYS and number > BATCHES // 3:
                keyed |= with_keys(jobs["a"], len(keyed))
        assert len(added) == BATCHES * BATCH
        added.update(keyed.values())
        reach(lambda: paged_out(jobs) > BATCHES * BATCH // 2, "many are paged out")
        for name in draw.sample("abc", 3):
            jobs.kill(name)
            jobs.restart(name)
        got: Counter[bytes] = Counter()
        victim = "b"
        while set(got) < added:
            if victim and len(got) > len(added) // 3:
                jobs.kill(victim)
                jobs.restart(victim)
                victim = ""
            for client in jobs.clients.values():
                work(client, got)
        assert set(got) == added, "added = done"
        repeats = sum(count - 1 for count in got.values())
        print(f"{len(added)} jobs added and done, {repeats} given again")
        assert repeats < len(added) / 4


def work(client: Jobs, got: "Counter[bytes]") -> None:
    """Does some jobs of a node."""
    try:
        found = client("GETJOB", "TIMEOUT", 200, "COUNT", 200, "FROM", "many") or []
        ids = [each[1] for each in found]
        if ids:
            client("ACKJOB", *ids)
            got.update(ids)
    except redis.RedisError as error:  # pragma: no cover - told, with what it was
        raise AssertionError(f"a node that lives refused: {error}") from error
