"""A worker that is one too many, with answers that a test makes up."""

from pathlib import Path
from typing import Any

import pytest

from vmq.admin.errors import RefusedError
from vmq.config.options import BrokerOptions, ClusterOptions, Config
from vmq.workers import leaving
from vmq.workers.asking import UnreachableError, WorkerClient
from vmq.workers.plan import Plan
from vmq.workers.process import Worker

ALONE = {"node": "n-2", "status": "joined", "is_up": True, "is_self": True}
OTHER = {"node": "n-1", "status": "joined", "is_up": True, "is_self": False}


class Answers(WorkerClient):
    """Gives the answers to each question in their order, the last one again and again."""

    def __init__(self, members: list[Any], left: list[Any], sessions: list[Any]) -> None:
        self._answers = {
            "/cluster/members": members,
            "/cluster/leave": left,
            "/cluster/join": [{}],
            "/sessions": sessions,
        }
        self.asked: list[tuple[str, Any]] = []

    async def ask(
        self,
        number: int,
        method: str,
        path: str,
        parameters: Any = None,
        patience: float | None = 60.0,
    ) -> Any:
        assert number == 2
        self.asked.append((path, parameters))
        answers = self._answers[path]
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer


class Stopped(Worker):
    def __init__(self) -> None:
        self.number = 2
        self.was_stopped = False

    async def stop(self) -> None:
        self.was_stopped = True


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leaving, "_PAUSE", 0.0)
    monkeypatch.setattr(leaving, "_AGAIN", 0.0)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "workers" / "2" / "store"
    path.mkdir(parents=True)
    return path.parent


LINKED = {"rows": [ALONE, OTHER]}
NOT_LINKED = {"rows": [ALONE | {"status": "left"}]}


async def dissolved(tmp_path: Path, answers: Answers) -> None:
    config = Config(
        broker=BrokerOptions(data_dir=str(tmp_path)), cluster=ClusterOptions(node_name="n")
    )
    worker = Stopped()
    await leaving.dissolve(worker, Plan(config, 1), config, answers)
    assert worker.was_stopped
    assert not (tmp_path / "workers" / "2").exists()


def asked(answers: Answers, path: str) -> int:
    return sum(each == path for each, _ in answers.asked)


async def test_it_goes_when_the_others_have_all(tmp_path: Path, folder: Path) -> None:
    answers = Answers([LINKED], [{"complete": True}], [{"rows": []}])
    await dissolved(tmp_path, answers)
    assert asked(answers, "/cluster/leave") == 1


@pytest.mark.parametrize(
    ("complete", "rows"), [(False, []), (True, [{"client_id": "c"}])], ids=["cut off", "kept some"]
)
async def test_it_stays_a_member_while_it_has_what_others_have_not(
    tmp_path: Path, folder: Path, complete: bool, rows: list[Any]
) -> None:
    answers = Answers(
        [LINKED, NOT_LINKED, LINKED, LINKED],
        [{"complete": complete}, {"complete": True}],
        [{"rows": rows}, {"rows": []}],
    )
    await dissolved(tmp_path, answers)
    path = [each for each, _ in answers.asked]
    between = path[
        path.index("/cluster/leave") + 1 : len(path) - 1 - path[::-1].index("/cluster/leave")
    ]
    assert between.count("/cluster/join") == 1


async def test_it_waits_for_the_others(tmp_path: Path, folder: Path) -> None:
    members = [
        {"rows": [ALONE]},
        UnreachableError("it starts"),
        {"rows": [ALONE, OTHER | {"is_up": False}]},
        LINKED,
    ]
    answers = Answers(members, [RefusedError("not now"), {"complete": True}], [{"rows": []}])
    await dissolved(tmp_path, answers)
    assert asked(answers, "/cluster/leave") == 2
    assert asked(answers, "/cluster/members") == 5


async def test_one_that_had_left_before_joins_again_first(tmp_path: Path, folder: Path) -> None:
    answers = Answers([NOT_LINKED, LINKED], [{"complete": True}], [{"rows": []}])
    await dissolved(tmp_path, answers)
    node = tmp_path / "workers" / "1" / "node.sock"
    assert answers.asked[1] == ("/cluster/join", {"address": f"ipc://{node}"})
