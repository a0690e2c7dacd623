"""What waits for a node that is down: who has taken over its sessions gets theirs, and everybody gets it once."""

import asyncio
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.until import until
from tests.vmq.clustering.device import Device
from tests.vmq.clustering.hinted_handoff.test_redirect import dead, given_by, waits
from tests.vmq.clustering.house import house
from tests.vmq.clustering.nodes import clustering, is_subscribed, knows, together
from tests.vmq.clustering.test_moves_and_deaths import Life, lives
from vmq.broker import Broker
from vmq.clustering.delivery import outbox
from vmq.clustering.delivery.peers import KnownPeer
from vmq.clustering.hinted_handoff.giving import Giving
from vmq.clustering.hinted_handoff.hints_in import HintRecord
from vmq.clustering.hinted_handoff.moved_on import MovedSessions
from vmq.clustering.hinted_handoff.route_intervals import Place
from vmq.clustering.messages.publishes import RemotePublish
from vmq.clustering.messages.takeover import RouteMarker

#: Longer than any of these tests: nobody has the sessions of a node that is down unless a client asks for one.
LONG = 1000.0


async def away_at(broker: Broker, device: Device, topic: str, *others: Broker) -> None:
    """A durable session, whose client is away."""
    await device.connect(broker)
    await device.subscribe((topic, 2))
    await device.drop()
    node = clustering(broker).name
    for each in others:
        await until(partial(is_subscribed, each, device.client_id, node))


async def publish(publisher: Device, topic: str, *texts: object) -> None:
    for each in texts:
        publisher.publish(topic, str(each), 2)
    await publisher.until(lambda: not publisher.unfinished)


def hinted_to(life: Life) -> set[str]:
    """The clients for whom a node keeps what waits at another."""
    hints = clustering(life.broker).replication.keeping.safekeeping
    records = [
        hints._store.get(key)
        for each in hints._kept.values()
        for keys in each.values()
        for key in keys
    ]
    decoded = [msgspec.msgpack.decode(each, type=HintRecord) for each in records if each]
    return {client for each in decoded for kept in each.messages for client in kept.clients}


async def test_a_session_that_is_taken_over_gets_what_waits_and_the_node_that_comes_back_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with AsyncExitStack() as stack:
        a, b, c = await stack.enter_async_context(lives(tmp_path, adopt_after=LONG))
        goes, stays = [await stack.enter_async_context(Device(name)) for name in ("goes", "stays")]
        publisher = await stack.enter_async_context(Device("p", clean=True))
        for device in (goes, stays):
            await away_at(b.broker, device, "t", a.broker, c.broker)
        await publisher.connect(c.broker)
        await dead(b, a, c, monkeypatch=monkeypatch)
        await publish(publisher, "t", *range(10))
        assert waits(c) == 10
        await goes.connect(a.broker)
        await until(lambda: knows(c.broker, "goes", "a"))
        await publish(publisher, "t", *range(10, 20))
        wanted = [str(number) for number in range(20)]
        await goes.until(lambda: len(goes.log) == 20)
        await until(lambda: hinted_to(a) == {"stays"})
        await b.start()
        await together(a.broker, b.broker, c.broker)
        await until(lambda: waits(c) == 0)
        await stays.connect(b.broker)
        await stays.until(lambda: len(stays.log) == 20)
        await until(lambda: a.is_settled and b.is_settled and c.is_settled)
        await publish(publisher, "t", 20)  # behind all that comes twice
        for device in (goes, stays):
            await device.until(lambda device=device: "20" in device.log)  # type: ignore[misc]
        assert sorted(goes.log, key=int) == [*wanted, "20"]
        assert stays.log == [*wanted, "20"]


async def test_what_nobody_there_wants_any_more_is_kept_nowhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with AsyncExitStack() as stack:
        a, b, c = await stack.enter_async_context(lives(tmp_path, adopt_after=LONG))
        device = await stack.enter_async_context(Device("d"))
        publisher = await stack.enter_async_context(Device("p", clean=True))
        await away_at(b.broker, device, "t", a.broker, c.broker)
        await publisher.connect(c.broker)
        await dead(b, a, c, monkeypatch=monkeypatch)
        await publish(publisher, "t", *range(10))
        assert hinted_to(a) == {"d"}
        await device.connect(a.broker)
        await device.until(lambda: len(device.log) == 10)
        assert device.log == [str(number) for number in range(10)]
        await until(lambda: waits(c) == 1)  # the mark
        await until(lambda: not hinted_to(a))


async def test_what_may_be_at_the_node_waits_for_it_for_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with AsyncExitStack() as stack:
        a, b, c = await stack.enter_async_context(lives(tmp_path, adopt_after=LONG))
        device = await stack.enter_async_context(Device("d"))
        publisher = await stack.enter_async_context(Device("p", clean=True))
        await away_at(b.broker, device, "t", a.broker, c.broker)
        await publisher.connect(c.broker)
        link = clustering(c.broker).node.link
        send = link.send
        monkeypatch.setattr(link, "send", lambda name, frame: name == "b" or send(name, frame))
        publishing = asyncio.create_task(publish(publisher, "t", "under way"))
        await until(lambda: waits(c) == 1)
        await dead(b, a, c, monkeypatch=monkeypatch)
        await publishing
        await publish(publisher, "t", "after")
        await device.connect(a.broker)
        await device.until(lambda: bool(device.log))
        assert waits(c) == 2
        assert device.log == ["after"]
        redirect = clustering(c.broker).in_nodes.redirect
        redirect._moved_on.patience = 0.0
        await device.until(lambda: len(device.log) == 2)
        assert device.log == ["after", "under way"]


async def test_it_is_given_once_though_who_has_it_dies_on_the_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Giving, "STEP_BYTES", 200)
    monkeypatch.setattr(outbox, "PARCEL", 2000)
    async with AsyncExitStack() as stack:
        a, b, c = await stack.enter_async_context(lives(tmp_path, adopt_after=LONG))
        goes, stays = [await stack.enter_async_context(Device(name)) for name in ("goes", "stays")]
        publisher = await stack.enter_async_context(Device("p", clean=True))
        await away_at(b.broker, goes, "#", a.broker, c.broker)
        await away_at(b.broker, stays, "t", a.broker, c.broker)
        await publisher.connect(c.broker)
        await dead(b, a, c, monkeypatch=monkeypatch)
        for number in range(0, 300, 2):
            publisher.publish("t", str(number), 2)
            publisher.publish("other", str(number + 1), 2)
        await publisher.until(lambda: not publisher.unfinished)
        await goes.connect(a.broker)
        await until(lambda: given_by(c) > 50)
        assert given_by(c) < 300
        await publisher.drop()
        await c.kill(monkeypatch)
        await c.start()
        await together(a.broker, c.broker)
        await goes.until(lambda: len(goes.log) >= 300)
        await until(lambda: not clustering(c.broker).outboxes.searched)
        await b.start()
        await together(a.broker, b.broker, c.broker)
        await until(lambda: waits(c) == 0)
        await stays.connect(b.broker)
        await stays.until(lambda: len(stays.log) >= 150)
        await until(lambda: a.is_settled and b.is_settled and c.is_settled)
        await publisher.connect(c.broker)
        await publish(publisher, "t", 300)
        for device, step in ((goes, 1), (stays, 2)):
            await device.until(lambda device=device: "300" in device.log)  # type: ignore[misc]
            assert device.log == [str(number) for number in range(0, 301, step)]


async def test_another_member_of_a_share_group_gets_what_waited_for_one_that_has_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with AsyncExitStack() as stack:
        a, b, c = await stack.enter_async_context(lives(tmp_path, adopt_after=LONG))
        member = await stack.enter_async_context(Device("m"))
        publisher = await stack.enter_async_context(Device("p", clean=True))
        await away_at(b.broker, member, "$share/g/t", a.broker, c.broker)
        await publisher.connect(c.broker)
        await dead(b, a, c, monkeypatch=monkeypatch)
        await publish(publisher, "t", "shared")
        assert waits(c) == 1
        await member.connect(a.broker)
        await member.until(lambda: member.log == ["shared"])
        await b.start()
        await together(a.broker, b.broker, c.broker)
        await until(lambda: waits(c) == 0)
        await until(lambda: a.is_settled and b.is_settled and c.is_settled)
        await publish(publisher, "t", "later")
        await member.until(lambda: "later" in member.log)
        assert member.log == ["shared", "later"]


async def test_after_a_split_clients_that_stayed_get_it_from_there_and_who_has_gone_not_again(
    tmp_path: Path,
) -> None:
    async with AsyncExitStack() as stack:
        nodes = await stack.enter_async_context(house(tmp_path, adopt_after=LONG))
        goes = await stack.enter_async_context(Device("goes"))
        clean, publisher = [
            await stack.enter_async_context(Device(name, clean=True)) for name in ("clean", "p")
        ]
        await away_at(nodes["b"], goes, "t", nodes["a"], nodes["c"])
        await clean.connect(nodes["b"])
        await clean.subscribe(("t", 2))
        await until(lambda: is_subscribed(nodes["c"], "clean", "b"))
        await publisher.connect(nodes["c"])
        await nodes.part("b", "a", "c")
        await publish(publisher, "t", *range(10))
        await goes.connect(nodes["a"])
        await goes.until(lambda: len(goes.log) == 10)
        await until(lambda: not clustering(nodes["c"]).outboxes.searched)
        assert clean.log == []
        await nodes.mend("b", "a", "c")
        await clean.until(lambda: len(clean.log) == 10)
        await until(lambda: knows(nodes["b"], "goes", "a"))
        await until(lambda: not clustering(nodes["b"]).mover.moving.outgoing)
        await publish(publisher, "t", 10)
        for device in (goes, clean):
            await device.until(lambda device=device: "10" in device.log)  # type: ignore[misc]
            assert device.log == [str(number) for number in range(11)]


FILTERS = ("t", "+", "other")
_NOTHING = KnownPeer(0)
#: On an outbox to `x`: a session comes to it, leaves it, or a message.
steps = st.lists(
    st.one_of(
        st.tuples(st.just("comes"), st.sampled_from("ab"), st.just("")),
        st.tuples(st.just("leaves"), st.sampled_from("ab"), st.just("")),
        st.tuples(st.just("message"), st.just(""), st.sampled_from(("t", "other"))),
    ),
    max_size=20,
)


@given(steps, st.integers(0, 20), st.sampled_from(FILTERS), st.sampled_from(FILTERS))
def test_each_message_is_for_who_has_left_or_for_who_stays(
    outbox: list[tuple[str, str, str]], cut: int, one: str, other: str
) -> None:
    """As an oracle says that looks at each message by itself; what is behind the cut is not looked at yet."""
    filters = {"a": one, "b": other}
    marks: list[tuple[RouteMarker, Place, int]] = []
    keys = [index.to_bytes(2, "big") for index in range(len(outbox))]
    #: For each client where it was there: from where to where, and whether it has left in front of the cut.
    stays: dict[str, list[tuple[int, int]]] = {"a": [], "b": []}
    since = {"a": 0, "b": 0}
    is_there = {"a": True, "b": True}
    left: dict[str, list[tuple[int, int]]] = {"a": [], "b": []}
    for index, (step, client, _) in enumerate(outbox):
        if step == "message" or is_there[client] == (step == "comes"):
            continue
        node, source = ("x", "y") if step == "comes" else ("y", "x")
        wants = {filters[client]: 2}
        marks.append((RouteMarker("", client, index, node, source, wants), (keys[index], 0), 0))
        is_there[client] = step == "comes"
        if is_there[client]:
            since[client] = index
        else:
            (left if index <= cut else stays)[client].append((since[client], index))
    end = keys[min(cut, len(keys) - 1)] if keys else b""
    found = MovedSessions("x", end)
    found.read(marks)
    for client in "ab":
        if is_there[client]:
            stays[client].append((since[client], len(outbox)))
            found.rest.end(("", client), {filters[client]: 2}, (b"\xff", 0))
    for index, (step, _, topic) in enumerate(outbox):
        if step != "message" or index > cut:
            continue
        publish = RemotePublish(topic.encode(), b"", 2)

        def wanted(
            where: dict[str, list[tuple[int, int]]], index: int = index, topic: str = topic
        ) -> set[str]:
            return {
                client
                for client, spans in where.items()
                if filters[client] in ("+", topic) and any(one <= index < two for one, two in spans)
            }

        place = (keys[index], 0)
        gone = {
            each
            for clients in found.moved.find(publish, place, _NOTHING).values()
            for each in clients
        }
        rest = {
            each
            for clients in found.rest.find(publish, place, _NOTHING).values()
            for each in clients
        }
        assert gone == wanted(left)
        assert rest >= wanted(stays)
