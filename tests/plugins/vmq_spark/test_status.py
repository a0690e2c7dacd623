"""The files by which a pipeline is known from outside."""

import os
from pathlib import Path

import pytest
from vmq_spark import status
from vmq_spark.errors import PipelineError
from vmq_spark.locks import take_lock
from vmq_spark.status import Progress, QueryProgress, RunnerStatus

from tests.support.present import present


def test_what_was_written_is_read(tmp_path: Path) -> None:
    folder = tmp_path / "pipelines" / "one"
    folder.mkdir(parents=True)
    runner = RunnerStatus(state="finished", server="grpc://h:1", restarts=2, error="e")
    progress = Progress({"q": QueryProgress(batch=3, lag={"s": {"0": 2, "1": 5}})})
    status.write(folder, runner)
    status.write(folder, progress)
    (found,) = status.read_all(tmp_path)
    assert (found.name, found.is_running, found.state) == ("one", False, "finished")
    assert (found.runner, found.progress) == (runner, progress)
    assert found.progress.queries["q"].total_lag == 7
    assert QueryProgress().total_lag is None


def test_a_pipeline_runs_when_its_queries_do_and_is_killed_without_a_last_word(
    tmp_path: Path,
) -> None:
    status.write(tmp_path, RunnerStatus(state="running"))
    assert status.read(tmp_path).state == "killed"
    with os.fdopen(present(take_lock(tmp_path))):
        assert status.read(tmp_path).state == "starting"
        status.write(tmp_path, Progress({"q": QueryProgress()}))
        assert status.read(tmp_path).state == "running"


@pytest.mark.parametrize("raw", [b"", b"{", b"[]", b'{"state": "odd"}', b"\xff", b'{"pid": "x"}'])
def test_damaged_files_say_nothing(tmp_path: Path, raw: bytes) -> None:
    for name in ("runner.json", "progress.json"):
        (tmp_path / name).write_bytes(raw)
    found = status.read(tmp_path)
    assert (found.runner, found.progress) == (RunnerStatus(), Progress())


def test_other_folders_are_no_pipelines(tmp_path: Path) -> None:
    assert status.read_all(tmp_path) == []
    (tmp_path / "pipelines" / ".hidden").mkdir(parents=True)
    (tmp_path / "pipelines" / "file").touch()
    assert status.read_all(tmp_path) == []


@pytest.mark.parametrize("name", ["", "-a", "a/b", "..", "a b", "ä", "a" * 101])
def test_names_that_cannot_be(name: str) -> None:
    assert not status.is_name(name)
    with pytest.raises(PipelineError, match="accepted: letters"):
        status.checked_name(name)
    assert status.checked_name("my-own_2") == "my-own_2"
