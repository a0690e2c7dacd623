"""The broker that a URL names."""

import pytest

from vmq.cli.mqtt.target import BrokerTarget, parse_url


@pytest.mark.parametrize(
    ("url", "target", "topic"),
    [
        ("mqtt://broker", BrokerTarget("mqtt", "broker", 1883), ""),
        ("mqtt://broker/", BrokerTarget("mqtt", "broker", 1883), ""),
        ("MQTT://broker:1884/a/b", BrokerTarget("mqtt", "broker", 1884), "a/b"),
        ("tcp://127.0.0.1:41234", BrokerTarget("mqtt", "127.0.0.1", 41234), ""),
        ("mqtt://broker//a", BrokerTarget("mqtt", "broker", 1883), "/a"),
        ("mqtt://broker/a/#", BrokerTarget("mqtt", "broker", 1883), "a/#"),
        ("mqtt://broker/a?b%20c", BrokerTarget("mqtt", "broker", 1883), "a?b%20c"),
        ("mqtt://[::1]:1884/a", BrokerTarget("mqtt", "::1", 1884), "a"),
        ("mqtt://[fe80::1]", BrokerTarget("mqtt", "fe80::1", 1883), ""),
        ("mqtt://ann@broker", BrokerTarget("mqtt", "broker", 1883, username="ann"), ""),
        (
            "mqtt://ann:p%40s%3As@broker/t",
            BrokerTarget("mqtt", "broker", 1883, username="ann", password="p@s:s"),
            "t",
        ),
        (
            "mqtt://ann:a@b@broker",
            BrokerTarget("mqtt", "broker", 1883, username="ann", password="a@b"),
            "",
        ),
        (
            "mqtt://ann:@broker",
            BrokerTarget("mqtt", "broker", 1883, username="ann", password=""),
            "",
        ),
        ("ws://broker", BrokerTarget("ws", "broker", 80, "/mqtt"), ""),
        ("ws://broker:8083/mqtt", BrokerTarget("ws", "broker", 8083, "/mqtt"), ""),
        ("ws://broker/", BrokerTarget("ws", "broker", 80, "/"), ""),
        ("ws://[::1]:8083/a/b?c", BrokerTarget("ws", "::1", 8083, "/a/b?c"), ""),
        ("mqtts://broker/a/b", BrokerTarget("mqtts", "broker", 8883), "a/b"),
        ("tls://broker:1", BrokerTarget("mqtts", "broker", 1), ""),
        ("ssl://broker:1", BrokerTarget("mqtts", "broker", 1), ""),
        ("wss://broker/x", BrokerTarget("wss", "broker", 443, "/x"), ""),
        ("unix:///run/vmq.sock", BrokerTarget("unix", "", 0, "/run/vmq.sock"), ""),
    ],
)
def test_a_url_names_address_credentials_and_topic(
    url: str, target: BrokerTarget, topic: str
) -> None:
    assert parse_url(url) == (target, topic)


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("broker", "expected mqtt://"),
        ("http://broker", "expected mqtt://"),
        ("unix://run/vmq.sock", "absolute"),
        ("unix:", "expected mqtt://"),
        ("wss://", "host is missing"),
        ("mqtt://", "host is missing"),
        ("mqtt:///topic", "host is missing"),
        ("mqtt://:1883", "host is missing"),
        ("mqtt://broker:", "not a port"),
        ("mqtt://broker:0", "not a port"),
        ("mqtt://broker:65536", "not a port"),
        ("mqtt://broker:-1", "not a port"),
        ("mqtt://broker:٣", "not a port"),
        ("mqtt://::1", "needs brackets"),
        ("mqtt://[::1", "not an address"),
        ("mqtt://[::1]1883", "not an address"),
    ],
)
def test_a_url_that_is_none_is_refused_with_the_reason(url: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        parse_url(url)


@pytest.mark.parametrize(
    ("target", "url"),
    [
        (
            BrokerTarget("mqtt", "broker", 1883, username="ann", password="secret"),
            "mqtt://broker:1883",
        ),
        (BrokerTarget("ws", "::1", 80, "/mqtt"), "ws://[::1]:80/mqtt"),
    ],
)
def test_the_url_of_a_target_keeps_the_credentials_to_itself(
    target: BrokerTarget, url: str
) -> None:
    assert target.url == url
