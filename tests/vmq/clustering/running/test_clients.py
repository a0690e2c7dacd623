"""Clients of a cluster whose durable sessions are in slots: whatever node they come to, and whoever dies."""

import asyncio
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from vmq_hooks.verdicts import Refuse

from tests.support.present import present
from tests.support.until import PATIENCE, until
from tests.vmq.clustering.device import Device
from tests.vmq.clustering.house import House
from tests.vmq.clustering.node.test_wills import Willing, kept
from tests.vmq.clustering.nodes import clustering, silenced
from tests.vmq.clustering.running.slotted import (
    are_owned,
    leave,
    named,
    owner_of,
    owners_of,
    service,
    slotted,
)
from vmq.admin import cluster
from vmq.broker import Broker
from vmq.clustering.messages.codec import decode
from vmq.clustering.messages.fronts import SessionStep, ToClient
from vmq.clustering.messages.links import LinkFrame
from vmq.clustering.messages.slots import SlotViews
from vmq.clustering.running.clients import SlotSubscriptions
from vmq.clustering.slots import words
from vmq.core.hook_sites import Pending
from vmq.core.ports import Propagation
from vmq_cluster.messages import Frame, Unreliable


async def go_and_come_back(nodes: House, subscriber: Device, publisher: Device, qos: int) -> None:
    """The subscriber leaves node a and comes to node b; what came meanwhile is there."""
    a, b = nodes["a"], nodes["b"]
    assert not await subscriber.connect(a)
    await subscriber.subscribe(("t/#", qos))
    await publisher.connect(b)
    publisher.publish("t/1", "1", qos)
    await publisher.until(lambda: not publisher.unfinished)
    await subscriber.until(lambda: subscriber.log == ["1"])
    await subscriber.disconnect()
    publisher.publish("t/1", "2", qos)
    publisher.publish("t/1", "3", qos)
    await publisher.until(lambda: not publisher.unfinished)
    assert await subscriber.connect(b)
    await subscriber.until(lambda: subscriber.log == ["1", "2", "3"])
    subscriber.clean = True
    assert not await subscriber.connect(a)
    subscriber.clean = False
    assert not await subscriber.connect(a)


@pytest.mark.parametrize("qos", [1, 2])
async def test_a_session_is_there_on_every_node_with_what_came_meanwhile(
    tmp_path: Path, qos: int
) -> None:
    async with slotted(tmp_path) as nodes:
        for owner in "ab":
            subscriber = Device(named(nodes, owner, "s"))
            publisher = Device(named(nodes, "a", "p"))
            async with subscriber, publisher:
                await go_and_come_back(nodes, subscriber, publisher, qos)


async def test_what_slots_say_to_a_process_of_this_machine_goes_without_frames(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with slotted(tmp_path) as nodes, Device(named(nodes, "b", "s")) as device:
        link, framed = clustering(nodes["a"]).node.link, list[bytes]()
        send = link.send

        def note(name: str, frame: Frame) -> None:
            for each in frame.messages:
                if isinstance(each, Unreliable):
                    framed.extend(each.payloads)
            send(name, frame)

        monkeypatch.setattr(link, "send", note)
        await device.connect(nodes["a"], ("t", 1))
        device.publish("t", "1", 1)
        await device.until(lambda: device.log == ["1"])
        assert not any(isinstance(decode(each), LinkFrame) for each in framed)


async def test_qos_0_goes_straight_to_the_connection(tmp_path: Path) -> None:
    async with (
        slotted(tmp_path) as nodes,
        Device("s") as subscriber,
        Device("p", clean=True) as publisher,
    ):
        await subscriber.connect(nodes["a"], ("t", 1), ("u", 0))
        await publisher.connect(nodes["b"])
        publisher.publish("t", "t", 0)
        publisher.publish("t", "T", 1)
        await subscriber.until(lambda: sorted(subscriber.log) == ["T", "t"])
        publisher.publish("u", "u", 0)
        publisher.publish("u", "U", 1)
        await subscriber.until(lambda: sorted(subscriber.log) == ["T", "U", "t", "u"])


async def test_who_dies_takes_nothing_along(tmp_path: Path) -> None:
    """The owner of the session, at which the subscriber is connected."""
    async with slotted(tmp_path, "abc") as nodes:
        subscriber = Device(named(nodes, "a", "s"))
        async with subscriber, Device("p", clean=True) as publisher:
            await subscriber.connect(nodes["a"])
            subscriber.answers = False
            await subscriber.subscribe(("t", 2))
            await publisher.connect(nodes["b"])
            for each in range(5):
                publisher.publish("t", str(each), 1 + each % 2)
            await publisher.until(lambda: not publisher.unfinished)
            await nodes.kill("a")
            for each in range(5, 10):
                publisher.publish("t", str(each), 1 + each % 2)
            await publisher.until(lambda: not publisher.unfinished)
            subscriber.answers = True
            assert await subscriber.connect(nodes["c"])
            await subscriber.until(lambda: len(set(subscriber.log)) == 10)
            for kind in (0, 1):
                of_kind = [each for each in subscriber.log if int(each) % 2 == kind]
                assert list(dict.fromkeys(of_kind)) == [str(each) for each in range(kind, 10, 2)]
            await nodes.start("a")
            await until(lambda: are_owned(nodes))


async def test_a_node_that_stops_hands_its_slots_over(tmp_path: Path) -> None:
    async with slotted(tmp_path) as nodes, Device(named(nodes, "a", "s")) as subscriber:
        await subscriber.connect(nodes["b"], ("t", 1))
        await nodes.brokers.pop("a").stop()
        assert owner_of(nodes, subscriber.client_id) == "b"
        assert subscriber.is_connected
        await nodes["b"].publish("t", b"1", 1)
        await subscriber.until(lambda: subscriber.log == ["1"])


async def test_a_node_that_leaves_leaves_nothing_behind(tmp_path: Path) -> None:
    async with slotted(tmp_path) as nodes:
        away, stays = Device(named(nodes, "b", "s")), Device(named(nodes, "b", "t"))
        async with away, stays:
            for device in (away, stays):
                await device.connect(nodes["a"], ("t", 2))
            await away.disconnect()
            await nodes["b"].publish("t", b"1", 2)
            await stays.until(lambda: stays.log == ["1"])
            assert (await cluster.leave(nodes["b"], PATIENCE)).complete
            assert owner_of(nodes, away.client_id) == "a"
            assert clustering(nodes["a"]).node.members.keys() == {"a"}
            assert await away.connect(nodes["a"])
            await away.until(lambda: away.log == ["1"])
            await nodes["a"].publish("t", b"2", 2)
            await stays.until(lambda: stays.log == ["1", "2"])


async def test_a_node_that_leaves_waits_for_who_is_silent_for_a_moment(tmp_path: Path) -> None:
    async with slotted(tmp_path) as nodes:
        reach = service(nodes["b"]).here.reach
        with silenced(nodes["a"]):
            await until(lambda: not reach.up() and reach.is_settled())
            leaving = asyncio.create_task(clustering(nodes["b"]).leave(PATIENCE))
            await until(lambda: service(nodes["b"]).here.is_leaving)
            await asyncio.sleep(0)
        assert await leaving
        assert len(service(nodes["a"]).machines.slots.own()) == 8


def has_kept(node: Broker, client_id: str) -> bool:
    return kept(node) == [client_id]


async def test_the_will_of_a_client_is_with_the_owner_of_its_slot_or_a_follower_on_another_host(
    tmp_path: Path,
) -> None:
    async with slotted(tmp_path, "abc") as nodes:
        for client_id in ("s1", "s2", "s3", "s4"):
            async with Willing(client_id, clean=False) as client:
                owner = owner_of(nodes, client_id)
                [follower] = owners_of(nodes, client_id)[owner].view.followers
                front = service(nodes["b"])
                names = {service(node).store: name for name, node in nodes.brokers.items()}
                keeper = names[follower] if owner == "b" else owner
                await client.connect(nodes["b"])
                await until(partial(has_kept, nodes[keeper], client_id))
                front.here.reach.peers[service(nodes[keeper]).store].host = "b"  # as of a worker
                assert keeper not in front.keepers_of(client_id)
                front.here.reach.peers[service(nodes[keeper]).store].host = keeper


async def test_a_message_that_cannot_be_taken_costs_none_behind_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with slotted(tmp_path) as nodes:
        here, there = service(nodes["b"]), service(nodes["a"])
        bad = ToClient("c", 1, (1, 1), 1, [], clock=cast("Any", "no number"))
        told_by = here.machines.slots.told_by
        told_by.discard(there.store)
        here._on_messages("a", [bad, SlotViews([])])
        await until(lambda: there.store in told_by)  # what is logged may take the time of a bite
        assert "cannot take a ToClient of node a" in caplog.text


async def test_a_client_that_cannot_be_let_in_keeps_out_no_other(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with slotted(tmp_path) as nodes:
        fronts, registry = service(nodes["a"]).fronts, nodes["a"].registry()
        let_in = asyncio.Event()

        def fails() -> None:
            raise RuntimeError("a defect")

        answers: list[object] = []
        failed, other = (
            present(fronts.connect(registry, named(nodes, "a", name), True, "", None, claim))
            for name, claim in (("s", fails), ("t", lambda: None))
        )
        failed.then = answers.append
        other.then = lambda _: let_in.set()
        await asyncio.wait_for(let_in.wait(), PATIENCE)
        assert "internal error, client=s" in caplog.text
        [answer] = answers
        assert isinstance(answer, Refuse)
        assert answer.unavailable, "it may come again"


async def test_who_cannot_be_handed_a_step_begins_anew_and_nobody_else(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with slotted(tmp_path) as nodes, Device("s") as device, Device("t") as other:
        for each in (device, other):
            await each.connect(nodes["a"], ("t", 1))
        here = service(nodes["a"])
        [number] = [each for each in here.fronts._clients if here.fronts.client_of(each) == "s"]
        behind = SessionStep(words.SEND, 9, [(0, (0, 0), "")], topic=b"t", payload=b"behind", qos=1)
        here.here.effects.steps += [(number, SessionStep(words.SEND, 8)), (number, behind)]
        here._turns.soon()
        await device.until(lambda: not device.is_connected)
        assert "internal error, client=s: it is cut off" in caplog.text
        await nodes["b"].publish("t", b"1", 1)
        assert await device.connect(nodes["a"])
        await device.until(lambda: device.log == ["1"])
        await other.until(lambda: other.log == ["1"])


async def test_who_loses_its_session_before_its_connack_is_closed(tmp_path: Path) -> None:
    """Its subscriptions are judged anew when it comes elsewhere."""
    async with slotted(tmp_path) as nodes, Device("s") as device, Device("s") as again:
        await device.connect(nodes["a"], ("t", 1))
        await leave(nodes, device)
        asked = asyncio.Event()

        def judge(*_: object) -> Pending:
            asked.set()
            return Pending(lambda: None)

        nodes["a"].hooks.auth_on_subscribe = judge
        await device.open(nodes["a"])
        await asyncio.wait_for(asked.wait(), PATIENCE)
        assert await again.connect(nodes["b"])
        await device.until(lambda: not device.is_connected)
        assert not device.packets


class Routed(Propagation):
    """The routes of nodes, for which somebody waits."""

    def __init__(self, pending: Pending | None) -> None:
        super().__init__()
        self.pending = pending

    def wait(self, *_asked: object) -> Pending | None:
        return self.pending


@pytest.mark.parametrize("first", [0, 1])
def test_a_suback_waits_for_the_slot_and_for_the_routes_of_qos_0(first: int) -> None:
    told: list[str] = []
    parts = [Pending(partial(told.append, f"{each} cancelled")) for each in range(2)]
    fronts: Any = SimpleNamespace(has=lambda _: True, subscribe=lambda *_: parts[0])
    asked: Any = (None, None, [])
    joined = present(SlotSubscriptions(fronts, Routed(parts[1])).wait(*asked))
    joined.then = lambda _answer: told.append("both")
    parts[first].finish(None)
    assert told == []
    parts[1 - first].finish(None)
    assert told == ["both"]
    assert SlotSubscriptions(fronts, Routed(None)).wait(*asked) is parts[0]
    again = present(SlotSubscriptions(fronts, Routed(parts[1])).wait(*asked))
    parts[first].finish(None)
    again.cancel()
    assert told == ["both", f"{1 - first} cancelled"]
