"""While a node leaves its cluster, whoever told it to sees what it still has."""

import threading
from typing import Any, cast

import pytest

from tests.support.until import PATIENCE
from vmq.cli.admin.client import AdminClient
from vmq.cli.admin.what_is_left import showing_what_is_left
from vmq.cli.terminal.console import CliError


def members(**own: int | None) -> dict[str, Any]:
    """What a broker answers of its cluster."""
    other = {"is_self": False, "sessions": 1000, "slots_owned": 1000, "partitions": None}
    nothing = {"sessions": 0, "slots_owned": None, "partitions": None}
    return {"rows": [other, {"is_self": True, **nothing, **own}]}


class LeavingBroker:
    """Answers one thing after the other; then it is gone."""

    def __init__(self, *answers: dict[str, Any]) -> None:
        self.answers = [*answers]
        self.is_gone = threading.Event()

    def get(self, _path: str, **_parameters: object) -> dict[str, Any]:
        if self.answers:
            return self.answers.pop(0)
        self.is_gone.set()
        raise CliError("no broker runs")


def test_what_a_leaving_node_has_is_told_when_it_changes(
    capsys: pytest.CaptureFixture[str],
) -> None:
    broker = LeavingBroker(
        members(sessions=7, partitions=34),
        members(sessions=7, partitions=34),
        members(partitions=2, slots_owned=3),
        members(),
    )
    with showing_what_is_left(cast("AdminClient", broker), every=0.0):
        assert broker.is_gone.wait(PATIENCE)
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.splitlines() == [
        "still here: 7 sessions, 34 copies of partitions",
        "still here: 3 slots of sessions, 2 copies of partitions",
    ]
