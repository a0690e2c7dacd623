"""Clients of MQTT that read history: what they get, from where, and what they are refused."""

import asyncio
import logging
import os
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any, Unpack
from urllib.parse import quote

import pytest
from vmq_hooks import REFUSED_QOS, DeliverModifiers, Message, Refuse, Subscription

from tests.support import wire as mqtt
from tests.support.until import until
from tests.vmq.sockets import Peer, peer_of, session_of
from tests.vmq.streamed import config_in, streams_of
from tests.vmq.streams.support import options
from vmq.broker import Broker
from vmq.plugins.chains import Granted, _as_wanted, _seen
from vmq.plugins.reauthorize import reauthorize
from vmq.runtime.scheduling import SWITCH_INTERVAL
from vmq.streams.replay import port as module
from vmq.streams.replay.port import StreamReaders


@asynccontextmanager
async def broker_of(folder: Path, **streams: Any) -> AsyncIterator[Broker]:
    async with Broker(config_in(folder, **(streams or {"s": "s/#"}))) as broker:
        yield broker


def readers(broker: Broker) -> StreamReaders:
    return streams_of(broker).readers


async def fill(broker: Broker, *topics: str, qos: int = 1, retain: bool = False) -> None:
    """Publishes one message each, whose payload is its topic, and waits until streams have them."""
    async with session_of(broker, "filler") as peer:
        for number, topic in enumerate(topics, 1):
            payload = topic.encode()
            peer.send(
                mqtt.publish_packet(
                    topic, payload, qos=qos, packet_id=number if qos else None, retain=retain
                )
            )
            if qos:
                await peer.expect(b"\x40\x02" + number.to_bytes(2, "big"))
        await streams_of(broker).commits.wait()


async def reading(
    peer: Peer,
    *filters: str,
    qos: int = 1,
    client_id: str = "r",
    code: int = -1,
    **fields: Unpack[mqtt.ConnectFields],
) -> None:
    assert (await peer.connect(client_id, **fields)).body[1] == 0
    await subscribe(peer, *filters, qos=qos, code=code)


async def subscribe(peer: Peer, *filters: str, qos: int = 1, code: int = -1) -> None:
    peer.send(mqtt.subscribe_packet(1, *[(each, qos) for each in filters]))
    codes = bytes([min(qos, 1) if code < 0 else code]) * len(filters)
    await peer.expect(b"\x90" + bytes([2 + len(filters)]) + b"\x00\x01" + codes)


async def payload_of(peer: Peer, acknowledge: bool = True) -> str:
    found = await row_of(peer)
    if found.qos and acknowledge:
        peer.send(mqtt.puback_packet(found.packet_id))
    return str(found.payload.decode())


async def row_of(peer: Peer) -> mqtt.Packet:
    found = await peer.packet()
    assert found.type == 3, found
    return found


@pytest.mark.parametrize("qos", [0, 1])
async def test_history_and_then_what_is_appended(tmp_path: Path, qos: int) -> None:
    async with broker_of(tmp_path) as broker, peer_of(broker) as peer:
        await fill(broker, "s/1", "s/2", "s/3", retain=True)
        await reading(peer, "$replay/earliest/s/#", qos=qos)
        for number in (1, 2, 3):
            found = await row_of(peer)
            assert (found.topic, found.payload) == (f"s/{number}", b"s/%d" % number)
            assert (found.qos, found.retain, found.dup) == (qos, False, False)
            if qos:
                peer.send(mqtt.puback_packet(found.packet_id))
        for number in (4, 5):
            await fill(broker, f"s/{number}", qos=number - 4)
            assert await payload_of(peer) == f"s/{number}"


async def test_at_qos_2_it_is_granted_1(tmp_path: Path) -> None:
    async with broker_of(tmp_path) as broker, peer_of(broker) as peer:
        await fill(broker, "s/1")
        await reading(peer, "$replay/earliest/s/1", qos=2)
        assert (await row_of(peer)).qos == 1


async def test_only_what_matches_and_from_now_on(tmp_path: Path) -> None:
    async with broker_of(tmp_path) as broker, peer_of(broker) as peer:
        await fill(broker, "s/1")
        await reading(peer, "$replay/latest/s/+")
        await fill(broker, "s/2/x", "s/3", "t/4")
        assert await payload_of(peer) == "s/3"


async def test_beside_a_plain_subscription_with_a_prefix(tmp_path: Path) -> None:
    async with broker_of(tmp_path) as broker, peer_of(broker) as peer:
        await fill(broker, "s/1", retain=True)
        await reading(peer, "$replay/-1h;as=history;retain=published/s/#")
        found = await row_of(peer)
        assert (found.topic, found.retain, found.qos) == ("history/s/1", True, 1)
        await subscribe(peer, "s/#", qos=0)
        assert (await row_of(peer)).topic == "s/1"  # retained
        await fill(broker, "s/2")
        assert sorted([(await row_of(peer)).topic for _ in range(2)]) == ["history/s/2", "s/2"]


async def test_where(tmp_path: Path) -> None:
    async with broker_of(tmp_path) as broker, peer_of(broker) as peer:
        await fill(broker, "s/1", "s/22", "s/333")
        where = quote("size(payload) > 3 && levels[1] != '333'", safe="")
        await reading(peer, f"$replay/earliest;where={where}/s/#")
        assert await payload_of(peer) == "s/22"
        await fill(broker, "s/4", "s/55")
        assert await payload_of(peer) == "s/55"


async def test_an_expression_that_is_none_is_refused(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with broker_of(tmp_path) as broker, peer_of(broker) as peer:
        await reading(peer, "$replay/earliest;where=1 %2B/s/#", code=128)
        assert "where= is no expression" in caplog.text
        assert not any(readers(broker).prepared.values())


@pytest.mark.parametrize(
    ("topic", "reason"),
    [
        (
            "$replay/earliest/t/#",
            "no stream keeps all topics of t/#; stream=NAME names one that keeps some: there is none",
        ),
        (
            "$replay/earliest/#",
            "no stream keeps all topics of #; stream=NAME names one that keeps some: s",
        ),
        ("$replay/earliest;stream=x/s/#", "there is no stream 'x'; there are: s"),
        ("$replay/earliest;stream=s/t/#", "stream 's' keeps no topic of t/#; it keeps: s/#"),
        ("$replay/15m/s/#", "a time to come"),
        ("$replay/earliest", "accepted: $replay/FROM/FILTER"),
        ("$share/g/$replay/earliest/s/#", "a replay is one client's own"),
    ],
)
async def test_what_is_refused_and_why(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, topic: str, reason: str
) -> None:
    async with broker_of(tmp_path) as broker, peer_of(broker) as peer:
        await reading(peer, topic, code=128)
        assert reason in caplog.text
        assert topic in caplog.text
        await subscribe(peer, "$replay/latest/s/#")  # and goes on


async def test_without_streams(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with Broker(config_in(tmp_path)) as broker, peer_of(broker) as peer:
        await reading(peer, "$replay/earliest/s/#", code=128)
        assert "there are no streams" in caplog.text


async def test_nothing_is_published_there(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    async with broker_of(tmp_path) as broker, session_of(broker, "p") as peer:
        peer.send(mqtt.publish_packet("$replay/earliest/s/1", b"x", qos=1, packet_id=1))
        assert await peer.rest() == b""
        assert "nothing is published to $replay/earliest/s/1" in caplog.text


async def test_as_many_as_there_may_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "MOST", 3)
    async with broker_of(tmp_path) as broker, peer_of(broker) as first, peer_of(broker) as second:
        await reading(first, "$replay/latest/s/1", "$replay/latest/s/2")
        await subscribe(first, "$replay/latest/s/3", code=128)
        assert "a client has 2 replays at a time" in caplog.text
        await reading(second, "$replay/latest/s/1", client_id="r2")
        await subscribe(second, "$replay/latest/s/2", code=128)
        assert "3 clients read history already" in caplog.text
        await first.ask(mqtt.unsubscribe_packet(7, "$replay/latest/s/1"), b"\xb0\x02\x00\x07")
        await subscribe(second, "$replay/latest/s/2")
        found = readers(broker)
        assert len(found.by_number) == 3
    assert not found.by_number


async def test_unsubscribing_ends_it(tmp_path: Path) -> None:
    async with broker_of(tmp_path) as broker, peer_of(broker) as peer:
        await fill(broker, *[f"s/{number}" for number in range(10)])
        await reading(peer, "$replay/earliest;prefetch=2/s/#")
        unacknowledged = [await row_of(peer) for _ in range(2)]
        peer.send(mqtt.unsubscribe_packet(7, "$replay/earliest;prefetch=2/s/#"))
        await peer.expect(b"\xb0\x02\x00\x07")
        subscriber = broker.registry().subscribers["r"]
        assert not subscriber.queue.inflight
        peer.send(*[mqtt.puback_packet(each.packet_id) for each in unacknowledged], b"\xc0\x00")
        await peer.expect(b"\xd0\x00")
        await fill(broker, "s/x")
        await peer.ask(b"\xc0\x00", b"\xd0\x00")


async def test_as_many_unacknowledged_as_it_wants(tmp_path: Path) -> None:
    async with broker_of(tmp_path) as broker, peer_of(broker) as peer:
        await fill(broker, *[f"s/{number}" for number in range(5)])
        await reading(peer, "$replay/earliest;prefetch=2/s/#")
        found = [await row_of(peer) for _ in range(2)]
        await peer.ask(b"\xc0\x00", b"\xd0\x00")
        peer.send(mqtt.puback_packet(found[1].packet_id))
        assert await payload_of(peer) == "s/2"
        peer.send(mqtt.puback_packet(found[0].packet_id))
        assert [await payload_of(peer) for _ in range(2)] == ["s/3", "s/4"]


async def test_what_is_acknowledged_in_any_order_moves_it_on(tmp_path: Path) -> None:
    """Runs of rows, single ones of them, and other messages in between, for which packet ids are left."""
    random = Random(1)
    topic = "$replay/@board;from=earliest;prefetch=40/s/#"
    async with broker_of(tmp_path) as broker:
        await fill(broker, *[f"s/{number}" for number in range(600)])
        found: list[int] = []
        async with peer_of(broker) as peer:
            await reading(peer, topic, "live", client_id="c1", username="anna")
            queue = broker.registry().subscribers["c1"].queue
            waiting: list[int] = []
            live = 0
            while len(found) < 500:
                row = await row_of(peer)
                assert row.packet_id
                assert row.packet_id not in waiting
                waiting.append(row.packet_id)
                if row.topic == "live":
                    live += 1
                else:
                    found.append(int(row.payload[2:]))
                assert len(queue.inflight) >= len(waiting)
                if random.random() < 0.05:
                    await fill(broker, "live")
                if len(waiting) == 40 or random.random() < 0.1:
                    if random.random() < 0.3:
                        random.shuffle(waiting)
                    peer.send(*[mqtt.puback_packet(each) for each in waiting])
                    waiting.clear()
        assert live
        await until(lambda: not readers(broker).by_number)
        # Nothing of it is left but what is the session's.
        rest = queue.inflight.content()
        assert {each.message.topic for each in rest} <= {b"live"}
        assert queue.inflight_bytes == sum(each.message.length() for each in rest)
    assert found == [*range(500)]


async def test_a_cursor_goes_on_behind_what_was_acknowledged(tmp_path: Path) -> None:
    topic = "$replay/@board;from=earliest/s/#"
    async with broker_of(tmp_path) as broker:
        await fill(broker, *[f"s/{number}" for number in range(4)])
        async with peer_of(broker) as peer:
            await reading(peer, topic, client_id="c1", username="anna")
            assert [await payload_of(peer) for _ in range(2)] == ["s/0", "s/1"]
            assert await payload_of(peer, acknowledge=False) == "s/2"
            peer.send(b"\xc0\x00")
            # Its acknowledgements have come when this answer comes; s/3 is on its way before it.
            assert (await row_of(peer)).payload == b"s/3"
            await peer.expect(b"\xd0\x00")
    async with broker_of(tmp_path) as broker:
        async with peer_of(broker) as peer:  # another client id: the cursor is the user's
            await reading(peer, topic, client_id="c2", username="anna")
            assert [await payload_of(peer) for _ in range(2)] == ["s/2", "s/3"]
        async with peer_of(broker) as peer:
            await reading(peer, "$replay/@board;from=earliest/s/+", client_id="c2", username="anna")
            assert await payload_of(peer) == "s/0"  # of another filter: another cursor
        async with peer_of(broker) as peer:
            await reading(peer, topic, client_id="c2", username="ben")
            assert await payload_of(peer) == "s/0"


async def test_a_cursor_is_one_clients(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    topic = "$replay/@board;from=earliest;prefetch=1/s/#"
    async with broker_of(tmp_path) as broker, peer_of(broker) as first, peer_of(broker) as second:
        await fill(broker, "s/0", "s/1", "s/2")
        await reading(first, topic, client_id="c1", username="anna")
        assert await payload_of(first) == "s/0"
        assert await payload_of(first, acknowledge=False) == "s/1"
        await reading(second, topic, client_id="c2", username="anna")
        assert [await payload_of(second) for _ in range(2)] == ["s/1", "s/2"]
        assert "another client goes on with its cursor" in caplog.text
        await fill(broker, "s/3")
        assert await payload_of(second) == "s/3"


@pytest.mark.parametrize("qos", [0, 1])
async def test_a_durable_session_goes_on_where_it_was(tmp_path: Path, qos: int) -> None:
    topic = "$replay/earliest/s/#"
    async with broker_of(tmp_path) as broker:
        await fill(broker, "s/0", "s/1")
        async with peer_of(broker) as peer:
            await reading(peer, topic, qos=qos, clean=False)
            assert [await payload_of(peer) for _ in range(2)] == ["s/0", "s/1"]
            peer.send(b"\xe0\x00")
            assert await peer.rest() == b""
        await fill(broker, "s/2")
        async with peer_of(broker) as peer:
            assert (await peer.connect("r", clean=False)).body[0] == 1
            assert await payload_of(peer) == "s/2"
            await subscribe(peer, topic, qos=qos)  # the same again
            await fill(broker, "s/3")
            assert await payload_of(peer) == "s/3"
            await peer.ask(mqtt.unsubscribe_packet(7, topic), b"\xb0\x02\x00\x07")
            await subscribe(peer, topic, qos=qos)
            assert await payload_of(peer) == "s/0"


async def test_the_rights_of_its_filter_are_asked_with_the_history(tmp_path: Path) -> None:
    seen: list[Subscription] = []

    def judge(_user: str | None, _who: object, wanted: list[Subscription]) -> Any:
        seen.extend(wanted)
        return [
            Subscription(each.topic_filter, REFUSED_QOS if each.history == "earliest" else each.qos)
            for each in wanted
        ]

    async with broker_of(tmp_path) as broker, peer_of(broker) as peer:
        broker.parts.core.hooks.auth_on_subscribe = ChainOfOne(judge)
        await peer.connect("r")
        peer.send(
            mqtt.subscribe_packet(
                1, ("$replay/earliest;as=x/s/#", 1), ("$replay/-1h/s/1", 1), ("s/2", 0)
            )
        )
        await peer.expect(b"\x90\x05\x00\x01\x80\x01\x00")
        assert seen == [
            Subscription("s/#", 1, "", "earliest"),
            Subscription("s/1", 1, "", "-1h"),
            Subscription("s/2", 0),
        ]


class ChainOfOne:
    """As `SubscribeChain` has plugins see things."""

    def __init__(self, judge: Any) -> None:
        self.judge = judge

    def __call__(self, user: str | None, who: object, wanted: list[Subscription]) -> Any:
        seen = [_seen(each) for each in wanted]
        return _as_wanted(Granted(self.judge(user, who, seen)), seen, wanted)


async def test_rights_that_are_taken_away_end_it(tmp_path: Path) -> None:
    async with broker_of(tmp_path) as broker, peer_of(broker) as peer:
        await reading(peer, "$replay/earliest/s/#")
        assert len(readers(broker).by_number) == 1
        broker.parts.core.hooks.auth_on_subscribe = lambda *_: Refuse("no more")
        assert await reauthorize(broker.registries, None) == 1
        assert not readers(broker).by_number


@pytest.mark.parametrize("qos", [0, 1])
async def test_plugins_change_and_keep_back_what_is_delivered(tmp_path: Path, qos: int) -> None:
    def change(_user: str | None, _who: object, message: Message) -> Any:
        if message.topic == "s/2":
            return Refuse("not this")
        return DeliverModifiers(payload=message.payload.upper())

    async with broker_of(tmp_path) as broker, peer_of(broker) as peer:
        await fill(broker, "s/1", "s/2", "s/3")
        broker.parts.core.hooks.on_deliver = change
        await reading(peer, "$replay/@x;from=earliest/s/#", qos=qos)
        assert [await payload_of(peer) for _ in range(2)] == ["S/1", "S/3"]
        (replay,) = readers(broker).by_number.values()
        await until(lambda: replay.sender.positions() == {0: 3})


async def test_it_is_paced_by_its_socket(tmp_path: Path) -> None:
    """However much there is, no more of it is in memory than is read ahead, and others are served."""
    size, many = 50_000, 400
    async with (
        broker_of(tmp_path) as broker,
        peer_of(broker) as slow,
        session_of(broker, "o") as other,
    ):
        for number in range(many):
            other.send(mqtt.publish_packet("s/x", number.to_bytes(4, "big") + bytes(size)))
        await other.ask(b"\xc0\x00", b"\xd0\x00")
        await streams_of(broker).commits.wait()
        (partition,) = streams_of(broker).catalog.get("s").partitions
        assert partition.end == many
        await reading(slow, "$replay/earliest/s/#", qos=0)
        (replay,) = readers(broker).by_number.values()
        output: Any = replay.queue.output
        await until(lambda: bool(output.blocked))
        await until(lambda: not replay.is_reading)
        assert replay.sender.size < 3 << 20
        assert output.transport.get_write_buffer_size() < 1 << 20
        await other.ask(b"\xc0\x00", b"\xd0\x00")
        async with asyncio.timeout(60):
            for number in range(many):
                row = await row_of(slow)
                assert row.qos == 0
                assert int.from_bytes(row.payload[:4], "big") == number


async def test_many_partitions_and_what_is_appended_meanwhile(tmp_path: Path) -> None:
    """Every row once, in the order of its partition, under load."""
    many = 3000
    stream = options(filters=["s/#"], partitions=4, key="topic")
    async with (
        broker_of(tmp_path, s=stream) as broker,
        peer_of(broker) as peer,
        peer_of(broker) as publisher,
    ):
        await publisher.connect("p")

        async def publish(numbers: range) -> None:
            for number in numbers:
                publisher.send(mqtt.publish_packet(f"s/{number % 8}", b"%d" % number))
                if number % 100 == 0:
                    await publisher.writer.drain()
                    await asyncio.sleep(0)

        await publish(range(many // 3))
        await reading(peer, "$replay/earliest/s/#")
        sending = asyncio.create_task(publish(range(many // 3, many)))
        found: dict[int, list[int]] = {each: [] for each in range(8)}
        for _ in range(many):
            row = await row_of(peer)
            peer.send(mqtt.puback_packet(row.packet_id))
            found[int(row.topic[2:])].append(int(row.payload))
        await sending
        assert found == {each: list(range(each, many, 8)) for each in range(8)}


async def test_figures(tmp_path: Path) -> None:
    async with broker_of(tmp_path) as broker, peer_of(broker) as peer:
        await fill(broker, "s/1", "s/2")
        await reading(peer, "$replay/earliest/s/#")
        assert [await payload_of(peer) for _ in range(2)] == ["s/1", "s/2"]
        found = {each.name: each.samples[0].value for each in readers(broker).families()}
        assert found["stream_replays"] == 1
        assert found["stream_replay_messages"] == 2
        assert found["stream_replay_lost"] == found["stream_replay_unfit"] == 0


async def test_others_are_not_kept_waiting_for_it(tmp_path: Path) -> None:
    """Its threads give way to the event loop, and what it acknowledges at once is handled in several passes.

    That is: what it acknowledges in another order than that in which it came, each by itself.
    """
    topics = [f"s/{number}" for number in range(900)]
    async with broker_of(tmp_path) as broker:
        tid = readers(broker).threads.submit(threading.get_native_id).result()
        own = os.getpriority(os.PRIO_PROCESS, 0)
        assert os.getpriority(os.PRIO_PROCESS, tid) == min(own + module.NICENESS, 19)
        await fill(broker, *topics)
        async with peer_of(broker) as peer:
            await reading(peer, "$replay/earliest/s/#")
            ids = [(await row_of(peer)).packet_id for _ in topics]
            counters = broker.parts.core.counters
            connection = next(iter(broker.parts.connections))
            connection.data_received(
                b"".join(mqtt.puback_packet(each or 0) for each in reversed(ids))
            )
            assert 0 < counters.mqtt_puback_received < len(topics)
            await until(lambda: counters.mqtt_puback_received == len(topics))


async def test_its_threads_do_not_keep_the_interpreter(tmp_path: Path) -> None:
    """Nor without a listener of Flight, which has threads of its own."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(10 * SWITCH_INTERVAL)
    try:
        async with broker_of(tmp_path) as broker, peer_of(broker) as peer:
            assert sys.getswitchinterval() > SWITCH_INTERVAL
            await reading(peer, "$replay/earliest/s/#")
            assert sys.getswitchinterval() == pytest.approx(SWITCH_INTERVAL)
    finally:
        sys.setswitchinterval(before)
