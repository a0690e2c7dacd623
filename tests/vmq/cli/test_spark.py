"""`vmq spark`, up to where Spark begins."""

import json
import os
from importlib.util import find_spec
from pathlib import Path

import pytest
from vmq_spark import status
from vmq_spark.locks import take_lock
from vmq_spark.status import Progress, QueryProgress, RunnerStatus

from tests.support.present import present
from vmq.cli.main import main


def answer(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    code = main(["spark", *map(str, arguments)])
    out, err = capsys.readouterr()
    assert (code, err) == (0, "")
    return out


SERVER = ("--server", "grpc://127.0.0.1:1")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("nope", *SERVER), "there is no pipeline 'nope'; there are: sensors"),
        (("nope.sql", *SERVER), "there is no file 'nope.sql'"),
        (("sensors",), "give --server grpc://HOST:PORT"),
        (("sensors", *SERVER, "-o", "window"), "--option 'window' is not accepted"),
        (("sensors", *SERVER, "--conf", "x"), "--conf 'x' is not accepted"),
        (("sensors", *SERVER, "--master", "x"), "--master 'x' is not accepted"),
        (("sensors", *SERVER, "--trigger", "x"), "'x' is no duration"),
        (("sensors", *SERVER, "--name", "a/b"), "cannot be named 'a/b'"),
        (("sensors", *SERVER, "--conf", "a=1", "--conf", "a=2"), "--conf a is given twice"),
    ],
)
def test_wrong_options_are_named(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, arguments: tuple[str, ...], said: str
) -> None:
    assert main(["spark", "run", *arguments, "--data-dir", str(tmp_path)]) == 2
    assert said in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("home", [None, "/nowhere"])
def test_what_spark_needs_is_named(
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    home: str | None,
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    if home is None:
        monkeypatch.delenv("JAVA_HOME", raising=False)
    else:
        monkeypatch.setenv("JAVA_HOME", home)
    assert main(["spark", "run", "sensors", *SERVER, "--data-dir", str(tmp_path)]) == 1
    said = capsys.readouterr().err
    if find_spec("pyspark") is None:
        assert "pipelines need pyspark: pip install 'vmq[spark]'" in said
    elif home is None:
        assert "Spark needs Java 17 or later, and there is none on the PATH" in said
    else:
        assert "JAVA_HOME is /nowhere, where there is none" in said


def test_without_pyspark_it_says_what_to_install(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vmq.cli.spark.find_spec", lambda name: None)
    assert main(["spark", "run", "sensors", *SERVER, "--data-dir", str(tmp_path)]) == 1
    assert "pipelines need pyspark and pyarrow: pip install" in capsys.readouterr().err


def test_pipelines_are_listed_and_shown(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert "sensors   Readings of sensors" in answer(capsys, "list")
    shown = answer(capsys, "show", "sensors")
    assert "table `averages`" in shown
    assert "threshold    30.0" in shown
    own = tmp_path / "own.sql"
    own.write_text("-- Mine.\n--@ option limit 5\n--@ table t\nSELECT 1")
    assert "Mine." in answer(capsys, "show", own)
    assert main(["spark", "show", "nope"]) == 2
    assert "there are: sensors" in capsys.readouterr().err


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "plugins" / "vmq_spark" / "pipelines" / "sensors"
    folder.mkdir(parents=True)
    status.write(folder, RunnerStatus(state="running", restarts=1, error="it\x1b failed"))
    lag = {"a": {"0": 5, "1": 6}}
    query = QueryProgress(batch=2, rows=70, rows_per_second=7.26, batch_seconds=0.5, lag=lag)
    status.write(folder, Progress({"readings": query, "alerts": QueryProgress()}))
    return folder


def test_status_while_it_runs(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, folder: Path
) -> None:
    with os.fdopen(present(take_lock(folder))):
        lines = answer(capsys, "status", "--data-dir", tmp_path).splitlines()
        detail = answer(capsys, "status", "sensors", "--data-dir", tmp_path)
        (found,) = json.loads(answer(capsys, "status", "--json", "--data-dir", tmp_path))
    assert lines[0].split() == [
        *("pipeline", "state", "query", "batch", "rows", "rows_per_second"),
        *("batch_seconds", "lag", "restarts"),
    ]
    assert lines[1].split()[:9] == [
        *("sensors", "running", "readings", "2", "70", "7.3", "0.5", "11", "1")
    ]
    assert lines[2].split()[:4] == ["sensors", "running", "alerts", "-"]
    assert detail.splitlines()[-1].split() == ["readings", "a", "1", "6"]
    assert (found["pipeline"], found["is_running"], found["state"]) == ("sensors", True, "running")
    assert found["queries"]["readings"]["total_lag"] == 11
    assert found["queries"]["readings"]["lag"] == {"a": {"0": 5, "1": 6}}


def test_status_of_what_was_killed_and_of_what_never_ran(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, folder: Path
) -> None:
    status.write(folder, Progress())
    lines = answer(capsys, "status", "--data-dir", tmp_path).splitlines()
    assert lines[1].split()[:4] == ["sensors", "killed", "-", "-"]
    assert lines[1].endswith("it\\x1b failed")
    assert main(["spark", "status", "other", "--data-dir", str(tmp_path)]) == 1
    assert "no pipeline 'other' was ever run" in capsys.readouterr().err
    empty = tmp_path / "empty"
    assert main(["spark", "status", "--data-dir", str(empty)]) == 1
    assert "there is no data folder" in capsys.readouterr().err
    empty.mkdir()
    assert answer(capsys, "status", "--json", "--data-dir", empty) == "[]\n"
