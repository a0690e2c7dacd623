"""What a plugin no longer allows ends in a running broker."""

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from vmq_hooks import Accept, Cache, Plugin, Refuse, SubscriberId, Subscription, hook

from tests.support import wire as mqtt
from tests.support.peer import Peer
from tests.support.present import present
from tests.support.until import until
from tests.vmq.plugins.doors import Doors
from tests.vmq.plugins.support import peer_of, serving
from tests.vmq.sockets import session_of
from vmq.broker import Broker
from vmq.plugins.reauthorize import AT_ONCE


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
        handle = present(broker.plugins.loaded["doors"].handle)
        async with session_of(broker, "live") as live, peer_of(broker) as away:
            await live.ask(mqtt.subscribe_packet(1, ("a", 0), ("b", 0)), b"\x90\x04\0\1\0\0")
            await away.connect("away", clean=False)
            away.send(mqtt.subscribe_packet(1, ("b", 1)), b"\xe0\0")
            await away.expect(b"\x90\x03\0\1\1")
            await away.rest()
            allowed.discard("b")
            assert await handle.reauthorize(SubscriberId("live")) == 1
            assert ended == [("live", ["b"])]
            assert await handle.reauthorize() == 1
            assert ended == [("live", ["b"]), ("away", ["b"])]
            await broker.publish("b", b"no")
            await broker.publish("a", b"yes")
            await live.expect(mqtt.publish_packet("a", b"yes"))


async def test_who_is_away_is_not_judged_by_another_listener_s_plugins(tmp_path: Path) -> None:
    """It is asked about when it comes back, by the listener that it comes by."""
    doors = Doors(auth_on_subscribe=lambda *_: Refuse("not here"))
    async with serving(tmp_path, {"doors": doors}) as broker:
        handle = present(broker.plugins.loaded["doors"].handle)
        away = Peer(broker.registry(), "away", clean=False, username="u")
        subscriber = broker.registry().subscribers["away"]
        broker.registry().subscribe(subscriber, "t", 1)
        away.leave()
        broker.plugins.hooks_for(None, [])
        assert await handle.reauthorize() == 0
        assert [*subscriber.subscriptions] == ["t"]
        assert subscriber.output is None


async def test_subscriptions_that_nobody_could_judge_stay_and_are_judged_on_the_return(
    tmp_path: Path,
) -> None:
    answers: list[Any] = [True, Refuse("too busy", unavailable=True), Refuse("no")]

    def judge(*_arguments: Any) -> Any:
        return answers.pop(0)

    async with serving(tmp_path, {"doors": Doors(auth_on_subscribe=judge)}) as broker:
        handle = present(broker.plugins.loaded["doors"].handle)
        async with session_of(broker, "c", clean=False) as peer:
            await peer.ask(mqtt.subscribe_packet(1, ("a", 1)), b"\x90\x03\0\1\1")
            assert await handle.reauthorize() == 0
            assert await peer.rest() == b"", "it is sent nothing that it may not read any more"
        assert set(broker.registry().subscribers["c"].subscriptions) == {"a"}
        async with peer_of(broker) as peer:
            assert (await peer.connect("c", clean=False)).raw == b"\x20\x02\x01\x00"
            await peer.ask(mqtt.PINGREQ_BYTES, mqtt.PINGRESP_BYTES)
            assert broker.registry().subscribers["c"].subscriptions == {}
        assert not answers


@pytest.mark.parametrize("then", ["made", "", "other"])
async def test_a_filter_that_a_plugin_made_is_asked_about_as_the_client_had_asked_for_it(
    tmp_path: Path, then: str
) -> None:
    """It ends if the plugin makes yet another one of that: else a prefix would be put before itself."""
    asked: list[str] = []
    prefix = "made/"

    def judge(_user: Any, _who: Any, wanted: list[Subscription]) -> Any:
        asked.extend(each.topic_filter for each in wanted)
        return [Subscription(prefix + each.topic_filter, min(each.qos, 1)) for each in wanted]

    plugins = {"doors": Doors(auth_on_subscribe=judge)}
    async with serving(tmp_path, plugins) as broker, session_of(broker, "c", clean=False) as peer:
        await peer.ask(mqtt.subscribe_packet(1, ("t", 2)), b"\x90\x03\0\1\1")
    async with serving(tmp_path, plugins) as broker:
        subscriptions = broker.registry().subscribers["c"]
        async with peer_of(broker) as peer:
            assert (await peer.connect("c", clean=False)).raw == b"\x20\x02\x01\x00"
            assert [*subscriptions.subscriptions] == ["made/t"]
            prefix = then and then + "/"
            ended = await present(broker.plugins.loaded["doors"].handle).reauthorize()
            assert [*subscriptions.subscriptions] == ([] if ended else ["made/t"])
            assert ended == (then == "other")
    assert asked == ["t"] * 3


async def durable(broker: Broker, *filters: str) -> None:
    """A session of a client that is away, for which a message waits on each of the topics."""
    async with session_of(broker, "c", clean=False) as peer:
        peer.send(mqtt.subscribe_packet(1, *[(each, 1) for each in filters]))
        await peer.expect(b"\x90" + bytes([2 + len(filters), 0, 1]) + b"\1" * len(filters))
    await until(lambda: broker.registry().subscribers["c"].output is None)
    for each in filters:
        await broker.publish(each, b"waits", 1)


class Gated(Plugin):
    """Answers about subscriptions once the test lets it."""

    def __init__(self) -> None:
        self.gate = asyncio.Event()
        self.gate.set()
        self.asked = 0
        self.allowed = {"a", "b"}
        self.refusal = Refuse("no")

    @hook
    async def auth_on_subscribe(self, subscriptions: Any) -> Any:
        self.asked += 1
        await self.gate.wait()
        if self.refusal.unavailable:
            return self.refusal
        return Accept(
            subscriptions=[
                Subscription(
                    each.topic_filter, each.qos if each.topic_filter in self.allowed else 128
                )
                for each in subscriptions
            ]
        )


async def test_a_resumed_session_gets_nothing_before_the_verdict(tmp_path: Path) -> None:
    plugin = Gated()
    async with serving(tmp_path, {"gated": plugin}) as broker:
        await durable(broker, "a", "b")
        plugin.gate.clear()
        plugin.allowed = {"b"}
        async with peer_of(broker) as peer:
            peer.send(mqtt.connect_packet("c", clean=False))
            await until(lambda: plugin.asked == 2)
            await broker.publish("b", b"meanwhile", 1)
            plugin.gate.set()
            assert (await peer.packet()).raw == b"\x20\x02\x01\x00"
            for payload in (b"waits", b"meanwhile"):
                found = await peer.packet()
                assert (found.topic, found.payload) == ("b", payload)


async def test_a_client_that_goes_before_the_verdict_leaves_its_session_whole(
    tmp_path: Path,
) -> None:
    plugin = Gated()
    async with serving(tmp_path, {"gated": plugin}) as broker:
        await durable(broker, "a")
        plugin.gate.clear()
        subscriber = broker.registry().subscribers["c"]
        async with peer_of(broker) as peer:
            peer.send(mqtt.connect_packet("c", clean=False))
            await until(lambda: plugin.asked == 2)
        await until(lambda: subscriber.output is None)
        plugin.gate.set()
        async with session_of(broker, "c", clean=False) as peer:
            assert (await peer.packet()).payload == b"waits"


async def test_a_session_that_nobody_can_judge_is_resumed_later(tmp_path: Path) -> None:
    """CONNACK 3, which clients do not take as final; no will is published."""
    plugin = Gated()
    async with serving(tmp_path, {"gated": plugin}) as broker:
        await durable(broker, "a")
        plugin.refusal = Refuse("too busy", unavailable=True)
        async with broker.subscribe("will") as messages:
            async with peer_of(broker) as peer:
                peer.send(mqtt.connect_packet("c", clean=False, will=mqtt.Will("will", b"w")))
                assert (await peer.packet()).return_code == 3
                assert await peer.rest() == b""
            plugin.refusal = Refuse("no")
            async with session_of(broker, "c", clean=False) as peer:
                assert (await peer.packet()).payload == b"waits"
            await broker.publish("will", b"last")
            assert (await anext(messages)).payload == b"last"


@pytest.mark.parametrize("changes", [False, True])
async def test_a_verdict_with_a_lifetime_is_asked_anew_when_that_ends(
    tmp_path: Path, *, changes: bool
) -> None:
    """Also one that lowers the QoS; and each time, as long as it has a lifetime."""
    verdicts: list[Any] = []
    cache = Cache(0.05, frozenset({"client_id"}))

    def judge(_user: Any, _who: Any, wanted: list[Subscription]) -> Any:
        verdicts.append([each.topic_filter for each in wanted])
        if len(verdicts) == 4:
            return Refuse("no more")
        granted = [Subscription(each.topic_filter, 0) for each in wanted]
        return Accept(subscriptions=granted if changes else None, cache=cache)

    async with (
        serving(tmp_path, {"doors": Doors(auth_on_subscribe=judge)}) as broker,
        session_of(broker, "c") as peer,
    ):
        await peer.ask(mqtt.subscribe_packet(1, ("a", 0), ("b", 0)), b"\x90\x04\0\1\0\0")
        await until(lambda: len(verdicts) == 4)
        await until(lambda: broker.registry().subscribers["c"].subscriptions == {})
    assert verdicts == [["a", "b"]] * 4


async def test_of_many_verdicts_that_end_at_once_a_few_are_asked_at_a_time(tmp_path: Path) -> None:
    under_way = most = asked = 0

    class Slow(Plugin):
        @hook
        async def auth_on_subscribe(self, subscriptions: Any) -> Any:
            nonlocal under_way, most, asked
            asked += 1
            if asked <= 40:
                return Accept(cache=Cache(0.05, frozenset({"client_id"})))
            under_way += 1
            most = max(most, under_way)
            await asyncio.sleep(0)
            under_way -= 1
            return True

    async with serving(tmp_path, {"slow": Slow()}) as broker, AsyncExitStack() as stack:
        for number in range(40):
            peer = await stack.enter_async_context(peer_of(broker))
            await peer.connect(f"c{number}")
            await peer.ask(mqtt.subscribe_packet(1, ("a", 0)), b"\x90\x03\0\1\0")
        await until(lambda: asked == 80)
    assert 0 < most <= AT_ONCE
