"""Routes between nodes: where publishes go, once each, and what comes of those that arrive."""

from contextlib import ExitStack
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.until import until
from tests.support.wire import PUBACK, Will, publish_packet
from tests.vmq.clustering.fakes import Member, cluster, settle
from tests.vmq.clustering.nodes import address, clustering, config, together
from tests.vmq.mqtt.strategies import ANY_FILTER, TOPICS
from vmq.broker import Broker
from vmq.clustering.messages.publishes import RemotePublish, RemotePublishRun, flags_of
from vmq.core.ports import StreamFinder
from vmq.mqtt.topics import matches


class Three:
    """Nodes `a`, `b` and `c`."""

    def __init__(self, folder: Path | None = None) -> None:
        """With stores below a folder, if there is one."""
        self.a, self.b, self.c = self.all = tuple(
            Member(name, None if folder is None else folder / name) for name in "abc"
        )
        cluster(*self.all)

    def settle(self) -> None:
        settle(*self.all)


@pytest.mark.parametrize("qos", (0, 1, 2))
def test_a_publish_reaches_every_subscriber_of_every_node_once(three: Three, qos: int) -> None:
    readers = [
        member.house.client(f"{member.name}{number}") for member in three.all for number in (1, 2)
    ]
    for reader in readers:
        reader.subscribe(("t/#", 2))
    three.settle()
    three.a.house.publish("t/1", b"x", qos)
    assert [peer for peer, _, _ in three.a.outboxes.sent] == ["b", "c"]
    three.settle()
    for reader in readers:
        [packet] = reader.take()
        assert (packet.topic, packet.payload, packet.qos) == ("t/1", b"x", qos)
    counters = three.a.house.core.counters
    assert (counters.router_matches_local, counters.router_matches_remote) == (2, 2)
    assert three.b.house.core.counters.router_matches_remote == 0


def test_each_message_has_its_own_length_and_qos_wherever_it_was_published(three: Three) -> None:
    reader = three.b.house.subscriber("s", ("t", 2))
    three.settle()
    sent = [(bytes(size), qos) for size in (0, 1, 1, 200, 0) for qos in (1, 2, 0, 1)]
    for at, (payload, qos) in enumerate(sent):
        three.all[at % 3].house.publish("t", payload, qos)
        three.settle()
    assert [(packet.payload, packet.qos) for packet in reader.take()] == sent


def test_what_asks_for_more_than_once_goes_reliably_where_it_is_wanted_so(three: Three) -> None:
    three.b.house.client("quick").subscribe(("t", 0))
    three.c.house.client("sure").subscribe(("t", 1))
    three.settle()
    for qos in (0, 1, 2):
        three.a.house.publish("t", b"x", qos)
    assert [(peer, message.qos, sure) for peer, message, sure in three.a.outboxes.sent] == [
        ("b", 0, False),
        ("c", 0, False),
        ("b", 0, False),
        ("c", 1, True),
        ("b", 0, False),
        ("c", 2, True),
    ]


def test_routes_follow_every_change_of_subscriptions_elsewhere(three: Three) -> None:
    client = three.b.house.client("s")

    def wanted() -> list[tuple[str, int]]:
        three.settle()
        route = three.a.house.registry.route(b"t")
        return [(each.node, each.qos) for each in route.nodes]

    assert wanted() == []
    client.subscribe(("t", 1))
    assert wanted() == [("b", 1)]
    client.subscribe(("+", 2))
    assert wanted() == [("b", 2)]
    client.unsubscribe("+")
    assert wanted() == [("b", 1)]
    other = three.c.house.client("s")  # the id is connected elsewhere, with a session of its own
    assert wanted() == []
    other.subscribe(("t", 0))
    assert wanted() == [("c", 0)]
    other.disconnect()
    assert wanted() == []


def test_what_another_node_gets_is_stored_and_counts_as_a_copy(three: Three) -> None:
    three.b.house.client("s").subscribe(("t", 1))
    three.c.house.client("s2").subscribe(("t", 0))
    three.settle()
    route = three.a.house.registry.route(b"t")
    assert (route.stored_copies, route.remote_copies, route.is_stored()) == (0, 1, True)


def test_nothing_is_sent_to_a_node_that_is_no_member(three: Three) -> None:
    three.b.house.client("s").subscribe(("t", 1))
    three.settle()
    assert three.a.house.registry.route(b"t").nodes
    three.a.routing.set_members(["a", "c"])
    assert not three.a.house.registry.route(b"t").nodes
    three.a.routing.set_members(["a", "b", "c"])
    assert three.a.house.registry.route(b"t").nodes


def test_after_the_end_of_the_node_publishes_stay_here(three: Three) -> None:
    three.b.house.client("s").subscribe(("t", 1))
    three.settle()
    three.a.house.publish("t")
    three.a.outboxes.sent.clear()
    three.a.routing.detach()
    three.a.house.publish("t")
    assert three.a.outboxes.sent == []
    assert not three.a.house.registry.route(b"t").is_stored()


def test_a_run_of_packets_goes_as_the_run_that_it_is(three: Three) -> None:
    reader = three.b.house.subscriber("s", ("t", 2))
    three.settle()
    frames = b"".join(publish_packet("t", b"%d" % number) for number in range(5))
    three.a.house.client("p").send(frames)
    three.a.end_pass()
    assert three.a.outboxes.sent == [("b", RemotePublishRun(b"t", frames, 5), False)]
    three.settle()
    assert reader.take_bytes() == frames
    assert three.a.house.core.counters.router_matches_remote == 5
    assert three.b.house.core.counters.mqtt_publish_sent == 5
    assert three.b.house.core.counters.router_matches_local == 5


def test_a_run_waits_for_a_slow_subscriber_as_messages(three: Three) -> None:
    reader = three.b.house.subscriber("s", ("t", 0))
    three.settle()
    reader.connection.pause_writing()
    frames = b"".join(publish_packet("t", b"%d" % number) for number in range(5))
    three.a.house.client("p").send(frames)
    three.settle()
    assert three.b.house.queue("s").waiting() == 5
    reader.connection.resume_writing()
    assert reader.payloads() == [b"0", b"1", b"2", b"3", b"4"]


def test_a_will_reaches_subscribers_of_other_nodes(three: Three) -> None:
    reader = three.b.house.subscriber("s", ("gone", 1))
    client = three.a.house.client("p", will=Will("gone", b"p", 1))
    three.settle()
    client.connection.connection_lost(None)
    three.settle()
    assert reader.take_published() == [("gone", b"p")]


def test_hooks_see_each_message_that_they_may_rewrite(three: Three) -> None:
    reader = three.b.house.subscriber("s", ("t", 0))
    three.settle()
    seen: list[bytes] = []
    three.b.house.core.hooks.on_deliver = lambda _user, _who, message: seen.append(message.payload)
    three.a.house.client("p").send(publish_packet("t", b"1") + publish_packet("t", b"2"))
    three.settle()
    assert seen == reader.payloads() == [b"1", b"2"]


@pytest.mark.parametrize("topic", [b"a/b/c", b"a/#", b"\xff"])
def test_a_topic_that_is_too_deep_here_or_none_reaches_nobody(
    three: Three, caplog: pytest.LogCaptureFixture, topic: bytes
) -> None:
    three.a.house.options.topic_max_depth = 2
    reader = three.a.house.subscriber("s", ("#", 0))
    three.a.outboxes.handlers[RemotePublish]("b", RemotePublish(topic, b"x", 0))
    reader.expect()
    assert "a publish from b is dropped" in caplog.text


def test_a_topic_tree_that_nobody_uses_here_is_not_made(three: Three) -> None:
    three.a.outboxes.handlers[RemotePublish]("b", RemotePublish(b"t", b"x", 0, "elsewhere"))
    three.a.outboxes.handlers[RemotePublishRun](
        "b", RemotePublishRun(b"t", publish_packet("t", b"x"), 1, "elsewhere")
    )
    assert list(three.a.registries) == [""]


def test_what_comes_from_a_peer_is_not_retained_nor_kept_by_streams(three: Three) -> None:
    house = three.a.house
    reader = house.subscriber("s", ("t", 1))

    class Streams(StreamFinder):
        def appenders(self, topic: str) -> list[object]:
            return [object()]  # would fail if it were used

    house.core.stream_finder = Streams()
    house.registry.routes.resize(100)
    three.a.outboxes.handlers[RemotePublish]("b", RemotePublish(b"t", b"x", flags_of(1, True)))
    house.settle()
    [packet] = reader.take()
    assert (packet.payload, packet.qos, packet.retain) == (b"x", 1, False)
    assert house.retained() == {}


def test_a_publisher_is_acknowledged_when_the_store_has_what_others_get(tmp_path: Path) -> None:
    with ExitStack() as stack:
        a, b = Member("a", tmp_path), Member("b")
        stack.callback(a.house.close)
        cluster(a, b)
        b.house.client("s").subscribe(("t", 1))
        settle(a, b)
        store = a.house.store
        assert store is not None
        a.outboxes.on_send = lambda: store.put(b"spool", b"")  # as the real outboxes do
        publisher = a.house.client("p")
        a.house.patient = True
        publisher.send(publish_packet("t", b"x", qos=1, packet_id=1))
        publisher.expect()
        a.house.settle()
        publisher.take_one(PUBACK)


FILTERS = st.dictionaries(ANY_FILTER, st.integers(0, 2), max_size=4)


@given(FILTERS, FILTERS, st.lists(TOPICS, min_size=1, max_size=4), st.integers(0, 2))
def test_every_node_gets_what_its_subscribers_match_and_nothing_else(
    at_b: dict[str, int], at_c: dict[str, int], topics: list[str], qos: int
) -> None:
    three = Three()
    for member, filters in ((three.b, at_b), (three.c, at_c)):
        if filters:
            member.house.client("s" + member.name).subscribe(*filters.items())
    three.settle()
    for topic in topics:
        three.a.house.publish(topic, b"", qos)
        wanted = []
        for name, filters in (("b", at_b), ("c", at_c)):
            found = [
                asked
                for each, asked in filters.items()
                if not each.startswith("$share/") and matches(each, topic)
            ]
            if found:
                wanted.append((name, bool(qos and max(found))))
        sent = [(peer, sure) for peer, message, sure in three.a.outboxes.sent if not message.group]
        assert sorted(sent) == wanted
        three.a.outboxes.sent.clear()


async def test_a_node_that_joins_routes_to_what_was_subscribed_before(tmp_path: Path) -> None:
    """Through one node to the third, which both reach; with a topic tree of its own."""
    async with Broker(config(tmp_path, "a")) as a, a.subscribe("t", mountpoint="m") as messages:
        b, c = (Broker(config(tmp_path, name, [address(a)])) for name in "bc")
        async with b, c:
            await together(a, b, c)
            for each in (b, c):
                registry = each.registry("m")
                await until(lambda registry=registry: bool(registry.route(b"t").nodes))  # type: ignore[misc]
                await each.publish("t", clustering(each).node.name.encode(), mountpoint="m")
                assert (await anext(messages)).payload == clustering(each).node.name.encode()
                assert not each.registry().route(b"t").nodes
