"""What plugins answer, as clients meet it: who may enter, publish and subscribe, and what becomes of it."""

import asyncio
from collections import UserDict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from vmq_hooks import (
    Accept,
    Cache,
    DeliverModifiers,
    Message,
    Plugin,
    PublishModifiers,
    Refuse,
    RegisterModifiers,
    SubscriberId,
    Subscription,
    hook,
)

from tests.support import wire as mqtt
from tests.support.until import until
from tests.vmq.plugins.doors import Doors, Later
from tests.vmq.plugins.support import TIMEOUT, Peer, options, peer_of, serving
from tests.vmq.sockets import login, session_of, take
from vmq.broker import Broker


class SpeechlessError(Exception):
    """Its text is a defect of its own."""

    def __str__(self) -> str:
        raise RuntimeError("no words")


class Rubbish(UserDict[str, Any]):
    """Raises when it is read."""

    def keys(self) -> Any:
        raise RuntimeError("no keys")


@asynccontextmanager
async def guarded(folder: Path, plugin: Plugin) -> AsyncIterator[tuple[Broker, Peer]]:
    """A broker that asks the plugin who may enter, and somebody at its door."""
    async with (
        serving(folder, {"doors": plugin}, anonymous=False) as broker,
        peer_of(broker) as peer,
    ):
        yield broker, peer


@pytest.mark.parametrize(
    ("answer", "code"),
    (
        (True, 0),
        (Accept(), 0),
        (None, 5),
        (Refuse("no"), 5),
        (Refuse("wrong password", bad_credentials=True), 4),
        (Refuse("too many wait", unavailable=True), 3),
        (False, 5),
        ("yes", 3),
        (OSError("broken"), 3),
        (SystemExit(0), 3),
        (KeyboardInterrupt(), 3),
        (GeneratorExit(), 3),
        (asyncio.CancelledError(), 3),
        (SpeechlessError(), 3),
        (Accept(cache=Cache(float("nan"))), 3),
        # As code without types may have it.
        (Refuse(OSError("no answer"), unavailable=True), 3),  # type: ignore[arg-type]
        (Accept(cache=Cache(9, by=[["topic"]])), 3),  # type: ignore[arg-type]
        ({"max_wishes": 3}, 3),
        ({"max_inflight_messages": "many"}, 3),
        ({"username": "\ud800"}, 3),
        ({"subscriber_id": SubscriberId("a\0")}, 3),
        ({"subscriber_id": SubscriberId("a", "m" * 70_000)}, 3),
        (Rubbish(), 3),
        ({"max_inflight_messages": 3}, 0),
    ),
)
@pytest.mark.parametrize("kind", (Doors, Later))
async def test_the_verdict_on_a_connect_is_answered(
    tmp_path: Path, kind: type[Doors], answer: Any, code: int
) -> None:
    plugin = kind(auth_on_register=answer)
    if isinstance(plugin, Later):
        plugin.gate.set()
    async with guarded(tmp_path, plugin) as (broker, peer):
        packet = await peer.connect("c", username="u", password=b"p")
        assert packet.return_code == code
        guard = broker.plugins.guards["doors"]
        assert guard.accepted["auth_on_register"] == (code == 0)
        is_no = answer is False or isinstance(answer, Refuse)
        assert guard.refused["auth_on_register"] == is_no
        is_answer = code == 0 or answer is None or is_no
        assert guard.errors["auth_on_register"] == (not is_answer)
        names = {each.name for each in broker.metrics.families()}
        assert ("plugin_hook_refused" in names) is is_no
    (call,) = plugin.calls
    assert (call[2], call[3], call[4], call[5]) == (SubscriberId("c"), "u", b"p", True)
    assert (call[1].host, call[1].listener, call[1].transport) == ("127.0.0.1", "tcp", "tcp")


async def test_loopback_is_open_until_a_plugin_knows_clients(tmp_path: Path) -> None:
    async with serving(tmp_path, anonymous="loopback") as broker:
        assert await login(broker) == 0
        await broker.plugins.add("doors", Doors(auth_on_register=Refuse("no")))
        assert await login(broker) == 5


async def test_register_modifiers_hold_for_the_session(tmp_path: Path) -> None:
    plugin = Doors(
        auth_on_register=RegisterModifiers(
            subscriber_id=SubscriberId("tenant-c", "tenant"),
            username="somebody",
            clean_session=False,
            max_message_size=3,
            max_inflight_messages=1,
            max_online_messages=7,
            queue_type="lifo",
            retry_interval=500,
            upgrade_qos=True,
        )
    )
    async with guarded(tmp_path, plugin) as (broker, peer):
        assert (await peer.connect("c")).return_code == 0
        queue = broker.registries["tenant"].subscribers["tenant-c"].queue
        own = queue.options
        assert (own.max_inflight_messages, own.max_online_messages) == (1, 7)
        assert (own.lifo, own.retry_interval, own.upgrade_outgoing_qos) == (True, 0.5, True)
        assert queue.durable
        assert queue.username == "somebody"
        await peer.ask(mqtt.subscribe_packet(1, ("t", 1)))
        await broker.publish("t", b"elsewhere", qos=1)
        for number in range(2):
            await broker.publish("t", b"%d" % number, qos=1, mountpoint="tenant")
        first = await peer.packet()
        assert first.payload == b"0"
        peer.send(mqtt.PINGREQ_BYTES)
        await peer.expect(mqtt.PINGRESP_BYTES)  # the second waits for the window of one
        assert (await peer.ask(mqtt.puback_packet(first.packet_id))).payload == b"1"
        peer.send(mqtt.publish_packet("t", b"long"))
        assert await peer.rest() == b""
    assert plugin.calls[1][1:3] == ("somebody", SubscriberId("tenant-c", "tenant"))


async def test_own_options_follow_a_reload_where_they_change_nothing(tmp_path: Path) -> None:
    plugin = Doors(auth_on_register={"max_inflight_messages": 1})
    async with guarded(tmp_path, plugin) as (broker, peer):
        await peer.connect("c")
        own = broker.registry().subscribers["c"].queue.options
        queue = msgspec.structs.replace(
            broker.config.queue, max_inflight_messages=5, max_online_messages=55
        )
        broker.reload(msgspec.structs.replace(broker.config, queue=queue))
        assert (own.max_inflight_messages, own.max_online_messages) == (1, 55)


@pytest.mark.parametrize("qos", (0, 1, 2))
async def test_publish_modifiers_change_what_is_routed(tmp_path: Path, qos: int) -> None:
    plugin = Doors(
        auth_on_publish=PublishModifiers(topic="b", payload=b"y", qos=1, retain=True, throttle=1)
    )
    async with (
        serving(tmp_path, {"doors": plugin}) as broker,
        broker.subscribe("#", qos=2) as messages,
        session_of(broker, "c") as peer,
    ):
        pid = 7 if qos else None
        peer.send(mqtt.publish_packet("a", b"x", qos=qos, packet_id=pid), mqtt.PINGREQ_BYTES)
        if qos:
            assert (await peer.packet()).raw[:1] == (b"\x40" if qos == 1 else b"\x50")
        await peer.expect(mqtt.PINGRESP_BYTES)
        async with asyncio.timeout(TIMEOUT):
            found = await anext(messages)
        assert (found.topic, found.payload, found.qos) == ("b", b"y", 1)
        assert broker.registry().retained.get("b") is not None


async def test_a_publish_may_go_to_another_mountpoint(tmp_path: Path) -> None:
    plugin = Doors(auth_on_publish={"mountpoint": "other"})
    async with (
        serving(tmp_path, {"doors": plugin}) as broker,
        broker.subscribe("a", mountpoint="other") as messages,
        session_of(broker, "c") as peer,
    ):
        peer.send(mqtt.publish_packet("a", b"x"))
        assert await take(messages, 1) == [b"x"]


async def test_a_refused_will_refuses_the_connect_and_a_changed_one_is_published(
    tmp_path: Path,
) -> None:
    def judge(_user: Any, _who: Any, message: Message) -> Any:
        return Refuse("no") if message.topic == "bad" else {"payload": b"changed"}

    plugin = Doors(auth_on_publish=judge)
    async with serving(tmp_path, {"doors": plugin}) as broker:
        assert await login(broker, will=mqtt.Will("bad", b"x")) == 5
        async with broker.subscribe("good") as messages:
            assert await login(broker, will=mqtt.Will("good", b"x")) == 0
            assert await take(messages, 1) == [b"changed"]


async def test_on_publish_sees_the_modified_message_and_on_deliver_rewrites(tmp_path: Path) -> None:
    class Watcher(Plugin):
        def __init__(self) -> None:
            self.seen: list[Any] = []

        @hook
        def on_publish(self, message: Any) -> None:
            self.seen.append(message)

        @hook
        def on_deliver(self, username: Any, message: Any) -> Any:
            self.seen.append(username)
            return DeliverModifiers(payload=message.payload + b"!")

    watcher = Watcher()
    doors = Doors(auth_on_publish={"topic": "b"})
    async with (
        serving(tmp_path, {"doors": doors, "watcher": watcher}) as broker,
        session_of(broker, "c", username="u") as peer,
    ):
        await peer.ask(mqtt.subscribe_packet(1, ("b", 0)))
        await peer.ask(mqtt.publish_packet("a", b"x"), mqtt.publish_packet("b", b"x!"))
    assert watcher.seen == ["u", Message("b", b"x")]


async def test_subscriptions_are_replaced_and_refused_one_by_one(tmp_path: Path) -> None:
    def judge(_user: Any, _who: Any, wanted: list[Subscription]) -> Any:
        return [
            Subscription("mine/" + each.topic_filter, 128 if each.topic_filter == "no" else 1)
            for each in wanted
        ]

    class Unmap(Plugin):
        @hook
        async def on_unsubscribe(self, topic_filters: list[str]) -> list[str]:
            return ["mine/" + each for each in topic_filters]

    plugins = {"doors": Doors(auth_on_subscribe=judge), "unmap": Unmap()}
    async with serving(tmp_path, plugins) as broker, session_of(broker, "c") as peer:
        await peer.ask(mqtt.subscribe_packet(1, ("a", 2), ("no", 0)), b"\x90\x04\0\1\1\x80")
        assert list(broker.registry().subscribers["c"].subscriptions) == ["mine/a"]
        await peer.ask(mqtt.unsubscribe_packet(2, "a"), b"\xb0\x02\0\2")
        assert list(broker.registry().subscribers["c"].subscriptions) == []


async def test_a_client_is_taken_over_while_it_waits(tmp_path: Path) -> None:
    plugin = Later()
    async with (
        serving(tmp_path, {"doors": plugin}) as broker,
        session_of(broker, "c") as first,
        peer_of(broker) as second,
    ):
        first.send(mqtt.publish_packet("a", b"x"))
        guard = broker.plugins.guards["doors"]
        await until(lambda: guard.under_way)
        assert (await second.connect("c")).return_code == 0
        assert await first.rest() == b""
        plugin.gate.set()
        second.send(mqtt.publish_packet("a", b"y"), mqtt.PINGREQ_BYTES)
        await second.expect(mqtt.PINGRESP_BYTES)
    assert [call[3].payload for call in plugin.calls] == [b"y"]


async def test_a_verdict_that_does_not_come_says_come_again(tmp_path: Path) -> None:
    plugin = Later()
    sections = {"doors": options(deadline=0.01)}
    async with serving(tmp_path, {"doors": plugin}, sections, anonymous=False) as broker:
        assert await login(broker) == 3
        assert broker.plugins.guards["doors"].timeouts == {"auth_on_register": 1}
        names = {each.name: each for each in broker.metrics.families()}
        (sample,) = names["plugin_hook_timeouts"].samples
        assert sample.labels == (("plugin", "doors"), ("hook", "auth_on_register"))


async def test_while_the_breaker_is_open_clients_are_told_to_come_again(tmp_path: Path) -> None:
    plugin = Doors(auth_on_register=OSError("the database is away"))
    sections = {"doors": options(breaker_failures=2)}
    async with serving(tmp_path, {"doors": plugin}, sections, anonymous=False) as broker:
        for _ in range(3):
            assert await login(broker) == 3
        guard = broker.plugins.guards["doors"]
        assert guard.skipped == {"auth_on_register": 1}
        assert len(plugin.calls) == 2
        assert broker.condition().degraded == [
            "plugin doors fails (see the log): what it decides is refused until a call goes well"
        ]
        plugin.answers.clear()
        guard._retry_at = 0.0  # the next call is tried
        assert await login(broker) == 0
        assert broker.health() == []


async def test_who_has_sent_connect_and_waits_for_us_has_a_time_of_its_own(tmp_path: Path) -> None:
    plugin = Later()
    async with serving(tmp_path, {"doors": plugin}, anonymous=False) as broker:
        broker.set_option("session.mqtt_connect_timeout", "0.05")
        broker.set_option("session.login_timeout", "0.5")
        async with peer_of(broker) as idle, peer_of(broker) as peer:
            peer.send(mqtt.connect_packet("c"))
            assert await idle.rest() == b"", "who sent nothing is cut off"
            assert await peer.rest() == b"\x20\x02\x00\x03", (
                "who waits for us is told to come again"
            )
        assert broker.metrics.counters()["logins_put_off"] == 1
        plugin.gate.set()


async def test_who_goes_away_while_it_waits_is_noticed_at_once(tmp_path: Path) -> None:
    plugin = Later()
    async with guarded(tmp_path, plugin) as (broker, peer):
        peer.send(mqtt.connect_packet("c"))
        await until(lambda: broker.plugins.guards["doors"].under_way == 1)
        peer.writer.close()
        await until(lambda: broker.plugins.guards["doors"].under_way == 0)
        assert plugin.calls == []
