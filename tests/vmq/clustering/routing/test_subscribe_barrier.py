"""SUBACKs that wait for the cluster: until every node that is up routes, and not for ever."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, cast

import pytest
from msgspec.structs import replace

from tests.support import wire as mqtt
from tests.support.present import present
from tests.support.until import until
from tests.vmq.clustering.device import Device
from tests.vmq.clustering.fakes import FakeLanes
from tests.vmq.clustering.nodes import address, clustering, config, together
from tests.vmq.support import Clock, House
from vmq.broker import Broker
from vmq.clustering.messages.barrier import BarrierReached, BarrierRequest
from vmq.clustering.routing.subscribe_barrier import AGAIN_AFTER, Kind, SubscribeBarrier
from vmq.core.hook_sites import Pending
from vmq.core.ports import Propagation
from vmq.mqtt.message import Message
from vmq_cluster.clocks import Dot, NodeClock
from vmq_cluster.effects import Changed, Resumed

LIMIT = 5.0
WRITTEN = {8: [1, 4]}


class ClockNode:
    """A node of which nothing but its dots and its members count."""

    def __init__(self) -> None:
        self.is_running = True
        self.machine = self.metadata = self
        self.name = "own"
        self.members = {"own": "", "x": "", "y": ""}
        self.clock = NodeClock()
        self.watchers: list[Callable[[list[Changed]], None]] = []
        self.resumed: Callable[[Any], None] = lambda _: None

    def on(self, _kind: type, callback: Callable[[Any], None]) -> None:
        self.resumed = callback

    def watch_steps(self, _prefix: str, callback: Callable[[list[Changed]], None]) -> None:
        self.watchers.append(callback)

    def dots(self, _prefix: str, keys: Iterable[bytes]) -> list[Dot]:
        return [(7, int(key)) for key in keys]

    def has_seen(self, dots: NodeClock) -> bool:
        return self.clock.dominates(dots)

    def own_dots(self) -> NodeClock:
        return NodeClock(WRITTEN)

    def see(self, *counters: int) -> None:
        for each in counters:
            self.clock.add((7, each))
        for watcher in self.watchers:
            watcher([])


class Side:
    """The fences of one node; what it sends waits in `lanes.sent`."""

    def __init__(self) -> None:
        self.node = ClockNode()
        self.outboxes = FakeLanes()
        self.clock = Clock(100.0)
        self.soon: list[Callable[[], None]] = []
        self.later: list[tuple[float, Callable[[], None]]] = []
        self.flushed = 0
        self.done: list[str] = []
        self.fencing = SubscribeBarrier(
            cast("Any", self.node),
            cast("Any", self.outboxes),
            [self.flush],
            LIMIT,
            self.clock,
            self.soon.append,
            lambda seconds, callback: self.later.append((self.clock.now + seconds, callback)),
        )

    def flush(self) -> None:
        self.flushed += 1

    def wait(self, name: str, *counters: int, kind: Kind = "hasty") -> Pending | None:
        pending = self.fencing.wait(lambda: [b"%d" % each for each in counters], kind=kind)
        if pending is not None:
            pending.then = lambda heard: self.on_done(name, heard)
        return pending

    def on_done(self, name: str, heard: NodeClock) -> None:
        self.done.append(name)
        self.heard = heard

    def end_pass(self) -> None:
        soon = list(self.soon)
        self.soon.clear()
        for each in soon:
            each()

    def advance(self, seconds: float) -> None:
        self.clock.advance(seconds)
        due = [each for each in self.later if each[0] <= self.clock.now]
        self.later = [each for each in self.later if each not in due]
        for _, callback in due:
            callback()

    def sent(self) -> list[tuple[str, Any]]:
        sent, self.outboxes.sent = self.outboxes.sent, []
        assert not any(reliable for _, _, reliable in sent)
        return [(peer, message) for peer, message, _ in sent]

    def hear(self, peer: str, message: BarrierRequest | BarrierReached) -> None:
        self.outboxes.handlers[type(message)](peer, message)


@pytest.fixture
def side() -> Side:
    return Side()


FENCE = BarrierRequest(1, {7: [3, 5]})


def test_alone_nothing_is_waited_for(side: Side) -> None:
    assert side.wait("c", 3) is None
    assert not side.soon


def test_who_waits_for_news_has_what_others_had_written_when_they_answered(
    side: Side, caplog: pytest.LogCaptureFixture
) -> None:
    side.fencing.set_up(["x", "y"])
    side.wait("c", 3, kind="news")
    side.end_pass()
    side.hear("y", BarrierReached(1))
    side.hear("x", BarrierReached(1, {7: [10, 12]}))
    side.hear("x", BarrierReached(1, {7: [10, 20]}))
    side.node.see(10)
    side.sent()
    side.advance(AGAIN_AFTER)
    assert (side.done, side.sent()) == ([], []), "who has answered is not asked again"
    side.node.clock.add((7, 11))
    side.advance(AGAIN_AFTER)
    assert side.done == ["c"]
    assert side.heard == NodeClock({7: [10, 12]})
    side.wait("d", 4, kind="news")
    side.end_pass()
    side.advance(LIMIT)
    assert (side.done, side.fencing.given_up, caplog.text) == (["c", "d"], 0, "")


def test_one_fence_a_pass_until_all_that_are_up_have_answered(side: Side) -> None:
    side.fencing.set_up(["x", "y"])
    side.wait("c", 3)
    side.wait("d", 4)
    assert side.sent() == []
    side.end_pass()
    assert side.flushed == 1
    assert side.sent() == [("x", FENCE), ("y", FENCE)]
    side.hear("x", BarrierReached(1))
    side.hear("x", BarrierReached(1))
    side.hear("z", BarrierReached(1))
    side.hear("y", BarrierReached(99))
    assert side.done == []
    side.hear("y", BarrierReached(1))
    assert side.done == ["c", "d"]
    side.advance(AGAIN_AFTER)
    assert side.sent() == []
    assert not side.later


def test_who_goes_down_is_no_longer_waited_for(side: Side) -> None:
    side.fencing.set_up(["x", "y"])
    side.wait("c", 3)
    side.end_pass()
    side.hear("x", BarrierReached(1))
    side.fencing.set_up(["x"])
    assert side.done == ["c"]
    assert side.fencing.given_up == 0


def test_who_is_patient_waits_for_every_member_until_it_is_back(side: Side) -> None:
    side.fencing.set_up(["x", "y"])
    side.wait("c", 3, 4, kind="patient")
    side.end_pass()
    side.hear("x", BarrierReached(1))
    side.fencing.set_up(["x"])
    side.sent()
    for _ in range(9):
        side.advance(AGAIN_AFTER)
    assert (side.sent(), side.done) == ([], [])
    side.fencing.set_up(["x", "y"])
    side.advance(AGAIN_AFTER)
    assert side.sent() == [("y", FENCE)]
    side.hear("y", BarrierReached(1))
    assert side.done == ["c"]


def test_who_is_patient_does_not_wait_for_who_is_no_member_any_more(side: Side) -> None:
    side.fencing.set_up(["x"])
    side.wait("c", 3, kind="patient")
    side.end_pass()
    side.hear("x", BarrierReached(1))
    assert side.done == []
    del side.node.members["y"]
    side.advance(AGAIN_AFTER)
    assert side.done == ["c"]
    assert side.fencing.given_up == 0


def test_who_does_not_answer_is_asked_again_and_then_given_up(
    side: Side, caplog: pytest.LogCaptureFixture
) -> None:
    side.fencing.set_up(["x", "y"])
    side.wait("c", 3, 4)
    side.end_pass()
    side.hear("y", BarrierReached(1))
    side.sent()
    for _ in range(4):
        side.advance(AGAIN_AFTER)
        assert side.sent() == [("x", FENCE)]
    assert side.done == []
    side.advance(AGAIN_AFTER)
    assert side.done == ["c"]
    assert side.fencing.given_up == 1
    assert "SUBACK sent before these nodes have the subscriptions: x" in caplog.text


def test_where_the_node_has_failed_nobody_waits_on_but_who_is_patient(side: Side) -> None:
    side.fencing.set_up(["x"])
    side.wait("c", 3)
    side.wait("p", 4, kind="patient")
    side.end_pass()
    side.node.is_running = False
    del side.node.members  # nobody can be asked for them any more
    side.advance(AGAIN_AFTER)
    assert side.done == ["c"]
    assert side.fencing.given_up == 1


def test_who_is_gone_waits_for_nothing(side: Side) -> None:
    side.fencing.set_up(["x"])
    one, two, three = (present(side.wait(name, at)) for name, at in (("c", 3), ("d", 4), ("e", 5)))
    one.cancel()
    side.end_pass()
    assert side.sent() == [("x", BarrierRequest(1, {7: [4, 6]}))]
    two.cancel()
    three.cancel()
    side.hear("x", BarrierReached(1))
    side.advance(AGAIN_AFTER)
    assert side.sent() == []
    assert side.done == []
    present(side.wait("f", 3)).cancel()
    side.end_pass()
    assert side.sent() == []


def test_a_node_that_stopped_keeps_nobody_waiting(side: Side) -> None:
    side.fencing.set_up(["x"])
    side.wait("c", 3)
    side.node.is_running = False
    side.end_pass()
    assert side.done == ["c"]
    side.node.is_running = True
    side.wait("d", 3)
    side.end_pass()
    side.node.is_running = False
    side.advance(AGAIN_AFTER)
    assert side.done == ["c", "d"]


def test_who_is_patient_is_asked_for_when_the_node_goes_on(side: Side) -> None:
    side.fencing.set_up(["x"])
    side.node.is_running = False
    side.wait("c", 3)
    side.wait("p", 4, kind="patient")
    side.end_pass()
    assert side.done == ["c"]
    assert side.sent() == []
    side.node.is_running = True
    side.node.resumed(Resumed())
    assert side.sent() == [("x", BarrierRequest(1, {7: [4, 5]}))]


def test_a_fence_is_answered_once_its_dots_are_seen(side: Side) -> None:
    side.fencing.set_up(["x", "y"])
    side.node.see(1, 2, 3)
    side.hear("x", FENCE)
    side.hear("y", BarrierRequest(8, {7: [3, 4]}))
    assert side.sent() == [("y", BarrierReached(8, WRITTEN))]
    side.node.see(5)
    assert side.sent() == []
    side.node.see(4)
    assert side.sent() == [("x", BarrierReached(1, WRITTEN))]
    side.node.see(6)
    assert side.sent() == []


def test_what_a_node_asked_that_went_down_is_forgotten(side: Side) -> None:
    side.fencing.set_up(["x"])
    side.hear("x", FENCE)
    side.fencing.set_up([])
    side.node.see(3, 4)
    assert side.sent() == []


@pytest.mark.parametrize("runs", [[], [3], [3, 3], [5, 3]])
def test_a_fence_with_what_is_no_clock_is_refused(runs: list[int]) -> None:
    with pytest.raises(ValueError, match="clock"):
        BarrierRequest(1, {7: runs}).check()


def test_the_suback_waits_and_so_do_the_packets_behind_it(house: House) -> None:
    asked: list[tuple[str, list[str]]] = []
    pending: list[Pending] = []

    class Barrier(Propagation):
        def wait(self, registry: object, subscriber: Any, filters: list[str]) -> Pending:
            asked.append((subscriber.client_id, filters))
            pending.append(Pending(lambda: asked.append(("cancelled", []))))
            return pending[-1]

    house.core.propagation = Barrier()
    house.registry.retain("t", Message(b"t", b"kept", 0, True))
    client = house.client("c")
    client.send(mqtt.subscribe_packet(1, ("t", 1), ("u", 0)), mqtt.PINGREQ_BYTES)
    client.send(mqtt.PINGREQ_BYTES)
    assert client.take() == []
    assert asked == [("c", ["t", "u"])]
    # It is subscribed all the same.
    house.client("d").publish("u", b"early")
    assert client.payloads() == [b"early"]
    pending[0].finish(None)
    house.maybe_settle()
    found = [each.type for each in client.take()]
    assert found == [mqtt.SUBACK, mqtt.PUBLISH, mqtt.PINGRESP, mqtt.PINGRESP]
    # What is revoked meanwhile brings no retained message.
    client.send(mqtt.subscribe_packet(2, ("t", 1)))
    house.registry.unsubscribe(house.registry.subscribers["c"], "t")
    pending[1].finish(None)
    house.maybe_settle()
    assert [each.type for each in client.take()] == [mqtt.SUBACK]
    client.send(mqtt.subscribe_packet(3, ("t", 1)))
    client.lose()
    assert asked[-1] == ("cancelled", [])


def waiting(config_: Any, **changes: Any) -> Any:
    return replace(config_, cluster=replace(config_.cluster, suback_after="cluster", **changes))


async def test_with_the_suback_every_node_routes_and_so_it_does_for_the_program_itself(
    tmp_path: Path,
) -> None:
    async with Broker(waiting(config(tmp_path, "a"))) as a:
        b, c = (Broker(config(tmp_path, name, [address(a)])) for name in "bc")
        async with b, c:
            await together(a, b, c)
            async with Device("c", clean=True) as client:
                await client.connect(a)
                for number in range(50):
                    await client.subscribe((f"t/{number}", 1))
                    for each in (b, c):
                        assert each.registry().route(b"t/%d" % number).nodes, number
            for number in range(20):
                async with a.subscribe(f"p/{number}") as messages:
                    for each in (b, c):
                        assert each.registry().route(b"p/%d" % number).nodes, number
                        await each.publish(f"p/{number}", b"from there")
                        assert (await anext(messages)).payload == b"from there"


async def test_a_node_that_does_not_follow_holds_up_nobody_for_long(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SubscribeBarrier, "_on_fence", lambda *_: None)
    async with Broker(waiting(config(tmp_path, "a"), suback_timeout=0.2)) as a:
        async with Broker(config(tmp_path, "b", [address(a)])) as b:
            await together(a, b)
            async with Device("c", clean=True) as client:
                await client.connect(a, ("t", 1))
                assert "SUBACK sent before these nodes have the subscriptions: b" in caplog.text
        await until(lambda: not clustering(a).node.up)
        async with Device("c", clean=True) as client:
            await client.connect(a, ("t", 1))
