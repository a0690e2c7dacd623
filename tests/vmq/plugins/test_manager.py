"""Plugins in a running broker: verdicts and changes reach clients, errors stay with the plugin."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest
from vmq_hooks import (
    Accept,
    Broker,
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

from tests.support.wire import (
    PINGREQ_BYTES,
    PINGRESP_BYTES,
    Will,
    connect_packet,
    puback_packet,
    publish_packet,
    subscribe_packet,
    unsubscribe_packet,
)
from tests.vmq.plugins.support import TIMEOUT, options, peer_of, serving
from vmq.broker import StartError
from vmq.config import ListenerOptions
from vmq.plugins.manager import PluginError


class Doors(Plugin):
    """Says what its answers say, at once or later."""

    def __init__(self, **answers: Any) -> None:
        self.answers = answers
        self.calls: list[tuple[Any, ...]] = []

    def answer(self, name: str, *arguments: Any) -> Any:
        self.calls.append((name, *arguments))
        found = self.answers.get(name, True)
        if isinstance(found, Exception):
            raise found
        return found(*arguments) if callable(found) else found

    @hook
    def auth_on_register(
        self, peer: Any, subscriber_id: Any, username: Any, password: Any, clean_session: Any
    ) -> Any:
        return self.answer(
            "auth_on_register", peer, subscriber_id, username, password, clean_session
        )

    @hook
    def auth_on_publish(self, username: Any, subscriber_id: Any, message: Any) -> Any:
        return self.answer("auth_on_publish", username, subscriber_id, message)

    @hook
    def auth_on_subscribe(self, username: Any, subscriber_id: Any, subscriptions: Any) -> Any:
        return self.answer("auth_on_subscribe", username, subscriber_id, subscriptions)


class Later(Doors):
    """The same, but the verdict comes when the test says so."""

    def __init__(self, **answers: Any) -> None:
        super().__init__(**answers)
        self.gate = asyncio.Event()

    @hook
    async def auth_on_register(
        self, peer: Any, subscriber_id: Any, username: Any, password: Any, clean_session: Any
    ) -> Any:
        await self.gate.wait()
        return super().auth_on_register(peer, subscriber_id, username, password, clean_session)

    @hook
    async def auth_on_publish(self, username: Any, subscriber_id: Any, message: Any) -> Any:
        await self.gate.wait()
        return super().auth_on_publish(username, subscriber_id, message)

    @hook
    async def auth_on_subscribe(self, username: Any, subscriber_id: Any, subscriptions: Any) -> Any:
        await self.gate.wait()
        return super().auth_on_subscribe(username, subscriber_id, subscriptions)


# --- who may enter


@pytest.mark.parametrize(
    ("answer", "code"),
    (
        (True, 0),
        (Accept(), 0),
        (None, 5),
        (Refuse("no"), 5),
        (Refuse("wrong password", bad_credentials=True), 4),
        (False, 5),
        ("yes", 5),
        (OSError("broken"), 5),
        ({"max_wishes": 3}, 5),
        ({"max_inflight_messages": "many"}, 5),
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
    async with (
        serving(tmp_path, {"doors": plugin}, anonymous=False) as broker,
        peer_of(broker) as peer,
    ):
        packet = await peer.connect("c", username="u", password=b"p")
        assert packet.return_code == code
    (call,) = plugin.calls
    assert (call[2], call[3], call[4], call[5]) == (SubscriberId("c"), "u", b"p", True)
    assert (call[1].host, call[1].listener, call[1].transport) == ("127.0.0.1", "tcp", "tcp")


async def test_without_a_plugin_only_anonymous_listeners_let_in(tmp_path: Path) -> None:
    async with serving(tmp_path, anonymous=False) as broker, peer_of(broker) as peer:
        assert (await peer.connect("c")).return_code == 5


async def test_loopback_is_open_until_a_plugin_knows_clients(tmp_path: Path) -> None:
    async with serving(tmp_path, anonymous="loopback") as broker:
        async with peer_of(broker) as peer:
            assert (await peer.connect("c")).return_code == 0
        await broker.plugins.add("doors", Doors(auth_on_register=Refuse("no")))
        async with peer_of(broker) as peer:
            assert (await peer.connect("c")).return_code == 5


async def test_where_anonymous_clients_are_wanted_nobody_is_asked(tmp_path: Path) -> None:
    plugin = Doors(auth_on_register=Refuse("no"))
    async with serving(tmp_path, {"doors": plugin}) as broker, peer_of(broker) as peer:
        assert (await peer.connect("c")).return_code == 0
    assert plugin.calls == []


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
    async with (
        serving(tmp_path, {"doors": plugin}, anonymous=False) as broker,
        peer_of(broker) as peer,
    ):
        assert (await peer.connect("c")).return_code == 0
        queue = broker.registries["tenant"].subscribers["tenant-c"].queue
        own = queue.options
        assert (own.max_inflight_messages, own.max_online_messages) == (1, 7)
        assert (own.lifo, own.retry_interval, own.upgrade_outgoing_qos) == (True, 0.5, True)
        assert queue.durable
        assert queue.username == "somebody"
        peer.send(subscribe_packet(1, ("t", 1)))
        await peer.packet()
        await broker.publish("t", b"elsewhere", qos=1)
        for number in range(2):
            await broker.publish("t", b"%d" % number, qos=1, mountpoint="tenant")
        first = await peer.packet()
        assert first.payload == b"0"
        peer.send(PINGREQ_BYTES)
        await peer.expect(PINGRESP_BYTES)  # the second waits for the window of one
        assert first.packet_id is not None
        peer.send(puback_packet(first.packet_id))
        assert (await peer.packet()).payload == b"1"
        peer.send(publish_packet("t", b"long"))
        assert await peer.rest() == b""
    assert plugin.calls[1][1:3] == ("somebody", SubscriberId("tenant-c", "tenant"))


async def test_own_options_follow_a_reload_where_they_change_nothing(tmp_path: Path) -> None:
    plugin = Doors(auth_on_register={"max_inflight_messages": 1})
    async with (
        serving(tmp_path, {"doors": plugin}, anonymous=False) as broker,
        peer_of(broker) as peer,
    ):
        await peer.connect("c")
        own = broker.registry().subscribers["c"].queue.options
        queue = msgspec.structs.replace(
            broker.config.queue, max_inflight_messages=5, max_online_messages=55
        )
        broker.reload(msgspec.structs.replace(broker.config, queue=queue))
        assert (own.max_inflight_messages, own.max_online_messages) == (1, 55)


# --- what may be published


@pytest.mark.parametrize("qos", (0, 1, 2))
async def test_publish_modifiers_change_what_is_routed(tmp_path: Path, qos: int) -> None:
    plugin = Doors(
        auth_on_publish=PublishModifiers(topic="b", payload=b"y", qos=1, retain=True, throttle=1)
    )
    async with (
        serving(tmp_path, {"doors": plugin}) as broker,
        broker.subscribe("#", qos=2) as messages,
        peer_of(broker) as peer,
    ):
        await peer.connect("c")
        pid = 7 if qos else None
        peer.send(publish_packet("a", b"x", qos=qos, packet_id=pid), PINGREQ_BYTES)
        if qos:
            assert (await peer.packet()).raw[:1] == (b"\x40" if qos == 1 else b"\x50")
        await peer.expect(PINGRESP_BYTES)
        async with asyncio.timeout(TIMEOUT):
            found = await anext(messages)
        assert (found.topic, found.payload, found.qos) == ("b", b"y", 1)
        assert broker.registry().retained.get("b") is not None


async def test_a_publish_may_go_to_another_mountpoint(tmp_path: Path) -> None:
    plugin = Doors(auth_on_publish={"mountpoint": "other"})
    async with serving(tmp_path, {"doors": plugin}) as broker, peer_of(broker) as peer:
        await peer.connect("c")
        async with broker.subscribe("a", mountpoint="other") as messages:
            peer.send(publish_packet("a", b"x"))
            async with asyncio.timeout(TIMEOUT):
                assert (await anext(messages)).payload == b"x"


async def test_a_refused_will_refuses_the_connect_and_a_changed_one_is_published(
    tmp_path: Path,
) -> None:
    def judge(_user: Any, _who: Any, message: Message) -> Any:
        return Refuse("no") if message.topic == "bad" else {"payload": b"changed"}

    plugin = Doors(auth_on_publish=judge)
    async with serving(tmp_path, {"doors": plugin}) as broker:
        async with peer_of(broker) as peer:
            assert (await peer.connect("c", will=Will("bad", b"x"))).return_code == 5
        async with broker.subscribe("good") as messages:
            async with peer_of(broker) as peer:
                assert (await peer.connect("c", will=Will("good", b"x"))).return_code == 0
            async with asyncio.timeout(TIMEOUT):
                assert (await anext(messages)).payload == b"changed"


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
        peer_of(broker) as peer,
    ):
        await peer.connect("c", username="u")
        peer.send(subscribe_packet(1, ("b", 0)))
        await peer.packet()
        peer.send(publish_packet("a", b"x"))
        await peer.expect(publish_packet("b", b"x!"))
    assert watcher.seen == ["u", Message("b", b"x")]


async def test_what_the_program_publishes_is_rewritten_for_its_receivers_too(
    tmp_path: Path,
) -> None:
    class Shouts(Plugin):
        @hook
        def on_deliver(self, message: Any) -> Any:
            return {"payload": message.payload + b"!"}

    async with serving(tmp_path, {"shouts": Shouts()}) as broker, peer_of(broker) as peer:
        await peer.connect("c")
        peer.send(subscribe_packet(1, ("a", 1)))
        await peer.packet()
        for qos in (0, 1):
            await broker.publish("a", b"x", qos=qos)
            assert (await peer.packet()).payload == b"x!"


# --- what may be subscribed to


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
    async with serving(tmp_path, plugins) as broker, peer_of(broker) as peer:
        await peer.connect("c")
        peer.send(subscribe_packet(1, ("a", 2), ("no", 0)))
        await peer.expect(b"\x90\x04\0\1\1\x80")
        assert list(broker.registry().subscribers["c"].subscriptions) == ["mine/a"]
        peer.send(unsubscribe_packet(2, "a"))
        await peer.expect(b"\xb0\x02\0\2")
        assert list(broker.registry().subscribers["c"].subscriptions) == []


# --- verdicts that come later


async def test_order_is_kept_around_a_verdict_that_takes_time(tmp_path: Path) -> None:
    plugin = Later()
    async with (
        serving(tmp_path, {"doors": plugin}) as broker,
        broker.subscribe("a", qos=2) as messages,
        peer_of(broker) as peer,
    ):
        peer.send(connect_packet("c"))
        count = 200
        for number in range(count):
            qos = number % 3
            peer.send(
                publish_packet("a", b"%d" % number, qos=qos, packet_id=number + 1 if qos else None)
            )
        async with peer_of(broker) as other:
            # Somebody else is served meanwhile.
            assert (await other.connect("other")).return_code == 0
            other.send(PINGREQ_BYTES)
            await other.expect(PINGRESP_BYTES)
        assert plugin.calls == []
        plugin.gate.set()
        async with asyncio.timeout(TIMEOUT):
            found = [(await anext(messages)).payload for _ in range(count)]
        assert found == [b"%d" % number for number in range(count)]


async def test_a_connection_that_ends_while_it_waits_is_forgotten(tmp_path: Path) -> None:
    plugin = Later()
    async with serving(tmp_path, {"doors": plugin}, anonymous=False) as broker:
        async with peer_of(broker) as peer:
            peer.send(connect_packet("c"))
            guard = broker.plugins.guards["doors"]
            async with asyncio.timeout(TIMEOUT):
                while not guard.under_way:  # noqa: ASYNC110 - nothing tells of it
                    await asyncio.sleep(0)
                assert broker.connections is not None
                broker.connections.close("the test says so")
                await guard.wait_idle()
        plugin.gate.set()
        assert plugin.calls == []
        assert broker.registry().subscribers == {}


async def test_a_client_is_taken_over_while_it_waits(tmp_path: Path) -> None:
    plugin = Later()
    async with (
        serving(tmp_path, {"doors": plugin}) as broker,
        peer_of(broker) as first,
        peer_of(broker) as second,
    ):
        assert (await first.connect("c")).return_code == 0
        first.send(publish_packet("a", b"x"))
        guard = broker.plugins.guards["doors"]
        async with asyncio.timeout(TIMEOUT):
            while not guard.under_way:  # noqa: ASYNC110
                await asyncio.sleep(0)
        assert (await second.connect("c")).return_code == 0
        assert await first.rest() == b""
        plugin.gate.set()
        second.send(publish_packet("a", b"y"), PINGREQ_BYTES)
        await second.expect(PINGRESP_BYTES)
    assert [call[3].payload for call in plugin.calls] == [b"y"]


async def test_a_verdict_that_does_not_come_is_a_refusal(tmp_path: Path) -> None:
    plugin = Later()
    sections = {"doors": options(deadline=0.01)}
    async with serving(tmp_path, {"doors": plugin}, sections, anonymous=False) as broker:
        async with peer_of(broker) as peer:
            assert (await peer.connect("c")).return_code == 5
        assert broker.plugins.guards["doors"].timeouts == {"auth_on_register": 1}
        names = {each.name: each for each in broker.metrics.families()}
        (sample,) = names["plugin_hook_timeouts"].samples
        assert sample.labels == (("plugin", "doors"), ("hook", "auth_on_register"))


async def test_the_connect_timeout_holds_while_a_verdict_is_awaited(tmp_path: Path) -> None:
    plugin = Later()
    async with serving(tmp_path, {"doors": plugin}, anonymous=False) as broker:
        session = msgspec.structs.replace(broker.config.session, mqtt_connect_timeout=0.2)
        broker.reload(msgspec.structs.replace(broker.config, session=session))
        async with peer_of(broker) as peer:
            peer.send(connect_packet("c"))
            assert await peer.rest() == b""
        plugin.gate.set()


# --- order, listeners, kept verdicts


async def test_plugins_are_asked_by_priority_and_mix(tmp_path: Path) -> None:
    asked: list[str] = []

    class Named(Plugin):
        def __init__(self, name: str, answer: Any) -> None:
            self.name, self.answer = name, answer

        @hook
        def auth_on_publish(self) -> Any:
            asked.append(self.name)
            return self.answer

    class NamedLater(Named):
        @hook
        async def auth_on_publish(self) -> Any:
            return super().auth_on_publish()

    plugins = {
        "last": Named("last", Refuse("never reached")),
        "third": Named("third", True),
        "second": NamedLater("second", None),
        "first": Named("first", None),
    }
    sections = {
        "last": options(priority=9),
        "third": options(priority=5),
        "second": options(priority=-1),
        "first": options(priority=-2),
    }
    async with serving(tmp_path, plugins, sections) as broker, peer_of(broker) as peer:
        await peer.connect("c")
        peer.send(publish_packet("a", b"x"), PINGREQ_BYTES)
        await peer.expect(PINGRESP_BYTES)
        assert [each.name for each in broker.plugins.in_order()] == [
            *("first", "second", "third", "last")
        ]
    assert asked == ["first", "second", "third"]


async def test_a_listener_chooses_its_plugins(tmp_path: Path) -> None:
    plugins = {"strict": Doors(auth_on_register=Refuse("no")), "kind": Doors()}
    listeners = {
        "all": ListenerOptions(url="tcp://127.0.0.1:0"),
        "kind": ListenerOptions(url="tcp://127.0.0.1:0", auth_plugins=["kind"]),
    }
    sections = {"strict": options(), "kind": options()}
    async with serving(tmp_path, plugins, sections, False, listeners) as broker:
        codes = []
        for listener in (0, 1):
            async with peer_of(broker, listener) as peer:
                codes.append((await peer.connect("c")).return_code)
        assert codes == [5, 0]
        # Whoever was chosen and does not run cannot say yes.
        await broker.plugins.disable("kind")
        async with peer_of(broker, 1) as peer:
            assert (await peer.connect("c")).return_code == 5


async def test_a_kept_verdict_is_not_asked_for_again_until_it_is_forgotten(tmp_path: Path) -> None:
    handle: list[Broker] = []

    class Once(Doors):
        def start(self, broker: Broker, config: Any) -> None:
            handle.append(broker)

    plugin = Once(auth_on_publish=Accept(cache=Cache(60, frozenset({"topic"}))))
    async with serving(tmp_path, {"once": plugin}) as broker, broker.subscribe("#") as messages:

        async def publish(client_id: str, *topics: str) -> int:
            plugin.calls.clear()
            async with peer_of(broker) as peer:
                await peer.connect(client_id)
                peer.send(*(publish_packet(topic, b"x") for topic in topics))
                async with asyncio.timeout(TIMEOUT):
                    for topic in topics:
                        assert (await anext(messages)).topic == topic
            return len(plugin.calls)

        assert await publish("c", "a", "a", "b", "a") == 2
        assert await publish("d", "a", "b") == 0
        handle[0].forget_verdicts()
        assert await publish("c", "a", "a") == 1
        await broker.plugins.disable("once")
        assert await publish("c", "a") == 0


async def test_a_live_session_forgets_too(tmp_path: Path) -> None:
    verdicts: list[Any] = [Accept(cache=Cache(60)), Refuse("no more")]
    plugin = Doors(auth_on_publish=lambda *_: verdicts.pop(0))
    async with serving(tmp_path, {"doors": plugin}) as broker, peer_of(broker) as peer:
        await peer.connect("c")
        for _ in range(3):
            peer.send(publish_packet("a", b"x"), PINGREQ_BYTES)
            await peer.expect(PINGRESP_BYTES)
        assert len(plugin.calls) == 1
        broker.plugins.forget_verdicts()
        peer.send(publish_packet("a", b"x"))
        assert await peer.rest() == b""


# --- one bad plugin harms its own verdicts only


async def test_a_failing_notice_harms_nobody_and_opens_its_breaker(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class Broken(Plugin):
        @hook
        def on_publish(self) -> None:
            raise OSError("broken")

    class Counts(Plugin):
        count = 0

        @hook
        def on_publish(self) -> None:
            self.count += 1

    counts = Counts()
    sections = {"broken": options(breaker_failures=3)}
    async with serving(tmp_path, {"broken": Broken(), "counts": counts}, sections) as broker:
        async with peer_of(broker) as peer:
            await peer.connect("c")
            peer.send(*[publish_packet("a", b"x")] * 5, PINGREQ_BYTES)
            await peer.expect(PINGRESP_BYTES)
        guard = broker.plugins.guards["broken"]
        assert guard.errors == {"on_publish": 3}
        assert guard.skipped == {"on_publish": 2}
    assert counts.count == 5
    (line,) = [each.message for each in caplog.records if "hook failed" in each.message]
    assert "plugin=broken hook=on_publish" in line
    caplog.clear()


async def test_async_notices_come_in_order(tmp_path: Path) -> None:
    class Slow(Plugin):
        def __init__(self) -> None:
            self.seen: list[bytes] = []

        @hook
        async def on_publish(self, message: Message) -> None:
            await asyncio.sleep(0)
            self.seen.append(message.payload)

    slow = Slow()
    async with serving(tmp_path, {"slow": slow}) as broker, peer_of(broker) as peer:
        await peer.connect("c")
        peer.send(*(publish_packet("a", b"%d" % number) for number in range(50)), PINGREQ_BYTES)
        await peer.expect(PINGRESP_BYTES)
        await broker.plugins.disable("slow")
    assert slow.seen == [b"%d" % number for number in range(50)]


# --- reauthorise


async def test_subscriptions_that_are_no_longer_allowed_end(tmp_path: Path) -> None:
    ended: list[Any] = []

    class Ends(Plugin):
        @hook
        def on_topic_unsubscribed(self, subscriber_id: Any, topic_filters: Any) -> None:
            ended.append((subscriber_id.client_id, topic_filters))

    allowed = {"a", "b"}

    def judge(_user: Any, _who: Any, wanted: list[Subscription]) -> Any:
        return [
            Subscription(each.topic_filter, each.qos if each.topic_filter in allowed else 128)
            for each in wanted
        ]

    plugins = {"doors": Doors(auth_on_subscribe=judge), "ends": Ends()}
    async with serving(tmp_path, plugins) as broker:
        handle = broker.plugins.loaded["doors"].handle
        assert handle is not None
        async with peer_of(broker) as live, peer_of(broker) as away:
            await live.connect("live")
            live.send(subscribe_packet(1, ("a", 0), ("b", 0)))
            await live.expect(b"\x90\x04\0\1\0\0")
            await away.connect("away", clean=False)
            away.send(subscribe_packet(1, ("b", 1)), b"\xe0\0")
            await away.expect(b"\x90\x03\0\1\1")
            await away.rest()
            allowed.discard("b")
            assert await handle.reauthorize(SubscriberId("live")) == 1
            assert ended == [("live", ["b"])]
            assert await handle.reauthorize() == 1
            assert ended == [("live", ["b"]), ("away", ["b"])]
            await broker.publish("b", b"no")
            await broker.publish("a", b"yes")
            await live.expect(publish_packet("a", b"yes"))


# --- the handle


async def test_what_the_handle_gives(tmp_path: Path) -> None:
    async with serving(tmp_path, {"doors": Doors()}) as broker:
        handle: Broker | None = broker.plugins.loaded["doors"].handle
        assert handle is not None
        assert handle.data_dir == tmp_path / "data" / "plugins" / "doors"
        assert handle.data_dir.is_dir()
        handle.counter("hits", "Hits.").add(3)
        assert {(each.name, each.value) for each in handle.metrics()} >= {("vmq_plugin_hits", 3)}
        async with handle.subscribe("a", qos=1) as messages:
            await handle.publish("a", b"x", qos=1)
            assert await anext(messages) == Message("a", b"x", 1)
        async with peer_of(broker) as peer:
            await peer.connect("c", clean=False)
            assert await handle.disconnect(SubscriberId("c"), cleanup=True)
            assert await peer.rest() == b""
        assert not await handle.disconnect(SubscriberId("c"))
        assert await handle.run_in_thread(sum, [1, 2]) == 3


async def test_a_durable_subscription_gets_again_what_was_not_asked_past(tmp_path: Path) -> None:
    async with serving(tmp_path, {"doors": Doors()}) as broker:
        handle = broker.plugins.loaded["doors"].handle
        assert handle is not None

        async def take(count: int) -> list[bytes]:
            async with handle.subscribe(
                "a", qos=1, client_id="bridge", clean_session=False
            ) as messages:
                async with asyncio.timeout(TIMEOUT):
                    return [(await anext(messages)).payload for _ in range(count)]

        async with handle.subscribe("a", qos=1, client_id="bridge", clean_session=False):
            pass
        for number in range(3):
            await handle.publish("a", b"%d" % number, qos=1)
        assert await take(2) == [b"0", b"1"]
        assert await take(2) == [b"1", b"2"]


# --- life


async def test_a_plugin_that_cannot_start_stops_the_start(tmp_path: Path) -> None:
    class Fails(Plugin):
        def start(self, broker: Broker, config: Any) -> None:
            raise OSError("no database")

    with pytest.raises(StartError, match="plugin fails cannot start: no database"):
        async with serving(tmp_path, {"fails": Fails()}):
            pass


async def test_wrong_options_of_a_plugin_are_named(tmp_path: Path) -> None:
    class Typed(Plugin):
        class Config(msgspec.Struct, forbid_unknown_fields=True):
            limit: int
            name: str = ""

    with pytest.raises(StartError) as caught:
        async with serving(tmp_path, {"typed": Typed()}, {"typed": options(nme="x")}):
            pass
    text = str(caught.value)
    assert "plugins.typed.nme" in text
    assert "did you mean 'name'?" in text
    assert "plugins.typed.limit: missing; accepted: a whole number" in text


async def test_changes_that_cannot_be_made_say_so(tmp_path: Path) -> None:
    async with serving(tmp_path, {"doors": Doors()}) as broker:
        with pytest.raises(PluginError, match="runs already"):
            await broker.plugins.enable("doors")
        with pytest.raises(PluginError, match="made by the program"):
            await broker.plugins.reload("doors")
        with pytest.raises(PluginError, match="does not run"):
            await broker.plugins.reload("other")
        with pytest.raises(PluginError, match=r"no \[plugins.other\]"):
            await broker.plugins.enable("other")


async def test_a_session_restored_from_disk_is_asked_about_when_its_client_is_back(
    tmp_path: Path,
) -> None:
    users: list[str | None] = []

    def judge(user: str | None, _who: Any, wanted: list[Subscription]) -> Any:
        users.append(user)
        return Refuse("no more") if len(users) > 1 else True

    doors = Doors(auth_on_subscribe=judge)
    async with serving(tmp_path, {"doors": doors}) as broker, peer_of(broker) as peer:
        await peer.connect("c", clean=False, username="u")
        peer.send(subscribe_packet(1, ("a", 1)), b"\xe0\0")
        await peer.expect(b"\x90\x03\0\1\1")
    async with serving(tmp_path, {"doors": doors}) as broker:
        handle = broker.plugins.loaded["doors"].handle
        assert handle is not None
        assert await handle.reauthorize() == 0
        subscriber = broker.registry().subscribers["c"]
        assert list(subscriber.subscriptions) == ["a"], "nobody knows yet whose it is"
        async with peer_of(broker) as peer:
            await peer.connect("c", clean=False, username="u")
            peer.send(PINGREQ_BYTES)
            await peer.expect(PINGRESP_BYTES)
            assert list(subscriber.subscriptions) == []
    assert users == ["u", "u"]


async def test_a_new_plugin_ends_what_a_live_session_has_kept(tmp_path: Path) -> None:
    plugin = Doors(auth_on_publish=Accept(cache=Cache(60)))
    async with serving(tmp_path, {"doors": plugin}) as broker, peer_of(broker) as peer:
        await peer.connect("c")
        for _ in range(2):
            peer.send(publish_packet("a", b"x"), PINGREQ_BYTES)
            await peer.expect(PINGRESP_BYTES)
        assert len(plugin.calls) == 1
        strict = Doors(auth_on_publish=Refuse("no"))
        await broker.plugins.add("strict", strict, options(priority=-1))
        peer.send(publish_packet("a", b"x"))
        assert await peer.rest() == b""


async def test_a_plugin_answers_what_it_was_asked_before_it_is_stopped(tmp_path: Path) -> None:
    steps: list[str] = []

    class Orderly(Later):
        @hook
        async def auth_on_publish(self, username: Any, subscriber_id: Any, message: Any) -> Any:
            steps.append("asked")
            await self.gate.wait()
            steps.append("answered")
            return True

        def stop(self) -> None:
            steps.append("stopped")

    plugin = Orderly()
    async with serving(tmp_path, {"orderly": plugin}) as broker, peer_of(broker) as peer:
        await peer.connect("c")
        peer.send(publish_packet("a", b"x"), PINGREQ_BYTES)
        guard = broker.plugins.guards["orderly"]
        async with asyncio.timeout(TIMEOUT):
            while "asked" not in steps:  # noqa: ASYNC110 - nothing tells of it
                await asyncio.sleep(0)
            disabling = asyncio.create_task(broker.plugins.disable("orderly"))
            while "orderly" in broker.plugins.loaded:  # noqa: ASYNC110
                await asyncio.sleep(0)
            for _ in range(5):
                await asyncio.sleep(0)
            assert guard.under_way == 1
            plugin.gate.set()
            await disabling
        await peer.expect(PINGRESP_BYTES)
    assert steps == ["asked", "answered", "stopped"]
