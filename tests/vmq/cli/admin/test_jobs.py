"""`vmq jobs` and `vmq why ID`: the jobs of a running broker, from a shell."""

import io
import json
import sys
from typing import Any

import pytest

from tests.vmq.cli.program import on, told
from vmq.admin.jobs.rows import JobQueueRow, JobRow
from vmq.admin.jobs.schedules import ScheduleRow
from vmq.cli.admin import jobs
from vmq.testing.process import BrokerProcess


def added(broker: BrokerProcess, queue: str, body: str, *options: str) -> str:
    found: str = told(broker, "jobs", "add", queue, body, *options)["id"]
    return found


def test_columns_are_those_of_the_rows() -> None:
    assert set(jobs.QUEUES.every) == set(JobQueueRow.__struct_fields__)
    assert set(jobs.JOBS.every) == set(JobRow.__struct_fields__)
    assert set(jobs.SCHEDULES.every) == set(ScheduleRow.__struct_fields__)
    assert set(jobs.DEAD.every) == set(JobRow.__struct_fields__)


def test_a_job_from_adding_to_taking(shared: BrokerProcess) -> None:
    job_id = added(shared, "mail", "to: ada", "--priority", "3", "--retry", "60", "--key", "k")
    assert added(shared, "mail", "again", "--key", "k") == job_id
    (queue,) = told(shared, "jobs", "list", "--where", 'queue = "mail"')
    assert (queue["depth"], queue["dead"], queue["paused"]) == (1, 0, "none")
    shown = told(shared, "jobs", "show", job_id)
    found = (shown["body"], shown["priority"], shown["retry"], shown["key"])
    assert found == ("to: ada", 3, 60, "k")
    (row,) = told(shared, "jobs", "peek", "mail")
    assert (row["id"], row["state"], row["next"]) == (job_id, "queued", None)
    (taken,) = told(shared, "jobs", "take", "mail")
    assert (taken["id"], taken["state"]) == (job_id, "active")
    assert told(shared, "jobs", "peek", "mail") == []
    (row,) = told(shared, "jobs", "peek", "mail", "--all")
    assert (row["state"], row["deliveries"]) == ("active", 1)
    assert told(shared, "jobs", "retry", job_id) == {"jobs": 1}
    assert told(shared, "jobs", "take", "mail", "--ack")[0]["id"] == job_id
    assert told(shared, "jobs", "peek", "mail", "--all") == []


def test_what_a_queue_is_told_to_do(shared: BrokerProcess) -> None:
    assert told(shared, "jobs", "pause", "held", "--in") == {"queue": "held", "paused": "in"}
    refused = on(shared, "jobs", "add", "held", "x")
    refused.tells(1, "PAUSED")
    on(shared, "jobs", "resume", "hold").tells(1, "there is no queue of jobs 'hold'")
    on(shared, "jobs", "add", "held!dead", "x").tells(1, "error: jobs get into a queue of dead")
    assert told(shared, "jobs", "resume", "held")["paused"] == "none"
    assert told(shared, "jobs", "dead", "held") == []
    assert told(shared, "jobs", "retry", "held") == {"jobs": 0}
    on(shared, "jobs", "dead", "unheld").tells(1, "there is no queue of jobs 'unheld'")
    for number in range(5):
        added(shared, "held", f"{number}")
    later = added(shared, "held", "later", "--delay", "1000")
    assert told(shared, "jobs", "pause", "held")["paused"] == "all"
    assert told(shared, "jobs", "take", "held") == []
    assert told(shared, "jobs", "purge", "held") == {"jobs": 5}
    shown = told(shared, "jobs", "show", "held")
    assert (shown["depth"], shown["jobs"], shown["paused"]) == (0, 1, "all")
    assert (shown["retry"], shown["max_deliveries"], shown["persistence"]) == ([300], 20, "os")
    assert told(shared, "jobs", "purge", later) == {"jobs": 1}
    assert on(shared, "jobs", "show", later).code == 1
    assert told(shared, "jobs", "resume", "held")["paused"] == "none"


def test_dead_letters_and_why(shared: BrokerProcess) -> None:
    job_id = added(shared, "poison", "x", "--ttl", "1")
    waiting = on(shared, "why", job_id)
    assert waiting.code == 0
    assert b"it is queued, behind 0 others; 0 workers wait" in waiting.out
    rows: list[Any] = []
    while not rows:
        rows = told(shared, "jobs", "dead", "poison")
    assert (rows[0]["id"], rows[0]["reason"], rows[0]["state"]) == (job_id, "expired", "dead")
    why = on(shared, "why", job_id)
    assert why.code == 1
    assert f"vmq jobs retry {job_id}".encode() in why.out
    assert told(shared, "jobs", "list", "--where", 'queue = "poison"')[0]["dead"] == 1
    assert told(shared, "jobs", "retry", "poison") == {"jobs": 1}
    assert told(shared, "jobs", "dead", "poison") == []
    taken = told(shared, "jobs", "take", "poison")
    if taken:  # it lives for a second again
        assert taken[0]["id"] == job_id
        held = on(shared, "why", job_id)
        assert (b"a worker has it" in held.out) or (b"dead letter" in held.out)


def test_a_delayed_job_and_a_paused_queue_are_explained(shared: BrokerProcess) -> None:
    job_id = added(shared, "slow jobs", "x", "--delay", "1000")
    done = on(shared, "why", job_id)
    assert done.code == 1
    assert b"it is due in" in done.out
    assert told(shared, "jobs", "retry", job_id) == {"jobs": 1}
    told(shared, "jobs", "pause", "slow jobs", "--out")
    done = on(shared, "why", job_id)
    assert b"vmq jobs resume 'slow jobs'" in done.out
    told(shared, "jobs", "resume", "slow jobs")
    alone = on(shared, "why", job_id[:20])
    alone.tells(2, f"not {job_id[:20]!r}")


def test_jobs_go_from_one_broker_to_another(
    shared: BrokerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = [added(shared, "moved", f"body {number}", "--retry", "60") for number in range(3)]
    delayed = added(shared, "moved", "later", "--delay", "5000", "--priority", "7")
    assert told(shared, "jobs", "take", "moved")[0]["id"] == ids[0]
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"\xff\0raw")))
    raw = added(shared, "moved", "-")
    dump = on(shared, "jobs", "dump")
    assert dump.code == 0
    lines = [each for each in dump.out.splitlines() if b'"moved"' in each]
    with BrokerProcess.start(args=("--allow-anonymous",)) as other:
        text = b"\n".join(lines) + b"\n"
        for wanted in (
            {"loaded": 5, "known": 0, "lapsed": 0},
            {"loaded": 0, "known": 5, "lapsed": 0},
        ):
            monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text)))
            assert told(other, "jobs", "load") == wanted
        rows = told(other, "jobs", "peek", "moved", "--all")
        found = {each["id"]: (each["state"], each["body"], each["deliveries"]) for each in rows}
        assert found == {
            ids[0]: ("queued", "body 0", 1),
            ids[1]: ("queued", "body 1", 0),
            ids[2]: ("queued", "body 2", 0),
            delayed: ("delayed", "later", 0),
            raw: ("queued", "ff00726177", 0),
        }
        again = on(other, "jobs", "dump")
        assert {json.loads(each)["id"] for each in again.out.splitlines()} == set(found)
        monkeypatch.setattr(sys, "stdin", io.StringIO('{"id": "D-x"}\n'))
        assert on(other, "jobs", "load").code == 2
        monkeypatch.setattr(sys, "stdin", io.StringIO("nonsense\n"))
        assert "line 1 is no JSON" in on(other, "jobs", "load").err


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("show", "nosuch"), "there is no queue of jobs 'nosuch'"),
        (("peek", "nosuch"), "there is no queue of jobs 'nosuch'"),
        (("retry", "nosuch"), "there is no queue of jobs 'nosuch'"),
        (("purge", "D-00000000-LYyQMK4fgYJLigrQnwiD1GW2-05a1"), "there is no job"),
        (("show", "q", "--mountpoint", "nosuch"), "there is no mountpoint"),
        (("add", "q!dead", "x"), "by failing only"),
        (("add", "q", "x", "--replicate", "2"), "NOREPL"),
    ],
)
def test_what_is_not_there(shared: BrokerProcess, words: tuple[str, ...], text: str) -> None:
    added(shared, "some", "x", "--key", "once")
    done = on(shared, "jobs", *words)
    done.tells(1, text)
