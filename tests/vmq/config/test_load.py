"""The sources of a configuration, and who wins."""

import os
from pathlib import Path

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.vmq.refusals import refused
from vmq.config.checks import check
from vmq.config.load import changed, load
from vmq.config.options import (
    Certificate,
    Config,
    ConfigError,
    ListenerOptions,
    QueueOptions,
    SessionOptions,
    StoreOptions,
)
from vmq.config.text import toml_value


def test_later_sources_win(file: Path) -> None:
    file.write_text(
        'queue = {drop = "oldest", queue_type = "lifo", max_online_messages = 1}\n'
        "[store]\nflush_interval = 3\n"
    )
    loaded = load(
        file,
        {"VMQ_QUEUE__QUEUE_TYPE": "fifo", "VMQ_QUEUE__MAX_ONLINE_MESSAGES": "2"},
        {"queue.max_online_messages": 3},
    )
    assert loaded.config.queue == QueueOptions(
        drop="oldest", queue_type="fifo", max_online_messages=3
    )
    assert loaded.config.store.flush_interval == 3.0
    assert loaded.origin("queue.drop") == str(file)
    assert loaded.origin("queue.queue_type") == "environment VMQ_QUEUE__QUEUE_TYPE"
    assert loaded.origin("queue.max_online_messages") == "command line"
    assert loaded.origin("queue.max_offline_messages") == "default"


def test_origins_are_known_for_every_option_and_no_other() -> None:
    loaded = load()
    assert loaded.origin("listeners.ws.allow_anonymous") == "default"
    with pytest.raises(KeyError):
        loaded.origin("queue.nothing")


def test_items_tell_key_value_and_origin() -> None:
    items = load(environ={"VMQ_LOG__LEVEL": "debug"}).items()
    assert ("log.level", "debug", "environment VMQ_LOG__LEVEL") in items
    assert ("listeners.tcp.url", "tcp://127.0.0.1:1883", "default") in items
    assert [key.partition(".")[0] for key, _, _ in items] == sorted(
        (key.partition(".")[0] for key, _, _ in items), key=list(Config.__struct_fields__).index
    )


def test_a_file_that_names_listeners_replaces_the_shipped_ones(file: Path) -> None:
    file.write_text('[listeners.local]\nurl = "tcp://[::1]:1884"\n')
    assert load(file).config.listeners == {"local": ListenerOptions(url="tcp://[::1]:1884")}


def test_a_file_without_listeners_leaves_the_shipped_ones(file: Path) -> None:
    file.write_text('[log]\nlevel = "debug"\n')
    assert load(file).config.listeners == Config().listeners


def test_the_environment_changes_and_adds_listeners() -> None:
    loaded = load(
        environ={
            "VMQ_LISTENERS__TCP__URL": "tcp://127.0.0.1:2883",
            "VMQ_LISTENERS__EXTRA__URL": "tcp://0.0.0.0:3883",
            "VMQ_LISTENERS__EXTRA__ALLOW_ANONYMOUS": "true",
        }
    )
    assert loaded.config.listeners == {
        "tcp": ListenerOptions(url="tcp://127.0.0.1:2883"),
        "ws": ListenerOptions(url="ws://127.0.0.1:8083/mqtt"),
        "http": ListenerOptions(url="http://127.0.0.1:8888"),
        "extra": ListenerOptions(url="tcp://0.0.0.0:3883", allow_anonymous=True),
    }
    assert loaded.origin("listeners.tcp.url") == "environment VMQ_LISTENERS__TCP__URL"
    assert loaded.origin("listeners.tcp.allow_anonymous") == "default"


@pytest.mark.parametrize(
    "listeners",
    [
        ["tcp://127.0.0.1:0", "ws://127.0.0.1:0/mqtt"],
        ("tcp://127.0.0.1:0", "ws://127.0.0.1:0/mqtt"),
        {"1": {"url": "tcp://127.0.0.1:0"}, "2": {"url": "ws://127.0.0.1:0/mqtt"}},
    ],
)
def test_the_command_line_replaces_all_listeners(file: Path, listeners: object) -> None:
    file.write_text('[listeners.local]\nurl = "tcp://[::1]:1884"\n')
    loaded = load(file, {}, {"listeners": listeners})
    found = [options.url for options in loaded.config.listeners.values()]
    assert found == ["tcp://127.0.0.1:0", "ws://127.0.0.1:0/mqtt"]
    assert loaded.origin("listeners.1.url") == "command line"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("elsewhere", "elsewhere"),
        ('"elsewhere"', "elsewhere"),
        ("2024", "2024"),
        ("2024-01-01", "2024-01-01"),
        ("true", "true"),
        ("[x]", "[x]"),
        ('"a" # comment', "a"),
        ('1\nlevel = "x"', '1\nlevel = "x"'),
        ("/a b/c", "/a b/c"),
    ],
)
def test_environment_values_are_toml_or_else_text(text: str, value: str) -> None:
    assert load(environ={"VMQ_BROKER__DATA_DIR": text}).config.broker.data_dir == value


@settings(max_examples=50)
@given(st.text(min_size=1).filter(lambda text: "\0" not in text))
@example("\x7f")
@example('a"b\\c\r\n\t')
@example("2024")
def test_any_text_can_be_given_quoted_in_the_environment(text: str) -> None:
    loaded = load(environ={"VMQ_BROKER__DATA_DIR": toml_value(text)})
    assert loaded.config.broker.data_dir == text


@given(st.text().filter(lambda text: text.strip() not in ("newest", "oldest")))
def test_no_environment_text_does_worse_than_a_config_error(text: str) -> None:
    lines = refused(environ={"VMQ_QUEUE__DROP": text, "VMQ_LISTENERS__TCP__URL": text})
    assert [line.partition(":")[0] for line in lines] == ["environment VMQ_QUEUE__DROP"]


def test_other_variables_are_left_alone() -> None:
    environ = {"VMQ_PURE": "1", "VMQ_CONFIG": "x", "PATH": "/bin", "OTHER_QUEUE__DROP": "x"}
    assert load(environ=environ).config == Config()


def test_a_relative_data_dir_stays_as_written(file: Path) -> None:
    file.write_text('[broker]\ndata_dir = "state/vmq"\n')
    assert load(file).config.broker.data_dir == "state/vmq"


configurations = st.builds(
    Config,
    queue=st.builds(
        QueueOptions,
        max_inflight_messages=st.integers(0, 65_535),
        max_online_messages=st.integers(-1, 1 << 60),
        drop=st.sampled_from(["newest", "oldest"]),
    ),
    store=st.builds(
        StoreOptions,
        durability=st.sampled_from(["memory", "os", "fsync"]),
        flush_interval=st.floats(0.001, 3600),
        write_buffer_size=st.integers(65_536, 1 << 30),
        max_uncommitted_writes=st.integers(1, 1 << 30),
    ),
    session=st.builds(
        SessionOptions,
        persistent_client_expiration=st.from_regex(
            r"(never|[1-9][0-9]{0,5}[hdwmy])", fullmatch=True
        ),
        retry_interval=st.floats(0, 86_400),
        upgrade_outgoing_qos=st.booleans(),
    ),
    listeners=st.dictionaries(
        st.from_regex(r"[a-z0-9]+([_-][a-z0-9]+){0,2}", fullmatch=True),
        st.builds(
            ListenerOptions,
            url=st.sampled_from(["tcp://127.0.0.1:0", "ws://[::1]:0/a", "tcp://localhost:0"]),
            allow_anonymous=st.none() | st.booleans(),
            allowed_protocol_versions=st.sampled_from([[3], [4], [3, 4]]),
            proxy_protocol_trusted=st.lists(st.ip_addresses().map(str), max_size=2),
        )
        | st.builds(
            ListenerOptions,
            url=st.just("tls://127.0.0.1:0"),
            certfile=st.just("a.pem"),
            keyfile=st.just("b.pem"),
            sni=st.dictionaries(
                st.text(),
                st.builds(Certificate, certfile=st.just("c"), keyfile=st.just("d")),
                max_size=2,
            ),
        ),
        min_size=1,
        max_size=4,
    ),
)


@settings(max_examples=50)
@given(configurations)
def test_a_configuration_survives_being_written_and_read(
    tmp_path_factory: pytest.TempPathFactory, config: Config
) -> None:
    check(config)
    tables = msgspec.to_builtins(config)
    for options in (*tables.values(), *tables["listeners"].values()):
        for unset in [name for name, value in options.items() if value is None]:
            del options[unset]
    file = tmp_path_factory.getbasetemp() / "written.toml"
    written = [f"{name} = {toml_value(table)}\n" for name, table in tables.items()]
    file.write_text("".join(written), encoding="utf-8")
    assert load(file).config == config


def test_the_environment_of_this_process_is_not_read_unasked() -> None:
    os.environ["VMQ_QUEUE__DROP"] = "nonsense"
    try:
        assert load().config == Config()
    finally:
        del os.environ["VMQ_QUEUE__DROP"]


def test_one_option_changes_by_its_text() -> None:
    before = Config()
    after = changed(before, "queue.drop", "oldest")
    assert (before.queue.drop, after.queue.drop) == ("newest", "oldest")
    assert changed(after, "queue.max_online_messages", "7").queue.drop == "oldest"
    with pytest.raises(ConfigError, match=r'^queue\.drop = "all": accepted: "newest", "oldest"$'):
        changed(before, "queue.drop", "all")
    with pytest.raises(ConfigError, match="unknown option"):
        changed(before, "queue.dorp", "oldest")
