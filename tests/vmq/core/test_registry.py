"""Who is registered, and what a publish does, beyond what tests/conformance asks a broker."""

import pytest

from tests.support.wire import SUBACK, subscribe_packet
from tests.vmq.support import House
from vmq.core.context import CHANGED, CLAIMED, ENDED
from vmq.core.ports import Elsewhere, RemoteTargets, RetainedListener, SessionListener
from vmq.core.registry import Registry
from vmq.core.source import Source
from vmq.core.subscriber import Subscriber
from vmq.core.trie import Route
from vmq.mqtt.message import Message


def test_sessions_expire_when_they_were_away_too_long(durable: House) -> None:
    durable.options.persistent_client_expiration = 100.0
    for name, wait in (("first", 30), ("second", 30), ("stays", 0)):
        client = durable.subscriber(name, ("a", 1), clean=False)
        if name != "stays":
            client.disconnect()
        durable.pass_time(wait)
    assert durable.expired_after(39) == 0
    assert durable.expired_after(1) == 1
    assert set(durable.registry.subscribers) == {"second", "stays"}
    assert durable.expired_after(10_000) == 1
    assert set(durable.registry.subscribers) == {"stays"}


def test_who_came_back_does_not_expire(durable: House) -> None:
    durable.options.persistent_client_expiration = 10.0
    durable.client("c", clean=False).disconnect()
    durable.pass_time(9)
    client = durable.client("c", clean=False)
    assert durable.expired_after(9) == 0
    client.disconnect()
    assert durable.expired_after(9) == 0
    assert durable.expired_after(1) == 1


def test_who_may_stay_is_not_looked_through(durable: House) -> None:
    durable.options.persistent_client_expiration = 10.0
    for name in ("over", "stays", "behind"):
        durable.client(name, clean=False).disconnect()
        durable.pass_time(4)
    durable.registry.offline["behind"] = 0  # who is found all the same was looked for
    assert durable.expired_after(0) == 1


def test_by_default_nothing_expires(durable: House) -> None:
    durable.client("c", clean=False).disconnect()
    assert durable.expired_after(1e9) == 0


def test_the_time_away_is_counted_across_restarts(durable: House) -> None:
    durable.options.persistent_client_expiration = 10.0
    durable.client("left", clean=False).disconnect()
    durable.client("there", clean=False)
    durable.pass_time(6)
    durable.restart()
    assert durable.registry.offline["left"] < durable.registry.offline["there"]
    assert durable.expired_after(5) == 1
    assert set(durable.registry.subscribers) == {"there"}


def test_an_expired_session_is_gone_from_the_store(durable: House) -> None:
    durable.options.persistent_client_expiration = 10.0
    client = durable.subscriber("c", ("a", 1), clean=False)
    number = client.queue.session
    client.disconnect()
    assert durable.expired_after(11) == 1
    durable.settle()
    assert durable.purged == [number]
    durable.restart()
    assert durable.registry.subscribers == {}


def test_a_message_for_several_durable_sessions_is_marked_for_a_record_of_its_own(
    durable: House,
) -> None:
    for name in ("one", "two"):
        durable.client(name, clean=False).subscribe(("a", 1))
        durable.client(name, clean=False).subscribe(("a/" + name, 1))
    assert durable.publish("a", b"1", 1).share
    assert not durable.publish("a/one", b"1", 1).share
    assert not durable.publish("a", b"1", 0).share


def test_a_cluster_hears_of_every_session_and_of_each_change(durable: House) -> None:
    heard: list[tuple[int, str, list[str]]] = []
    changed: list[str] = []

    class Listener(SessionListener):
        def on_subscriber(
            self, event: int, registry: Registry, subscriber: Subscriber, topic_filter: str
        ) -> None:
            assert registry is durable.registry
            heard.append((event, subscriber.client_id, list(subscriber.subscriptions)))
            if event == CHANGED:
                changed.append(topic_filter)

    durable.core.sessions = Listener()
    client = durable.subscriber("c", ("t", 1), ("u", 0), clean=False)
    client.unsubscribe("t", "unknown")
    client.disconnect()
    assert changed == ["t", "u", "t"]
    durable.client("c")  # ends the durable session
    durable.client("c").disconnect()  # ends the first one, and its own
    assert heard == [
        (CLAIMED, "c", []),
        (CHANGED, "c", ["t"]),
        (CHANGED, "c", ["t", "u"]),
        (CHANGED, "c", ["u"]),
        (ENDED, "c", []),
        (CLAIMED, "c", []),
        (ENDED, "c", []),
        (CLAIMED, "c", []),
        (ENDED, "c", []),
    ]


def test_a_publish_goes_to_other_nodes_only_where_its_route_does(house: House) -> None:
    sent: list[tuple[str, list[object], object]] = []
    core = house.core

    class Targets(RemoteTargets):
        def complete(self, route: Route) -> None:
            if route.text == "far":
                route.nodes = ["b"]
                route.remote_copies += 1

    class Nodes(Elsewhere):
        def targets(self, mountpoint: str) -> RemoteTargets:
            return Targets()

        def forward(
            self, registry: Registry, route: Route, message: Message, source: Source
        ) -> None:
            sent.append((registry.mountpoint, route.nodes, message.payload))

        def forward_run(self, mountpoint: str, route: Route, frames: bytes, count: int) -> None:
            sent.append((mountpoint, route.nodes, (frames, count)))

    core.elsewhere = Nodes()
    registry = Registry(core, house.on_wake, house.purged.append, "m")
    for topic in ("near", "far"):
        route = registry.route(topic.encode())
        registry.publish(route, Message(route.topic, b"1", 1, False), core.nobody)
    assert sent == [("m", ["b"], b"1")]
    # What goes to other nodes no more is forgotten when the route is resolved again.
    assert registry.route(b"far").is_stored()
    registry.trie.remote = RemoteTargets()
    registry.trie.generation += 1
    assert registry.route(b"far").nodes == []
    assert not registry.route(b"far").is_stored()


@pytest.mark.parametrize(
    ("topic_filter", "code"),
    [("+/+", 1), ("+/a/+/#", 1), ("+/+/+", 0x80), ("$share/g/+/+", 1), ("$share/g/+/+/+", 0x80)],
)
def test_the_plus_of_a_filter_can_be_bounded(topic_filter: str, code: int, house: House) -> None:
    house.options.topic_max_plus = 2
    client = house.client("c")
    client.send(subscribe_packet(1, (topic_filter, 1)))
    assert client.take_one(SUBACK).codes == [code]
    assert house.core.counters.subscriptions_refused == (code > 2)


def test_the_plus_of_a_filter_is_not_bounded_by_default() -> None:
    client = House().client("c")
    client.send(subscribe_packet(1, ("/".join("+" * 100), 1)))
    assert client.take_one(SUBACK).codes == [1]


class RetainedTold(RetainedListener):
    """What other nodes are told of."""

    def __init__(self) -> None:
        super().__init__()
        self.payloads: list[bytes] = []

    def on_retained(self, registry: Registry, message: Message) -> None:
        self.payloads.append(message.payload)


def test_a_retained_message_that_finds_no_room_leaves_no_older_one(house: House) -> None:
    """A value that is not the last one is worse than none [MQTT-3.3.1-5]."""
    house.core.retained_listener = told = RetainedTold()
    house.options.max_retained_bytes = 1000
    for payload in (b"old", bytes(2000), bytes(2000)):
        house.publish("t", payload, retain=True)
    assert house.retained() == {}
    assert told.payloads == [b"old", b""]
