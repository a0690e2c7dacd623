"""Listener URLs, loopback hosts and time spans."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vmq.config.checks import check
from vmq.config.options import (
    Config,
    ConfigError,
    Endpoint,
    ListenerOptions,
    SessionOptions,
    is_loopback,
    parse_duration,
)


@pytest.mark.parametrize(
    ("url", "endpoint"),
    [
        ("tcp://127.0.0.1:1883", Endpoint("tcp", "127.0.0.1", 1883)),
        ("TCP://localhost:0", Endpoint("tcp", "localhost", 0)),
        ("tcp://[::1]:65535", Endpoint("tcp", "::1", 65535)),
        ("tcp://[0:0:0:0:0:0:0:1]:1", Endpoint("tcp", "::1", 1)),
        ("tcp://my-host.example_1:1", Endpoint("tcp", "my-host.example_1", 1)),
        ("ws://127.0.0.1:8083/mqtt", Endpoint("ws", "127.0.0.1", 8083, "/mqtt")),
        ("ws://127.0.0.1:8083", Endpoint("ws", "127.0.0.1", 8083, "/mqtt")),
        ("ws://127.0.0.1:8083/", Endpoint("ws", "127.0.0.1", 8083, "/")),
        ("ws://[::]:1/a/b", Endpoint("ws", "::", 1, "/a/b")),
        ("http://127.0.0.1:8888", Endpoint("http", "127.0.0.1", 8888)),
        ("http://127.0.0.1:8888/", Endpoint("http", "127.0.0.1", 8888)),
        ("tls://127.0.0.1:8883", Endpoint("tls", "127.0.0.1", 8883)),
        ("mqtts://127.0.0.1:8883", Endpoint("tls", "127.0.0.1", 8883)),
        ("mqtt://127.0.0.1:1883", Endpoint("tcp", "127.0.0.1", 1883)),
        ("ssl://[::1]:0", Endpoint("tls", "::1", 0)),
        ("wss://127.0.0.1:443", Endpoint("wss", "127.0.0.1", 443, "/mqtt")),
        ("wss://127.0.0.1:443/a", Endpoint("wss", "127.0.0.1", 443, "/a")),
        ("unix:///run/vmq/mqtt.sock", Endpoint("unix", "", 0, "/run/vmq/mqtt.sock")),
    ],
)
def test_listener_urls(url: str, endpoint: Endpoint) -> None:
    assert (Endpoint.parse(url), Endpoint.parse(endpoint.url)) == (endpoint, endpoint)
    assert ListenerOptions(url=url).endpoint == endpoint


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("", "the scheme is missing"),
        ("127.0.0.1:1883", "scheme"),
        ("//127.0.0.1:1883", "the scheme is missing"),
        ("tls://127.0.0.1:1/mqtt", "a tls listener has no path"),
        ("wss://127.0.0.1", "the port is missing"),
        ("unix:run/vmq.sock", "the path of the socket is missing"),
        ("unix://run/vmq.sock", "an absolute path and no host"),
        ("unix:///", "the path of the socket is missing"),
        ("unix:////run/vmq.sock", "begins with one slash"),
        ("unix:///" + 100 * "a", "at most 100 bytes"),
        ("tcp:127.0.0.1:1883", "the host is missing"),
        ("tcp://:1883", "the host is missing"),
        ("tcp://127.0.0.1", "the port is missing"),
        ("tcp://127.0.0.1:", "the port is missing"),
        ("tcp://127.0.0.1:x", "'x' is no port"),
        ("tcp://127.0.0.1:-1", "'-1' is no port"),
        ("tcp://127.0.0.1:65536", "'65536' is no port"),
        ("tcp://127.0.0.1:000000001", "is no port"),
        ("tcp://127.0.0.256:1", "is no IPv4 address"),
        ("tcp://1883:1", "is no IPv4 address"),
        ("tcp://::1:1883", "needs brackets"),
        ("tcp://[::1]", "the port is missing"),
        ("tcp://[::g]:1", "IPv6"),
        ("tcp://[::1:1", "IPv6"),
        ("tcp://[]:1", "IPv"),
        ("tcp://a*b:1", "is no host name"),
        ("tcp://-a:1", "is no host name"),
        ("tcp://127.0.0.1:1/mqtt", "no path"),
        ("tcp://127.0.0.1:1/", "no path"),
        ("http://127.0.0.1:1/metrics", "no path"),
        ("tcp://me@127.0.0.1:1", "no user name"),
        ("ws://127.0.0.1:1/?a", "no query"),
        ("ws://127.0.0.1:1/?", "no query"),
        ("ws://127.0.0.1:1/#a", "no fragment"),
        ("ws://127.0.0.1:1/a b", "blanks"),
        (" tcp://127.0.0.1:1", "blanks"),
        ("tcp://127.0.0.1:1\n", "blanks"),
        ("tcp://127.0.0.1:\u0661", "non-ASCII"),
    ],
)
def test_other_texts_are_no_listener_urls(url: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        Endpoint.parse(url)


@given(
    st.text()
    | st.text("tcpws:/[]@.?#01\u0661 \n-").map("tcp://".__add__)
    | st.text("/ab[]:").map("unix:".__add__)
)
def test_any_text_is_an_endpoint_or_a_value_error(text: str) -> None:
    try:
        endpoint = Endpoint.parse(text)
    except ValueError:
        return
    assert Endpoint.parse(endpoint.url) == endpoint


def test_a_unix_socket_is_for_this_machine_only() -> None:
    assert Endpoint.parse("unix:///run/vmq.sock").is_loopback


def test_an_endpoint_learns_its_real_address() -> None:
    assert Endpoint.parse("ws://[::1]:0/x").with_address("::1", 4711).url == "ws://[::1]:4711/x"
    bound = Endpoint.parse("http://localhost:0").with_address("::1", 4711)
    assert bound.url == "http://[::1]:4711"


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "127.1.2.3", "::1", "localhost", "LocalHost", "::ffff:127.0.0.1"]
)
def test_loopback_hosts(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize(
    "host",
    ["0.0.0.0", "::", "10.0.0.1", "128.0.0.1", "::ffff:10.0.0.1", "localhost.example", "box", ""],
)
def test_hosts_that_others_may_reach(host: str) -> None:
    assert not is_loopback(host)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("never", None),
        ("30min", 1_800),
        ("1h", 3_600),
        ("12h", 43_200),
        ("7d", 604_800),
        ("2w", 1_209_600),
        ("1m", 2_592_000),
        ("1y", 31_536_000),
        ("999999y", 999_999 * 31_536_000),
    ],
)
def test_time_spans(text: str, seconds: int | None) -> None:
    assert parse_duration(text) == seconds
    options = SessionOptions(persistent_client_expiration=text)
    check(Config(session=options))
    assert options.persistent_client_expiration_seconds == seconds


@pytest.mark.parametrize(
    "text", ["", "12", "h", "0h", "-1h", "1.5h", "1H", "1s", "1h\n", " 1h", "1h 2m", "Never", "٣h"]
)
def test_other_texts_are_no_time_spans(text: str) -> None:
    with pytest.raises(ValueError, match="no time span"):
        parse_duration(text)
    with pytest.raises(ConfigError):
        check(Config(session=SessionOptions(persistent_client_expiration=text)))
