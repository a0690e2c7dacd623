"""The configuration: its defaults, its sources and who wins, and what it says of mistakes."""

import os
from pathlib import Path

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import vmq.config
from vmq.config import (
    AuthOptions,
    BrokerOptions,
    Certificate,
    Config,
    ConfigError,
    ListenerOptions,
    NetworkOptions,
    QueueOptions,
    SessionOptions,
    StoreOptions,
    changed,
    check,
    load,
)
from vmq.config_text import toml_value


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Where a test's configuration file is written."""
    return tmp_path / "test.toml"


def refused(**sources: object) -> list[str]:
    """The lines of the error that loading these sources ends in."""
    with pytest.raises(ConfigError) as caught:
        load(**sources)  # type: ignore[arg-type]
    lines = str(caught.value).splitlines()
    assert len(lines) == len(caught.value.problems)
    return lines


# --- defaults

LISTENER_DEFAULTS: dict[str, object] = {
    "allow_anonymous": None,
    "allow_remote": False,
    "max_connections": 0,
    "allowed_protocol_versions": [3, 4],
    "max_connection_lifetime": 0,
    "mountpoint": "",
    "proxy_protocol": False,
    "proxy_protocol_trusted": ["127.0.0.0/8", "::1/128"],
    "xff_enabled": False,
    "xff_trusted_intermediate": ["127.0.0.0/8", "::1/128"],
    "unix_mode": "600",
    "unix_owner": None,
    "certfile": None,
    "keyfile": None,
    "keypasswd": None,
    "sni": {},
    "cafile": None,
    "crlfile": None,
    "require_certificate": False,
    "use_identity_as_username": False,
    "tls_version": "1.2",
    "ciphers": None,
    "tls_handshake_timeout": 5,
}


def test_the_defaults_are_those_that_the_documentation_promises() -> None:
    assert msgspec.to_builtins(Config()) == {
        "broker": {"data_dir": "data"},
        "log": {"level": "info", "format": "text", "file": None, "flood_limit": 100},
        "auth": {"allow_anonymous": "loopback"},
        "listeners": {
            "tcp": {"url": "tcp://127.0.0.1:1883", **LISTENER_DEFAULTS},
            "ws": {"url": "ws://127.0.0.1:8083/mqtt", **LISTENER_DEFAULTS},
            "http": {"url": "http://127.0.0.1:8888", **LISTENER_DEFAULTS},
        },
        "session": {
            "mqtt_connect_timeout": 5,
            "max_client_id_size": 100,
            "max_packet_size": 16777216,
            "persistent_client_expiration": "never",
            "upgrade_outgoing_qos": False,
            "retry_interval": 0,
            "shared_subscription_policy": "prefer_local",
            "suppress_lwt_on_session_takeover": False,
        },
        "queue": {
            "max_inflight_messages": 20,
            "max_online_messages": 1000,
            "max_offline_messages": 1000,
            "queue_type": "fifo",
            "drop": "newest",
            "overflow": "drop",
            "max_msgs_per_drain_step": 100,
        },
        "limits": {
            "max_message_size": 0,
            "max_message_rate": 0,
            "max_byte_rate": 0,
            "max_subscriptions_per_client": 100_000,
            "topic_max_depth": 128,
            "max_retained_messages": 1_000_000,
            "max_retained_bytes": 1_073_741_824,
            "max_memory": 0,
            "stalled_client_timeout": 300,
            "flapping_limit": 0,
            "flapping_window": 60,
            "flapping_ban": 300,
        },
        "store": {
            "durability": "os",
            "flush_interval": 1.0,
            "write_buffer_size": 16777216,
            "cache_size": 16777216,
        },
        "network": {"write_buffer": 262144, "backlog": 4096, "topic_cache": 65536},
        "streams": {},
    }


def test_the_defaults_pass_the_check() -> None:
    check(Config())


def test_without_sources_loading_gives_the_defaults() -> None:
    loaded = load()
    assert loaded.config == Config()
    assert {origin for _, _, origin in loaded.items()} == {"default"}


def test_one_configuration_does_not_share_listeners_with_another() -> None:
    Config().listeners.clear()
    assert set(Config().listeners) == {"tcp", "ws", "http"}


# --- sources


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
        (key.partition(".")[0] for key, _, _ in items),
        key=list(Config.__struct_fields__).index,
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
    assert [options.url for options in loaded.config.listeners.values()] == [
        "tcp://127.0.0.1:0",
        "ws://127.0.0.1:0/mqtt",
    ]
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


@pytest.mark.parametrize(("text", "value"), [("2", 2.0), ("0.5", 0.5), ("1e3", 1000.0)])
def test_numbers_come_out_of_the_environment(text: str, value: float) -> None:
    loaded = load(environ={"VMQ_SESSION__MQTT_CONNECT_TIMEOUT": text})
    assert loaded.config.session.mqtt_connect_timeout == value


@given(st.text(min_size=1).filter(lambda text: "\0" not in text))
@example("\x7f")
@example('a"b\\c\r\n\t')
@example("2024")
def test_any_text_can_be_given_quoted_in_the_environment(text: str) -> None:
    loaded = load(environ={"VMQ_BROKER__DATA_DIR": toml_value(text)})
    assert loaded.config.broker.data_dir == text


@given(st.text())
def test_no_environment_text_does_worse_than_a_config_error(text: str) -> None:
    lines = refused(environ={"VMQ_QUEUE__DROP": text, "VMQ_LISTENERS__TCP__URL": text})
    assert [line.partition(":")[0] for line in lines] == ["environment VMQ_QUEUE__DROP"]


def test_other_variables_are_left_alone() -> None:
    environ = {"VMQ_PURE": "1", "VMQ_CONFIG": "x", "PATH": "/bin", "OTHER_QUEUE__DROP": "x"}
    assert load(environ=environ).config == Config()


def test_a_relative_data_dir_stays_as_written(file: Path) -> None:
    file.write_text('[broker]\ndata_dir = "state/vmq"\n')
    assert load(file).config.broker.data_dir == "state/vmq"


# --- mistakes

TLS_OPTIONS = 'url = "tls://127.0.0.1:1"\ncertfile = "a"\nkeyfile = "b"'


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("[queue]\ndorp = 1", "queue.dorp = 1: unknown option; did you mean 'drop'?"),
        ("[queu]\ndrop = 1", "queu.drop = 1: there is no section 'queu'; did you mean 'queue'?"),
        ("drop = 1", "drop = 1: there is no section 'drop'; accepted: broker, log, auth,"),
        (
            "[session]\ndrop = 1",
            "session.drop = 1: unknown option; did you mean queue.drop?",
        ),
        ("[log]\ncolour = 1", "log.colour = 1: unknown option; accepted: level, format"),
        ('[queue]\ndrop = "none"', 'queue.drop = "none": accepted: "newest", "oldest"'),
        ("[queue]\ndrop = {a = 1}", 'queue.drop = {a = 1}: accepted: "newest", "oldest"'),
        (
            '[queue]\nmax_inflight_messages = "20"',
            'queue.max_inflight_messages = "20": accepted: a whole number, 0 to 65535',
        ),
        (
            "[queue]\nmax_inflight_messages = -1",
            "queue.max_inflight_messages = -1: accepted: a whole number, 0 to 65535",
        ),
        (
            "[queue]\nmax_inflight_messages = true",
            "queue.max_inflight_messages = true: accepted: a whole number, 0 to 65535",
        ),
        (
            "[queue]\nmax_offline_messages = -2",
            "queue.max_offline_messages = -2: accepted: a whole number, at least -1",
        ),
        (
            "[session]\nmqtt_connect_timeout = 0",
            "session.mqtt_connect_timeout = 0: accepted: a number, above 0, at most 3600",
        ),
        (
            "[session]\nretry_interval = nan",
            "session.retry_interval = nan: accepted: a number, 0 to 86400",
        ),
        (
            "[session]\nretry_interval = inf",
            "session.retry_interval = inf: accepted: a number, 0 to 86400",
        ),
        (
            "[session]\nupgrade_outgoing_qos = 1",
            "session.upgrade_outgoing_qos = 1: accepted: true, false",
        ),
        (
            '[session]\npersistent_client_expiration = "12"',
            'session.persistent_client_expiration = "12": accepted: "never", or a number and',
        ),
        (
            '[auth]\nallow_anonymous = "yes"',
            'auth.allow_anonymous = "yes": accepted: "loopback", true, false',
        ),
        ('[broker]\ndata_dir = ""', 'broker.data_dir = "": accepted: a path'),
        ('[broker]\ndata_dir = "a\\u0000"', 'broker.data_dir = "a\\u0000": accepted: a path'),
        ("queue = 5", "queue = 5: accepted: a table of options"),
        ("listeners = 5", "listeners = 5: accepted: a table of options"),
        ("[listeners]\ntcp = 5", "listeners.tcp = 5: accepted: a table of options"),
        (
            "[listeners]",
            "listeners: there is no listener, so no client could connect; add one",
        ),
        ("[listeners.tcp]", "listeners.tcp.url: missing; accepted: tcp://HOST:PORT, tls://"),
        (
            "[listeners.tcp]\nallow_anonymous = true",
            "listeners.tcp.url: missing; accepted: tcp://HOST:PORT, tls://",
        ),
        (
            '[listeners.TCP]\nurl = "tcp://127.0.0.1:1"',
            "listeners.TCP: not a usable name; accepted: a name of lower-case letters and digits",
        ),
        (
            '[listeners.a__b]\nurl = "tcp://127.0.0.1:1"',
            "listeners.a__b: not a usable name; accepted: a name of lower-case letters and digits",
        ),
        (
            '[listeners.tcp]\nurl = "mqtt://127.0.0.1:1"',
            "listeners.tcp.url = \"mqtt://127.0.0.1:1\": unknown scheme 'mqtt'; accepted: tcp://HO",
        ),
        (
            '[listeners.a]\nurl = "tcp://127.0.0.1:1"\n[listeners.b]\nurl = "ws://127.0.0.1:1"',
            'listeners.b.url = "ws://127.0.0.1:1": listeners.a has this address already',
        ),
        (
            '[listeners.a]\nurl = "http://127.0.0.1:1"',
            "listeners: there is no listener for MQTT, so no client could connect; add one",
        ),
        ("queue = ", "configuration: not TOML: Invalid value (at end of document)"),
        ("[queue]\ndrop = 1\ndrop = 2", "configuration: not TOML: Cannot overwrite a value"),
    ],
)
def test_a_mistake_in_a_file_is_told_with_file_key_value_and_what_is_accepted(
    file: Path, text: str, line: str
) -> None:
    file.write_text(text)
    (said,) = refused(path=file)
    assert said.startswith(f"{file}: {line}")


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ('url = "tls://127.0.0.1:1"\ncertfile = "a"', "keyfile: missing: TLS needs certfile"),
        (
            'url = "tcp://127.0.0.1:1"\ncertfile = "a"',
            'certfile = "a": a tcp listener has no TLS; accepted: with tls:// or wss://',
        ),
        (
            'url = "ws://127.0.0.1:1"\nrequire_certificate = true',
            "require_certificate = true: a ws listener has no TLS",
        ),
        (
            'url = "tcp://127.0.0.1:1"\nxff_enabled = true',
            "xff_enabled = true: X-Forwarded-For is WebSocket's",
        ),
        ('url = "tcp://127.0.0.1:1"\nunix_owner = "me"', "unix_owner"),
        (
            'url = "tcp://127.0.0.1:1"\nproxy_protocol_trusted = ["10.0.0.0/33"]',
            'proxy_protocol_trusted = ["10.0.0.0/33"]: ',
        ),
        (
            'url = "tcp://127.0.0.1:1"\nallowed_protocol_versions = [5]',
            "allowed_protocol_versions = [5]: accepted: a list of 3 and 4",
        ),
        (
            'url = "tcp://127.0.0.1:1"\nallowed_protocol_versions = []',
            "allowed_protocol_versions = []: accepted: a list of 3 and 4",
        ),
        ('url = "tcp://127.0.0.1:1"\nmountpoint = "a#"', 'mountpoint = "a#": accepted: a text'),
        ('url = "unix:///a"\nunix_mode = "rw"', 'unix_mode = "rw": accepted: octal digits'),
        ('url = "tcp://127.0.0.1:1"\nsni = {a = 1}', "sni = {a = 1}: accepted: a table"),
        (
            f"{TLS_OPTIONS}\nrequire_certificate = true",
            "cafile: missing: require_certificate needs it",
        ),
        (
            f'{TLS_OPTIONS}\ncafile = "c"',
            'cafile = "c": has no effect without require_certificate',
        ),
        (
            f"{TLS_OPTIONS}\nuse_identity_as_username = true",
            "use_identity_as_username = true: has no effect without require_certificate",
        ),
        (f'{TLS_OPTIONS}\ncrlfile = "c"', 'crlfile = "c": has no effect without cafile'),
    ],
)
def test_options_of_a_listener_that_do_not_go_together_are_refused(
    file: Path, text: str, line: str
) -> None:
    file.write_text(f"[listeners.a]\n{text}\n")
    (said,) = refused(path=file)
    assert said.startswith(f"{file}: listeners.a.{line}")


def test_a_certificate_that_names_the_user_needs_no_anonymous_clients(file: Path) -> None:
    certified = 'cafile = "c"\nrequire_certificate = true\nuse_identity_as_username = true\n'
    text = f"[listeners.a]\n{TLS_OPTIONS}\n{certified}".replace("127.0.0.1", "0.0.0.0")
    file.write_text(text)
    assert not load(file).config.anonymous_allowed("a")
    file.write_text(text.replace("use_identity_as_username = true", ""))
    (said,) = refused(path=file)
    assert "reachable from other machines" in said


def test_two_unix_sockets_need_two_paths(file: Path) -> None:
    file.write_text('[listeners.a]\nurl = "unix:///a"\n[listeners.b]\nurl = "unix:///b"\n')
    load(file)
    file.write_text('[listeners.a]\nurl = "unix:///a"\n[listeners.b]\nurl = "unix:///a"\n')
    (said,) = refused(path=file)
    assert "listeners.a has this address already" in said


def test_all_mistakes_are_told_at_once(file: Path) -> None:
    file.write_text('[queue]\ndrop = "none"\nqueue_type = 3\n[sesion]\nx = 1\n')
    lines = refused(path=file, environ={"VMQ_LOG__LEVEL": "loud"}, overrides={"broker.data_dir": 7})
    assert sorted(line.partition(" =")[0] for line in lines) == sorted(
        [
            f"{file}: queue.drop",
            f"{file}: queue.queue_type",
            f"{file}: sesion.x",
            "environment VMQ_LOG__LEVEL: log.level",
            "command line: broker.data_dir",
        ]
    )


def test_a_missing_file_is_an_error(file: Path) -> None:
    (line,) = refused(path=file)
    assert line == f"{file}: configuration: the file cannot be read: No such file or directory"


def test_a_file_that_is_no_text_is_an_error(file: Path) -> None:
    file.write_bytes(b"\xff\xfe[queue]")
    (line,) = refused(path=file)
    assert line.startswith(f"{file}: configuration: not TOML: ")


def test_an_unknown_variable_with_a_section_is_an_error() -> None:
    (line,) = refused(environ={"VMQ_QUEUE__DORP": "oldest"})
    assert line == (
        "environment VMQ_QUEUE__DORP: queue.dorp = \"oldest\": unknown option; did you mean 'drop'?"
    )


@pytest.mark.parametrize("name", ["VMQ___", "VMQ_QUEUE__", "VMQ_QUEUE__DROP__X", "VMQ___DROP"])
def test_misshapen_variables_are_errors(name: str) -> None:
    (line,) = refused(environ={name: "oldest"})
    assert line.startswith(f"environment {name}: ")


def test_an_unknown_override_is_an_error() -> None:
    (line,) = refused(overrides={"queue.dorp": "oldest"})
    assert line.startswith('command line: queue.dorp = "oldest": unknown option')


def test_a_shadowed_listener_is_not_judged(file: Path) -> None:
    file.write_text('[listeners.tcp]\nurl = "nonsense"\n')
    assert load(file, {}, {"listeners": ["tcp://127.0.0.1:0"]}).config.listeners


def test_long_values_are_cut_in_messages() -> None:
    (line,) = refused(environ={"VMQ_QUEUE__DROP": "x" * 10_000})
    assert len(line) < 300


# --- safety


@pytest.mark.parametrize(
    ("url", "auth", "listener", "safe"),
    [
        ("tcp://127.0.0.1:1", "loopback", None, True),
        ("tcp://[::1]:1", "loopback", None, True),
        ("tcp://localhost:1", "loopback", None, True),
        ("tcp://127.0.0.1:1", False, None, True),
        ("tcp://0.0.0.0:1", "loopback", None, False),
        ("tcp://[::]:1", "loopback", None, False),
        ("tcp://broker.example:1", "loopback", None, False),
        ("ws://192.168.0.1:1", False, None, False),
        ("tcp://0.0.0.0:1", True, None, True),
        ("tcp://0.0.0.0:1", "loopback", True, True),
        ("tcp://0.0.0.0:1", True, False, False),
    ],
)
def test_a_listener_open_to_others_needs_an_explicit_yes(
    url: str, auth: bool, listener: bool | None, safe: bool
) -> None:
    config = Config(
        auth=AuthOptions(allow_anonymous=auth),
        listeners={"x": ListenerOptions(url=url, allow_anonymous=listener)},
    )
    if safe:
        check(config)
        return
    with pytest.raises(ConfigError, match="no authentication exists") as caught:
        check(config)
    assert "listeners.x.allow_anonymous" in str(caught.value)


def test_the_refusal_names_the_source(file: Path) -> None:
    file.write_text('[listeners.tcp]\nurl = "tcp://0.0.0.0:1883"\n')
    (line,) = refused(path=file)
    assert line.startswith(f'{file}: listeners.tcp.url = "tcp://0.0.0.0:1883": refused: ')


@pytest.mark.parametrize(
    ("auth", "listener", "here", "elsewhere"),
    [
        ("loopback", None, True, False),
        ("loopback", False, False, False),
        ("loopback", True, True, True),
        (True, None, True, True),
        (True, False, False, False),
        (False, None, False, False),
        (False, True, True, True),
    ],
)
def test_who_may_be_anonymous_where(
    auth: bool, listener: bool | None, here: bool, elsewhere: bool
) -> None:
    config = Config(
        auth=AuthOptions(allow_anonymous=auth),
        listeners={
            "here": ListenerOptions(url="tcp://127.0.0.1:1", allow_anonymous=listener),
            "elsewhere": ListenerOptions(url="tcp://0.0.0.0:1", allow_anonymous=listener),
        },
    )
    assert config.anonymous_allowed("here") is here
    assert config.anonymous_allowed("elsewhere") is elsewhere


# --- configurations made by calls


@pytest.mark.parametrize(
    ("config", "line"),
    [
        (
            Config(network=NetworkOptions(backlog=0)),
            "network.backlog = 0: accepted: a whole number, 1 to 65535",
        ),
        (
            Config(queue=QueueOptions(drop="x")),  # type: ignore[arg-type]
            'queue.drop = "x": accepted: "newest", "oldest"',
        ),
        (
            Config(store=7),  # type: ignore[arg-type]
            "store = 7: accepted: a table of options",
        ),
        (
            Config(listeners={"a": ListenerOptions(url=3)}),  # type: ignore[arg-type]
            "listeners.a.url = 3: accepted: tcp://HOST:PORT",
        ),
        (Config(listeners={}), "listeners: there is no listener"),
        (
            Config(session=SessionOptions(persistent_client_expiration="1s")),
            'session.persistent_client_expiration = "1s": accepted: "never"',
        ),
        (
            Config(broker=BrokerOptions(data_dir=object())),  # type: ignore[arg-type]
            "configuration: expected str, bytes or os.PathLike object, not object",
        ),
    ],
)
def test_a_configuration_made_by_calls_is_checked_too(config: Config, line: str) -> None:
    with pytest.raises(ConfigError) as caught:
        check(config)
    assert str(caught.value).startswith(line)


def test_a_path_will_do_as_data_dir(tmp_path: Path) -> None:
    check(Config(broker=BrokerOptions(data_dir=tmp_path)))  # type: ignore[arg-type]


def test_configurations_cannot_change_under_a_running_broker() -> None:
    with pytest.raises(AttributeError):
        Config().queue.drop = "oldest"  # type: ignore[misc]


configurations = st.builds(
    Config,
    queue=st.builds(
        QueueOptions,
        max_inflight_messages=st.integers(0, 65_535),
        max_online_messages=st.integers(-1, 1 << 62),
        drop=st.sampled_from(["newest", "oldest"]),
    ),
    store=st.builds(
        StoreOptions,
        durability=st.sampled_from(["memory", "os", "fsync"]),
        flush_interval=st.floats(0.001, 3600),
        write_buffer_size=st.integers(65_536, 1 << 30),
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


def test_everything_that_the_module_promises_is_there() -> None:
    assert [name for name in vmq.config.__all__ if not hasattr(vmq.config, name)] == []


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


# --- listeners of http


def with_http(**options: object) -> Config:
    tables = {"tcp": {"url": "tcp://127.0.0.1:0"}, "web": options}
    return msgspec.convert({"listeners": tables}, Config)


@pytest.mark.parametrize(
    ("options", "line"),
    [
        (
            {"url": "http://0.0.0.0:1"},
            'listeners.web.url = "http://0.0.0.0:1": refused: other machines could read',
        ),
        (
            {"url": "http://127.0.0.1:1", "allow_anonymous": True},
            "listeners.web.allow_anonymous = true: a listener of http has no MQTT clients",
        ),
        (
            {"url": "tcp://127.0.0.1:1", "allow_remote": True},
            "listeners.web.allow_remote = true: only a listener of http has this option",
        ),
    ],
)
def test_an_unsafe_or_senseless_http_listener_is_refused(
    options: dict[str, object], line: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        check(with_http(**options))
    assert str(caught.value).startswith(line)


@pytest.mark.parametrize(
    "options",
    [{"url": "http://[::1]:1"}, {"url": "http://0.0.0.0:1/", "allow_remote": True}],
)
def test_an_http_listener_is_on_loopback_or_is_wanted_elsewhere(options: dict[str, object]) -> None:
    check(with_http(**options))


def test_allow_anonymous_does_not_open_http_to_other_machines() -> None:
    config = msgspec.structs.replace(
        with_http(url="http://0.0.0.0:1"), auth=AuthOptions(allow_anonymous=True)
    )
    with pytest.raises(ConfigError, match=r"listeners\.web\.allow_remote"):
        check(config)
