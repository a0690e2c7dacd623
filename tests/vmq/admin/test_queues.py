"""Looking into queues, and emptying them."""

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from tests.support.peer import Peer
from vmq.admin.errors import NotFoundError
from vmq.admin.listing import SLICE, Selection
from vmq.admin.queues import QueuedRow, peek, purge
from vmq.broker import Broker
from vmq.config.options import Config, QueueOptions

ALL = Selection(limit=0)


async def contents(node: Broker, client_id: str) -> list[tuple[str, str]]:
    return [(row.state, row.payload) for row in await peek(node, client_id, ALL).rows()]


def fill(node: Broker, count: int, qos: int = 1, start: int = 0) -> None:
    publisher = Peer(node.registry(), "publisher")
    for number in range(start, start + count):
        publisher.publish("t", str(number).encode(), qos=qos)
    publisher.leave()


async def test_a_queue_of_an_absent_client_is_in_the_store(node: Broker) -> None:
    me = Peer(node.registry(), "me", ("t", 1), clean=False)
    me.leave()
    fill(node, 3)
    for _ in range(2):  # the first look consumes nothing
        assert await contents(node, "me") == [("stored", str(each)) for each in range(3)]
    assert node.registry().subscribers["me"].queue.waiting() == 3


async def test_the_order_is_that_of_leaving(node: Broker) -> None:
    me = Peer(node.registry(), "me", ("t", 2), clean=False)
    fill(node, 22, qos=1)
    me.acknowledge(1)
    found = await contents(node, "me")
    assert found == [*(("inflight", str(each)) for each in range(1, 21)), ("waiting", "21")]
    first = (await peek(node, "me", Selection(limit=1)).rows())[0]
    assert first == QueuedRow(
        position=1,
        state="inflight",
        topic="t",
        qos=1,
        retain=False,
        packet_id=2,
        size=1,
        payload="1",
        encoding="text",
        truncated=False,
        shared="",
    )


async def test_newest_first_is_shown_newest_first(config: Config) -> None:
    queue = QueueOptions(queue_type="lifo", max_inflight_messages=1)
    async with Broker(replace(config, queue=queue)) as node:
        me = Peer(node.registry(), "me", ("t", 1), clean=False)
        fill(node, 4)
        expected = [("inflight", "0"), ("waiting", "3"), ("waiting", "2"), ("waiting", "1")]
        assert await contents(node, "me") == expected
        me.leave()
        expected = [("inflight", "0"), ("stored", "3"), ("stored", "2"), ("stored", "1")]
        assert await contents(node, "me") == expected


async def test_memory_and_store_make_one_list(config: Config) -> None:
    # A connected client has the first 1,000 in memory, the rest in the store.
    queue = QueueOptions(max_online_messages=-1)
    async with Broker(replace(config, queue=queue)) as node:
        Peer(node.registry(), "me", ("t", 1), clean=False)
        fill(node, 1300)
        found = await contents(node, "me")
        assert [payload for _, payload in found] == [str(each) for each in range(1300)]
        assert {state for state, _ in found} == {"inflight", "waiting", "stored"}


async def test_quick_and_retained_messages_are_shown(node: Broker) -> None:
    publisher = Peer(node.registry(), "publisher")
    publisher.publish("r/1", b"kept", retain=True)
    me = Peer(node.registry(), "me", ("t", 0))
    me.block()
    publisher.publish("t", b"quick")
    me.subscribe(("r/#", 0))
    rows = await peek(node, "me", ALL).rows()
    found = [(row.payload, row.retain, row.packet_id) for row in rows]
    assert found == [("kept", True, None), ("quick", False, None)]


async def test_after_a_restart_the_store_is_shown(config: Config) -> None:
    async with Broker(config) as node:
        me = Peer(node.registry(), "me", ("t", 1), clean=False)
        fill(node, 25)
        before = [payload for _, payload in await contents(node, "me")]
        me.leave()
    async with Broker(config) as node:
        rows = await peek(node, "me", ALL).rows()
        assert [row.payload for row in rows] == before
        assert [row.packet_id for row in rows[:20]] == list(range(1, 21))
        assert [row.state for row in rows[:21]] == ["inflight"] * 20 + ["stored"]


@pytest.mark.parametrize(
    ("payload", "limit", "shown"),
    [
        (b"hello", 0, ("hello", "text", False)),
        (b"hello", 3, ("hel", "text", True)),
        ("grün".encode(), 3, ("gr", "text", True)),
        (b"\x00\xff", 0, ("00ff", "hex", False)),
        (b"\x1b[2J", 2, ("1b5b", "hex", True)),
        (b"", 0, ("", "text", False)),
    ],
)
async def test_payloads_are_text_or_hex(
    node: Broker, payload: bytes, limit: int, shown: tuple[str, str, bool]
) -> None:
    me = Peer(node.registry(), "me", ("t", 1), clean=False)
    me.publish("t", payload, qos=1)
    row = (await peek(node, "me", ALL, limit).rows())[0]
    assert (row.payload, row.encoding, row.truncated) == shown
    assert row.size == len(payload)


async def test_a_purge_drops_what_waits_and_keeps_what_was_sent(node: Broker) -> None:
    dropped: list[str] = []
    node.hooks.on_message_drop = lambda _client, _message, reason: dropped.append(reason)
    me = Peer(node.registry(), "me", ("t", 1), clean=False)
    fill(node, 30)
    done = await purge(node, "me")
    assert done.purged == 10
    assert dropped == ["purged"] * 10
    assert [state for state, _ in await contents(node, "me")] == ["inflight"] * 20
    # The queue works on: the window has room again, and a new message goes straight out.
    for number in range(1, 21):
        me.acknowledge(number)
    me.received.clear()
    fill(node, 1, start=99)
    assert b"99" in me.received


@pytest.mark.parametrize("is_there", [True, False])
async def test_a_long_purge_takes_steps_and_spares_what_comes_meanwhile(
    config: Config, is_there: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = QueueOptions(max_offline_messages=-1, max_online_messages=-1, max_inflight_messages=1)
    async with Broker(replace(config, queue=queue)) as node:
        me = Peer(node.registry(), "me", ("t", 1), clean=False)
        count = 3 * SLICE
        if not is_there:
            me.leave()
        fill(node, count)
        before_each_step(monkeypatch, lambda: fill(node, 1, start=count))
        done = await purge(node, "me")
        sent = 1 if is_there else 0
        assert done.purged == count - sent
        left = await contents(node, "me")
        assert [payload for _, payload in left[sent:]] == [str(count)]


def before_each_step(monkeypatch: pytest.MonkeyPatch, act: Callable[[], None]) -> None:
    """Has something happen once, between two steps of a purge."""
    from vmq.admin import queues

    step = queues._purge_step
    calls = 0

    def wrapped(*given: object) -> int:
        nonlocal calls
        calls += 1
        if calls == 2:
            act()
        return step(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(queues, "_purge_step", wrapped)


async def test_a_purged_store_stays_empty(config: Config) -> None:
    async with Broker(config) as node:
        me = Peer(node.registry(), "me", ("t", 1), clean=False)
        me.leave()
        fill(node, 50)
        assert (await purge(node, "me")).purged == 50
    async with Broker(config) as node:
        assert await contents(node, "me") == []
        assert (await purge(node, "me")).purged == 0


async def test_nobody_by_that_name(node: Broker) -> None:
    with pytest.raises(NotFoundError):
        peek(node, "nobody", ALL)
    with pytest.raises(NotFoundError):
        await purge(node, "nobody")
