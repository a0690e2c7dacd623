"""`vmq start --workers 2` as a program: two brokers that are one to clients, operators and whoever started them."""

import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

import psutil
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.conftest import BrokerFactory
from tests.support.until import reach
from tests.support.wire import Wire, connect_packet
from tests.vmq.cli.program import run
from tests.vmq.workers.several import ARGS, LISTEN, TIMEOUT, Several, is_gone
from vmq.testing.process import BrokerProcess

#: One that does nothing.
PLUGIN = """
from vmq_hooks import Plugin

class Mine(Plugin):
    pass
"""


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Several]:
    """Two workers, for tests that leave them as they were; client ids are each test's own."""
    plugin = tmp_path_factory.mktemp("plugins") / "mine.py"
    plugin.write_text(PLUGIN)
    env = {"VMQ_PLUGINS__MINE__PATH": str(plugin), "VMQ_PLUGINS__MINE__ENABLED": "false"}
    with BrokerProcess.start(LISTEN, args=ARGS, env=env) as broker:
        yield Several(broker)


def fresh(factory: BrokerFactory, *, env: dict[str, str] | None = None) -> Several:
    return Several(factory(listen=(LISTEN[0], LISTEN[2]), env=env, args=ARGS))


def values(text: str) -> dict[tuple[str, str], float]:
    """The samples of /metrics by name and worker."""
    return {
        (sample.name, sample.labels["worker"]): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


# --- clients


def test_a_killed_worker_is_started_again_and_disturbs_no_client_of_another(
    shared: Several,
) -> None:
    _, before = shared.get("/metrics")
    with shared.client_on(1, "stays") as stays, shared.client_on(2, "goes") as goes:
        shared.kill(2)
        goes.expect_closed()
        stays.ping()
    _, text = shared.get("/metrics")
    after = values(text)
    assert after["worker_up", "2"] == 1
    again = after["worker_restarts_total", "2"] - values(before)["worker_restarts_total", "2"]
    assert again == 1
    assert after["worker_restarts_total", "1"] == 0
    shared.broker.wait_log('worker ended number=2 reason="killed by SIGKILL"')
    # A start on a busy machine holds a loop up, which is told for some seconds.
    reach(lambda: shared.get("/health") == (200, {"status": "ok", "reasons": []}))
    shared.client_on(2, "back").close()


# --- who watches


def test_the_page_is_that_of_one_broker(shared: Several) -> None:
    status, text = shared.get("/")
    assert status == 200
    assert 'src="/page/app.js"' in text
    assert 'href="/health"' in shared.get("/links")[1]


def test_figures_are_each_workers_under_its_label(shared: Several) -> None:
    clients = [shared.client_on(number, f"figures-{number}") for number in (1, 2)]
    status, text = shared.get("/metrics")
    assert status == 200
    found = values(text)
    for worker in ("1", "2"):
        assert found["total_active_connections", worker] >= 1
        assert found["worker_up", worker] == 1
        assert found["event_loop_lag_seconds_count", worker] >= 0
    assert found["process_cpu_seconds_total", "supervisor"] > 0
    reach(lambda: is_sum_of_workers(shared, "total_active_connections"))
    for each in clients:
        each.close()


def is_sum_of_workers(shared: Several, name: str) -> bool:
    """Whether the figure of all is that of the workers, which may change between the two looks."""
    found = values(shared.get("/metrics")[1])
    _, rows = shared.api("GET", "/metrics", where=f'name = "{name}"')
    return bool(rows["rows"] == [{"name": name, "value": found[name, "1"] + found[name, "2"]}])


def test_health_and_status_are_those_of_all(shared: Several) -> None:
    clients = [shared.client_on(number, f"health-{number}") for number in (1, 2)]
    for path in ("/health/ping", "/health/live", "/health/ready"):
        assert shared.get(path) == (200, {"status": "ok", "reasons": []})
    status, listeners = shared.get("/health/listeners")
    assert status == 200
    shown = [each["url"] for each in listeners["listeners"].values()]
    assert shown == shared.broker.urls
    assert all(each["accepting"] for each in listeners["listeners"].values())
    _, of_all = shared.get("/status.json")
    assert of_all["connections"]["mqtt"] >= 2
    assert list(of_all["listeners"].values()) == shared.broker.urls
    assert {each["state"] for each in of_all["workers"].values()} == {"running"}
    for each in clients:
        each.close()


# --- operators


def test_sessions_of_all_are_one_list(shared: Several) -> None:
    names = ["list-1", "list-2", "list-3"]
    clients = [
        shared.client_on(number, name) for number, name in zip((2, 1, 2), names, strict=True)
    ]
    where = 'client_id ~ "^list-"'
    _, found = shared.api("GET", "/sessions", where=where, sort="-client_id")
    assert [row["client_id"] for row in found["rows"]] == names[::-1]
    assert not found["more"]
    _, found = shared.api("GET", "/sessions", where=where, sort="client_id", limit=1, offset=1)
    assert [row["client_id"] for row in found["rows"]] == ["list-2"]
    assert found["more"]
    for each in clients:
        each.close()


def test_what_concerns_one_session_goes_to_its_worker(shared: Several) -> None:
    for number in (1, 2):
        wire = shared.client_on(number, f"one-{number}")
        wire.subscribe(("a", 0), ("b", 1))
        one = {"client_id": f"one-{number}"}
        assert shared.api("GET", "/session", **one)[1]["subscriptions"] == 2
        assert shared.api("GET", "/queue", **one)[1]["rows"] == []
        assert shared.api("GET", "/why", **one, topic="a/b")[0] == 200
        assert shared.api("GET", "/why/subscribe", **one, filter="a/b")[1]["granted"]
        assert shared.api("GET", "/why/receive", **one, topic="a")[0] == 200
        status, answer = shared.api("DELETE", "/session/subscription", **one, filter="c")
        assert status == 404
        assert "it has: a, b" in answer["error"]
        assert shared.api("DELETE", "/session/subscription", **one, filter="a")[0] == 200
        assert shared.api("DELETE", "/session", **one)[1]["was_online"]
        wire.expect_closed()
        wire.close()
    status, answer = shared.api("GET", "/session", client_id="nobody")
    assert (status, answer["error"]) == (404, "there is no session of client 'nobody'")


def test_a_list_of_a_mountpoint_that_nobody_knows_is_an_error(shared: Several) -> None:
    status, answer = shared.api("GET", "/sessions", mountpoint="none")
    assert status == 404
    assert "there is no mountpoint 'none'" in answer["error"]


def test_an_option_is_set_in_all_and_stays_with_one_that_is_started_again(shared: Several) -> None:
    def limits() -> list[object]:
        where = 'option = "session.max_client_id_size"'
        answers = [shared.worker_api(number, "GET", "/options", where=where) for number in (1, 2)]
        return [answer["rows"][0]["value"] for answer in answers]

    _, changed = shared.api("POST", "/option", option="session.max_client_id_size", value="77")
    assert (changed["before"], changed["value"], changed["configured"]) == (100, 77, 100)
    assert limits() == [77, 77]
    shared.kill(2)
    assert limits() == [77, 77]
    _, rows = shared.api("GET", "/options", where="set_at != null")
    assert [row["option"] for row in rows["rows"]] == ["session.max_client_id_size"]
    assert shared.api("DELETE", "/option", option="session.max_client_id_size")[0] == 200
    assert limits() == [100, 100]
    status, answer = shared.api("POST", "/option", option="queue.drop", value="everything")
    assert status == 400
    assert "queue.drop" in answer["error"]
    status, _ = shared.api("POST", "/option", option="broker.workers", value=3)
    assert status == 409


def test_a_listener_is_closed_in_all_and_stays_so(shared: Several) -> None:
    address = shared.broker.tcp
    _, row = shared.api("POST", "/listener/stop", name="1")
    assert row["status"] == "stopped"
    shared.kill(2)
    with pytest.raises(ConnectionRefusedError):
        Wire.connect_tcp(address)
    assert shared.api("POST", "/listener/stop", name="1")[0] == 409
    _, row = shared.api("POST", "/listener/start", name="1")
    assert (row["status"], row["url"]) == ("running", shared.broker.urls[0])
    for number in (1, 2):
        shared.client_on(number, "listener").close()
    _, rows = shared.api("GET", "/listeners")
    assert [row["status"] for row in rows["rows"]] == ["running"] * 3
    assert shared.api("POST", "/listener/stop", name="none")[0] == 404


def test_the_listener_of_http_is_the_supervisors(shared: Several) -> None:
    assert shared.api("POST", "/listener/start", name="3")[0] == 409
    assert shared.api("POST", "/listener/stop", name="3")[1]["status"] == "stopped"
    assert shared.api("POST", "/listener/stop", name="3")[0] == 409
    _, row = shared.api("POST", "/listener/start", name="3")
    assert row["status"] == "running"
    shared.broker.urls[2] = row["url"]
    assert shared.get("/health")[0] == 200


def test_a_plugin_is_enabled_and_disabled_in_all_and_stays_so(shared: Several) -> None:
    def states() -> list[list[str]]:
        answers = [shared.worker_api(number, "GET", "/plugins") for number in (1, 2)]
        return [[row["status"] for row in answer["rows"]] for answer in answers]

    assert states() == [["disabled"]] * 2
    _, row = shared.api("POST", "/plugin/enable", name="mine")
    assert row["status"] == "running"
    assert states() == [["running"]] * 2
    shared.kill(2)
    assert states() == [["running"]] * 2
    assert shared.api("POST", "/plugin/reload", name="mine")[0] == 200
    assert shared.api("POST", "/plugin/enable", name="mine")[0] == 409
    _, row = shared.api("POST", "/plugin/disable", name="mine")
    assert row["status"] == "disabled"
    assert shared.api("POST", "/plugin/enable", name="none")[0] == 409


def test_the_cluster_of_the_workers_is_their_own(shared: Several) -> None:
    def members() -> dict[str, bool]:
        _, found = shared.api("GET", "/cluster/members")
        return {row["node"]: row["is_up"] for row in found["rows"]}

    # One that was killed a moment ago asks by its address still.
    reach(lambda: members() == {"n-1": True, "n-2": True})
    status, answer = shared.api("POST", "/cluster/join", address="tcp://127.0.0.1:1")
    assert status == 409
    assert "cluster.listen" in answer["error"]
    status, answer = shared.api("POST", "/cluster/leave")
    assert (status, answer["error"]) == (409, "the workers are in no cluster but their own")
    status, answer = shared.api("DELETE", "/cluster/member", node="n-2", force="true")
    assert status == 409
    assert "broker.workers" in answer["error"]


def test_api_keys_are_asked_for_by_the_one_listener(shared: Several) -> None:
    assert shared.get("/api/v1/sessions")[0] == 401
    _, key = shared.api("POST", "/api-key", name="k")
    assert [row["name"] for row in shared.api("GET", "/api-keys")[1]["rows"]] == ["k"]
    assert shared.api("DELETE", "/api-key", id=key["id"])[0] == 200


def test_a_trace_follows_a_client_to_any_worker(shared: Several) -> None:
    command = [sys.executable, "-m", "vmq", "trace", "client", "traced"]
    folder = ["--data-dir", str(shared.folder)]
    seen: list[bytes] = []

    def comes_and_is_shown(number: int) -> bool:
        before = len(seen)
        shared.client_on(number, "traced").close()
        return len(seen) > before

    with subprocess.Popen([*command, *folder], stdout=subprocess.PIPE) as watcher:
        output = watcher.stdout
        assert output is not None

        def read() -> None:
            seen.extend(line for line in output if b"CONNECT " in line)

        reader = threading.Thread(target=read)
        reader.start()
        try:
            # Until a worker knows of the trace, who connects there is not shown, and comes again.
            for number in (1, 2):
                reach(partial(comes_and_is_shown, number))
        finally:
            watcher.terminate()
            reader.join()


# --- start, stop and signals


class Ended(NamedTuple):
    """A broker that was told to stop: what it was, and what is left."""

    broker: BrokerProcess
    pids: list[int]
    code: int
    #: Whether the client of the Unix socket was a session of the first worker.
    was_firsts: bool
    socket: Path
    #: What the service manager was told.
    told: list[str]


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ended]:
    folder = tmp_path_factory.mktemp("ended")
    path = folder / "mqtt.sock"
    env = {"NOTIFY_SOCKET": str(folder / "notify"), "WATCHDOG_USEC": "60000000"}
    listen = (LISTEN[0], LISTEN[2], f"unix://{path}")
    with (
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager,
        socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client,
    ):
        manager.bind(env["NOTIFY_SOCKET"])
        manager.settimeout(TIMEOUT)
        client.settimeout(TIMEOUT)
        with BrokerProcess.start(listen, folder / "data", env, ARGS) as broker:
            several = Several(broker)
            pids = [several.pid(number) for number in (1, 2)]
            client.connect(str(path))
            client.sendall(connect_packet("u"))
            assert client.recv(4) == b"\x20\x02\x00\x00"
            was_firsts = several.worker_api(1, "GET", "/session", client_id="u")["is_online"]
            wire = several.client_on(2, "durable", clean=False)
            code = broker.terminate()
            wire.expect_closed()
            wire.close()
            told: list[str] = []
            while "STOPPING=1" not in told:
                told += manager.recv(4096).decode().splitlines()
            yield Ended(broker, pids, code, was_firsts, path, told)


def test_a_stop_leaves_nothing_running(ended: Ended) -> None:
    assert ended.code == 0
    assert all(is_gone(pid) for pid in ended.pids)
    assert not (ended.broker.data_dir / "admin.sock").exists()
    text = ended.broker.stderr_text()
    assert text.count(" stopped\n") == 3
    assert all(f"info worker={number} stopped" in text for number in (1, 2))


def test_a_unix_socket_is_that_of_the_first(ended: Ended) -> None:
    assert ended.was_firsts
    assert not ended.socket.exists()


def test_the_service_manager_hears_of_one_service(ended: Ended) -> None:
    assert ended.told.count("READY=1") == 1
    assert f"STATUS={' '.join(ended.broker.urls)}" in ended.told
    assert "WATCHDOG=1" in ended.told


def test_a_worker_that_hangs_is_named_and_a_second_signal_ends_all_at_once(
    fresh_broker: BrokerFactory,
) -> None:
    several = fresh(fresh_broker)
    pids = [several.pid(number) for number in (1, 2)]
    os.kill(pids[1], signal.SIGSTOP)  # it will not end by itself
    status, answer = several.get("/health")
    assert status == 503
    assert answer["reasons"][0].startswith("worker 2 does not answer")
    os.kill(several.broker.pid, signal.SIGTERM)
    several.broker.wait_log("worker=1 stopped")
    os.kill(several.broker.pid, signal.SIGINT)
    assert several.broker.wait() == 1
    reach(lambda: all(is_gone(pid) for pid in pids))


def test_workers_end_with_their_supervisor(fresh_broker: BrokerFactory) -> None:
    several = fresh(fresh_broker)
    pids = [several.pid(number) for number in (1, 2)]
    several.broker.kill()
    reach(lambda: all(is_gone(pid) for pid in pids))


def test_signals_reach_all(fresh_broker: BrokerFactory, tmp_path: Path) -> None:
    file, log = tmp_path / "vmq.toml", tmp_path / "vmq.log"
    text = f'[log]\nfile = "{log}"\n[listeners.tcp]\nurl = "tcp://127.0.0.1:0"\n'
    file.write_text(text)
    args = ("--config", str(file), "--workers", "2")
    broker = fresh_broker(listen=(), args=args)
    log.rename(tmp_path / "vmq.log.1")
    os.kill(broker.pid, signal.SIGUSR1)
    reach(lambda: log.exists() and log.read_text().count("log opened anew") == 3)
    file.write_text(text + "[session]\nmax_client_id_size = 23\n")
    os.kill(broker.pid, signal.SIGHUP)
    reach(lambda: 'reloaded changed="session.max_client_id_size"' in log.read_text())
    for number in (1, 2):
        answer = Several(broker).worker_api(
            number, "GET", "/options", where='option = "session.max_client_id_size"'
        )
        assert answer["rows"][0]["value"] == 23
    file.write_text(text + '[store]\ndurability = "fsync"\n')
    os.kill(broker.pid, signal.SIGHUP)
    reach(lambda: "store.durability: cannot change" in log.read_text())
    assert broker.terminate() == 0
    assert broker.stderr_text() == ""


def test_a_worker_that_cannot_start_is_an_error_of_the_start(
    tmp_path: Path, fresh_broker: BrokerFactory
) -> None:
    other = fresh_broker(data_dir=tmp_path / "d")
    arguments = ("start", "--workers", "2", "--data-dir", str(other.data_dir))
    done = run(*arguments, "--listen", LISTEN[0])
    done.fails(1, "vmq: error: worker 1: ", "in use")
    assert "the supervisor is gone" not in done.err
    host, port = other.tcp
    done = run(
        "start", "--workers", "2", "--data-dir", str(tmp_path), "--listen", f"tcp://{host}:{port}"
    )
    done.tells(1, f"cannot listen on tcp://{host}:{port}")


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_data_directory_has_one_supervisor(shared: Several, workers: str) -> None:
    arguments = ("start", "--workers", workers, "--data-dir", str(shared.folder))
    run(*arguments, "--listen", LISTEN[0]).fails(1, f"{shared.folder} is in use by another broker")


@pytest.mark.parametrize(("workers", "key"), [("0", "broker.workers"), ("many", "broker.workers")])
def test_a_wrong_number_is_an_error_of_the_user(tmp_path: Path, workers: str, key: str) -> None:
    done = run("start", "--workers", workers, "--data-dir", str(tmp_path))
    done.fails(2, key, '"auto", a whole number, 1 to 64')


def test_one_worker_is_one_process(fresh_broker: BrokerFactory) -> None:
    broker = fresh_broker(args=("--workers", "1"))
    assert not (broker.data_dir / "workers").exists()
    # There is what forks the processes of a broker for tests, and none of them.
    assert len(psutil.Process(broker.pid).children(recursive=True)) <= 1
