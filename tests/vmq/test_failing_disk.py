"""Commits that a disk fails, delays or makes impossible: nothing is acknowledged that is not stored."""

import asyncio
from functools import partial

import plyvel
import pytest

from tests.support.wire import connect_packet, publish_packet, subscribe_packet
from tests.vmq.commit_stage import FULL, PATIENCE, Peer, Stage, cut_off
from vmq.persistence import group_commit as commits
from vmq.store.lines import is_end


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A failed commit is tried again at once."""
    monkeypatch.setattr(commits, "RETRY_AFTER", 0.001)


@pytest.mark.parametrize("durability", ("os", "fsync"))
async def test_a_failed_commit_acknowledges_nothing_and_cuts_off(
    durability: str, caplog: pytest.LogCaptureFixture
) -> None:
    stage = Stage(durability)
    idle = stage.peer()
    peer = await cut_off(stage)
    assert peer.sent == []
    assert not idle.is_closed
    assert stage.store.get(b"1") == b""
    assert "the store cannot write: IO error: /data/000003.log: No space left" in caplog.text
    stage.db.error = None
    await stage.committer.finish_all()
    assert peer.sent == []


@pytest.mark.parametrize("durability", ("os", "fsync"))
async def test_what_a_failed_commit_held_is_written_when_the_disk_is_well(durability: str) -> None:
    stage = Stage(durability)
    stage.store.put(b"both", b"old")
    first = await cut_off(stage)
    later = stage.peer()
    stage.store.put(b"both", b"new")
    stage.db.error = None
    stage.work(later, b"2")
    await later.wait_until(lambda: bool(later.sent))
    assert later.sent == [b"ack 2;"]
    assert first.sent == []
    assert stage.db.data == {b"both": b"new", b"1": b"", b"2": b""}


async def test_quick_traffic_goes_on_while_the_disk_fails() -> None:
    stage = Stage("os")
    quick = stage.peer()
    await cut_off(stage)
    quick.connection.add(b"QoS 0;")
    stage.core.outbox.flush()
    assert quick.sent == [b"QoS 0;"]


@pytest.mark.parametrize("durability", ("os", "fsync"))
async def test_what_sessions_write_at_their_end_waits_for_the_next_try(durability: str) -> None:
    """Cutting off a durable session writes when it went offline."""
    stage = Stage(durability)
    peer, other = stage.peer(), stage.peer()
    peer.connection.data_received(connect_packet("dev", clean=False))
    await stage.committer.finish_all()
    online = stage.db.data[b"sdev"]
    assert online[8:16] == bytes(8)
    stage.db.error = FULL
    stage.work(peer, b"1")
    await peer.wait_until(lambda: peer.is_closed)
    stage.db.error = None
    stage.work(other, b"2")
    await other.wait_until(lambda: bool(other.sent))
    offline = stage.db.data.pop(b"sdev")
    assert offline[:8] == online[:8]
    assert offline[8:16] > bytes(8)
    assert {key for key in stage.db.data if not is_end(key)} == {b"1", b"2"}


def reader_of(stage: Stage) -> None:
    """A durable session that is away and would get everything."""
    peer = stage.peer().connection
    peer.data_received(connect_packet("reader", clean=False) + subscribe_packet(1, ("#", 1)))
    peer.connection_lost(None)


def publish_and_come_again(stage: Stage, rounds: int) -> tuple[int, int]:
    """A publisher that is cut off or left waiting connects anew each time; writes and bytes kept."""
    data = connect_packet("p")
    data += b"".join(publish_packet("t", b"x" * 1024, qos=1, packet_id=n) for n in range(1, 11))
    for _ in range(rounds):
        stage.peer().connection.data_received(data)
    kept = {**stage.store.writing, **stage.store.dirty}
    return len(kept), sum(len(value) for value in kept.values() if value is not None)


@pytest.mark.parametrize("durability", ("os", "fsync"))
async def test_what_comes_while_the_store_fails_is_refused_and_not_kept(durability: str) -> None:
    stage = Stage(durability)
    reader_of(stage)
    stage.core.options.max_offline_messages = -1
    await cut_off(stage)
    before = len(stage.store.dirty) + len(stage.store.writing)
    writes, _ = publish_and_come_again(stage, 50)
    assert writes == before
    for packet in (
        publish_packet("t", b"x", retain=True),
        publish_packet("t", b"x", qos=2, packet_id=1),
    ):
        refused = stage.peer()
        refused.connection.data_received(connect_packet("p") + packet)
        assert refused.is_closed
    quick = stage.peer()
    quick.connection.data_received(connect_packet("q") + publish_packet("t", b"x"))
    assert not quick.is_closed
    stage.db.error = None
    await stage.committer.finish_all()
    accepted = stage.peer()
    accepted.connection.data_received(
        connect_packet("q") + publish_packet("t", b"x", qos=1, packet_id=1)
    )
    await stage.committer.finish_all()
    assert not accepted.is_closed


async def test_what_gathers_behind_a_disk_that_hangs_is_bounded() -> None:
    """Counted in KiB where messages are large: ten publishes of 1 KiB are some 20 writes."""
    stage = Stage("fsync")
    stage.core.options.max_uncommitted_writes = 100
    stage.core.options.max_offline_messages = -1
    reader_of(stage)
    await stage.committer.finish_all()
    stage.db.may_write.clear()
    stage.store.put(b"1", b"")
    stage.committer.commit()
    writes, size = publish_and_come_again(stage, 100)
    assert writes <= 2 * 100 + 10
    assert size <= (2 * 100 + 20) * 1024
    stage.db.may_write.set()
    await stage.committer.finish_all()


@pytest.mark.parametrize("durability", ("os", "fsync"))
async def test_a_disk_that_fails_now_and_then_never_lies(durability: str) -> None:
    """Whoever was acknowledged finds its record in the database at that moment."""
    stage = Stage(durability)
    stage.db.odds = 0.3
    wrong: list[bytes] = []
    peers: list[Peer] = []

    def look(key: bytes) -> None:
        if key not in stage.db.data:
            wrong.append(key)

    for turn in range(500):
        peer = stage.peer()
        peer.on_write = partial(look, b"%d" % turn)
        peers.append(peer)
        stage.work(peer, b"%d" % turn)
        if turn % 2:
            await asyncio.sleep(0)
        if turn % 7 == 0:
            await peer.wait_for_answer()
    stage.db.odds = 0.0
    await stage.committer.finish_all()
    assert wrong == []
    for turn, each in enumerate(peers):
        assert bool(each.sent) is not each.is_closed
        assert b"%d" % turn in stage.db.data
    assert {each.is_closed for each in peers} == {True, False}


async def test_a_damaged_store_is_told_with_what_helps(caplog: pytest.LogCaptureFixture) -> None:
    stage = Stage("os")
    await cut_off(stage, plyvel.CorruptionError(b"Corruption: block checksum mismatch"))
    assert "block checksum mismatch; durable work is refused" in caplog.text
    assert "stop the broker and run 'vmq store repair'" in caplog.text
    stage.db.error = None
    await stage.committer.finish_all()


async def test_a_database_that_cannot_be_opened_again_is_tried_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    stage = Stage("os")
    stage.db.fails_to_open = True
    second, third = stage.peer(), stage.peer()
    await cut_off(stage)
    stage.work(second, b"2")
    await second.wait_until(lambda: second.is_closed)
    assert stage.db.is_closed
    assert "cannot open" in caplog.text
    stage.db.error = None
    stage.work(third, b"3")
    await third.wait_until(lambda: bool(third.sent))
    assert set(stage.db.data) == {b"1", b"2", b"3"}


async def test_a_clean_stop_gives_up_on_a_broken_disk(caplog: pytest.LogCaptureFixture) -> None:
    stage = Stage("os")
    stage.db.error = FULL
    stage.store.put(b"1", b"")
    async with asyncio.timeout(PATIENCE):
        await stage.committer.finish_all()
    assert stage.store.get(b"1") == b""
    assert caplog.text.count("cannot write") >= 3
    if stage.committer.handle is not None:
        stage.committer.handle.cancel()


@pytest.mark.parametrize("durability", ("os", "fsync"))
async def test_while_what_goes_with_a_commit_cannot_be_written_nothing_is_and_nobody_is_acknowledged(
    durability: str, caplog: pytest.LogCaptureFixture
) -> None:
    stage = Stage(durability)
    tries: list[int] = []

    def fail() -> None:
        tries.append(len(stage.db.writes))
        if len(tries) < 4:
            raise ValueError("a defect")

    stage.committer.before.append(fail)
    first = stage.peer()
    stage.work(first, b"1")
    await first.wait_until(lambda: first.is_closed)
    is_failing = stage.store.failing
    assert is_failing
    assert stage.db.writes == []
    assert "the store cannot write: a defect; durable work is refused" in caplog.text
    assert "in fail" in caplog.text  # a traceback
    await stage.committer.finish_all()
    assert tries == [0, 0, 0, 0]
    is_failing = stage.store.failing
    assert not is_failing
    later = stage.peer()
    stage.work(later, b"2")
    await later.wait_for_answer()
    assert (first.sent, later.sent) == ([], [b"ack 2;"])
    assert stage.db.data == {b"1": b"", b"2": b""}


async def test_any_failure_of_a_write_is_told_and_the_next_is_tried() -> None:
    """As that of a database that somebody has closed."""
    stage = Stage("os")
    await cut_off(stage, RuntimeError("Database is closed"))
    stage.db.error = None
    await stage.committer.finish_all()
    assert stage.db.data == {b"1": b""}


@pytest.mark.parametrize("durability", ("os", "fsync"))
async def test_a_store_that_is_closed_is_not_opened_again(durability: str) -> None:
    stage = Stage(durability)
    stage.db.error = FULL
    stage.store.put(b"1", b"")
    stage.committer.commit()
    writing = stage.committer.writing
    stage.committer.close()
    if writing is not None:
        await asyncio.wait([writing])
    stage.store.put(b"2", b"")
    for _ in range(5):
        await asyncio.sleep(0.001)
    assert stage.db.is_closed
    assert stage.committer.handle is None
