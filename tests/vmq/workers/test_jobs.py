"""Jobs of a broker of two processes: clients of Disque come to worker 1, those of MQTT to any."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import redis

from tests.support.until import reach
from tests.support.wire import Wire
from tests.vmq.workers.several import ARGS, Several
from vmq.testing.process import BrokerProcess

LISTEN = ("tcp://127.0.0.1:0", "http://127.0.0.1:0", "resp://127.0.0.1:0")
CONFIG = """
[mappings.hot]
from = "sensors/+"
to = ["$jobs/alerts"]

[jobs.schedules.daily]
cron = "@daily"
queue = "clean"
body = "all"
"""


@pytest.fixture(scope="module")
def several(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Several]:
    """Two workers; queues are each test's own."""
    file = tmp_path_factory.mktemp("config") / "vmq.toml"
    file.write_text(CONFIG)
    with BrokerProcess.start(LISTEN, args=(*ARGS, "--config", str(file))) as broker:
        yield Several(broker)


@pytest.fixture
def disque(several: Several) -> Iterator[Any]:
    """A command of Disque to the broker, and its reply."""
    url = next(each for each in several.broker.urls if each.startswith("resp://"))
    with redis.Redis(port=urlsplit(url).port or 0, socket_timeout=60) as client:
        yield client.execute_command


def worker_on(several: Several, number: int, topic_filter: str) -> Wire:
    wire = several.client_on(number, f"{topic_filter} {number}")
    assert wire.subscribe((topic_filter, 1)).codes == [1]
    return wire


def rows(several: Several, path: str, **parameters: Any) -> list[dict[str, Any]]:
    status, answer = several.api("GET", path, **parameters)
    assert status == 200, answer
    found: list[dict[str, Any]] = answer["rows"]
    return found


def figures(several: Several, queue: str) -> dict[str, Any]:
    status, answer = several.api("GET", "/jobs/queue", queue=queue)
    return answer if status == 200 else {}


@pytest.mark.parametrize("number", [1, 2])
def test_jobs_of_redis_clients_come_to_mqtt_workers_of_any_process(
    several: Several, disque: Any, number: int
) -> None:
    queue = f"from-redis-{number}"
    with worker_on(several, number, f"$jobs/{queue}") as worker:
        for body in (b"one", b"two", b"three"):
            disque("ADDJOB", queue, body, 0)
            got = worker.recv_packet()
            assert (got.topic, got.payload) == (f"$jobs/{queue}", body)
            worker.acknowledge(got)
        reach(lambda: figures(several, queue).get("jobs") == 0)


@pytest.mark.parametrize("number", [1, 2])
def test_jobs_of_mqtt_clients_of_any_process_come_to_redis_workers(
    several: Several, disque: Any, number: int
) -> None:
    queue = f"from-mqtt-{number}"
    with several.client_on(number, f"adds {number}") as client:
        client.publish(f"$jobs/{queue}", b"one", qos=1)
        [[_, job_id, body]] = disque("GETJOB", "FROM", queue)
        assert body == b"one"
        assert disque("WORKING", job_id) > 0
        assert disque("NACK", job_id) == 1
        assert disque("GETJOB", "FROM", queue)[0][1] == job_id
        assert disque("ACKJOB", job_id) == 1
    reach(lambda: figures(several, queue).get("jobs") == 0)


def test_an_operator_sees_the_jobs_of_all_processes_as_those_of_one(
    several: Several, disque: Any
) -> None:
    first = disque("ADDJOB", "seen", "first", 0).decode()
    with several.client_on(2, "adds to seen") as client:
        client.publish("$jobs/seen", b"second", qos=1)
    [row] = rows(several, "/jobs/queues", where='queue = "seen"')
    assert (row["depth"], row["came"]) == (2, 2)
    peeked = rows(several, "/jobs", queue="seen")
    assert [row["body"] for row in peeked] == ["first", "second"]
    second = peeked[1]["id"]
    for job_id in (first, second):
        assert several.api("GET", "/jobs/job", id=job_id)[1]["state"] == "queued"
        assert several.api("GET", "/why/job", id=job_id)[1]["given"]
    assert len(rows(several, "/jobs", queue="seen", local="true")) == 1
    assert several.api("POST", "/jobs/pause", queue="seen", what="out")[0] == 200
    paused = several.ask_worker
    reach(lambda: paused(2, "GET", "/jobs/queue", queue="seen", local="true")[1]["paused"] == "out")
    assert several.api("POST", "/jobs/resume", queue="seen")[0] == 200
    assert several.api("DELETE", "/jobs/job", id=second)[1] == {"jobs": 1}
    assert several.api("DELETE", "/jobs/queue", queue="seen")[1] == {"jobs": 1}
    assert several.api("GET", "/jobs/job", id=second)[0] == 404


def test_mappings_and_schedules_are_those_of_one_broker(several: Several, disque: Any) -> None:
    for number in (1, 2):
        with several.client_on(number, f"maps {number}") as client:
            client.publish("sensors/a", b"%d" % number, qos=1)
    got = {disque("GETJOB", "FROM", "alerts")[0][2] for _ in range(2)}
    assert got == {b"1", b"2"}
    [row] = rows(several, "/mappings")
    assert (row["mapping"], row["seen"], row["sent"], row["enabled"]) == ("hot", 2, 2, True)
    status, row = several.api("POST", "/mappings/disable", name="hot")
    assert (status, row["enabled"], row["seen"]) == (200, False, 2)
    found = [several.worker_api(each, "GET", "/mappings")["rows"][0]["enabled"] for each in (1, 2)]
    assert found == [False, False]
    assert [row["schedule"] for row in rows(several, "/jobs/schedules")] == ["daily"]
    assert not several.worker_api(2, "GET", "/jobs/schedules")["rows"]


def test_a_worker_that_is_killed_loses_no_job(several: Several, disque: Any) -> None:
    with several.client_on(2, "adds and goes") as client:
        client.publish("$jobs/kept;retry=1", b"x", qos=1)
        several.kill(2)
    assert disque("GETJOB", "FROM", "kept")[0][2] == b"x"


def test_jobs_of_a_process_that_is_one_too_many_go_to_the_others(tmp_path: Path) -> None:
    listen = (LISTEN[0], LISTEN[2])
    with BrokerProcess.start(listen, args=ARGS, data_dir=tmp_path) as broker:
        several = Several(broker)
        for number in range(100):
            with Wire.connected(broker.tcp, f"c{number}") as wire:
                wire.publish("$jobs/left", b"%d" % number, qos=1)
            if (tmp_path / "workers" / "2" / "jobs").is_dir() and number >= 10:
                break
        count = number + 1
        assert several.worker_api(2, "GET", "/jobs/queue", queue="left", local="true")["depth"]
    one = ("--allow-anonymous", "--workers", "1", "--node-name", "n")
    with BrokerProcess.start(listen, args=one, data_dir=tmp_path) as broker:
        url = next(each for each in broker.urls if each.startswith("resp://"))
        broker.wait_log("worker gone number=2")
        with redis.Redis(port=urlsplit(url).port or 0, socket_timeout=60) as client:
            got = {client.execute_command("GETJOB", "FROM", "left")[0][2] for _ in range(count)}
        assert got == {b"%d" % each for each in range(count)}
