"""The small version of the run that `python -m tests.spark.exactly_once` makes in full."""

from contextlib import closing
from pathlib import Path

import pytest

from tests.support.tools import require_tool


@pytest.mark.timeout(900)
def test_every_message_arrives_once_whatever_is_killed(tmp_path: Path) -> None:
    require_tool("java")
    from tests.spark.exactly_once import Run

    with closing(Run(tmp_path / "run", messages=5_000, kills=3)) as course:
        course.go()
        found = course.check()
    assert found["sent"] == 4_998
