"""Retained messages that come to a subscriber though the node that publishes them does not know of it yet."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, cast

import pytest

from tests.support import wire as mqtt
from tests.vmq.clustering.house import house
from tests.vmq.clustering.routing.test_routing import Three
from tests.vmq.sockets import session_of
from tests.vmq.support import Client
from vmq.clustering.directory.records import RETAINED
from vmq.clustering.routing.late_retained import AFTER, LateRetained
from vmq.core.hook_sites import Pending
from vmq_cluster.clocks import Dot, NodeClock


class Late:
    """Node b; what others say of its subscriptions is for the test to say. Names stand for incarnations."""

    def __init__(self, three: Three) -> None:
        self.is_alone = False
        self.waits: list[Pending] = []
        self.later: list[tuple[float, Callable[[], None]]] = []
        self.node = three.b.node
        self.machine = self.metadata = self
        me = cast("Any", self)
        three.b.retained.late = LateRetained(me, me, three.b.directory, self.call_later)

    def call_later(self, seconds: float, then: Callable[[], None]) -> None:
        self.later.append((seconds, then))

    def dots(self, prefix: str, keys: Iterable[bytes]) -> list[Dot]:
        stamps = [self.node.stamps[prefix, each] for each in keys]
        return [(ord(name), time) for time, name in stamps]

    def own_dots(self) -> NodeClock:
        return NodeClock({ord("b"): [1, 100]})

    def wait(self, keys: Callable[[], Iterable[bytes]], kind: str) -> Pending | None:
        assert kind == "news"
        self.waits.append(Pending(lambda: None))
        return None if self.is_alone else self.waits[-1]

    def hear(self, **times: int) -> None:
        """All route to the subscriptions; what these had written up to a time has come."""
        [wait] = self.waits
        wait.finish(NodeClock({ord(name): [1, time + 1] for name, time in times.items()}))


@pytest.fixture
def late(three: Three) -> Late:
    three.settle()
    return Late(three)


def got(client: Client) -> list[tuple[str, bytes, bool]]:
    return [(each.topic, each.payload, each.retain) for each in client.take()]


def test_what_a_node_publishes_that_does_not_route_to_a_subscriber_yet_comes_as_retained(
    three: Three, late: Late
) -> None:
    publisher = three.a.house.client("p")
    publisher.publish("t/1", b"off", retain=True)
    three.settle()
    client = three.b.house.subscriber("c", ("t/#", 1), ("t/1", 0), ("$share/g/t/#", 0))
    client.take()
    publisher.publish("t/1", b"on", 1, retain=True)
    publisher.publish("u/1", b"on", 1, retain=True)
    three.settle()
    assert got(client) == []
    late.hear(a=three.a.node.time, c=0)
    assert got(client) == [("t/1", b"on", True)]


def test_what_comes_live_does_not_come_twice(three: Three, late: Late) -> None:
    client = three.b.house.subscriber("c", ("#", 1))
    three.settle()
    known_at = three.a.node.time
    three.a.house.client("p").publish("t/1", b"on", 1, retain=True)
    three.settle()
    three.c.house.client("q").publish("t/2", b"on", 1, retain=True)
    three.settle()
    three.b.house.client("here").publish("t/2", b"own", 1, retain=True)
    three.settle()
    late.hear(a=known_at)
    wanted = [("t/1", b"on", False), ("t/2", b"on", False), ("t/2", b"own", False)]
    assert got(client) == wanted
    assert not late.later, "nothing is kept of it"


def test_the_last_value_that_comes_is_the_one_that_stays(three: Three, late: Late) -> None:
    """What comes late may come behind what is newer, which came live: so that comes once more."""
    client = three.b.house.subscriber("c", ("t/#", 1))
    publisher = three.a.house.client("p")
    written: list[list[Any]] = []
    for payload in (b"1", b"2"):
        publisher.publish("t/1", payload, 1, retain=True)
        three.a.end_pass()
        written.append(three.a.node.written)
        three.a.node.written = []
        three.b.end_pass()
        three.a.node.hear(*three.b.node.written)
    three.settle()
    older, newer = written
    three.b.node.hear(*older)
    prefix, key, _, stamp = older[-1]
    assert prefix == RETAINED
    late.hear(a=stamp[0])
    three.b.node.hear(*newer)
    assert got(client) == [("t/1", b"2", False), ("t/1", b"1", True), ("t/1", b"2", True)]
    publisher.publish("t/2", b"x", 1, retain=True)
    three.settle()
    assert got(client) == [("t/2", b"x", False)], "others come live"
    [(seconds, then)] = late.later
    assert seconds == AFTER
    then()
    three.b.node.hear((prefix, key, b"\x003"))
    assert got(client) == []


def test_what_is_erased_late_comes_as_it_does_to_others(three: Three, late: Late) -> None:
    publisher = three.a.house.client("p")
    publisher.publish("t/1", b"on", 1, retain=True)
    three.settle()
    client = three.b.house.subscriber("c", ("t/#", 1))
    publisher.publish("t/1", b"", 1, retain=True)
    publisher.publish("t/2", b"", 1, retain=True)
    three.settle()
    late.hear(a=three.a.node.time)
    assert got(client) == [("t/1", b"on", True), ("t/1", b"", False)]


@pytest.mark.parametrize("how", ["unsubscribed", "gone", "alone"])
def test_who_is_not_subscribed_or_alone_gets_nothing(three: Three, late: Late, how: str) -> None:
    late.is_alone = how == "alone"
    client = three.b.house.subscriber("c", ("t/#", 1))
    if how == "unsubscribed":
        client.unsubscribe("t/#")
    elif how == "gone":
        client.disconnect()
        client = three.b.house.client("c")
    client.take()
    three.a.house.client("p").publish("t/1", b"on", 1, retain=True)
    three.settle()
    late.hear(a=three.a.node.time)
    assert got(client) == []


@pytest.mark.parametrize("clean", [True, False])
async def test_two_nodes_lose_no_value_while_clients_subscribe(tmp_path: Path, clean: bool) -> None:
    """The PUBLISH is sent at one node in the moment in which the SUBSCRIBE is at the other."""
    async with house(tmp_path, "ab") as nodes:
        a, b = nodes["a"], nodes["b"]
        for topic in map(str, range(10)):
            async with session_of(a, "p") as publisher, session_of(b, "c", clean=clean) as client:
                client.send(mqtt.subscribe_packet(1, (topic, 1)))
                publisher.send(mqtt.publish_packet(topic, b"on", qos=1, packet_id=1, retain=True))
                while (await client.packet()).type != mqtt.PUBLISH:
                    pass
