"""What the log says of a client that may not: who, what, whose decision, and why."""

import json
import logging
from pathlib import Path
from typing import Any

import pytest
from vmq_hooks import Accept, Cache, Message, Plugin, Refuse, Subscription, hook

from tests.support.wire import Will, connect_packet, publish_packet, subscribe_packet
from tests.vmq.plugins.support import serving
from tests.vmq.sockets import session_of
from tests.vmq.support import Client, House
from vmq.cli.start.log_flood import FloodFilter
from vmq.cli.start.log_json import JsonFormatter
from vmq.mqtt.packets import LEVEL_3_1

REFUSALS = "vmq.session"


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    """The lines on refusals, and their level."""
    found = [each for each in caplog.records if " refused client=" in each.getMessage()]
    assert all(each.levelno == logging.INFO for each in found)
    return [each.getMessage() for each in found]


class Strict(Plugin):
    """Lets write to `mine`, and subscribe to it."""

    @hook
    def auth_on_publish(self, message: Message) -> Any:
        return message.topic == "mine" or Refuse("not yours", cache=Cache(60))

    @hook
    async def auth_on_subscribe(self, subscriptions: list[Subscription]) -> Any:
        if any(each.topic_filter == "#" for each in subscriptions):
            raise Refuse("not everything")
        return [
            each if each.topic_filter == "mine" else Subscription(each.topic_filter, 128)
            for each in subscriptions
        ]


@pytest.fixture(autouse=True)
def _at_info(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, REFUSALS)
    caplog.set_level(logging.INFO, "vmq.audit")


async def test_a_publish(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with serving(tmp_path, {"strict": Strict()}) as broker:
        for _ in range(2):  # the second time from memory
            async with session_of(broker, "c", username="u") as peer:
                peer.send(
                    publish_packet("mine", b""), publish_packet("theirs/x", b"", qos=1, packet_id=7)
                )
                assert await peer.rest() == b""
    line = 'publish refused client=c user="u" topic="theirs/x" plugin=strict reason="not yours"'
    assert told(caplog) == [line] * 2


async def test_subscriptions(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with serving(tmp_path, {"strict": Strict()}) as broker, session_of(broker, "c") as peer:
        peer.send(subscribe_packet(1, ("a", 0), ("mine", 1), ("b/+", 0)))
        await peer.expect(b"\x90\x05\0\1\x80\1\x80")
        await peer.ask(subscribe_packet(2, ("mine", 0), ("#", 0)), b"\x90\x04\0\2\x80\x80")
        await peer.ask(subscribe_packet(3, ("mine", 0)), b"\x90\x03\0\3\0")
    first = 'subscription refused client=c user="" filters='
    assert told(caplog) == [
        first + '"a b/+" more=0 plugin=strict reason="not allowed"',
        first + '"mine #" more=0 plugin=strict reason="not everything"',
    ]


async def test_when_nobody_said_yes_no_plugin_is_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class Shy(Plugin):
        @hook
        def auth_on_subscribe(self) -> None:
            return None

    async with serving(tmp_path, {"shy": Shy()}) as broker, session_of(broker, "c") as peer:
        await peer.ask(subscribe_packet(1, ("a", 0)), b"\x90\x03\0\1\x80")
    assert told(caplog)[0].endswith('plugin=none reason="no plugin accepted it (asked: shy)"')


async def test_of_several_plugins_the_one_that_refused_is_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    shared = Refuse("no")

    class Later(Plugin):
        @hook
        async def auth_on_publish(self) -> Any:
            return None

    class Says(Plugin):
        @hook
        async def auth_on_publish(self) -> Any:
            return shared

    class Never(Plugin):
        @hook
        def auth_on_publish(self) -> Any:
            return Accept()

    plugins: dict[str, Plugin] = {"one": Later(), "two": Says(), "three": Never()}
    async with serving(tmp_path, plugins) as broker, session_of(broker, "c") as peer:
        peer.send(publish_packet("a", b""))
        assert await peer.rest() == b""
    assert told(caplog) == ['publish refused client=c user="" topic="a" plugin=two reason="no"']


def test_an_mqtt_3_1_client_hears_nothing_but_the_log_tells(
    caplog: pytest.LogCaptureFixture, house: House
) -> None:
    client = house.client("c", level=LEVEL_3_1)
    house.core.hooks.auth_on_publish = lambda *_: Refuse("no")
    house.core.hooks.resolve()
    client.publish("t", b"x", 1)
    assert told(caplog) == ['publish refused client=c user="" topic="t" plugin=none reason="no"']


def test_long_lists_and_names_are_cut(
    caplog: pytest.LogCaptureFixture, house: House, client: Client
) -> None:
    house.core.hooks.auth_on_subscribe = lambda *_: Refuse("no")
    client.send(subscribe_packet(1, ("x" * 500, 0), *((f"f{n}", 0) for n in range(50))))
    (line,) = told(caplog)
    assert f'filters="{"x" * 200} f0 f1 f2 f3 f4 f5 f6 f7 f8" more=41 ' in line


def test_a_will_is_named_by_its_topic(caplog: pytest.LogCaptureFixture, house: House) -> None:
    refusal = Refuse("no")
    refusal.plugin = "strict"
    house.core.hooks.auth_on_publish = lambda *_: refusal
    client = Client(house)
    client.send(connect_packet("c", will=Will("the/will", b"x")))
    assert 'reason="refused: will on topic the/will not allowed: no (plugin strict)"' in caplog.text


def test_it_is_fields_in_json_and_summed_up_in_a_flood(
    caplog: pytest.LogCaptureFixture, house: House, client: Client
) -> None:
    house.core.hooks.auth_on_subscribe = lambda *_: Refuse("no")
    for packet_id in range(1, 6):
        client.send(subscribe_packet(packet_id, (f"f{packet_id}", 0)))
    records = [each for each in caplog.records if "refused" in each.getMessage()]
    entry = json.loads(JsonFormatter().format(records[0]))
    assert {name: entry[name] for name in ("message", "client", "filters", "plugin", "reason")} == {
        "message": "subscription refused",
        "client": "c",
        "filters": "f1",
        "plugin": "none",
        "reason": "no",
    }
    flood = FloodFilter(2, lambda: 0.0)
    assert [flood.filter(each) for each in records] == [True, True, False, False, False]
