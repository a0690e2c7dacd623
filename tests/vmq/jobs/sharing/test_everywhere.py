"""What an operator asks of one node of a cluster is answered for all of them."""

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest

from tests.support.present import present
from tests.support.until import until
from tests.vmq.clustering.nodes import clustering
from tests.vmq.jobs.serving import named
from tests.vmq.jobs.sharing.nodes import JobNode, job_nodes
from vmq.admin.errors import AdminError, NotFoundError
from vmq.admin.jobs import everywhere
from vmq.admin.listing import Listing
from vmq.clustering.node.job_questions import JobsAnswer
from vmq.http.operation import Context
from vmq.http.operations.jobs import JOB_OPERATIONS

OPERATIONS = {each.name: each for each in JOB_OPERATIONS}


async def answer_of(asked: JobNode, name: str, **parameters: Any) -> Any:
    """What an operation of the API gives."""
    operation = OPERATIONS[name]
    result: Any = operation.run(Context(asked.broker), operation.parameters(**parameters))
    return await result if hasattr(result, "__await__") else result


async def ask(asked: JobNode, name: str, **parameters: Any) -> Any:
    """The same; the rows of a listing."""
    result = await answer_of(asked, name, **parameters)
    return await result.rows() if isinstance(result, Listing) else result


async def test_each_node_answers_for_all(tmp_path: Path) -> None:
    async with job_nodes(tmp_path) as nodes:
        a, b, c = nodes
        ids = [
            (await node("ADDJOB", "q", f"job {number}", 5000, "REPLICATE", copies)).decode()
            for number, (node, copies) in enumerate([(a, 1), (b, 2), (c, 3)])
        ]
        await until(lambda: sum(int(each.machine.queues[b"q"].depth) for each in nodes) == 3)
        for node in nodes:
            [row] = await ask(node, "list_job_queues")
            assert (row.queue, row.depth, row.jobs, row.came) == ("q", 3, 3, 3)
            assert (await ask(node, "show_job_queue", queue="q")).depth == 3
            assert [row.id for row in await ask(node, "peek_jobs", queue="q")] == ids
            everything = await ask(node, "peek_jobs", queue="q", everything=True, limit=2)
            assert [(row.id, row.state) for row in everything] == [
                (each, "queued") for each in ids[:2]
            ]
            for job_id in ids:
                assert (await ask(node, "show_job", id=job_id)).state == "queued"
                assert (await ask(node, "why_job", id=job_id)).given
        assert len(await ask(a, "peek_jobs", queue="q", local=True)) == 1
        later = (await c("ADDJOB", "later", "x", 5000, "DELAY", 600)).decode()
        for node in nodes:  # after a restart of all, none of them serves it until it is due
            assert (await ask(node, "show_job", id=later, local=True)).state == "delayed"
        assert "it is due in" in (await ask(a, "why_job", id=later)).verdict
        assert (await ask(a, "retry_jobs", id=later)).jobs == 1
        await until(lambda: sum(int(each.machine.queues[b"later"].depth) for each in nodes) == 1)
        # All three have the last one, and c serves it.
        told = await ask(a, "why_job", id=ids[2], local=True)
        assert "another node serves it" in told.verdict
        outbox = a.nodes.post.outbox
        outbox.transmit, transmit = (lambda name, payload: None), outbox.transmit
        assert await a("ACKJOB", ids[2]) == 1
        assert "it is done" in (await ask(a, "why_job", id=ids[2], local=True)).verdict
        outbox.transmit = transmit
        assert (await b.get("q")).decode() == ids[1]
        assert await b("NACK", ids[1]) == 1
        [nack] = [
            each for each in (await ask(b, "why_job", id=ids[1])).steps if each.step == "failure"
        ]
        time = r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d"
        assert re.fullmatch(rf"nack, {time}Z", nack.reason)
        [other] = [each for each in (a, c) if ids[1].encode() in each.machine.jobs]
        other.machine.jobs[ids[1].encode()].note("2020-01-01T00:00:00Z retry")
        for node in nodes:  # whichever of them serves it
            row = await ask(node, "show_job", id=ids[1])
            assert re.fullmatch(rf"2020-01-01T00:00:00Z retry {time}Z nack", " ".join(row.history))
        assert re.fullmatch(rf"{time}\.\d{{9}}Z", row.created)
        assert (await ask(c, "show_job_queue", queue="q")).came == 3  # also what came back


async def test_a_worker_is_counted_where_it_waits(tmp_path: Path) -> None:
    async with job_nodes(tmp_path, "ab") as (a, b):
        waiting = asyncio.create_task(a.get("q"))
        await until(lambda: b"q" in b.machine.queues and bool(b.machine.queues[b"q"].waiters))
        [row] = await ask(b, "list_job_queues")
        assert row.workers == 1
        assert named(await b("QSTAT", "q"))[b"blocked"] == 0
        await b("ADDJOB", "q", "x", 5000)
        await waiting


async def test_each_node_changes_what_others_have(tmp_path: Path) -> None:
    async with job_nodes(tmp_path, "ab") as (a, b):
        ids = [(await b("ADDJOB", "q", "x", 5000, "REPLICATE", 1)).decode() for _ in range(4)]
        [row] = await ask(a, "take_jobs", queue="q", ack=True)
        assert row.id == ids[0]
        assert (await ask(a, "delete_job", id=ids[1])).jobs == 1
        with pytest.raises(NotFoundError):
            await ask(a, "show_job", id=ids[1])
        await ask(a, "pause_job_queue", queue="q", what="in")
        await until(lambda: b.machine.queues[b"q"].paused_in)
        await ask(a, "resume_job_queue", queue="q")
        await until(lambda: not b.machine.queues[b"q"].paused_in)
        b.machine.bury(b.machine.jobs[ids[2].encode()], "a test", b.nodes.core.clock())
        [row] = await ask(a, "list_job_queues")
        assert (row.depth, row.dead) == (1, 1)
        assert (await ask(a, "retry_jobs", id=ids[2])).jobs == 1
        assert (await ask(a, "purge_job_queue", queue="q")).jobs == 2
        with pytest.raises(NotFoundError, match="no queue"):
            await ask(a, "purge_job_queue", queue="never")


@pytest.mark.parametrize("answer", [JobsAnswer(409, b"it cannot"), JobsAnswer(200, b'{"rows": 7}')])
async def test_a_node_that_fails_is_named_and_what_others_have_is_told(
    tmp_path: Path, answer: JobsAnswer
) -> None:
    async def fail(_operation: str, _parameters: bytes) -> JobsAnswer:
        return answer

    async with job_nodes(tmp_path, "ab") as (a, b):
        await a("ADDJOB", "q", "x", 5000, "REPLICATE", 1)
        clustering(b.broker).job_links.questions.answerer = fail
        for name, told in (
            ("list_job_queues", {}),
            ("peek_jobs", {"queue": "q"}),
            ("take_jobs", {"queue": "q", "count": 2, "ack": True}),
        ):
            listing = await answer_of(a, name, **told)
            assert ([row.queue for row in await listing.rows()], listing.missing) == (["q"], ["b"])
        assert (await ask(a, "show_job_queue", queue="q")).missing == ["b"]
        with pytest.raises(AdminError, match=r"no job 'D-'.*these nodes do not say: b"):
            await ask(a, "show_job", id="D-")
        with pytest.raises(AdminError, match=r"node b.*; the others did as they were told"):
            await ask(a, "purge_job_queue", queue="q")


async def test_rows_beyond_the_most_of_a_node_are_told_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(everywhere, "MOST_ROWS", 2)
    async with job_nodes(tmp_path, "ab") as (a, b):
        for queue in ("p", "q", "q", "q"):
            await b("ADDJOB", queue, "x", 5000, "REPLICATE", 1)
        beyond = ["b (beyond 2 rows)"]
        assert (await answer_of(a, "list_job_queues")).missing == beyond
        for asked in (a, b):
            assert (await answer_of(asked, "peek_jobs", queue="q", limit=0)).missing == beyond
        assert (await answer_of(a, "peek_jobs", queue="q", limit=1)).missing == []


async def test_a_dump_goes_from_node_to_node(tmp_path: Path) -> None:
    async with job_nodes(tmp_path) as nodes:
        ids = {(await node("ADDJOB", "q", "x", 5000, "REPLICATE", 2)).decode() for node in nodes}
        await until(lambda: sum(int(each.machine.queues[b"q"].depth) for each in nodes) == 3)
        later = await nodes[1]("ADDJOB", "q", "x", 5000, "DELAY", 600)
        for each in nodes:  # as after a restart of all
            present(each.machine.jobs[later].copies).is_away = True
        ids.add(later.decode())
        found: list[str] = []
        after, node = 0, ""
        while True:
            answer = await ask(nodes[0], "dump_jobs", after=after, node=node)
            found += [each.id for each in answer.jobs]
            after, node = answer.after, answer.node
            if not after and not node:
                break
        assert sorted(found) == sorted(ids)


async def test_what_others_ask_is_checked(tmp_path: Path) -> None:
    async with job_nodes(tmp_path, "ab") as (a, _):
        questions = clustering(a.broker).job_links.questions
        for name, parameters, status in (
            ("add_job", b'{"queue": "q", "body": "x"}', 400),
            ("show_job", b'{"id": 7}', 400),
            ("show_job", b"[[[", 400),
            ("show_job", b'{"id": "none"}', 404),
        ):
            answer = present(await questions.ask("b", name, parameters))
            assert answer.status == status
