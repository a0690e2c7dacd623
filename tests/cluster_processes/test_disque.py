"""The scenarios of Disque's own tests, over seven processes: copies on five of them, holders killed with SIGKILL.

Those that three nodes show as well are in `test_jobs.py`, where nodes die, and in `tests/vmq/jobs/sharing`; those that
one node shows in `tests/vmq/jobs`.
"""

import signal
import threading
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
import redis

from tests.cluster_processes.jobs import JobCluster, Jobs, job_cluster
from tests.support.until import reach

SEVEN = ("a", "b", "c", "d", "e", "f", "g")
FIVE = ("REPLICATE", 5)


@pytest.fixture(scope="module")
def cluster() -> Iterator[JobCluster]:
    with job_cluster(*SEVEN) as found:
        yield found


@pytest.fixture
def seven(cluster: JobCluster) -> JobCluster:
    """All of them; those that a test killed run again."""
    cluster.make_whole()
    return cluster


def states(jobs: JobCluster, job_id: bytes) -> dict[str, str]:
    """What a job is at the nodes that have it."""
    found = {name: each.state(job_id) for name, each in jobs.clients.items()}
    return {name: state for name, state in found.items() if state}


def is_gone(jobs: JobCluster, *ids: bytes) -> bool:
    return not any(states(jobs, each) for each in ids)


def without(jobs: JobCluster, job_id: bytes) -> Jobs:
    """A node that does not have a job."""
    return next(each for each in jobs.clients.values() if not each.state(job_id))


def flags(client: Jobs) -> dict[bytes, list[str]]:
    """The flags of each node, by its id."""
    told: Any = client("CLUSTER", "NODES")
    lines = (told if isinstance(told, bytes) else told["text"]).decode().splitlines()
    return {line.split()[0].encode(): line.split()[2].split(",") for line in lines}


def test_others_get_the_copies_where_one_does_not_answer(seven: JobCluster) -> None:
    seven.cluster["g"].signal(signal.SIGSTOP)
    for _ in range(5):
        job_id = seven["a"].add("silent", "x", *FIVE)
        assert sum(bool(seven[name].state(job_id)) for name in "abcdef") == 5
    seven.cluster["g"].signal(signal.SIGCONT)
    seven.meet()


def test_a_job_with_five_copies_outlives_four_of_its_hosts_and_their_disks(
    seven: JobCluster,
) -> None:
    job_id = seven["a"].add("outlives", "body", *FIVE, "RETRY", 3)
    holders = seven.holders(job_id)
    assert len(holders) >= 5
    assert seven["a"].state(job_id) == "queued"
    once = seven["a"].add("once", "x", "RETRY", 0)
    last = next(each for each in holders if each != "a")
    seven.kill(*[each for each in holders if each != last], wipe=True)
    elsewhere = next((each for each in seven.clients if each not in holders), last)
    assert seven[elsewhere].get("outlives") == (job_id, b"body")
    assert seven[elsewhere].none("once"), f"{once!r} was on one host, which is gone"
    assert seven[elsewhere]("ACKJOB", job_id) == 1
    for client in seven.clients.values():
        assert client.none("outlives")


def test_an_acknowledgement_propagates_and_the_copies_go(seven: JobCluster) -> None:
    for command in ("ACKJOB", "FASTACK"):
        for name in ("a", "b"):
            job_id = seven["a"].add("acks", "x", *FIVE)
            holder = name if seven[name].state(job_id) else seven.holders(job_id)[-1]
            assert seven[holder](command, job_id) == 1
            reach(partial(is_gone, seven, job_id))


def test_acknowledged_jobs_are_evicted_when_all_holders_can_be_reached(seven: JobCluster) -> None:
    job_id = seven["a"].add("evict", "x", *FIVE, "RETRY", 1)
    dead = next(each for each in seven.holders(job_id) if each != "a")
    gone = seven[dead].id()
    seven.kill(dead)
    assert all("fail" in flags(each)[gone] for each in seven.clients.values())
    assert without(seven, job_id)("ACKJOB", job_id) == 0
    reach(lambda: set(states(seven, job_id).values()) == {"acked"})
    assert len(states(seven, job_id)) >= 4
    seven.restart(dead)
    assert all("fail" not in flags(each)[gone] for each in seven.clients.values())
    reach(lambda: is_gone(seven, job_id))


def test_working_postpones_at_every_holder(seven: JobCluster) -> None:
    """Said to a node that does not have its worker."""
    job_id = seven["a"].add("work", "x", *FIVE, "RETRY", 3)
    assert seven["a"].get("work")[0] == job_id
    other = next(each for each in seven.holders(job_id) if each != "a")

    def left() -> int:
        return int(seven["a"].show(job_id)[b"next-requeue-within"])

    for _ in range(2):
        reach(lambda: left() < 2000)
        assert seven[other]("WORKING", job_id) == 3
        reach(lambda: left() > 2000, "its retry begins anew")
    assert "queued" not in states(seven, job_id).values()
    wait = ("GETJOB", "WITHCOUNTERS", "TIMEOUT", 30_000, "FROM", "work")
    ((_, again, _, _, nacks, _, more),) = seven["a"](*wait)
    assert (again, nacks, more) == (job_id, 0, 1), "until nothing more is said"
    with pytest.raises(redis.ResponseError, match="NOJOB"):
        seven["a"]("WORKING", b"D-00000000-LYyQMK4fgYJLigrQnwiD1GW2-05a1")


@pytest.fixture
def leaving(seven: JobCluster) -> Iterator[JobCluster]:
    """Of seven nodes the last one is to have no jobs any more; it had some."""
    seven["g"].add("had", "x", "REPLICATE", 1)
    assert seven["g"]("CLUSTER", "LEAVING") == b"no"
    assert seven["g"]("CLUSTER", "LEAVING", "yes") == b"OK"
    yield seven
    assert seven["g"]("CLUSTER", "LEAVING", "no") == b"OK"
    assert "leaving" not in flags(seven["g"])[seven["g"].id()]
    reach(lambda: "leaving" not in flags(seven["a"])[seven["g"].id()])


def test_leaving_is_told_to_all_with_a_bad_priority(leaving: JobCluster) -> None:
    node = leaving["g"].id()
    assert leaving["g"]("CLUSTER", "LEAVING") == b"yes"

    def told(client: Jobs) -> bool:
        priorities = {each[0]: each[3] for each in client("HELLO")[2:]}
        return priorities[node] == b"100" and "leaving" in flags(client)[node]

    reach(lambda: all(told(each) for each in leaving.clients.values()))


def test_what_is_added_at_a_leaving_node_is_served_by_others(leaving: JobCluster) -> None:
    job_id = leaving["g"].add("external", "x", *FIVE)
    assert len(leaving.holders(job_id)) >= 5
    reach(lambda: not leaving["g"].length("external"), "it is queued elsewhere")
    assert leaving["a"].get("external")[0] == job_id


def test_a_leaving_node_gets_no_copies(leaving: JobCluster) -> None:
    reach(lambda: "leaving" in flags(leaving["a"])[leaving["g"].id()])
    for _ in range(10):
        assert "g" not in leaving.holders(leaving["a"].add("nocopies", "x", *FIVE))
    with pytest.raises(redis.ResponseError, match="NOREPL"):
        leaving["a"].add("nocopies", "x", "REPLICATE", 7)


def test_a_leaving_node_refuses_workers_that_would_wait(seven: JobCluster) -> None:
    """Also the ones that wait already."""
    other = Jobs(seven.cluster["g"])
    answer: list[str] = []

    def wait() -> None:
        try:
            other("GETJOB", "FROM", "blocked")
        except redis.ResponseError as error:
            answer.append(str(error))

    waiting = threading.Thread(target=wait)
    waiting.start()
    reach(lambda: any(each["blocked"] == "1" for each in seven["g"].redis.client_list()))
    seven["g"]("CLUSTER", "LEAVING", "yes")
    waiting.join(60)
    other.close()
    try:
        assert answer
        assert answer[0].startswith("LEAVING")
        with pytest.raises(redis.ResponseError, match="LEAVING"):
            seven["g"]("GETJOB", "FROM", "blocked")
    finally:
        seven["g"]("CLUSTER", "LEAVING", "no")


def test_a_leaving_node_keeps_nothing_of_an_id_that_it_does_not_know(leaving: JobCluster) -> None:
    job_id = leaving["a"].add("unknown", "x", *FIVE)
    reach(lambda: "leaving" in flags(leaving["a"])[leaving["g"].id()])
    leaving["g"]("ACKJOB", job_id)
    reach(lambda: is_gone(leaving, job_id))
    nobodys = b"D-00000000-LYyQMK4fgYJLigrQnwiD1GW2-05a1"
    leaving["g"]("ACKJOB", nobodys)
    reach(lambda: not states(leaving, nobodys))
