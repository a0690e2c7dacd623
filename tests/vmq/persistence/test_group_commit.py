"""Group commit: who waits for it, what a failing disk does, what a stop leaves."""

import asyncio
import threading
from typing import Any

import pytest

from tests.support.until import until
from tests.vmq.commit_stage import PATIENCE, Peer, Stage
from vmq.mqtt.message import Delivery, Message
from vmq.persistence import group_commit as commits
from vmq.persistence.group_commit import Committer
from vmq.persistence.patience import HASTY

SESSION = (1).to_bytes(8, "big")


@pytest.mark.parametrize("durability", ("os", "fsync"))
async def test_an_acknowledgement_leaves_after_the_commit(durability: str) -> None:
    stage = Stage(durability)
    peer = stage.peer()
    stage.work(peer, b"1")
    assert peer.sent == []
    await peer.wait_until(lambda: bool(peer.sent))
    assert peer.sent == [b"ack 1;"]
    assert stage.db.data == {b"1": b""}


async def test_what_must_not_be_behind_the_store_is_written_before_each_commit() -> None:
    stage = Stage("os")
    seen: list[int] = []
    stage.committer.before.append(lambda: seen.append(len(stage.db.writes)))
    # What it writes itself is in the same commit.
    stage.committer.before.append(lambda: stage.store.put(b"also", b""))
    for key in (b"1", b"2"):
        peer = stage.peer()
        stage.work(peer, key)
        await peer.wait_for_answer()
    assert seen == [0, 1]
    assert [list(changes) for _, changes in stage.db.writes] == [[b"1", b"also"], [b"2", b"also"]]


# Work that may turn out to be needless


def put_off(stage: Stage, peer: Peer, number: int) -> Delivery:
    """A delivery in flight, and the publisher who waits for it."""
    made = Delivery(Message(b"t", b"x", 1, False), 1, False, "")
    made.order = made.packet_id = number
    stage.store.put_off(SESSION, made)
    peer.connection.write_after(stage.core.outbox.stored, stage.store.barrier())
    peer.connection.add(b"ack %d;" % number)
    stage.core.outbox.flush()
    return made


@pytest.mark.parametrize("durability", ("os", "fsync"))
async def test_what_is_acknowledged_in_time_is_not_written(durability: str) -> None:
    stage = Stage(durability)
    peer = stage.peer()
    for number in (1, 2, 3):
        stage.store.remove_inflight(SESSION, put_off(stage, peer, number))
        await peer.wait_until(lambda: len(peer.sent) == number)  # noqa: B023 - done at once
    assert stage.db.writes == []
    assert not stage.committer.patience.hasty


@pytest.mark.parametrize("durability", ("os", "fsync"))
async def test_what_is_not_acknowledged_in_time_is_written(durability: str) -> None:
    stage = Stage(durability)
    peer = stage.peer()
    put_off(stage, peer, 1)
    assert stage.committer.patience.hasty == 0
    await peer.wait_for_answer()
    assert len(stage.db.data) == 2  # its entry, and the size of all
    # Waiting was in vain: the next commits do not.
    assert stage.committer.patience.hasty == HASTY
    put_off(stage, peer, 2)
    await peer.wait_until(lambda: len(peer.sent) == 2)
    assert stage.committer.patience.hasty == HASTY - 1


async def test_a_commit_waits_span_after_span(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage("os")
    peer = stage.peer()
    unanswered = [put_off(stage, peer, number) for number in (1, 2, 3)]

    def answer_one(*_: object) -> bool:
        stage.store.remove_inflight(SESSION, unanswered.pop())
        return bool(unanswered)

    monkeypatch.setattr(stage.committer.patience, "goes_on", answer_one)
    await peer.wait_until(lambda: len(peer.sent) == 3)
    assert stage.db.writes == []


async def test_what_somebody_waits_for_takes_what_was_put_off_along() -> None:
    stage = Stage("os")
    peer, other = stage.peer(), stage.peer()
    put_off(stage, peer, 1)
    timer = stage.committer.handle
    stage.work(other, b"k")
    assert timer is not None
    assert timer.cancelled()
    await other.wait_for_answer()
    assert peer.sent == [b"ack 1;"]
    assert len(stage.db.writes) == 1


async def test_what_is_put_off_while_the_disk_syncs_is_released_after_it() -> None:
    stage = Stage("fsync")
    peer, other = stage.peer(), stage.peer()
    stage.work(other, b"k")
    await asyncio.sleep(0)
    assert stage.committer.writing is not None
    stage.store.remove_inflight(SESSION, put_off(stage, peer, 1))
    assert peer.sent == []
    await peer.wait_for_answer()
    assert len(stage.db.writes) == 1


async def test_memory_acknowledges_at_once_and_writes_later() -> None:
    stage = Stage("memory", flush_interval=60)
    peer = stage.peer()
    stage.work(peer, b"1")
    assert peer.sent == [b"ack 1;"]
    assert stage.db.writes == []
    await stage.committer.finish_all()
    assert stage.db.data == {b"1": b""}


async def test_memory_writes_after_the_flush_interval() -> None:
    stage = Stage("memory")
    released = stage.peer()
    stage.store.put(b"1", b"")
    released.connection.write_after(stage.core.outbox.stored, 1)
    released.connection.add(b"written;")
    stage.core.outbox.flush()
    await released.wait_until(lambda: bool(released.sent))
    assert stage.db.data == {b"1": b""}


@pytest.mark.parametrize("durability", ("os", "fsync"))
async def test_one_pass_is_one_commit(durability: str) -> None:
    stage = Stage(durability)
    peers = [stage.peer() for _ in range(3)]
    for index, peer in enumerate(peers):
        stage.work(peer, b"%d" % index)
    await peers[-1].wait_until(lambda: all(peer.sent for peer in peers))
    assert [sorted(changes) for _, changes in stage.db.writes] == [[b"0", b"1", b"2"]]


async def test_only_fsync_leaves_the_loop_to_others() -> None:
    for durability, in_loop in (("os", True), ("fsync", False)):
        stage = Stage(durability)
        stage.store.put(b"1", b"")
        await stage.committer.finish_all()
        assert (stage.db.threads == [threading.main_thread()]) is in_loop


async def test_the_next_commit_gathers_while_one_is_written() -> None:
    stage = Stage("fsync")
    stage.db.may_write.clear()
    first, second, third = stage.peer(), stage.peer(), stage.peer()
    stage.work(first, b"1")
    stage.committer.commit()
    stage.work(second, b"2")
    stage.work(third, b"3")
    assert stage.store.get(b"1") == stage.store.get(b"2") == b""
    assert stage.committer.writing is not None
    stage.db.may_write.set()
    await third.wait_until(lambda: bool(third.sent))
    assert (first.sent, second.sent) == ([b"ack 1;"], [b"ack 2;"])
    assert [sorted(changes) for _, changes in stage.db.writes] == [[b"1"], [b"2", b"3"]]


async def test_who_works_on_gets_each_answer_after_its_own_commit() -> None:
    stage = Stage("fsync")
    stage.db.may_write.clear()
    peer = stage.peer()
    written: list[int] = []
    peer.on_write = lambda: written.append(len(stage.db.writes))
    stage.work(peer, b"1")
    stage.committer.commit()
    stage.work(peer, b"2")
    stage.db.may_write.set()
    await peer.wait_until(lambda: len(peer.sent) == 2)
    assert peer.sent == [b"ack 1;", b"ack 2;"]
    assert written[-1] == 2


# The end


@pytest.mark.parametrize("durability", ("memory", "os", "fsync"))
async def test_a_clean_stop_writes_everything(durability: str) -> None:
    stage = Stage(durability, flush_interval=60)
    peer = stage.peer()
    stage.work(peer, b"1")
    if durability == "fsync":
        stage.committer.commit()
        stage.store.put(b"2", b"")
    await stage.committer.finish_all()
    assert stage.store.dirty == {}
    assert stage.store.writing == {}
    assert set(stage.db.data) >= {b"1"}
    assert peer.sent == [b"ack 1;"]


@pytest.mark.parametrize("durability", ("os", "fsync"))
async def test_writing_everything_ends_although_others_keep_writing(durability: str) -> None:
    """A purge waits for its own deletions, not for a moment without traffic."""
    stage = Stage(durability)
    keys = iter(range(1_000_000))

    busy = stage.peer()
    busy.on_write = lambda: stage.work(busy, b"%d" % next(keys))
    stage.work(busy, b"first")
    stage.store.put(b"mine", b"")
    async with asyncio.timeout(PATIENCE):
        await stage.committer.finish_all()
    assert b"mine" in stage.db.data
    busy.on_write = None
    await stage.committer.finish_all()
    assert stage.committer.writing is None


async def test_commits_go_on_if_who_is_told_of_one_fails() -> None:
    stage = Stage("fsync")
    stage.db.may_write.clear()

    def fail(number: int) -> None:
        raise ValueError(number)

    stage.committer.on_stored = fail
    failures: list[str] = []
    stage.committer.loop.set_exception_handler(
        lambda _, what: failures.append(repr(what["exception"]))
    )
    stage.store.put(b"1", b"")
    stage.committer.commit()
    stage.store.put(b"2", b"")
    stage.db.may_write.set()
    await until(lambda: len(stage.db.writes) == 2 and len(failures) == 2)
    assert stage.db.data == {b"1": b"", b"2": b""}
    assert failures == ["ValueError(1)", "ValueError(2)"]


async def test_nothing_to_write_is_no_commit() -> None:
    stage = Stage("os")
    await stage.committer.finish_all()
    stage.store.put(b"1", b"")
    await stage.committer.finish_all()
    await stage.committer.finish_all()
    assert len(stage.db.writes) == 1


def test_a_committer_without_a_store_has_nothing_to_do() -> None:
    async def main() -> Any:
        committer = Committer(1.0)
        committer.commit()
        await committer.finish_all()
        return committer.handle

    assert asyncio.run(main()) is None


async def test_what_must_not_be_behind_the_store_is_synced_first_and_in_the_thread() -> None:
    for durability, expected in (("os", []), ("fsync", [(0, False)])):
        stage = Stage(durability)
        seen: list[tuple[int, bool]] = []

        def sync(stage: Stage = stage, seen: list[tuple[int, bool]] = seen) -> None:
            in_loop = threading.current_thread() is threading.main_thread()
            seen.append((len(stage.db.writes), in_loop))

        stage.committer.before_sync.append(sync)
        stage.store.put(b"1", b"")
        await stage.committer.finish_all()
        assert seen == expected
        assert len(stage.db.writes) == 1


async def test_the_store_is_not_written_if_that_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commits, "RETRY_AFTER", 0.0)
    stage = Stage("fsync")
    failing = [True, False]

    def sync() -> None:
        if failing.pop(0):
            raise OSError("no disk")

    stage.committer.before_sync.append(sync)
    stage.store.put(b"1", b"")
    await stage.committer.finish_all()
    assert not failing
    assert [sorted(changes) for _, changes in stage.db.writes] == [[b"1"]]
