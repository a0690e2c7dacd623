"""Values of the configuration that do not go together, or are not safe."""

from pathlib import Path

import msgspec
import pytest

from tests.vmq.refusals import refused
from vmq.config.checks import check
from vmq.config.load import load
from vmq.config.options import (
    AuthOptions,
    BrokerOptions,
    Config,
    ConfigError,
    LimitOptions,
    ListenerOptions,
    NetworkOptions,
    QueueOptions,
    SessionOptions,
)
from vmq.config.streams import StreamOptions

TLS_OPTIONS = 'url = "tls://127.0.0.1:1"\ncertfile = "a"\nkeyfile = "b"'
TCP = '\n[listeners.b]\nurl = "tcp://127.0.0.1:2"\n'
NO_TLS = "a tcp listener has no TLS; accepted: with tls://, wss://, grpc+tls:// or resp+tls://"
NO_PROXY = "a listener of HTTP or Flight knows no PROXY header"
VERSIONS = "accepted: a list of 3 and 4"
UNCHECKED = "has no effect without require_certificate"


@pytest.mark.parametrize(
    ("scheme", "option", "said"),
    [
        ("tcp", 'certfile = "a"', NO_TLS),
        ("ws", "require_certificate = true", "a ws listener has no TLS"),
        ("http", "proxy_protocol = true", NO_PROXY),
        ("grpc", "proxy_protocol = true", NO_PROXY),
        ("tcp", "xff_enabled = true", "X-Forwarded-For is WebSocket's"),
        ("tcp", 'allowed_origins = ["*"]', "web pages come by WebSocket; accepted: with ws://"),
        (
            "ws",
            'allowed_origins = ["https://a.example/x"]',
            "'https://a.example/x' is no origin; accepted: a list",
        ),
        ("tcp", 'unix_owner = "me"', ""),
        ("tcp", 'advertise = "tcp://a:1"', "this is for grpc:// and grpc+tls://; accepted: empty"),
        ("grpc", 'advertise = "grpc+tls://a:1"', "grpc+tls://a:1 is none of this listener"),
        ("grpc", 'advertise = "grpc://a:0"', ""),
        ("grpc", 'advertise = "a:b"', ""),
        ("tcp", 'proxy_protocol_trusted = ["10.0.0.0/33"]', ""),
        ("tcp", "allowed_protocol_versions = [5]", VERSIONS),
        ("tcp", "allowed_protocol_versions = []", VERSIONS),
        ("tcp", 'mountpoint = "a#"', "accepted: a text"),
        ("unix", 'unix_mode = "rw"', "accepted: octal digits"),
        ("tls", 'cafile = "c"', UNCHECKED),
        ("tls", "use_identity_as_username = true", UNCHECKED),
        ("tls", 'crlfile = "c"', "has no effect without cafile"),
    ],
)
def test_an_option_that_does_not_go_with_its_listener_is_refused(
    file: Path, scheme: str, option: str, said: str
) -> None:
    url = f'url = "{scheme}://{"/a" if scheme == "unix" else "127.0.0.1:1"}"'
    others = TCP if scheme in ("http", "grpc") else ""
    file.write_text(f"[listeners.a]\n{TLS_OPTIONS if scheme == 'tls' else url}\n{option}{others}\n")
    (line,) = refused(path=file)
    assert line.startswith(f"{file}: listeners.a.{option}: {said}")


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ('url = "tls://127.0.0.1:1"\ncertfile = "a"', "keyfile: missing: TLS needs certfile"),
        (
            'url = "tcp://127.0.0.1:1"\nsni = {a = 1}',
            "sni.a = 1: accepted: a table with certfile, keyfile",
        ),
        (
            f"{TLS_OPTIONS}\nrequire_certificate = true",
            "cafile: missing: require_certificate needs it",
        ),
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


def test_a_shadowed_listener_is_not_judged(file: Path) -> None:
    file.write_text('[listeners.tcp]\nurl = "nonsense"\n')
    assert load(file, {}, {"listeners": ["tcp://127.0.0.1:0"]}).config.listeners


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
    with pytest.raises(ConfigError, match="nothing says who may connect") as caught:
        check(config)
    assert "listeners.x.allow_anonymous" in str(caught.value)


def test_the_refusal_names_the_source(file: Path) -> None:
    file.write_text('[listeners.tcp]\nurl = "tcp://0.0.0.0:1883"\n')
    (line,) = refused(path=file)
    assert line.startswith(f'{file}: listeners.tcp.url = "tcp://0.0.0.0:1883": refused: ')


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
            {"url": "tcp://127.0.0.1:1", "page_users": {"anna": "read"}},
            "listeners.web.page_users = ",
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


def test_a_page_with_its_folder_is_where_clients_connect() -> None:
    web = {"url": "http://127.0.0.1:1", "serve": "site"}
    check(msgspec.convert({"listeners": {"web": web}}, Config))


@pytest.mark.parametrize(
    "options", [{"url": "http://[::1]:1"}, {"url": "http://0.0.0.0:1/", "allow_remote": True}]
)
def test_an_http_listener_is_on_loopback_or_is_wanted_elsewhere(options: dict[str, object]) -> None:
    check(with_http(**options))


def test_allow_anonymous_does_not_open_http_to_other_machines() -> None:
    config = msgspec.structs.replace(
        with_http(url="http://0.0.0.0:1"), auth=AuthOptions(allow_anonymous=True)
    )
    with pytest.raises(ConfigError, match=r"listeners\.web\.allow_remote"):
        check(config)


def test_streams_have_no_more_partitions_than_a_broker_alone_takes() -> None:
    limits = LimitOptions(max_partitions=5)
    streams = {each: StreamOptions(filters=["a"], partitions=3) for each in "st"}
    with pytest.raises(ConfigError) as caught:
        check(Config(streams=streams, limits=limits))
    assert "limits.max_partitions = 5: the streams have 6 partitions; accepted: as many" in str(
        caught.value
    )
    check(Config(streams=streams))
