from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vmq.config import options
from vmq.config.checks import check
from vmq.config.jobs import ScheduleOptions
from vmq.config.overrides import LiveConfig
from vmq.workers.plan import Plan, are_needed, count_of

LISTENERS = {
    "tcp": options.ListenerOptions(url="tcp://127.0.0.1:0", max_connections=10),
    "unix": options.ListenerOptions(url="unix:///tmp/vmq.sock", max_connections=10),
    "http": options.ListenerOptions(url="http://127.0.0.1:0"),
}


def config_of(folder: Path, **more: object) -> options.Config:
    config = options.Config(
        broker=options.BrokerOptions(data_dir=str(folder)),
        listeners=LISTENERS,
        cluster=options.ClusterOptions(node_name="n"),
    )
    return msgspec.structs.replace(config, **more)


def folders(tmp_path: Path, *numbers: int) -> None:
    for number in numbers:
        (tmp_path / "workers" / str(number)).mkdir(parents=True)


def test_each_has_its_data_its_node_and_its_listeners(tmp_path: Path) -> None:
    config = config_of(tmp_path)
    plan = Plan(config, 3, {"tcp": "tcp://127.0.0.1:1883"})
    told = {number: plan.config_of(number, config) for number in plan.numbers()}
    folder = tmp_path / "workers"
    data = {number: each.broker.data_dir for number, each in told.items()}
    assert data == {1: str(tmp_path), 2: str(folder / "2"), 3: str(folder / "3")}
    assert {each.cluster.node_name for each in told.values()} == {"n-1", "n-2", "n-3"}
    nodes = {number: f"ipc://{folder / str(number) / 'node.sock'}" for number in told}
    for number, each in told.items():
        check(each)
        assert each.cluster.listen == nodes[number]
        share = plan.share(number, config, [1, 2])
        assert share.siblings == {f"n-{other}": nodes[other] for other in {1, 2} - {number}}
        assert share.sockets == {}
        assert each.listeners["tcp"].url == "tcp://127.0.0.1:1883"
    assert plan.opens(1, config) == {"tcp", "unix", "http"}
    assert plan.opens(2, config) == {"tcp", "http"}, "what speaks MQTT there is handed to it"


def test_a_listener_that_was_closed_stays_closed(tmp_path: Path) -> None:
    config = config_of(tmp_path)
    plan = Plan(config, 2)
    plan.stopped.add("tcp")
    found = [plan.share(number, config).listeners for number in (1, 2)]
    assert found == [{"unix", "http"}, {"http"}]


@given(count=st.integers(2, 64), limit=st.integers(0, 200))
def test_limits_are_divided(count: int, limit: int) -> None:
    listeners = {
        name: msgspec.structs.replace(each, max_connections=limit)
        for name, each in LISTENERS.items()
    }
    # Of this each takes its part by itself: how many they are may change.
    whole = options.LimitOptions(max_memory=1_000_000)
    config = config_of(Path("/data"), listeners=listeners, limits=whole)
    plan = Plan(config, count)
    parts = [plan.config_of(number, config) for number in plan.numbers()]
    each = parts[0].listeners["tcp"].max_connections
    # No limit stays none; else together they have the limit, and not a connection more for each worker.
    assert each * count == 0 if limit == 0 else limit <= each * count < limit + count
    assert parts[0].listeners["unix"].max_connections == limit
    assert {each.limits.max_memory for each in parts} == {1_000_000}


def test_what_is_set_live_is_told_to_all(tmp_path: Path) -> None:
    live = LiveConfig.of(config_of(tmp_path)).with_option("queue.drop", "oldest", 5.0)
    told = Plan(live.config, 2).live_of(2, live)
    assert told.config.queue.drop == "oldest"
    assert told.base.queue.drop == "newest"
    assert told.overrides == live.overrides


def test_nodes_that_others_reach_have_ports_one_after_the_other(tmp_path: Path) -> None:
    cluster = options.ClusterOptions(
        node_name="n",
        listen="tcp://127.0.0.1:44053",
        advertise="tcp://127.0.0.2:44053",
        join=["tcp://127.0.0.3:44053"],
    )
    config = config_of(tmp_path, cluster=cluster)
    second = Plan(config, 2).config_of(2, config).cluster
    assert second.listen == "tcp://127.0.0.1:44054"
    assert second.advertise == "tcp://127.0.0.2:44054"
    assert second.join == ["tcp://127.0.0.3:44053"]
    siblings = Plan(config, 2).share(2, config, [1]).siblings
    assert siblings == {"n-1": "tcp://127.0.0.2:44053"}
    # Among themselves they go by neither.
    sockets = Plan(config, 2).share(2, config, [1]).sockets
    assert sockets == {f"n-{each}": f"ipc://{tmp_path}/workers/{each}/node.sock" for each in (1, 2)}


@pytest.mark.parametrize("port", [0, 65_535])
def test_each_node_needs_a_port(tmp_path: Path, port: int) -> None:
    cluster = options.ClusterOptions(listen=f"tcp://127.0.0.1:{port}")
    with pytest.raises(options.ConfigError, match=r"cluster\.listen"):
        Plan(config_of(tmp_path, cluster=cluster), 2)


def with_flight(folder: Path, url: str, advertise: str = "") -> options.Config:
    flight = options.ListenerOptions(url=url, advertise=advertise)
    return msgspec.structs.replace(config_of(folder), listeners={"flight": flight})


def test_each_worker_serves_streams_at_a_port_of_its_own(tmp_path: Path) -> None:
    config = with_flight(tmp_path, "grpc://127.0.0.1:8815", "grpc://broker.example.com:9000")
    plan = Plan(config, 3)
    found = [plan.config_of(number, config).listeners["flight"] for number in (1, 2, 3)]
    assert [each.url for each in found] == [f"grpc://127.0.0.1:881{n}" for n in (5, 6, 7)]
    assert [each.advertise[-4:] for each in found] == ["9000", "9001", "9002"]
    assert "flight" in plan.opens(3, config)


@pytest.mark.parametrize(
    ("url", "advertise", "option"),
    [
        ("grpc://127.0.0.1:0", "", "url"),
        ("grpc://127.0.0.1:65535", "", "url"),
        ("grpc://127.0.0.1:8815", "grpc://a:65535", "advertise"),
    ],
)
def test_there_must_be_as_many_ports(tmp_path: Path, url: str, advertise: str, option: str) -> None:
    config = with_flight(tmp_path, url, advertise)
    with pytest.raises(
        options.ConfigError, match=rf"listeners\.flight\.{option}: .*a port of its own"
    ):
        Plan(config, 2)
    Plan(config, 1)


def test_a_path_that_is_too_long_for_sockets_is_named(tmp_path: Path) -> None:
    with pytest.raises(options.ConfigError, match=r"broker\.data_dir"):
        Plan(config_of(tmp_path / ("x" * 100)), 2)


def test_those_of_earlier_starts_are_there_until_they_are_gone(tmp_path: Path) -> None:
    folders(tmp_path, 1, 2, 3, 4)
    (tmp_path / "workers" / "lock").touch()
    config = config_of(tmp_path)
    plan = Plan(config, 2)
    assert plan.surplus == [3, 4]
    assert plan.numbers() == [1, 2, 3, 4]
    assert plan.opens(3, config) == frozenset()


def test_one_process_is_enough_when_none_has_left_anything(tmp_path: Path) -> None:
    config = config_of(tmp_path)
    assert not are_needed(config, 1)
    folders(tmp_path, 1)
    assert not are_needed(config, 1)
    assert are_needed(config, 2)
    folders(tmp_path, 2)
    assert are_needed(config, 1)


def test_auto_is_one_a_core(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _pid: {0, 2, 5})
    auto = options.BrokerOptions(data_dir=str(tmp_path), workers="auto")
    assert count_of(config_of(tmp_path, broker=auto)) == 3
    assert count_of(config_of(tmp_path)) == 1


def test_clients_of_disque_come_to_one_and_one_looks_at_the_clock(tmp_path: Path) -> None:
    config = msgspec.structs.replace(
        config_of(tmp_path, limits=options.LimitOptions(max_job_memory=1_000_000)),
        listeners={"jobs": options.ListenerOptions(url="resp://127.0.0.1:0")},
        schedules={"night": ScheduleOptions(cron="@daily", queue="q", body="x")},
    )
    plan = Plan(config, 3)
    assert [plan.opens(number, config) for number in (1, 2, 3)] == [{"jobs"}, set(), set()]
    told = [plan.config_of(number, config) for number in (1, 2, 3)]
    assert [list(each.schedules) for each in told] == [["night"], [], []]
    assert {each.limits.max_job_memory for each in told} == {333_334}
    assert {each.cluster.host for each in told} == {"n"}, "no copies on two of them"
