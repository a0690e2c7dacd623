"""`vmq start --workers 2` as a program: two brokers that are one to clients, operators and whoever started them."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from pyarrow import flight

from tests.cluster_processes.cluster import lasting_port
from tests.conftest import BrokerFactory
from tests.support.broker_process import BrokerProcess
from tests.support.wire import Wire, connect_packet
from tests.vmq.cli.program import Program, run
from tests.vmq.workers.several import Several, is_gone, reach

LISTEN = ("tcp://127.0.0.1:0", "ws://127.0.0.1:0/mqtt", "http://127.0.0.1:0")
ARGS = ("--allow-anonymous", "--workers", "2", "--node-name", "n")
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


def test_workers_share_one_port(shared: Several) -> None:
    assert len(shared.broker.urls) == 3
    one, other = shared.client_on(1, "port-1"), shared.client_on(2, "port-2")
    assert one.subscribe(("a", 1)).codes == [1]
    assert other.subscribe(("a", 1)).codes == [1]
    one.close()
    other.close()


def test_a_killed_worker_is_started_again_and_disturbs_no_client_of_another(
    shared: Several,
) -> None:
    stays, goes = shared.client_on(1, "stays"), shared.client_on(2, "goes")
    _, before = shared.get("/metrics")
    shared.kill(2)
    goes.expect_closed()
    stays.send(b"\xc0\x00")
    stays.expect(b"\xd0\x00")
    _, text = shared.get("/metrics")
    after = values(text)
    assert after["worker_up", "2"] == 1
    again = after["worker_restarts_total", "2"] - values(before)["worker_restarts_total", "2"]
    assert again == 1
    assert after["worker_restarts_total", "1"] == 0
    shared.broker.wait_log('worker ended number=2 reason="killed by SIGKILL"')
    assert shared.get("/health") == (200, {"status": "ok", "reasons": []})
    shared.client_on(2, "back").close()
    stays.close()
    goes.close()


# --- who watches


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
    _, rows = shared.api("GET", "/metrics", where='name = "total_active_connections"')
    connections = found["total_active_connections", "1"] + found["total_active_connections", "2"]
    assert rows["rows"] == [{"name": "total_active_connections", "value": connections}]
    for each in clients:
        each.close()


def test_health_and_status_are_those_of_all(shared: Several) -> None:
    clients = [shared.client_on(number, f"health-{number}") for number in (1, 2)]
    assert shared.get("/health/ping")[0] == 200
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
    _, members = shared.api("GET", "/cluster/members")
    assert {row["node"]: row["is_up"] for row in members["rows"]} == {"n-1": True, "n-2": True}
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


def test_a_stop_leaves_nothing_running(fresh_broker: BrokerFactory) -> None:
    several = fresh(fresh_broker)
    pids = [several.pid(number) for number in (1, 2)]
    wire = several.client_on(2, "durable", clean=False)
    assert several.broker.terminate() == 0
    wire.expect_closed()
    wire.close()
    assert all(is_gone(pid) for pid in pids)
    assert not (several.folder / "admin.sock").exists()
    text = several.broker.stderr_text()
    assert text.count(" stopped") == 3
    assert all(f"info worker={number} stopped" in text for number in (1, 2))


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


def test_the_service_manager_hears_of_one_service(
    fresh_broker: BrokerFactory, tmp_path: Path
) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(20)
        broker = fresh_broker(
            args=ARGS, env={"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "60000000"}
        )
        assert broker.terminate() == 0
        said = []
        while "STOPPING=1" not in said:
            said += manager.recv(4096).decode().splitlines()
    assert said.count("READY=1") == 1
    assert f"STATUS={broker.urls[0]}" in said
    assert "WATCHDOG=1" in said


def test_a_worker_that_cannot_start_is_an_error_of_the_start(
    tmp_path: Path, fresh_broker: BrokerFactory
) -> None:
    other = fresh_broker(data_dir=tmp_path / "data")
    arguments = ("start", "--workers", "2", "--data-dir", str(other.data_dir))
    done = run(*arguments, "--listen", LISTEN[0])
    assert (done.code, done.out) == (1, b"")
    assert "vmq: error: worker 1: " in done.err
    assert "in use" in done.err
    host, port = other.tcp
    done = run(
        "start", "--workers", "2", "--data-dir", str(tmp_path), "--listen", f"tcp://{host}:{port}"
    )
    assert done.code == 1
    assert f"cannot listen on tcp://{host}:{port}" in done.err


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_data_directory_has_one_supervisor(shared: Several, workers: str) -> None:
    arguments = ("start", "--workers", workers, "--data-dir", str(shared.folder))
    done = run(*arguments, "--listen", LISTEN[0])
    assert (done.code, done.out) == (1, b"")
    assert f"{shared.folder} is in use by another broker" in done.err


@pytest.mark.parametrize(("workers", "key"), [("0", "broker.workers"), ("many", "broker.workers")])
def test_a_wrong_number_is_an_error_of_the_user(tmp_path: Path, workers: str, key: str) -> None:
    done = run("start", "--workers", workers, "--data-dir", str(tmp_path))
    assert (done.code, done.out) == (2, b"")
    assert key in done.err
    assert '"auto", a whole number, 1 to 64' in done.err


def test_one_worker_is_one_process(fresh_broker: BrokerFactory) -> None:
    broker = fresh_broker(args=("--workers", "1"))
    assert not (broker.data_dir / "workers").exists()
    children = Path(f"/proc/{broker.pid}/task/{broker.pid}/children")
    assert children.read_text() == ""


def test_a_unix_socket_is_that_of_the_first(fresh_broker: BrokerFactory, tmp_path: Path) -> None:
    path = tmp_path / "mqtt.sock"
    broker = fresh_broker(listen=(LISTEN[0], LISTEN[2], f"unix://{path}"), args=ARGS)
    several = Several(broker)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
        sock.connect(str(path))
        sock.sendall(connect_packet("u"))
        assert sock.recv(4) == b"\x20\x02\x00\x00"
        assert several.worker_api(1, "GET", "/session", client_id="u")["is_online"]
    assert broker.terminate() == 0
    assert not path.exists()


def test_sessions_go_from_one_process_to_several_to_elsewhere_and_back(
    fresh_broker: BrokerFactory, tmp_path: Path
) -> None:
    folder = tmp_path / "data"
    with BrokerProcess.start(data_dir=folder) as alone:
        wire = Wire.connect_tcp(alone.tcp)
        wire.connect("was-there", clean=False)
        wire.subscribe(("a", 1))
        wire.close()
        assert alone.terminate() == 0
    broker = fresh_broker(data_dir=folder, args=ARGS)
    several = Several(broker)
    wire = several.client_on(2, "publisher")
    wire.publish("a", b"1", qos=1)
    wire.close()
    reach(lambda: several.worker_api(1, "GET", "/queue", client_id="was-there")["rows"])
    assert broker.terminate() == 0
    moved = folder.rename(tmp_path / "moved")
    broker = fresh_broker(data_dir=moved, args=ARGS)
    several = Several(broker)

    def members() -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = several.api("GET", "/cluster/members")[1]["rows"]
        return rows

    # For a moment an address that is to be joined may stand there without a name.
    reach(lambda: {row["node"]: row["is_up"] for row in members()} == {"n-1": True, "n-2": True})
    assert all(row["address"].startswith(f"ipc://{moved}/") for row in members())
    wire = several.client_on(2, "publisher")
    wire.publish("a", b"2", qos=1)
    wire.close()
    reach(lambda: len(several.worker_api(1, "GET", "/queue", client_id="was-there")["rows"]) == 2)
    wire = several.client_on(2, "of-the-second", clean=False)
    wire.subscribe(("b", 1))
    wire.close()
    wire = several.client_on(2, "publisher")
    wire.publish("b", b"3", qos=1)
    wire.close()
    assert broker.terminate() == 0
    # The second worker is one too many now; its sessions go to the first, and then one process is enough.
    broker = fresh_broker(data_dir=moved, args=("--node-name", "n"))
    reach(lambda: not (moved / "workers" / "2").exists())
    assert broker.terminate() == 0
    broker = fresh_broker(data_dir=moved)
    assert not (moved / "workers").exists()
    assert len(Several(broker).api("GET", "/queue", client_id="was-there")[1]["rows"]) == 2
    assert len(Several(broker).api("GET", "/queue", client_id="of-the-second")[1]["rows"]) == 1


def two_ports() -> int:
    """The first of two free ports side by side."""
    while True:
        port = lasting_port()
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port + 1))
            except OSError:
                continue
        return port


def read(location: str) -> list[bytes]:
    """What a plain Arrow client reads of stream s, which knows one address."""
    with flight.connect(location) as client:
        info = client.get_flight_info(flight.FlightDescriptor.for_path("s"))
        found: list[bytes] = []
        for each in info.endpoints:
            [place] = each.locations or [location]
            with flight.connect(place) as owner:
                found += owner.do_get(each.ticket).read_all().column("payload").to_pylist()
    return sorted(found)


def follow(several: Several, expected: list[bytes]) -> None:
    """Has `vmq stream tail` show the messages of all workers, the next ones, and those after a worker's death."""
    where = ("stream", "tail", "s", "--json", "--data-dir", str(several.folder))
    done = run(*where, "--from", "earliest")
    told = sorted(json.loads(line)["payload"].encode() for line in done.out.splitlines())
    assert (done.code, done.err, told) == (0, "", expected)
    folder = ("--data-dir", str(several.folder))
    done = run("stream", "verify", *folder)
    assert (done.code, done.err, done.out.splitlines()[-1]) == (0, "", b"ok")
    target = several.folder / "s.parquet"
    done = run("stream", "export", "s", "--parquet", str(target), *folder)
    assert (done.code, done.err, done.out) == (0, "", f"{len(expected)} messages\n".encode())
    with Program(*where, "-f", "-n", "1") as program:
        program.wait_out("payload")
        several.kill(2)
        with Wire.connect_tcp(several.broker.tcp) as wire:
            wire.connect("after")
            for topic in range(20):
                wire.publish(f"s/{topic}", b"after", qos=1)
        program.wait_out("after", 20)
        program.signal(signal.SIGINT)
        assert program.finish().code == 130


def test_workers_share_streams_and_give_them_back(
    fresh_broker: BrokerFactory, tmp_path: Path
) -> None:
    first = two_ports()
    places = [f"grpc://127.0.0.1:{port}" for port in (first, first + 1)]
    listen = (LISTEN[0], places[0], LISTEN[2])
    broker = fresh_broker(listen=listen, data_dir=tmp_path, args=ARGS)
    several = Several(broker)
    assert broker.urls[1] == places[0]
    given = {"filters": ["s/#"], "partitions": 8, "key": "topic"}
    assert several.api("POST", "/stream", name="s", **given)[0] == 200
    for number in (1, 2):
        reach(partial(several.worker_api, number, "GET", "/stream", name="s"))
        wire = several.client_on(number, f"p{number}")
        for topic in range(20):
            wire.publish(f"s/{topic}", f"{number} {topic}".encode(), qos=1)
        wire.close()
    expected = sorted(f"{number} {topic}".encode() for number in (1, 2) for topic in range(20))

    def row() -> dict[str, Any]:
        [found] = several.api("GET", "/streams")[1]["rows"]
        return dict(found)

    reach(lambda: row()["messages"] == len(expected))
    assert (row()["owned"], row()["gathered"]) == (8, len(expected))
    assert {part["owner"] for part in several.api("GET", "/stream", name="s")[1]["partitions"]} == {
        "n-1",
        "n-2",
    }
    assert read(places[0]) == read(places[1]) == expected
    follow(several, expected)
    expected = sorted([*expected, *[b"after"] * 20])
    status, answer = several.api("GET", "/stream/tail", stream="t")
    assert (status, answer["error"]) == (404, "there is no stream 't'; there are: s")
    assert broker.terminate() == 0
    # The second worker is one too many now; its partitions go to the first, and then one process is enough.
    broker = fresh_broker(data_dir=tmp_path, args=("--node-name", "n"))
    reach(lambda: not (tmp_path / "workers" / "2").exists())
    assert broker.terminate() == 0
    broker = fresh_broker(listen=listen, data_dir=tmp_path)
    assert not (tmp_path / "workers").exists()
    assert read(places[0]) == expected


def test_workers_that_leave_the_cluster_give_all_to_the_others_and_stop(
    fresh_broker: BrokerFactory, tmp_path: Path
) -> None:
    def node(name: str, *more: str) -> tuple[str, ...]:
        return ("--node-name", name, "--cluster-listen", f"ipc://{tmp_path}/{name}", *more)

    other = fresh_broker(data_dir=tmp_path / "o-data", args=node("o"))
    args = ("--workers", "2", *node("n", "--join", f"ipc://{tmp_path}/o"))
    several = Several(fresh_broker(data_dir=tmp_path / "n-data", args=args))

    def is_linked() -> bool:
        _, members = several.api("GET", "/cluster/members")
        return {row["node"] for row in members["rows"] if row["is_up"]} == {"n-1", "n-2", "o"}

    reach(is_linked)
    for number in (1, 2):
        wire = several.client_on(number, f"durable-{number}", clean=False)
        wire.subscribe(("a", 1))
        wire.close()
    elsewhere = Wire.connect_tcp(other.tcp)
    elsewhere.connect("elsewhere")

    def rows(**parameters: Any) -> list[tuple[str, str]]:
        found = several.api("GET", "/sessions", sort="client_id", **parameters)[1]["rows"]
        return [(row["client_id"], row["node"]) for row in found]

    own = [("durable-1", "n-1"), ("durable-2", "n-2")]
    reach(lambda: len(rows()) == 3)
    assert rows() == [*own, ("elsewhere", "o")]
    assert rows(local="true") == own
    assert several.api("GET", "/session", client_id="elsewhere")[1]["node"] == "o"
    assert several.api("GET", "/session", client_id="durable-2")[1]["is_online"] is False
    elsewhere.close()
    assert several.api("POST", "/cluster/leave")[1] == {"node": "n-1 n-2", "complete": True}
    assert several.broker.wait() == 0
    _, found = Several(other).api("GET", "/sessions")
    assert {row["client_id"] for row in found["rows"]} == {"durable-1", "durable-2"}
