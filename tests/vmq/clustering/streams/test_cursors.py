"""Cursors of readers of history are the cluster's: who comes to another node goes on there."""

from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from tests.support import wire as mqtt
from tests.support.until import until
from tests.vmq.clustering.nodes import clustering
from tests.vmq.clustering.stream_nodes import kept, nodes, with_streams
from tests.vmq.sockets import peer_of
from tests.vmq.streamed import streams_of
from tests.vmq.streams.replay.test_port import payload_of, reading
from tests.vmq.streams.support import options
from vmq.broker import Broker
from vmq.clustering.streams import cursors as module
from vmq.clustering.streams.cursors import SharedCursor, furthest
from vmq.streams.replay import cursors as limits
from vmq_cluster.keyed_records import decode

STREAM = options(filters=["s/#"], partitions=1)
BOARD = "$replay/@board;from=earliest/s/#"
#: Without it the rows between two visits would be missing.
NEWS = "$replay/@board/s/#"


async def publish(broker: Broker, *numbers: int) -> None:
    for number in numbers:
        await broker.publish(f"s/{number}", b"%d" % number, qos=1)


async def take(broker: Broker, topic: str, *numbers: int) -> None:
    """A client reads so many messages, acknowledges them and disconnects."""
    async with peer_of(broker) as peer:
        await reading(peer, topic, username="anna")
        assert [await payload_of(peer) for _ in numbers] == list(map(str, numbers))
        peer.send(b"\xe0\x00")
        await peer.rest()


def position(broker: Broker) -> int:
    """As a node knows it, of the one cursor that there is."""
    node = clustering(broker).node
    found = [decode(value, SharedCursor) for _, value in node.items(module.CURSORS)]
    return sum(sum(each.positions.values()) for each in found if each is not None)


async def test_a_reader_goes_on_at_any_node(tmp_path: Path) -> None:
    async with nodes(tmp_path, "a", "b", "c", s=STREAM) as brokers:
        a, b, c = brokers
        await publish(a, 0, 1, 2)
        await take(a, BOARD, 0, 1)
        await until(lambda: position(b) == 2)
        await take(b, BOARD, 2)
        await publish(c, 3, 4)  # while nobody reads
        await until(lambda: position(c) == 3)
        await take(c, BOARD, 3)
        await until(lambda: position(a) == 4)
        await take(a, BOARD, 4)  # what a kept itself is older


async def test_news_are_not_passed_over_by_who_comes_to_another_node(tmp_path: Path) -> None:
    async with nodes(tmp_path, "a", "b", s=STREAM) as (a, b):
        await publish(a, 0)
        await until(lambda: kept([a, b], "s") == 1)
        async with peer_of(a) as peer:
            await reading(peer, NEWS, username="anna")
            await until(lambda: position(b) == 1)  # it begins behind what is there
        await publish(a, 1, 2)
        await take(b, NEWS, 1, 2)


async def test_a_cursor_is_one_clients_of_the_cluster(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    topic = "$replay/@board;from=earliest;prefetch=1/s/#"
    async with nodes(tmp_path, "a", "b", s=STREAM) as (a, b), AsyncExitStack() as stack:
        first, second = [await stack.enter_async_context(peer_of(each)) for each in (a, b)]
        await publish(a, 0, 1, 2)
        await reading(first, topic, client_id="c1", username="anna")
        assert await payload_of(first) == "0"
        assert await payload_of(first, acknowledge=False) == "1"
        await until(lambda: position(b) == 1)
        await reading(second, topic, client_id="c2", username="anna")
        assert [await payload_of(second) for _ in range(2)] == ["1", "2"]
        await until(lambda: "goes on with its cursor, at node b" in caplog.text)
        assert not streams_of(a).readers.by_number
        await publish(a, 3)
        assert await payload_of(second) == "3"
        await until(lambda: position(a) == 4)


async def test_a_node_that_has_lost_its_disk_has_what_it_told_the_others(tmp_path: Path) -> None:
    async with nodes(tmp_path, "a", "b", s=STREAM) as (a, b):
        await publish(b, 0, 1)
        await take(a, BOARD, 0)
        await until(lambda: position(b) == 1)
        keeping = streams_of(a).readers.keeping
        for key, _, _ in await keeping.listed(""):
            await keeping.forget(key)
        await take(a, BOARD, 1)


async def test_a_node_that_joins_brings_its_cursors(tmp_path: Path) -> None:
    async with Broker(with_streams(tmp_path, "b", s=STREAM)) as alone:
        await publish(alone, 0, 1)
        async with peer_of(alone) as peer:
            await reading(peer, BOARD, username="anna")
            assert await payload_of(peer) == "0"
            await until(lambda: position(alone) == 1)
        node = clustering(alone).node
        [(key, _)] = node.items(module.CURSORS)
        node.delete(module.CURSORS, key)  # as before it was
    async with Broker(with_streams(tmp_path, "b", s=STREAM)) as again:
        await until(lambda: position(again) == 1)


async def test_a_durable_session_goes_on_at_another_node(tmp_path: Path) -> None:
    topic = "$replay/earliest/s/#"
    async with nodes(tmp_path, "a", "b", s=STREAM) as (a, b):
        await publish(a, 0, 1)
        async with peer_of(a) as peer:
            await reading(peer, topic, clean=False)
            assert [await payload_of(peer) for _ in range(2)] == ["0", "1"]
            peer.send(b"\xe0\x00")
            await peer.rest()
        await publish(a, 2)
        await until(lambda: position(b) == 2)
        async with peer_of(b) as peer:
            assert (await peer.connect("r", clean=False)).body[0] == 1
            assert await payload_of(peer) == "2"
            await peer.ask(mqtt.unsubscribe_packet(7, topic), b"\xb0\x02\x00\x07")
        # Of what is read no more nothing is left, at any node.
        await until(lambda: position(a) == 0 and not list(clustering(a).node.items(module.CURSORS)))
        async with peer_of(a) as peer:
            assert (await peer.connect("r", clean=False)).body[0] == 1
            await peer.ask(mqtt.subscribe_packet(1, (topic, 1)), b"\x90\x03\x00\x01\x01")
            assert await payload_of(peer) == "0"


async def test_nobody_has_more_of_them_by_going_to_other_nodes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with nodes(tmp_path, "a", "b", s=STREAM) as (a, b):
        await publish(a, 0)
        await take(a, BOARD, 0)
        await until(lambda: position(b) == 1)
        monkeypatch.setattr(limits, "MOST", 1)
        async with peer_of(b) as peer:
            await reading(peer, "$replay/@other;from=earliest/s/#", username="anna", code=128)
        async with peer_of(b) as peer:
            await reading(peer, BOARD, username="anna")
        assert "1 cursors are kept for this user already" in caplog.text


async def test_those_that_nobody_uses_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with nodes(tmp_path, "a", "b", s=STREAM) as (a, _):
        await publish(a, 0)
        await take(a, BOARD, 0)
        shared = streams_of(a).catalog.cursors
        assert shared is not None
        shared.sweep()
        assert position(a) == 1
        monkeypatch.setattr(module, "KEPT", -10)
        shared.sweep()
        assert not list(clustering(a).node.items(module.CURSORS))


def test_of_two_words_the_later_readers_counts_and_nothing_acknowledged_comes_again() -> None:
    one = SharedCursor("s", {0: 7, 1: 2}, "a", 10, 100)
    other = SharedCursor("s", {1: 5, 2: 1}, "b", 20, 90)
    found = SharedCursor("s", {0: 7, 1: 5, 2: 1}, "b", 20, 100)
    assert furthest(one, other) == furthest(other, one) == found
    elsewhere = SharedCursor("t", {0: 1}, "c", 30, 1)
    assert furthest(one, elsewhere) == furthest(elsewhere, one) == elsewhere
