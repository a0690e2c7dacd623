"""`vmq start` as a program: its first line, its exit codes, and its last moments."""

import re
import resource
import signal
import stat
import sys
from pathlib import Path

import pytest

from tests.conftest import BrokerFactory
from tests.vmq.cli.program import STUBBORN, Program, run

ANY_PORT = "tcp://127.0.0.1:0"
STARTED = ("start", "--listen", ANY_PORT, "--data-dir")
READY = r"^vmq ready: tcp://127\.0\.0\.1:(\d+)$"


def start(tmp_path: Path, *arguments: str) -> Program:
    program = Program("start", "--data-dir", str(tmp_path / "data"), *arguments)
    try:
        program.wait_out(READY)
    except BaseException:
        program.close()
        raise
    return program


def test_a_signal_stops_it_cleanly(tmp_path: Path) -> None:
    with start(tmp_path, "--listen", ANY_PORT) as program:
        program.signal(signal.SIGINT)
        done = program.finish()
    assert done.code == 0
    assert re.fullmatch(READY + "\n", done.out.decode()), "the line of readiness is all"
    lines = done.err.splitlines()
    assert "info stopping signal=SIGINT" in lines[-2]
    assert lines[-1].endswith("info stopped")


SIGNALLED = """
import os, signal, sys
class Signals:
    def find_spec(self, name, *_):
        if name == {module!r}:
            sys.meta_path.remove(self)
            os.kill(os.getpid(), {number:d})
sys.meta_path.insert(0, Signals())
from vmq.__main__ import run
run()
"""


@pytest.mark.parametrize(
    ("module", "code", "last"),
    [("typer", 130, []), ("vmq.cli.start.running", 0, ["info stopped"])],
    ids=["of the program", "of the broker"],
)
def test_an_interrupt_during_imports_ends_it_in_order(
    tmp_path: Path, module: str, code: int, last: list[str]
) -> None:
    command = [sys.executable, "-c", SIGNALLED.format(module=module, number=signal.SIGINT)]
    with Program(command=[*command, *STARTED, str(tmp_path)]) as program:
        done = program.finish()
    assert done.code == code
    assert [each[-len("info stopped") :] for each in done.err.splitlines()[-1:]] == last


@pytest.mark.parametrize("module", ["typer", "vmq.cli.start.running"])
def test_a_request_during_imports_waits_for_the_broker(tmp_path: Path, module: str) -> None:
    command = [sys.executable, "-c", SIGNALLED.format(module=module, number=signal.SIGHUP)]
    with Program(command=[*command, *STARTED, str(tmp_path)]) as program:
        program.wait_out(READY)
        program.wait_err("reloaded")
        program.signal(signal.SIGTERM)
        assert program.finish().code == 0


WITHOUT_EXTRAS = """
import sys
sys.modules.update(dict.fromkeys(("pyarrow", "duckdb", "google.protobuf")))
from vmq.__main__ import run
run()
"""


def test_a_node_of_a_cluster_needs_no_library_of_streams(tmp_path: Path) -> None:
    key = tmp_path / "key"
    assert run("cluster", "keygen", str(key)).code == 0
    node = ["--node-name", "a", "--cluster-listen", ANY_PORT, "--cluster-key", str(key)]
    command = [sys.executable, "-c", WITHOUT_EXTRAS, "start", "--listen", ANY_PORT, *node]
    with Program(command=[*command, "--data-dir", str(tmp_path / "data")]) as program:
        port = program.wait_out(READY).rpartition(":")[2]
        assert run("pub", "-p", port, "-t", "t", "-m", "x", "-q", "1").code == 0
        program.signal(signal.SIGTERM)
        assert program.finish().code == 0


STOPS = {
    "waits for ever": "await asyncio.Event().wait()",
    "keeps the loop busy": "while True: pass",
}
LEFT = {
    "a thread": "asyncio.get_running_loop().run_in_executor(None, threading.Event().wait)",
    "a task": "self.left = asyncio.create_task(stubborn()); await asyncio.sleep(0)",
}
SLOW_BROKER = f"""
import asyncio, sys, threading
import vmq.broker
from vmq.cli.main import main
{STUBBORN}
class SlowBroker:
    addresses = ["tcp://127.0.0.1:1"]
    clustering = None
    def __init__(self, config, **_parts): pass
    async def start(self): pass
    async def stop(self):
        {{stop}}

vmq.broker.Broker = SlowBroker
sys.exit(main(["start"]))
"""


@pytest.mark.parametrize("stop", STOPS.values(), ids=STOPS.keys())
def test_a_second_signal_ends_it_at_once(stop: str) -> None:
    with Program(command=[sys.executable, "-c", SLOW_BROKER.format(stop=stop)]) as program:
        program.wait_out(READY)
        program.signal(signal.SIGTERM)
        program.wait_err("stopping signal=SIGTERM")
        program.signal(signal.SIGTERM)
        assert program.finish().code == 1


@pytest.mark.parametrize("left", LEFT.values(), ids=LEFT.keys())
def test_what_a_plugin_leaves_behind_does_not_keep_the_process(left: str) -> None:
    with Program(command=[sys.executable, "-c", SLOW_BROKER.format(stop=left)]) as program:
        program.wait_out(READY)
        program.signal(signal.SIGTERM)
        done = program.finish()
    assert done.code == 0
    stopped, told = done.err.splitlines()[-2:]
    assert stopped.endswith("info stopped")
    assert told.endswith("without a task or a thread that a plugin has left")


def test_the_log_level_can_be_chosen(tmp_path: Path) -> None:
    with start(tmp_path, "--listen", ANY_PORT, "--log-level", "error") as program:
        program.signal(signal.SIGTERM)
        assert program.finish().err == ""


def test_every_file_descriptor_that_the_system_grants_is_allowed(tmp_path: Path) -> None:
    with start(tmp_path, "--listen", ANY_PORT) as program:
        soft, hard = resource.prlimit(program.process.pid, resource.RLIMIT_NOFILE)
        status = Path(f"/proc/{program.process.pid}/status").read_text()
    assert soft == hard
    # The kernel's table of them is not to grow while clients connect.
    assert int(status.partition("FDSize:")[2].split()[0]) >= min(hard, 65_536)


def test_a_taken_port_is_an_error(tmp_path: Path, fresh_broker: BrokerFactory) -> None:
    host, port = fresh_broker().tcp
    url = f"tcp://{host}:{port}"
    done = run("start", "--listen", url, "--data-dir", str(tmp_path))
    assert (done.code, done.out) == (1, b"")
    assert done.err.startswith("vmq: error: ")
    assert url in done.err
    assert len(done.err.splitlines()) == 1


@pytest.mark.parametrize(
    ("arguments", "key"),
    [
        (["--listen", "tcp://0.0.0.0:0"], "listeners.1.url"),
        (["--listen", "127.0.0.1:1883"], "listeners.1.url"),
        (["--log-level", "loud"], "log.level"),
        (["--config", "/nonexistent.toml"], "/nonexistent.toml"),
    ],
)
def test_a_wrong_configuration_is_an_error_of_the_user(
    tmp_path: Path, arguments: list[str], key: str
) -> None:
    done = run("start", "--data-dir", str(tmp_path), *arguments)
    assert (done.code, done.out) == (2, b"")
    assert done.err.startswith("vmq: error: ")
    assert key in done.err


def test_anonymous_clients_from_anywhere_must_be_wanted(tmp_path: Path) -> None:
    arguments = ["--listen", "tcp://0.0.0.0:0", "--allow-anonymous"]
    with Program("start", "--data-dir", str(tmp_path), *arguments) as program:
        program.wait_out(r"^vmq ready: tcp://0\.0\.0\.0:\d+$")
        program.signal(signal.SIGTERM)
        assert program.finish().code == 0


def test_the_files_of_store_and_streams_are_the_owners_alone(tmp_path: Path) -> None:
    config = tmp_path / "vmq.toml"
    config.write_text('[streams.all]\nfilters = ["#"]\n')
    store = tmp_path / "data" / "store"
    store.mkdir(mode=0o755, parents=True)
    store.chmod(0o755)  # as an earlier version left it
    with start(tmp_path, "--config", str(config), "--listen", ANY_PORT) as program:
        found = {
            path.relative_to(tmp_path / "data"): stat.S_IMODE(path.lstat().st_mode)
            for folder in (store, tmp_path / "data" / "streams")
            for path in (folder, *folder.rglob("*"))
        }
        program.signal(signal.SIGTERM)
        program.finish()
    assert Path("streams/all/0") in found
    wrong = {
        path: oct(mode)
        for path, mode in found.items()
        if mode != (0o700 if (tmp_path / "data" / path).is_dir() else 0o600)
    }
    assert wrong == {}


@pytest.mark.parametrize("in_file", [True, False])
def test_listeners_that_are_put_out_by_the_command_line_are_named(
    in_file: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "vmq.toml"
    file.write_text('[listeners.fleet]\nurl = "tcp://127.0.0.1:1"\n')
    written = ("--config", str(file)) if in_file else ()
    if not in_file:
        monkeypatch.setenv("VMQ_LISTENERS__FLEET__URL", "tcp://127.0.0.1:1")
    with start(tmp_path, *written, "--listen", ANY_PORT) as program:
        program.signal(signal.SIGTERM)
        done = program.finish()
    assert "put out by --listen: listener name=fleet url=tcp://127.0.0.1:1" in done.err


#: Once, the node fails to read as soon as it has started.
UNREADABLE = """
import os
from contextlib import suppress
from vmq.__main__ import run
from vmq.cli.start import start
from vmq.clustering.node import recovery
from vmq.clustering.node.node import Clustering
from vmq_cluster.errors import StorageError

def fail(*_):
    raise StorageError("no sector there")

async def start_node(node, *rest, start_node=Clustering.start):
    def say_ready(*told, say_ready=start.say_ready):
        say_ready(*told)
        node._storage.get = fail
        with suppress(StorageError):
            node.node.put("p", b"k", b"v")

    await start_node(node, *rest)
    start.say_ready = say_ready

if os.environ.pop("FAILS", ""):
    recovery.LIFE = 0.0
    Clustering.start = start_node
run()
"""


@pytest.mark.parametrize(("manager", "code"), [({}, 0), ({"NOTIFY_SOCKET": "/nonexistent"}, 1)])
def test_a_node_that_can_read_again_begins_anew(
    tmp_path: Path, manager: dict[str, str], code: int
) -> None:
    """By itself, or as its manager does with what has failed."""
    node = ("--node-name", "a", "--cluster-listen", f"ipc://{tmp_path}/node")
    command = [sys.executable, "-c", UNREADABLE, *STARTED, str(tmp_path / "data"), *node]
    with Program(command=command, env={"FAILS": "1", **manager}) as program:
        if not manager:
            program.wait_out(READY)
            program.wait_out(READY, 2)
            program.signal(signal.SIGTERM)
        done = program.finish()
    assert done.code == code
    assert "can be read again" in done.err
