"""Sessions that move between real brokers."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.support.until import until
from tests.support.wire import PUBLISH, PUBREL, publish_packet, pubrec_packet
from tests.vmq.clustering.device import Device
from tests.vmq.clustering.nodes import (
    address,
    clustering,
    config,
    is_subscribed,
    knows,
    pair,
    together,
)
from vmq.admin import cluster as admin
from vmq.broker import Broker
from vmq.clustering.takeover.takeover import Takeover
from vmq.config.options import Config

#: Messages that a test publishes before it waits for those that they are for.
AHEAD = 500


def mover(broker: Broker) -> Takeover:
    return clustering(broker).mover


@asynccontextmanager
async def three(folder: Path) -> AsyncIterator[tuple[Broker, Broker, Broker]]:
    async with pair(folder) as (a, b), Broker(config(folder, "c", [address(a)])) as c:
        await together(a, b, c)
        yield a, b, c


def sessions(broker: Broker) -> list[str]:
    return sorted(broker.registry().subscribers)


def is_settled(*brokers: Broker) -> bool:
    """Nothing is on its way between nodes."""
    return not any(
        machine.outgoing or machine.incoming or machine.claims
        for machine in (mover(each).moving for each in brokers)
    )


async def test_a_session_comes_with_all_that_it_has(tmp_path: Path) -> None:
    async with pair(tmp_path) as (a, b), Device("d") as device, Device("p", clean=True) as other:
        assert not await device.connect(a)
        await device.subscribe(("t", 2), ("u", 1))
        await other.connect(a)
        await until(lambda: is_subscribed(b, "d", "a"))
        device.answers = False
        for number in range(4):
            other.publish("t", f"flight {number}", 2)
        other.publish("u", "flight 4", 1)
        await device.until(lambda: len(device.log) == 5)
        # The first is half-way: its PUBREC has come, its PUBREL was sent.
        first = device.found(PUBLISH)[0].packet_id
        device.send(pubrec_packet(first))
        await device.until(lambda: bool(device.found(PUBREL)))
        device.pending.add(first)
        # So is one of its own.
        device.publish("t/own", "own", 2)
        own = next(iter(device.unfinished))
        await device.until(lambda: device.unfinished[own] is None)
        await device.drop()
        wanted = [f"flight {number}" for number in range(5)]
        for number in range(900):
            other.publish("t" if number % 2 else "u", f"waiting {number}", 1 + number % 2)
            wanted.append(f"waiting {number}")
        await other.until(lambda: not other.unfinished)

        async with Device("reader", clean=True) as reader:
            await reader.connect(a)
            await reader.subscribe(("t/own", 2))
            device.answers = True
            # It is published already: sent once more it goes nowhere.
            device.unfinished[own] = publish_packet("t/own", b"own", qos=2, packet_id=own, dup=True)
            assert await device.connect(b)
            await device.until(lambda: len(device.found(PUBLISH)) >= 904)
            again = device.found(PUBLISH)[:4]
            assert [each.dup for each in again] == [True] * 4
            assert device.found(PUBREL)[0].packet_id == first
            assert "flight 4" in device.log[5:]  # at QoS 1 it comes again
            device.log.reverse()
            device.log.remove("flight 4")
            device.log.reverse()
            assert device.log == wanted
            await device.until(lambda: not device.unfinished)
            device.publish("t/own", "new", 2)
            await reader.until(lambda: bool(reader.log))
            assert reader.log == ["new"]
        await until(lambda: is_settled(a, b))
        assert (sessions(a), sessions(b)) == (["p"], ["d"])
        assert a.registry().trie.count == 0
        names = (
            "cluster_sessions_handed_over",
            "cluster_sessions_taken_in",
            "cluster_sessions_moving",
        )
        for broker, figures in ((a, [1, 0, 0]), (b, [0, 1, 0])):
            families = clustering(broker).families()
            found = {each.name: each.samples[0].value for each in families}
            assert [found[name] for name in names] == figures


async def test_publishes_flow_on_while_a_client_goes_from_node_to_node(tmp_path: Path) -> None:
    async with three(tmp_path) as brokers, Device("d") as device:
        await device.connect(brokers[0])
        await device.subscribe(("t/#", 2))
        await until(lambda: all(is_subscribed(each, "d", "a") for each in brokers))
        publishers = [Device(f"p{index}", clean=True) for index in range(3)]
        # Everywhere is somebody else who wants the same.
        others = [Device(f"o{index}", clean=True) for index in range(3)]
        for each, extra, broker in zip(publishers, others, brokers, strict=True):
            await each.connect(broker)
            await extra.connect(broker)
            await extra.subscribe(("t/#", 0))
        count = 0

        async def flow() -> None:
            nonlocal count
            while True:
                # No further ahead than queues are long: what does not fit is dropped, as their options say.
                wanted = 3 * count - AHEAD
                await device.until(lambda wanted=wanted: len(device.log) >= wanted)  # type: ignore[misc]
                for index, each in enumerate(publishers):
                    each.publish(f"t/{index}", f"{index} {count}", 1 + count % 2)
                count += 1
                await asyncio.sleep(0.001)

        flowing = asyncio.create_task(flow())
        for hop in range(12):
            assert await device.connect(brokers[(hop * 2 + 1) % 3])
            seen = len(device.log)
            await device.until(lambda seen=seen: len(device.log) >= seen + 20)  # type: ignore[misc]
        flowing.cancel()
        for each in publishers:
            await each.until(lambda each=each: not each.unfinished)  # type: ignore[misc]
        await device.until(lambda: len(set(device.log)) == 3 * count)
        await until(lambda: is_settled(*brokers))
        at_qos_2 = [each for each in device.log if int(each.split()[1]) % 2]
        assert len(at_qos_2) == len(set(at_qos_2))
        for index in range(3):
            for parity in (0, 1):
                numbers = [int(each.split()[1]) for each in device.log if each[0] == str(index)]
                numbers = list(dict.fromkeys(n for n in numbers if n % 2 == parity))
                assert numbers == sorted(numbers)
        for each in (*publishers, *others):
            await each.drop()


async def test_of_many_that_connect_at_once_one_stays(tmp_path: Path) -> None:
    async with three(tmp_path) as brokers:
        devices = [Device("d") for _ in range(6)]
        await asyncio.gather(*(each.open(brokers[index % 3]) for index, each in enumerate(devices)))
        await until(lambda: sum(each.is_connected for each in devices) == 1)
        await until(lambda: is_settled(*brokers))
        await until(lambda: sum("d" in sessions(each) for each in brokers) == 1)
        [owner] = [each for each in brokers if "d" in sessions(each)]
        await until(lambda: all(knows(each, "d", clustering(owner).node.name) for each in brokers))
        for each in devices:
            await each.drop()


@pytest.mark.parametrize("clean_before", [False, True])
@pytest.mark.parametrize("clean_after", [False, True])
async def test_a_clean_session_has_nothing_of_an_old_one(
    tmp_path: Path, clean_before: bool, clean_after: bool
) -> None:
    async with (
        pair(tmp_path) as (a, b),
        Device("d", clean=clean_before) as before,
        Device("d", clean=clean_after) as now,
    ):
        await before.connect(a)
        await before.subscribe(("t", 1))
        await until(lambda: is_subscribed(b, "d", "a"))
        is_kept = not clean_before and not clean_after
        assert await now.connect(b) == is_kept
        await before.until(lambda: not before.is_connected)
        await until(lambda: is_settled(a, b))
        assert sessions(a) == []
        assert sessions(b) == ["d"]
        await until(lambda: knows(a, "d", "b"))
        await a.publish("t", b"1", 1)
        await b.publish("t", b"2", 1)
        if is_kept:
            await now.until(lambda: len(now.log) == 2)
        else:
            await now.subscribe(("u", 1))
            await b.publish("u", b"3", 1)
            await now.until(lambda: bool(now.log))
            assert now.log == ["3"]


async def test_a_client_that_goes_away_while_it_waits_is_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with pair(tmp_path) as (a, b), Device("d") as device:
        await device.connect(a)
        await device.subscribe(("t", 1))
        await device.disconnect()
        await until(lambda: is_subscribed(b, "d", "a"))
        monkeypatch.setattr(mover(b).moving, "_ask", lambda _who: None)  # nobody hears of it
        claims = mover(b).moving.claims
        await device.open(b)
        await until(lambda: bool(claims))
        await device.drop()
        await until(lambda: not claims)
        assert sessions(a) == ["d"]
        assert sessions(b) == []


def alone(config: Config) -> Config:
    """Without copies of sessions on other nodes."""
    return replace(config, cluster=replace(config.cluster, replicas=1))


async def test_a_session_whose_node_is_down_goes_on_elsewhere_and_gets_the_rest_later(
    tmp_path: Path,
) -> None:
    async with Broker(alone(config(tmp_path, "a"))) as a:
        b = Broker(alone(config(tmp_path, "b", [address(a)])))
        async with b, Device("d") as device:
            await together(a, b)
            there = address(b)
            await device.connect(b)
            await device.subscribe(("t", 1))
            await device.drop()
            await b.publish("t", b"1", 1)
            await until(lambda: is_subscribed(a, "d", "b"))
        async with Device("d") as device:
            await until(lambda: clustering(a).node.up == [])
            assert await device.connect(a)
            await a.publish("t", b"2", 1)
            await device.until(lambda: device.log == ["2"])
            async with Broker(alone(config(tmp_path, "b", listen=there))) as b:
                await device.until(lambda: device.log == ["2", "1"])
                await until(lambda: is_settled(a, b))
                assert sessions(b) == []
                await b.publish("t", b"3", 1)
                await device.until(lambda: device.log == ["2", "1", "3"])


async def test_who_was_away_knows_what_became_of_its_sessions_before_it_lets_clients_in(
    tmp_path: Path,
) -> None:
    async with Broker(alone(config(tmp_path, "a"))) as a, Device("d") as device:
        async with Broker(alone(config(tmp_path, "b", [address(a)]))) as b:
            await together(a, b)
            there = address(b)
            await device.connect(b)
            await device.subscribe(("t", 1))
            await until(lambda: is_subscribed(a, "d", "b"))
            await device.drop()
        await until(lambda: clustering(a).node.up == [])
        assert await device.connect(a)
        back = alone(config(tmp_path, "b", listen=there))
        back = replace(back, cluster=replace(back.cluster, sync_timeout=20))
        async with Broker(back) as b:
            assert knows(b, "d", "a")
            # With what it had itself, this would have been the newer session.
            assert await device.connect(b)
            await a.publish("t", b"1", 1)
            await device.until(lambda: device.log == ["1"])


async def test_a_member_whose_others_are_all_down_waits_for_them_no_longer_than_it_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with pair(tmp_path):
        pass
    few = config(tmp_path, "a")
    few = replace(few, cluster=replace(few.cluster, sync_timeout=0.1))
    async with Broker(few) as a, Device("d") as device:
        assert "not in touch with others after 0.1 s" in caplog.text
        await device.connect(a)


async def test_two_sessions_of_one_client_become_the_newer_one_with_the_messages_of_both(
    tmp_path: Path,
) -> None:
    """As after a split, or where brokers that had clients already become one cluster."""
    async with (
        Broker(config(tmp_path, "a")) as a,
        Broker(config(tmp_path, "b")) as b,
        Device("d") as older,
        Device("d") as newer,
    ):
        older.answers = False
        await older.connect(a)
        await older.subscribe(("t", 2), ("old", 1))
        for number in range(30):
            await a.publish("t", b"old %d" % number, 2)
        await older.until(lambda: len(older.log) == 20)
        await newer.connect(b)
        await newer.subscribe(("t", 2), ("new", 1))
        await b.publish("t", b"new", 2)
        await newer.until(lambda: newer.log == ["new"])
        assert await clustering(b).joining.join(address(a), 30)
        await older.until(lambda: not older.is_connected)
        await newer.until(lambda: len(newer.log) == 31)
        # In flight was the first that it had not acknowledged; the rest follows in order.
        assert [each for each in newer.log if each.startswith("old")] == [
            f"old {number}" for number in range(30)
        ]
        await until(lambda: is_settled(a, b))
        assert ("d" in sessions(a), "d" in sessions(b)) == (False, True)
        assert a.registry().trie.count == 0
        await a.publish("old", b"nobody's", 1)
        await a.publish("new", b"last", 1)
        await newer.until(lambda: newer.log[-1] == "last")
        assert "nobody's" not in newer.log


async def test_who_leaves_hands_its_sessions_over_in_order(tmp_path: Path) -> None:
    async with three(tmp_path) as (a, b, c), Device("p", clean=True) as publisher:
        names = [f"d{number}" for number in range(8)]
        async with AsyncExitStack() as stack:
            for name in names:
                device = await stack.enter_async_context(Device(name))
                await device.connect(c)
                await device.subscribe((name, 2))
            await publisher.connect(a)
            await until(lambda: all(is_subscribed(a, name, "c") for name in names))
            await until(lambda: all(is_subscribed(b, name, "c") for name in names))
            device.answers = False
            publisher.publish(names[-1], "0", 2)
            await device.until(lambda: bool(device.log))
        for number in range(1, 50):
            for name in names:
                publisher.publish(name, str(number), 2)
        last = Device(names[-2])  # is there until it is sent away
        await last.connect(c)
        left = asyncio.create_task(admin.leave(c, 30))
        await last.until(lambda: not last.is_connected)
        for number in range(50, 100):
            for name in names:
                publisher.publish(name, str(number), 2)
            await asyncio.sleep(0)
        assert await left == admin.LeftCluster("c", complete=True)
        await publisher.until(lambda: not publisher.unfinished)
        assert c.addresses == []
        assert sessions(c) == []
        await until(lambda: is_settled(a, b))
        assert sorted(sessions(a) + sessions(b)) == sorted([*names, "p"])
        assert 0 < len(sessions(a)) - 1 < len(names)
        for name in names:
            device = last if name == names[-2] else Device(name)
            assert await device.connect(a)
            await device.until(lambda device=device: device.log[-1:] == ["99"])  # type: ignore[misc]
            first = 0 if name == names[-1] else 1
            assert device.log == [str(number) for number in range(first, 100)]
            await device.drop()


async def test_sessions_of_a_node_that_is_gone_for_good_get_other_owners(tmp_path: Path) -> None:
    async with three(tmp_path) as (a, b, c):
        names = [f"d{number}" for number in range(8)]
        for name in names:
            async with Device(name) as device:
                await device.connect(c)
                await device.subscribe((name, 2))
        async with Device("clean", clean=True) as device:
            await device.connect(c)
            await device.subscribe(("clean", 0))
            for name in (*names, "clean"):
                await until(lambda name=name: is_subscribed(a, name, "c"))  # type: ignore[misc]
                await until(lambda name=name: is_subscribed(b, name, "c"))  # type: ignore[misc]
            await clustering(c).node.stop()  # it dies
        admin.remove(a, "c", force=True)
        await until(lambda: sorted(sessions(a) + sessions(b)) == names)
        await until(lambda: clustering(b).directory.record("", "clean") is None)
        for name in names:
            owner = "a" if name in sessions(a) else "b"
            await until(lambda name=name, owner=owner: knows(a, name, owner))  # type: ignore[misc]
            await a.publish(name, b"kept", 2)
        for name in names:
            async with Device(name) as device:
                assert await device.connect(b)
                await device.until(lambda device=device: device.log == ["kept"])  # type: ignore[misc]


async def test_a_session_of_many_subscriptions_goes_from_node_to_node(tmp_path: Path) -> None:
    """Its record has several pieces, which change hands with it, there and back."""
    filters = [(f"t/{number}", 1) for number in range(150)]
    async with (
        three(tmp_path) as brokers,
        Device("d") as device,
        Device("p", clean=True) as other,
    ):
        await device.connect(brokers[0])
        await device.subscribe(*filters)
        await until(lambda: all(is_subscribed(each, "d", "a") for each in brokers))
        await other.connect(brokers[2])
        for turn, broker in enumerate((brokers[1], brokers[0])):
            assert await device.connect(broker)
            name = "ba"[turn]
            await until(lambda name=name: all(is_subscribed(each, "d", name) for each in brokers))  # type: ignore[misc]
            record = clustering(brokers[2]).directory.record("", "d")
            assert record is not None
            assert record.subscriptions == dict(filters)
            device.log.clear()
            for topic, _ in filters:
                other.publish(topic, topic, 1)
            await device.until(lambda: len(device.log) == len(filters))
            assert device.log == [topic for topic, _ in filters]
