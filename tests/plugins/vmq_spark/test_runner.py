"""The runner and a driver that does what it is told."""

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any
from unittest.mock import patch

import psutil
import pytest
from vmq_spark import runner as module
from vmq_spark import status
from vmq_spark.errors import PipelineError
from vmq_spark.locks import is_locked
from vmq_spark.runner import Runner, environment
from vmq_spark.settings import Settings

from tests.support.until import until

FAKE = Path(__file__).with_name("fake_driver.py")


class Course:
    """A runner with a fake driver."""

    def __init__(self, tmp_path: Path, lives: str, **given: Any) -> None:
        self.folder = tmp_path / "p"
        self.said: list[str] = []
        self.settings = Settings(
            **{
                "name": "p",
                "source": "p.py",
                "options": {"lives": lives},
                "connection": {"server": "grpc://h:1", "password": "secret"},
                "master": "local[*,4]",
                "folder": str(self.folder),
                "checkpoint": str(self.folder / "checkpoints"),
                "output": str(self.folder / "tables"),
                "trigger": "1 second",
                **given,
            }
        )
        self.runner = Runner(
            self.settings, self.said.append, command=(sys.executable, str(FAKE)), first_delay=0.01
        )

    @property
    def lives(self) -> list[dict[str, Any]]:
        notes = self.folder / "lives"
        return (
            [json.loads(each) for each in notes.read_text().splitlines()] if notes.exists() else []
        )

    def status(self) -> status.Status:
        return status.read(self.folder)


async def lives(course: Course, count: int) -> None:
    await until(lambda: len(course.lives) >= count)


async def test_what_a_killed_driver_left_unfinished_is_gone(tmp_path: Path) -> None:
    course = Course(tmp_path, "end")
    offsets = course.folder / "checkpoints" / "alerts" / "offsets"
    offsets.mkdir(parents=True)
    (offsets / ".0.566d75c1.tmp").touch()
    assert await course.runner.run() == 0
    assert not list(offsets.iterdir())


async def test_a_driver_that_fails_is_started_again_until_it_has_finished(tmp_path: Path) -> None:
    course = Course(tmp_path, "fail,kill,end")
    assert await course.runner.run() == 0
    assert [each["order"] for each in course.lives] == ["fail", "kill", "end"]
    found = course.status()
    assert (found.state, found.is_running, found.runner.restarts) == ("finished", False, 2)
    assert "it is fail; starting again" in course.said[0]
    assert "the driver was ended by SIGKILL" in course.said[1]
    assert found.runner.error == "the driver was ended by SIGKILL"


async def test_what_is_hopeless_is_not_tried_again(tmp_path: Path) -> None:
    course = Course(tmp_path, "hopeless")
    assert await course.runner.run() == 2
    assert len(course.lives) == 1
    assert course.said == ["it is hopeless"]
    assert (course.status().state, course.status().runner.error) == ("failed", "it is hopeless")


async def test_a_stop_lets_the_driver_end(tmp_path: Path) -> None:
    course = Course(tmp_path, "run")
    work = asyncio.create_task(course.runner.run())
    await lives(course, 1)
    found = course.status()
    assert found.is_running
    assert (found.runner.pid, found.runner.driver) == (os.getpid(), course.lives[0]["pid"])
    course.runner.stop()
    assert await work == 0
    assert (course.folder / "stopped").exists()
    assert (course.status().state, course.status().runner.driver) == ("stopped", 0)
    assert course.said == []


async def test_delays_double_up_to_the_longest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LONGEST_DELAY", 0.02)
    course = Course(tmp_path, "fail,fail,fail,run")
    delays: list[float] = []
    wait_for = asyncio.wait_for

    async def noted(awaitable: Any, seconds: float) -> Any:
        delays.append(seconds)
        return await wait_for(awaitable, seconds)

    monkeypatch.setattr(asyncio, "wait_for", noted)
    work = asyncio.create_task(course.runner.run())
    await lives(course, 4)
    course.runner.stop()
    assert await work == 0
    assert [each for each in delays if each < 1] == [0.01, 0.02, 0.02]


async def test_a_stop_ends_the_pause_before_a_restart(tmp_path: Path) -> None:
    course = Course(tmp_path, "fail")
    course.runner.first_delay = 1000
    work = asyncio.create_task(course.runner.run())
    await until(lambda: course.status().runner.state == "waiting")
    course.runner.stop()
    assert await work == 0
    assert len(course.lives) == 1


@patch.object(module, "LINGER", 0.1)
async def test_what_a_dead_driver_left_ends_before_the_next_one(tmp_path: Path) -> None:
    course = Course(tmp_path, "orphan,end")
    assert await course.runner.run() == 0
    try:
        orphan = psutil.Process(course.lives[0]["child"]).status()
    except psutil.NoSuchProcess:
        orphan = "gone"
    # Perhaps nobody has reaped it in this container.
    assert orphan in {"gone", "zombie"}


async def test_two_do_not_run_at_once(tmp_path: Path) -> None:
    first = Course(tmp_path, "run")
    work = asyncio.create_task(first.runner.run())
    await lives(first, 1)
    with pytest.raises(PipelineError, match="'p' runs already"):
        await Course(tmp_path, "run").runner.run()
    # Another name, but the same checkpoint.
    shared = tmp_path / "shared"
    one = Course(tmp_path / "a", "run", checkpoint=str(shared))
    other = Course(tmp_path / "b", "run", checkpoint=f"file://{shared}")
    working = asyncio.create_task(one.runner.run())
    await lives(one, 1)
    with pytest.raises(PipelineError, match="shared is in use"):
        await other.runner.run()
    assert not is_locked(other.folder)
    first.runner.stop()
    one.runner.stop()
    assert [await work, await working] == [0, 0]


async def test_the_driver_holds_the_locks_too(tmp_path: Path) -> None:
    course = Course(tmp_path, "run", checkpoint=str(tmp_path / "elsewhere"))
    work = asyncio.create_task(course.runner.run())
    await lives(course, 1)
    held = {each.path for each in psutil.Process(course.lives[0]["pid"]).open_files()}
    course.runner.stop()
    await work
    assert {str(course.folder / "lock"), str(tmp_path / "elsewhere" / "lock")} <= held


async def test_the_password_is_on_no_command_line_and_in_no_file(tmp_path: Path) -> None:
    course = Course(tmp_path, "run")
    work = asyncio.create_task(course.runner.run())
    await lives(course, 1)
    command = psutil.Process(course.lives[0]["pid"]).cmdline()
    course.runner.stop()
    await work
    assert "secret" not in " ".join(command)
    assert not any(
        b"secret" in each.read_bytes() for each in course.folder.iterdir() if each.is_file()
    )


def test_the_users_environment_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = Course(tmp_path, "end").settings
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    monkeypatch.setenv("SPARK_LOCAL_DIRS", "/mine")
    found = environment(settings, tmp_path)
    assert (found["SPARK_LOCAL_DIRS"], found["PYSPARK_PYTHON"]) == ("/mine", sys.executable)
    # The machines of a cluster have their own Python.
    on_a_cluster = Course(tmp_path, "end", master="yarn").settings
    assert "PYSPARK_PYTHON" not in environment(on_a_cluster, tmp_path)
