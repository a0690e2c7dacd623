"""`vmq session`, `queue`, `retain`, `listener`, `metrics`, `set`, `api-key`: a running broker, from a shell."""

import os
import signal
from pathlib import Path

import pytest
from msgspec import Struct

from tests.conftest import BrokerFactory
from tests.support.wire import CONNACK, Wire, connect_packet
from tests.vmq.cli.admin.conftest import Connect
from tests.vmq.cli.program import Finished, here, on, run, told
from vmq.admin.bans import BanRow
from vmq.admin.keys import KeyRow
from vmq.admin.listeners import ListenerRow
from vmq.admin.metrics import MetricRow
from vmq.admin.options import OptionRow
from vmq.admin.queues import QueuedRow
from vmq.admin.retained import RetainedRow
from vmq.admin.sessions import SessionRow
from vmq.cli.admin import admin, api_key, ban, listener, queue, retain, session
from vmq.cli.terminal.rows import Columns
from vmq.testing.process import BrokerProcess


def table_of(done: Finished) -> list[list[str]]:
    assert (done.code, done.err) == (0, "")
    return [line.split() for line in done.out.decode().splitlines()]


def test_sessions_are_listed_and_chosen(shared: BrokerProcess, connect: Connect) -> None:
    here = connect("list-here")
    here.subscribe(("list/#", 1))
    away = connect("list-away", clean=False)
    away.ended_by(b"\xe0\x00")
    where = ("--where", 'client_id ~ "^list-"', "--sort", "-client_id")
    header, *rows = table_of(on(shared, "session", "list", *where))
    assert header[:3] == ["client_id", "is_online", "user"]
    assert [row[:2] for row in rows] == [["list-here", "yes"], ["list-away", "no"]]

    host, port = here.stream.address()
    found = told(shared, "session", "list", *where)[0]
    assert (found["client_id"], found["peer_host"], found["peer_port"]) == ("list-here", host, port)
    assert found["subscriptions"] == 1

    columns = ("--columns", "client_id,subscriptions")
    rows = table_of(on(shared, "session", "list", *where, *columns))
    assert rows == [["client_id", "subscriptions"], ["list-here", "1"], ["list-away", "0"]]

    cut = on(shared, "session", "list", *where, "--limit", "1")
    cut.tells(0, "more rows than these 1")
    assert len(cut.out.splitlines()) == 2


def test_a_session_is_shown_and_loses_a_subscription(
    shared: BrokerProcess, connect: Connect
) -> None:
    me = connect("show-me")
    me.subscribe(("show/a", 1))
    me.subscribe(("show/b", 0))
    shown = on(shared, "session", "show", "show-me").out.decode()
    assert ["show/a", "1"] in [line.split() for line in shown.splitlines()]
    done = on(shared, "session", "unsubscribe", "show-me", "show/a")
    assert done.code == 0
    assert [each["filter"] for each in told(shared, "session", "show", "show-me")["filters"]] == [
        "show/b"
    ]
    again = on(shared, "session", "unsubscribe", "show-me", "show/a")
    again.tells(1, "has no subscription to 'show/a'; it has: show/b")
    me.expect_nothing()


def test_a_client_is_disconnected(shared: BrokerProcess, connect: Connect) -> None:
    me = connect("gone", clean=False)
    gone = {"client_id": "gone", "mountpoint": ""}
    done = told(shared, "session", "disconnect", "gone")
    assert done == {**gone, "was_online": True, "session_ended": False}
    me.expect_closed()
    shared.wait_log('closed client=gone .*reason="disconnected by the operator"')
    done = told(shared, "session", "disconnect", "gone", "--cleanup")
    assert done == {**gone, "was_online": False, "session_ended": True}
    nobody = on(shared, "session", "disconnect", "gone")
    assert (nobody.code, nobody.out) == (1, b"")
    assert nobody.err == "vmq: error: there is no session of client 'gone'\n"


def test_a_queue_is_looked_into_and_emptied(shared: BrokerProcess, connect: Connect) -> None:
    me = connect("sleeper", clean=False)
    me.subscribe(("sleep/#", 1))
    me.ended_by(b"\xe0\x00")
    pub = connect("waker")
    for number, payload in enumerate((b"text", b"\x00\x01\x02", b"\x1b[2J"), 1):
        pub.publish(f"sleep/{number}", payload, qos=1)
    rows = told(shared, "queue", "peek", "sleeper")
    assert [(row["state"], row["topic"], row["payload"]) for row in rows] == [
        ("stored", "sleep/1", "text"),
        ("stored", "sleep/2", "000102"),
        ("stored", "sleep/3", "1b5b324a"),
    ]
    table = table_of(on(shared, "queue", "peek", "sleeper", "--bytes", "2", "--limit", "0"))
    assert [row[-1] for row in table[1:]] == ["te", "0001", "1b5b"]
    done = told(shared, "queue", "purge", "sleeper")
    assert done == {"client_id": "sleeper", "mountpoint": "", "purged": 3}
    assert told(shared, "queue", "peek", "sleeper") == []

    back = connect("sleeper", clean=False)
    back.expect_nothing()


def test_retained_messages(shared: BrokerProcess, connect: Connect) -> None:
    pub = connect("keeper")
    pub.publish("keep/a", b"one", qos=1, retain=True)
    pub.publish("keep/b", b"x" * 200, qos=1, retain=True)
    rows = table_of(on(shared, "retain", "list", "keep/+", "--sort", "-size"))
    assert [row[:3] for row in rows[1:]] == [["keep/b", "1", "200"], ["keep/a", "1", "3"]]
    assert told(shared, "retain", "show", "keep/b")["payload"] == "x" * 200
    done = told(shared, "retain", "delete", "keep/+")
    assert done == {"filter": "keep/+", "mountpoint": "", "deleted": 2}
    sub = connect("late")
    sub.subscribe(("keep/#", 0))
    sub.expect_nothing()
    assert on(shared, "retain", "delete", "keep/+").code == 1
    on(shared, "retain", "list", "keep/#/x").tells(2, "misplaced #")


def test_a_listener_is_stopped_and_started(fresh_broker: BrokerFactory, connect: Connect) -> None:
    listen = ("tcp://127.0.0.1:0", "ws://127.0.0.1:0/mqtt")
    broker = fresh_broker(listen)
    me = connect("stays", broker=broker)
    rows = table_of(on(broker, "listener", "list"))
    assert rows[1:] == [
        ["1", "running", broker.urls[0], "1", "yes"],
        ["2", "running", broker.urls[1], "0", "yes"],
    ]
    assert told(broker, "listener", "stop", "1")["status"] == "stopped"
    with pytest.raises(ConnectionRefusedError):
        connect("new", broker=broker)
    me.expect_nothing()
    started = told(broker, "listener", "start", "1")
    broker.urls[0] = started["url"]
    connect("new", broker=broker).expect_nothing()
    unknown = on(broker, "listener", "stop", "tcp")
    unknown.tells(1, "there is no listener 'tcp'; accepted: 1, 2")


def test_a_client_is_banned_for_a_while(shared: BrokerProcess, connect: Connect) -> None:
    banned = connect("banned")
    assert table_of(on(shared, "ban", "list"))[1:] == []
    row = told(shared, "ban", "add", "--client", "banned", "--for", "12h", "--reason", "floods")
    assert (row["kind"], row["value"], row["disconnected"]) == ("client_id", "banned", 1)
    assert row["until"] > row["since"]
    banned.expect_closed()
    with Wire.connect_tcp(shared.tcp) as again:
        assert again.ask(connect_packet("banned"), CONNACK).return_code == 5
    shared.wait_log(r"client=banned .*refused: banned by client_id banned: floods \(vmq ban\)")
    assert [each["value"] for each in told(shared, "ban", "list")] == ["banned"]
    assert on(shared, "ban", "remove", "--client", "banned").code == 0
    connect("banned").expect_nothing()
    unknown = on(shared, "ban", "remove", "--client", "banned")
    assert (unknown.code, "vmq ban list" in unknown.err) == (1, True)
    for words in (
        ("--for", "soon", "--client", "c"),
        ("--for", "6m", "--client", "c"),
        (),
        ("--client", "c", "--user", "u"),
    ):
        wrong = on(shared, "ban", "add", *words)
        assert (wrong.code, "accepted" in wrong.err) == (2, True)


def test_metrics_are_counted(shared: BrokerProcess, connect: Connect) -> None:
    def publishes() -> float:
        rows = told(shared, "metrics", "--where", 'name = "mqtt_publish_received"')
        return float(rows[0]["value"])

    pub = connect("counted")
    before = publishes()
    for _ in range(3):
        pub.publish("counted/x", qos=1)
    assert publishes() == before + 3


def test_an_option_changes_what_happens(fresh_broker: BrokerFactory, connect: Connect) -> None:
    broker = fresh_broker()
    me = connect("me", clean=False, broker=broker)
    me.subscribe(("t", 1))
    me.ended_by(b"\xe0\x00")
    changed = told(broker, "set", "queue.max_offline_messages", "1")
    assert (changed["before"], changed["value"]) == (-1, 1)
    pub = connect("pub", broker=broker)
    for _ in range(3):
        pub.publish("t", qos=1)
    assert told(broker, "session", "show", "me")["dropped"] == 2
    assert on(broker, "set", "log.level", "debug").code == 0
    connect("seen", broker=broker)
    broker.wait_log("debug connected client=seen")
    (row,) = told(broker, "set", "--where", 'option = "log.level"')
    assert (row["value"], row["live"]) == ("debug", True)
    rows = {row["option"]: row for row in told(broker, "set")}
    assert rows["queue.max_offline_messages"]["value"] == 1
    # A number below 0 is no option, wherever it stands.
    assert told(broker, "set", "queue.max_offline_messages", "-1")["value"] == -1
    for words, code, said in (
        (("queue.max_offline_messages", "-2"), 2, "queue.max_offline_messages = -2: accepted"),
        (("queue.max_offline_messages", "-x"), 2, "No such option"),
        (("queue.drop", "all"), 2, 'queue.drop = "all": accepted: "newest", "oldest"'),
        (("store.durability", "fsync"), 1, "cannot change while the broker runs"),
        (("queue.dorp", "x"), 2, "unknown option"),
        (("queue.max_age", "1m"), 0, "1m is 30d, not 1min"),
    ):
        done = on(broker, "set", *words)
        assert done.code == code
        assert said in done.err
    missing = on(broker, "set", "queue.drop")
    missing.tells(2, "a value for queue.drop is missing")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--list", "queue.drop"), "--list goes with nothing else"),
        (("--list", "--reset", "queue.drop"), "--list goes with nothing else"),
        (("--where", "live", "queue.drop"), "it goes without one"),
        (("--where", "live", "--list"), "--list goes with nothing else"),
        (("--reset",), "--reset wants an OPTION"),
        (("--reset", "queue.drop", "oldest"), "--reset wants an OPTION and no VALUE"),
    ],
)
def test_arguments_of_set_that_do_not_go_together(words: tuple[str, ...], said: str) -> None:
    here("set", *words).fails(2, said)


def test_what_is_set_outlives_a_reload_until_the_file_says_more(
    fresh_broker: BrokerFactory, tmp_path: Path
) -> None:
    file = tmp_path / "vmq.toml"
    file.write_text("")
    broker = fresh_broker(args=("--config", str(file)))
    assert table_of(on(broker, "set", "--list")) == [["option", "value", "configured", "set_at"]]
    on(broker, "set", "queue.max_online_messages", "5")
    on(broker, "set", "queue.drop", "oldest")

    def reloaded(text: str, changed: str) -> str:
        file.write_text(text)
        os.kill(broker.pid, signal.SIGHUP)
        return broker.wait_log(f'reloaded changed="{changed}".*').group()

    line = reloaded("[queue]\nmax_offline_messages = 7\n", "queue.max_offline_messages")
    assert 'set_live="queue.max_online_messages, queue.drop"' in line
    rows = table_of(on(broker, "set", "--list"))
    found = [row[:3] for row in rows[1:]]
    assert found == [["queue.max_online_messages", "5", "-1"], ["queue.drop", "oldest", "newest"]]
    changed = "queue.max_online_messages, queue.max_offline_messages"
    line = reloaded("[queue]\nmax_online_messages = 9\n", changed)
    assert 'set_live="queue.drop"' in line
    done = told(broker, "set", "--reset", "queue.drop")
    assert (done["before"], done["value"]) == ("oldest", "newest")
    assert told(broker, "set", "--list") == []
    assert on(broker, "set", "--reset", "queue.drop").code == 1


def test_sessions_of_all_mountpoints_are_listed_and_told_apart(
    fresh_broker: BrokerFactory, tmp_path: Path
) -> None:
    file = tmp_path / "vmq.toml"
    file.write_text(
        '[listeners.tcp]\nurl = "tcp://127.0.0.1:0"\n'
        '[listeners.plant]\nurl = "tcp://[::1]:0"\nmountpoint = "plant"\n'
    )
    broker = fresh_broker(listen=(), args=("--config", str(file)))
    here = Wire.connect_tcp(broker.tcp)
    there = Wire.connect_tcp(("::1", int(broker.urls[1].rpartition(":")[2])))
    for wire in (here, there):
        wire.connect("me")
    rows = table_of(on(broker, "session", "list"))
    assert [row[:2] for row in rows] == [["client_id", "mountpoint"], ["me", '""'], ["me", "plant"]]
    rows = table_of(on(broker, "session", "list", "--mountpoint", ""))
    assert [row[:2] for row in rows] == [["client_id", "is_online"], ["me", "yes"]]
    assert told(broker, "session", "disconnect", "me", "--mountpoint", "plant")["was_online"]
    there.expect_closed()
    broker.wait_log("closed client=me mountpoint=plant")
    here.expect_nothing()
    for wire in (here, there):
        wire.stream.close()
    wrong = on(broker, "queue", "peek", "me", "--mountpoint", "plnat")
    wrong.fails(1, "there is no mountpoint 'plnat'; accepted: '', 'plant'")


@pytest.mark.parametrize(
    ("columns", "row"),
    [
        (session.COLUMNS, SessionRow),
        (queue.COLUMNS, QueuedRow),
        (retain.COLUMNS, RetainedRow),
        (listener.COLUMNS, ListenerRow),
        (ban.COLUMNS, BanRow),
        (api_key.COLUMNS, KeyRow),
        (admin.METRICS, MetricRow),
        (admin.OPTIONS, OptionRow),
    ],
)
def test_commands_know_the_columns_of_their_rows(columns: Columns, row: type[Struct]) -> None:
    assert set(columns.every) == set(row.__struct_fields__)
    assert len(set(columns.every)) == len(columns.every)


def test_wrong_columns_are_refused_whether_there_are_rows_or_not(shared: BrokerProcess) -> None:
    for where in ("client_id = ''", "true"):
        done = on(shared, "session", "list", "--columns", "nmae", "--where", where)
        done.fails(2, "--columns: there is no column 'nmae'; accepted: all, node, client_id")


def test_api_keys_are_made_and_deleted(shared: BrokerProcess) -> None:
    made = told(shared, "api-key", "create", "--name", "grafana")
    assert made["key"].startswith("vmq_")
    assert made["key"] not in (shared.data_dir / "api_keys.json").read_text()
    assert made["key"] not in shared.stderr_text()
    rows = table_of(on(shared, "api-key", "list"))
    assert [row[:3] for row in rows[1:]] == [[made["id"], "grafana", "all"]]
    assert told(shared, "api-key", "create", "--read-only")["scope"] == "read"
    assert told(shared, "api-key", "delete", made["id"]) == {"id": made["id"]}
    assert on(shared, "api-key", "delete", made["id"]).code == 1


def test_what_clients_chose_cannot_steer_the_terminal(
    shared: BrokerProcess, connect: Connect
) -> None:
    nasty = "evil\x1b[2J\nrow"
    connect(nasty).subscribe(("a\x1b[31m", 0))
    done = on(shared, "session", "list", "--where", 'client_id ~ "^evil"')
    assert done.out.count(b"\n") == 2
    assert rb"evil\x1b[2J\nrow" in done.out
    assert b"\x1b" not in on(shared, "session", "show", nasty).out


@pytest.mark.parametrize(
    "words",
    [
        ("session", "list"),
        ("queue", "peek", "x"),
        ("retain", "list"),
        ("listener", "list"),
        ("metrics",),
        ("set",),
        ("api-key", "list"),
        ("why", "x", "y"),
    ],
)
def test_without_a_broker_there_is_one_clear_line(tmp_path: Path, words: tuple[str, ...]) -> None:
    done = here(*words, "--data-dir", str(tmp_path))
    assert (done.code, done.out) == (1, b"")
    assert done.err == (
        f"vmq: error: no broker runs on {tmp_path} (nobody listens on {tmp_path}/admin.sock); "
        "name its data directory with --data-dir or --config\n"
    )


def test_the_configuration_says_where_the_broker_is(shared: BrokerProcess, tmp_path: Path) -> None:
    file = tmp_path / "vmq.toml"
    file.write_text(f'[broker]\ndata_dir = "{shared.data_dir}"\n')
    assert run("listener", "list", "--config", str(file)).code == 0


@pytest.mark.skipif(os.geteuid() == 0, reason="root may connect to every socket")
def test_a_socket_of_somebody_else_is_refused(fresh_broker: BrokerFactory) -> None:
    broker = fresh_broker()
    (broker.data_dir / "admin.sock").chmod(0)
    done = on(broker, "session", "list")
    done.tells(1, "lets only its own user ask: run this as")
