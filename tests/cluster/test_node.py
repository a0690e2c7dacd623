"""Nodes on asyncio's loop, in one process."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from tests.support.until import until
from vmq_cluster import effects
from vmq_cluster.addresses import generate_key
from vmq_cluster.errors import ClusterError, StorageError
from vmq_cluster.membership import Status
from vmq_cluster.metadata.versions import Versions
from vmq_cluster.node import ClusterNode
from vmq_cluster.options import Options
from vmq_cluster.storage import Batch, MemoryStorage

LOOPBACK = "tcp://127.0.0.1:0"
KEY = generate_key()
#: Seconds that a test waits for something that comes within a moment.
PATIENCE = 30.0
#: Quick enough for tests.
OPTIONS = Options(
    heartbeat_interval=0.1,
    heartbeat_timeout=2.0,
    lazy_interval=0.05,
    graft_timeout=0.2,
    sync_interval=0.5,
    sync_timeout=1.0,
    resend_timeout=0.3,
)


@pytest.fixture
async def nodes() -> AsyncIterator[list[ClusterNode]]:
    found: list[ClusterNode] = []
    yield found
    for node in found:
        await asyncio.wait_for(node.stop(), PATIENCE)


async def started(nodes: list[ClusterNode], name: str, **more: Any) -> ClusterNode:
    more = {"listen": LOOPBACK, "storage": MemoryStorage(), "options": OPTIONS, **more}
    node = ClusterNode(name, **more)
    await node.start()
    nodes.append(node)
    return node


async def joined(nodes: list[ClusterNode], count: int, **more: Any) -> list[ClusterNode]:
    """So many nodes as one cluster, each of which reaches all."""
    found = [await started(nodes, f"n{number}", **more) for number in range(count)]
    missing = count * (count - 1)
    done = asyncio.Event()

    def one_more(_: effects.PeerUp) -> None:
        nonlocal missing
        missing -= 1
        if not missing:
            done.set()

    for node in found:
        node.on(effects.PeerUp, one_more)
    for node in found[1:]:
        node.join(found[0].address)
    await asyncio.wait_for(done.wait(), PATIENCE)
    return found


async def test_the_api_from_end_to_end(nodes: list[ClusterNode]) -> None:
    one, two, three = await joined(nodes, 3, key=KEY)
    heard: asyncio.Queue[object] = asyncio.Queue()
    two.watch("p", heard.put_nowait)
    two.on(effects.Arrived, heard.put_nowait)
    one.on(effects.Acknowledged, heard.put_nowait)

    async def hears() -> Any:
        return await asyncio.wait_for(heard.get(), PATIENCE)

    one.put("p", b"k", b"v")
    assert one.get("p", b"k") == b"v"
    assert (await hears()).value == b"v"
    assert list(two.items("p")) == [(b"k", b"v")]
    one.put("other", b"k", b"unwatched")
    assert three.delete("p", b"none") is False
    two.delete("p", b"k")
    assert (await hears()).local
    assert one.send_unreliable("n1", b"maybe")
    assert (await hears()) == effects.Arrived("n0", reliable=False, payloads=[b"maybe"])
    ticket = object()
    one.send("n1", b"surely", ticket)
    assert (await hears()) == effects.Arrived("n0", reliable=True, payloads=[b"surely"])
    assert (await hears()).tickets == [ticket]
    assert sorted(one.members) == ["n0", "n1", "n2"]
    assert one.members["n1"] == two.address
    assert one.up == ["n1", "n2"]


async def test_a_pass_of_the_loop_is_one_batch_and_one_frame(nodes: list[ClusterNode]) -> None:
    storage = MemoryStorage(crashes=True)
    one = await started(nodes, "one", storage=storage)
    before = storage.unsynced
    for number in range(100):
        one.put("p", b"%d" % number, b"v")
    assert storage.unsynced == before
    flushed = asyncio.Event()
    asyncio.get_running_loop().call_soon(flushed.set)
    await flushed.wait()
    assert storage.unsynced <= before + 2


@pytest.mark.parametrize("is_near", [False, True])
async def test_what_is_sent_at_once_keeps_its_order_and_counts_in_the_life_that_was_met(
    nodes: list[ClusterNode], tmp_path: Path, is_near: bool
) -> None:
    """Between nodes of one machine, where it needs no frame, as elsewhere."""
    near = {name: f"ipc://{tmp_path}/{name}" for name in ("n0", "n1")} if is_near else {}
    one, two = await joined(nodes, 2, nearby=near)
    arrived: asyncio.Queue[effects.Arrived] = asyncio.Queue()
    two.on(effects.Arrived, arrived.put_nowait)
    sent = [b"%d" % number for number in range(20)]
    for payload in sent:
        assert one.send_at_once("n1", payload)
    came: list[bytes] = []
    while len(came) < len(sent):
        came += (await asyncio.wait_for(arrived.get(), PATIENCE)).payloads
    assert came == sent
    two._receive_at_once("n0", one.machine.identity.epoch + 1, [b"of another life"])
    two._receive_at_once("n9", one.machine.identity.epoch, [b"of a stranger"])
    assert arrived.empty()


async def test_what_goes_through_keeps_the_order_of_its_channel_and_is_acknowledged(
    nodes: list[ClusterNode], tmp_path: Path
) -> None:
    near = {name: f"ipc://{tmp_path}/{name}" for name in ("n0", "n1")}
    one, two = await joined(nodes, 2, nearby=near)
    came: list[bytes] = []
    done: list[int] = []
    two.on(effects.Arrived, lambda effect: came.extend(effect.payloads))
    one.on(effects.Acknowledged, lambda effect: done.extend(effect.tickets))
    assert one.is_near("n1")
    for number in range(0, 20, 4):
        assert one.send_through("n1", b"%d" % number, number)
        assert one.send_through("n1", b"%d" % (number + 1), number + 1)
        one.send("n1", b"%d" % (number + 2), number + 2)
        assert not one.send_through("n1", b"%d" % (number + 3), number + 3), "one waits before it"
        one.flush()
    await until(lambda: len(done) == 20)
    assert came == [b"%d" % number for number in range(20)]
    assert done == list(range(20))
    epoch = one.machine.identity.epoch
    for name, life in (("n0", epoch + 1), ("n0", epoch - 1), ("n9", epoch)):
        two._receive_numbered(name, (life, 1, 21), b"of another life, or a stranger")
    two._receive_numbered("n0", (epoch, 1, 20), b"once more")
    assert len(came) == 20
    two._step(two.machine.lost, "n0", "its process has ended")
    two._receive_numbered("n0", (epoch, 1, 21), b"what it had left")
    assert came[20:] == [b"what it had left"]


async def test_a_pass_can_be_flushed_before_its_end(nodes: list[ClusterNode]) -> None:
    storage = MemoryStorage(crashes=True)
    one = await started(nodes, "one", storage=storage)
    before = storage.unsynced
    one.put("p", b"k", b"v")
    one.flush()
    after = storage.unsynced
    assert after > before
    one.flush()
    flushed = asyncio.Event()
    asyncio.get_running_loop().call_soon(flushed.set)
    await flushed.wait()
    assert storage.unsynced == after


async def test_nodes_that_cannot_talk_say_so_in_one_line_each(
    nodes: list[ClusterNode], caplog: pytest.LogCaptureFixture
) -> None:
    told: asyncio.Queue[effects.Refused] = asyncio.Queue()
    one = await started(nodes, "one")
    two = await started(nodes, "two", versions=Versions(2, 2))
    for node in (one, two):
        node.on(effects.Refused, told.put_nowait)
    two.join(one.address)
    refused = {(await asyncio.wait_for(told.get(), PATIENCE)).peer for _ in range(2)}
    assert refused == {"one", "two"}
    three = await started(nodes, "three")
    three.join(one.address)
    up = asyncio.Event()
    three.on(effects.PeerUp, lambda _: up.set())
    await asyncio.wait_for(up.wait(), PATIENCE)
    assert caplog.text.count("refused node") == 2
    assert "upgrade vmq on this node" in caplog.text
    assert one.up == ["three"]


@patch("vmq_cluster.link._DEAF_SECONDS", 0.2)
async def test_who_holds_confirms_and_who_is_dropped_is_down_for_a_while(
    nodes: list[ClusterNode],
) -> None:
    one = await started(nodes, "one")
    two = ClusterNode("two", LOOPBACK, MemoryStorage(), options=OPTIONS)
    nodes.append(two)
    two.hold()
    heard: asyncio.Queue[Any] = asyncio.Queue()
    for node in (one, two):
        for kind in (effects.Arrived, effects.Acknowledged):
            node.on(kind, heard.put_nowait)
    two.on(effects.PeerUp, heard.put_nowait)
    two.on(effects.PeerDown, heard.put_nowait)
    await two.start()
    two.join(one.address)

    async def hears(kind: type) -> Any:
        async with asyncio.timeout(PATIENCE):
            while not isinstance(effect := await heard.get(), kind):
                pass
        return effect

    await hears(effects.PeerUp)
    one.send("two", b"payload", "ticket")
    arrived = await hears(effects.Arrived)
    two.drop("one", "no reason")
    assert (await hears(effects.PeerDown)).reason == "no reason"
    await hears(effects.PeerUp)
    assert one.machine.channels.waiting("two")[0] == 1
    two.confirm(arrived)
    assert (await hears(effects.Acknowledged)).tickets == ["ticket"]


@pytest.mark.parametrize("kind", ["tcp", "ipc"])
async def test_a_node_that_ends_is_down_at_once(
    nodes: list[ClusterNode], tmp_path: Path, kind: str
) -> None:
    """Long before its silence would be noticed; and up again as soon as it is back."""
    patient = replace(OPTIONS, heartbeat_timeout=10_000.0)
    listen = LOOPBACK if kind == "tcp" else f"ipc://{tmp_path}/one"
    one = await started(nodes, "one", listen=listen, options=patient)
    storage = MemoryStorage()
    two = await started(
        nodes, "two", listen=listen.replace("one", "two"), storage=storage, options=patient
    )
    news: asyncio.Queue[tuple[str, bool]] = asyncio.Queue()
    one.on(effects.PeerUp, lambda effect: news.put_nowait((effect.peer, True)))
    one.on(effects.PeerDown, lambda effect: news.put_nowait((effect.peer, False)))
    heard = asyncio.Event()
    two.on(effects.PeerUp, lambda _: heard.set())
    two.join(one.address)
    assert await asyncio.wait_for(news.get(), PATIENCE) == ("two", True)
    await asyncio.wait_for(heard.wait(), PATIENCE)
    address = two.address
    await two.stop()
    assert await asyncio.wait_for(news.get(), PATIENCE) == ("two", False)
    await started(nodes, "two", listen=address, storage=storage, options=patient)
    assert await asyncio.wait_for(news.get(), PATIENCE) == ("two", True)


async def test_a_callback_that_fails_harms_nobody(
    nodes: list[ClusterNode], caplog: pytest.LogCaptureFixture
) -> None:
    one = await started(nodes, "one")
    heard: asyncio.Queue[object] = asyncio.Queue()

    def fails(_: object) -> None:
        raise RuntimeError("the application's")

    one.watch("p", fails)
    one.watch("p", heard.put_nowait)
    one.put("p", b"k", b"v")
    await asyncio.wait_for(heard.get(), PATIENCE)
    assert "a callback for Changed failed" in caplog.text


async def test_all_changes_of_a_step_are_told_before_anything_else(
    nodes: list[ClusterNode],
) -> None:
    one, two = await joined(nodes, 2)
    heard: list[object] = []
    done = asyncio.Event()

    def hears(changes: list[effects.Changed]) -> None:
        heard.append([(each.key, each.value, each.local) for each in changes])

    two.watch_steps("p", hears)
    two.watch("p", lambda change: heard.append(change.key))
    two.on(effects.Arrived, lambda _: done.set())
    # One pass, and so one frame.
    one.put("p", b"1", b"v")
    one.put("other", b"1", b"v")
    one.put("p", b"2", b"v")
    one.send("n1", b"behind")
    await asyncio.wait_for(done.wait(), PATIENCE)
    assert heard == [[(b"1", b"v", False), (b"2", b"v", False)], b"1", b"2"]
    two.delete("p", b"1")
    flushed = asyncio.Event()
    asyncio.get_running_loop().call_soon(flushed.set)
    await flushed.wait()
    assert heard[3:] == [[(b"1", None, True)], b"1"]


class FullDisk(MemoryStorage):
    """Fails to write from some time on."""

    is_full = False

    def write(self, batch: Batch, sync: bool) -> None:
        if self.is_full:
            raise StorageError("no space left")
        super().write(batch, sync)


async def test_a_node_that_cannot_store_falls_silent_and_the_others_go_on(
    nodes: list[ClusterNode], caplog: pytest.LogCaptureFixture
) -> None:
    disk = FullDisk()
    one, two = await joined(nodes, 2)
    broken = await started(nodes, "broken", storage=disk)
    up, down = asyncio.Event(), asyncio.Event()
    one.on(effects.PeerUp, lambda effect: up.set() if effect.peer == "broken" else None)
    one.on(effects.PeerDown, lambda effect: down.set() if effect.peer == "broken" else None)
    broken.join(one.address)
    await asyncio.wait_for(up.wait(), PATIENCE)
    disk.is_full = True
    broken.put("p", b"k", b"never stored")
    await asyncio.wait_for(down.wait(), PATIENCE)
    assert broken.is_failing
    assert not broken.is_running
    assert isinstance(broken.failure, StorageError)
    assert "the node takes no part until it can write: no space left" in caplog.text
    with pytest.raises(ClusterError, match="does not run"):
        broken.put("p", b"k", b"v")
    with pytest.raises(StorageError, match="no space left"):
        broken.check_stored()
    one.put("p", b"k", b"v")
    assert two.get("p", b"k") in (None, b"v")


@patch("vmq_cluster.node.WRITE_AGAIN", 0.05)
async def test_a_node_that_could_not_store_goes_on_when_it_can(nodes: list[ClusterNode]) -> None:
    disk = FullDisk()
    one = await started(nodes, "one")
    two = await started(nodes, "two", storage=disk)
    up, down, there, here = (asyncio.Event() for _ in range(4))
    one.on(effects.PeerUp, lambda _: up.set())
    one.on(effects.PeerDown, lambda _: down.set())
    one.watch("p", lambda change: there.set() if change.value == b"late" else None)
    two.watch("p", lambda change: here.set() if change.value == b"missed" else None)
    resumed = asyncio.Event()
    two.on(effects.Resumed, lambda _: resumed.set())
    two.join(one.address)
    await asyncio.wait_for(up.wait(), PATIENCE)
    up.clear()
    disk.is_full = True
    two.put("p", b"k", b"late")
    await asyncio.wait_for(down.wait(), PATIENCE)
    one.put("p", b"l", b"missed")
    assert not there.is_set()
    disk.is_full = False
    for each in (resumed, up, there, here):
        await asyncio.wait_for(each.wait(), PATIENCE)
    assert two.is_running
    assert two.failure is None


class UnreadableDisk(MemoryStorage):
    """Fails to read from some time on."""

    is_bad = False

    def get(self, key: bytes) -> bytes | None:
        if self.is_bad:
            raise StorageError("no sector there")
        return super().get(key)

    def scan(self, first: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        self.get(first)
        return super().scan(first, end)


@pytest.mark.parametrize(
    "use",
    [
        lambda one, _: one.put("p", b"k", b"v"),
        lambda _, two: two.put("p", b"k", b"v"),
        lambda _, two: two.get("p", b"k"),
        lambda _, two: list(two.items("p")),
        lambda _, two: list(two.dots("p", [b"k"])),
    ],
)
async def test_a_node_that_cannot_read_what_it_is_told_writes_over_or_is_asked_for_stops(
    nodes: list[ClusterNode],
    use: Callable[[ClusterNode, ClusterNode], None],
    caplog: pytest.LogCaptureFixture,
) -> None:
    disk = UnreadableDisk()
    one = await started(nodes, "one")
    two = await started(nodes, "two", storage=disk)
    up, down = asyncio.Event(), asyncio.Event()
    one.on(effects.PeerUp, lambda _: up.set())
    one.on(effects.PeerDown, lambda _: down.set())
    told: list[effects.Unreadable] = []
    two.on(effects.Unreadable, told.append)
    two.join(one.address)
    await asyncio.wait_for(up.wait(), PATIENCE)
    disk.is_bad = True
    with suppress(StorageError):  # whoever does it is told
        use(one, two)
    await asyncio.wait_for(down.wait(), PATIENCE)
    assert not two.is_running
    assert not two.is_failing
    assert told == [effects.Unreadable()]
    with pytest.raises(StorageError, match="no sector there"):
        two.check_stored()  # nobody counts on it
    assert "the node stops: no sector there" in caplog.text


@pytest.mark.parametrize("is_stopped", [False, True])
async def test_nobody_waits_for_the_end_of_a_leave_that_has_none(
    nodes: list[ClusterNode], is_stopped: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = FullDisk()
    one = await started(nodes, "one")
    leaver = await started(nodes, "leaver", storage=disk)
    up = asyncio.Event()
    leaver.on(effects.PeerUp, lambda _: up.set())
    leaver.join(one.address)
    await asyncio.wait_for(up.wait(), PATIENCE)
    monkeypatch.setattr(leaver.link, "send", lambda *_: None)
    leaver.put("p", b"k", b"v")
    leaving = asyncio.create_task(leaver.leave(1000.0))
    await asyncio.sleep(0)
    assert leaver.machine.membership.own.status == Status.LEAVING
    if is_stopped:
        await leaver.stop()
    else:
        disk.is_full = True
        leaver.put("p", b"k", b"w")
    assert not await asyncio.wait_for(leaving, PATIENCE)


async def test_a_defect_in_a_tick_is_not_the_end_of_ticks(
    nodes: list[ClusterNode], monkeypatch: pytest.MonkeyPatch
) -> None:
    one = await started(nodes, "one")
    knocks: list[str] = []
    goes_on = asyncio.Event()

    def contact(address: str, _: object) -> None:
        knocks.append(address)
        if len(knocks) == 2:
            raise RuntimeError("a defect")
        if len(knocks) == 3:
            goes_on.set()

    monkeypatch.setattr(one.link, "contact", contact)
    one.join("tcp://127.0.0.1:9")  # nobody answers there: each heartbeat knocks again
    await asyncio.wait_for(goes_on.wait(), PATIENCE)


async def test_a_node_that_cannot_start_leaves_nothing_behind(nodes: list[ClusterNode]) -> None:
    one = await started(nodes, "one")
    storage = MemoryStorage()
    for name, listen in (("two", one.address), ("", LOOPBACK), ("two", "tcp://192.0.2.1:1")):
        node = ClusterNode(name, listen, storage)
        with pytest.raises(ClusterError):
            await node.start()
        await node.stop()
    wild = ClusterNode("two", "tcp://0.0.0.0:0", storage, KEY)
    with pytest.raises(ClusterError, match="say which to advertise"):
        await wild.start()


async def test_another_address_may_be_advertised(nodes: list[ClusterNode]) -> None:
    node = await started(
        nodes, "one", listen="tcp://0.0.0.0:0", key=KEY, advertise="tcp://example.org:44053"
    )
    assert node.address == "tcp://example.org:44053"
