"""Processes that are forked are what processes are."""

import os
import signal
import subprocess
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import psutil
import pytest

from vmq.testing.forks import Forked, fork, fork_from_one
from vmq.testing.process import BrokerProcess
from vmq.version import __version__


def environment(**more: str) -> dict[str, str]:
    return {**os.environ, "PYTHONUNBUFFERED": "1", **more}


def forked(*arguments: str, **env: str) -> Forked:
    process = fork(arguments, environment(**env))
    assert process is not None
    return process


def output(process: Forked) -> tuple[int, bytes, bytes]:
    process.stdin.close()
    with process.stdout, process.stderr:
        return process.wait(60), process.stdout.read(), process.stderr.read()


def test_it_says_and_returns_what_the_command_does() -> None:
    assert output(forked("--version")) == (0, f"vmq {__version__}\n".encode(), b"")
    code, out, err = output(forked("no-such-command"))
    assert (code, out) == (2, b"")
    assert b"no-such-command" in err


def test_its_environment_is_the_one_that_was_given(tmp_path: Path) -> None:
    wrong = forked("start", "--data-dir", str(tmp_path), VMQ_QUEUE__DROP="nobody")
    code, _, err = output(wrong)
    assert code != 0
    assert b"queue.drop" in err


@pytest.mark.parametrize(
    "env", [{}, {"VMQ_STREAMS__S__FILTERS": '["s"]', "VMQ_CLUSTER__LISTEN": "tcp://127.0.0.1:0"}]
)
def test_what_a_broker_loads_in_any_case_is_loaded_before(
    env: dict[str, str], tmp_path: Path
) -> None:
    """And what one with streams in a cluster does, and who finds such in its folder."""
    for given in (env, {}):
        with BrokerProcess.start(data_dir=tmp_path, env=given) as broker:
            process = psutil.Process(broker.pid)
            maps = [each.memory_maps() for each in (process, process.parents()[0])]
        its, before = ({one.path for one in each if one.path.endswith(".so")} for each in maps)
        assert its <= before


def parent_of_brokers(count: int) -> set[int]:
    found = set()
    for _ in range(count):
        with BrokerProcess.start() as broker:
            found.add(psutil.Process(broker.pid).ppid())
    return found


def test_processes_that_are_forked_from_one_share_what_their_brokers_are_forked_from(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("MALLOC_PERTURB_", "1")  # no test before has started what this needs
    fork_from_one()
    with ProcessPoolExecutor(2, get_context("fork")) as pool:
        found = [*pool.map(parent_of_brokers, [4, 4])]
    assert found == [parent_of_brokers(1)] * 2


def test_a_variable_of_the_interpreter_takes_one_of_its_own() -> None:
    assert fork(["--version"], environment(PYTHONHASHSEED="7")) is None


def test_it_is_a_process_that_can_be_stopped_and_killed() -> None:
    with BrokerProcess.start() as one, BrokerProcess.start() as other:
        assert len({one.pid, other.pid, os.getpid()}) == 3
        one.kill()
        assert one.wait() == -signal.SIGKILL
        assert other.is_running()
        with pytest.raises(subprocess.TimeoutExpired):
            other.wait(0.01)
        assert other.terminate() == 0


def test_a_variable_that_this_process_has_by_now_is_theirs_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As tests have whose process has started Spark."""
    assert output(forked("--version"))[0] == 0
    monkeypatch.setenv("MALLOC_PERTURB_", "0")
    assert output(forked("--version"))[0] == 0


@pytest.mark.parametrize(
    ("url", "given", "count"),
    [
        ("grpc://127.0.0.1:0", (), 1),
        ("ws://127.0.0.1:0", ("--workers", "2", "--node-name", "n"), 4),
        ("ws://127.0.0.1:0", ("--config", "streams.toml"), 0),
    ],
)
def test_what_a_broker_runs_is_forked_too_and_none_of_it_outlives_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: str, given: tuple[str, ...], count: int
) -> None:
    """Beside what forks it, which a worker has as well."""
    monkeypatch.chdir(tmp_path)
    Path("streams.toml").write_text('[streams.s]\nfilters = ["s"]\n')
    args = ("--allow-anonymous", *given)
    with BrokerProcess.start(("tcp://127.0.0.1:0", url), args=args) as broker:
        family = psutil.Process(broker.pid).children(recursive=True)
        assert len(family) == 1 + count
        assert all("vmq.testing.forks" in each.cmdline() for each in family)
        broker.kill()
        assert psutil.wait_procs(family, 30)[1] == []
