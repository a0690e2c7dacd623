"""What a node takes out of a session that it made of a copy, when the owner before says what is left of that."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import ANY

import pytest

from tests.support.until import until
from tests.support.wire import PUBREC, publish_packet
from tests.vmq.clustering.device import Device
from tests.vmq.clustering.house import House, house, publish, store_of
from tests.vmq.clustering.nodes import clustering
from vmq.clustering.messages.ranges import Range
from vmq.clustering.messages.replication import AskProvenance, ProvenanceIs, Undone
from vmq.clustering.replication.promotion import whence
from vmq.clustering.replication.reconcile_talk import ReconcileTalk
from vmq.config.options import QueueOptions
from vmq.core.queue import Queue


def queue_of(nodes: House) -> Queue:
    return nodes["b"].registry().subscribers["s"].queue


def settling_of(nodes: House) -> ReconcileTalk:
    return nodes.replication("b").settling


@asynccontextmanager
async def adopted(folder: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[House]:
    """Node `b` alone, with a session that was a's: two messages in flight, and four that wait; id 7 received."""
    queue = QueueOptions(max_inflight_messages=2)
    async with house(folder, "ab", adopt_after=3600.0, queue=queue) as nodes:
        async with Device("s") as device:
            await device.connect(nodes["a"])
            await device.subscribe(("t", 2))
            device.answers = False
            await publish(nodes["a"], *(b"%d" % number for number in range(6)), qos=2)
            await device.until(lambda: len(device.log) == 2)
            device.send(publish_packet("own", b"x", qos=2, packet_id=7))
            await device.until(lambda: bool(device.found(PUBREC)))
            await nodes.kill("a", monkeypatch)
        await until(lambda: not clustering(nodes["b"]).node.up)
        assert await nodes.replication("b").find_copy("", "s", "a")
        yield nodes


async def take_out(
    nodes: House,
    waiting: list[Range],
    inflight: list[Range],
    received: list[int] | None = None,
    peer: str = "a",
) -> None:
    session = queue_of(nodes).session
    said = Undone(1, "s", session, waiting, inflight, received or [])
    await settling_of(nodes)._take_out(peer, said)


async def left(nodes: House, count: int) -> list[str]:
    async with Device("s") as device:
        assert await device.connect(nodes["b"])
        await device.until(lambda: len(device.log) >= count)
        await publish(nodes["b"], b"end")
        await device.until(lambda: "end" in device.log)
        return device.log[:-1]


async def test_what_is_done_is_taken_out_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with adopted(tmp_path, monkeypatch) as nodes:
        queue = queue_of(nodes)
        assert (queue.first, queue.last, queue.backlog) == (1, 4, 4)
        await publish(nodes["b"], b"since")
        await take_out(nodes, [(2, 3)], [(2, 2)], [9])
        core = nodes["b"].parts.core
        assert set(nodes["b"].registry().subscribers["s"].received_ids(core)) == {9}
        await take_out(nodes, [], [])  # it has been said
        assert await left(nodes, 4) == ["1", "3", "4", "since"]


async def test_what_its_client_was_sent_by_this_node_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may answer: the packet ids are not free."""
    async with adopted(tmp_path, monkeypatch) as nodes:
        async with Device("s") as device:
            device.answers = False
            await device.connect(nodes["b"])
            await device.until(lambda: len(device.log) == 2)
            await take_out(nodes, [(4, 4)], [])
            assert len(queue_of(nodes).inflight) == 2
            assert queue_of(nodes).waiting() == 1
        assert await left(nodes, 3) == ["0", "1", "5"]


async def test_what_came_since_a_restart_is_not_taken_for_the_copys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with adopted(tmp_path, monkeypatch) as nodes:
        assert len(await left(nodes, 6)) == 6
        await nodes.kill("b", monkeypatch)
        await nodes.start("b")
        await publish(nodes["b"], *(b"new %d" % number for number in range(6)), qos=2)
        await take_out(nodes, [], [])
        assert len(await left(nodes, 6)) == 6


async def test_nothing_is_taken_out_where_places_may_have_been_used_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A plugin may publish before the node takes part, and the broker may run without the cluster."""
    async with adopted(tmp_path, monkeypatch) as nodes:
        for is_sure in (True, False):
            settling_of(nodes).guard_places(is_sure)
            subscriber = nodes["b"].registry().subscribers["s"]
            assert (settling_of(nodes).origin(subscriber) is not None) is is_sure
        await take_out(nodes, [], [])
        assert len(await left(nodes, 6)) == 6


async def test_only_the_owner_before_says_what_is_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with adopted(tmp_path, monkeypatch) as nodes:
        settling = settling_of(nodes)
        await take_out(nodes, [], [], peer="c")
        await settling._take_out("a", Undone(1, "nobody", bytes(8), [], [], []))
        await settling._take_out("a", Undone(1, "s", bytes(8), [], [], []))
        settling.close_for(("", "s"), "c")
        settling.close_for(("", "nobody"), "a")
        assert len(await left(nodes, 6)) == 6


@pytest.mark.parametrize("why", ("handed over", "back again"))
async def test_nothing_is_taken_out_where_what_is_left_is_not_where_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    """The owner before has begun to send it; or this node has, and has taken it back."""
    async with adopted(tmp_path, monkeypatch) as nodes:
        who = ("", "s")
        if why == "handed over":
            settling_of(nodes).close_for(who, "a")
        else:
            mover = clustering(nodes["b"]).mover
            mover.make_ghost(who)
            mover.put_back(who, mover.take_waiting(who))
            mover.revive(who)
        await take_out(nodes, [], [])
        assert len(await left(nodes, 6)) == 6


async def test_whence_a_session_is_is_told_once_it_has_all_of_a_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its owner before would send, as it is back, what the session is about to get of a copy."""
    async with adopted(tmp_path, monkeypatch) as nodes:
        settling = settling_of(nodes)
        told: list[object] = []
        monkeypatch.setattr(settling, "_outboxes", SimpleNamespace(send_quick=partial(tell, told)))
        with nodes.replication("b")._searching("s"):
            asked = asyncio.create_task(settling._answer("a", AskProvenance(1, "s", True)))
            await asyncio.sleep(0)
            assert not told
            assert not asked.done()
        await asked
        assert told == [
            ProvenanceIs(1, whence(store_of(nodes["b"]), queue_of(nodes).session), ANY, False)
        ]


def tell(told: list[object], _peer: str, message: object) -> None:
    told.append(message)


@pytest.mark.parametrize("tells", (True, False))
async def test_a_node_of_an_earlier_version_says_nothing_and_takes_out_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tells: bool
) -> None:
    """What it says after an upgrade is said of what it has left."""
    async with adopted(tmp_path, monkeypatch) as nodes:
        await settling_of(nodes)._answer("a", AskProvenance(1, "s", tells))
        origin = whence(store_of(nodes["b"]), queue_of(nodes).session)
        assert origin is not None
        assert origin.is_open is tells
