import asyncio
import errno
import os
from collections.abc import AsyncIterator
from itertools import chain, repeat
from pathlib import Path
from unittest.mock import Mock

import pytest

from tests.vmq.streams.log.test_partition import FullDisk
from tests.vmq.streams.support import Clock, options, payloads
from vmq.streams.appender import Appender
from vmq.streams.log.commits import Commits
from vmq.streams.log.partition import Partition


def appender_of(folder: Path, commits: Commits, acks: str = "os") -> Appender:
    made = options(acks=acks)
    return Appender(made, [Partition(folder, "s", 0, made, Clock())], commits)


@pytest.fixture
async def commits() -> AsyncIterator[Commits]:
    found = Commits(asyncio.get_running_loop())
    found.start()
    yield found
    await found.close()


async def test_numbers_are_committed_in_their_order(tmp_path: Path, commits: Commits) -> None:
    commits.interval = 0.0
    one, other = appender_of(tmp_path / "1", commits), appender_of(tmp_path / "2", commits)
    done: list[int] = []
    seen: list[int] = []
    commits.on_committed = done.append
    for number in range(50):
        appender = (one, other)[number % 2]
        seen.append(appender.append(b"t", b"%d" % number, 1, False, "c", 1))
        if number % 3 == 0:
            await asyncio.sleep(0)
    await commits.wait()
    assert done == list(range(1, commits.committed + 1))
    assert seen == sorted(seen)
    assert seen[-1] == commits.committed
    assert payloads(one.partitions[0]) == [b"%d" % number for number in range(0, 50, 2)]


async def test_acks_fsync_waits_for_the_disk(
    tmp_path: Path, commits: Commits, monkeypatch: pytest.MonkeyPatch
) -> None:
    appender = appender_of(tmp_path, commits, "fsync")
    partition = appender.partitions[0]
    order: list[str] = []
    sync = partition.sync

    def synced() -> None:
        sync()
        assert partition.end == 0, "shown before it was on disk"
        order.append("sync")

    monkeypatch.setattr(partition, "sync", synced)
    commits.on_committed = lambda _: order.append("committed")
    appender.append(b"t", b"1", 1, False, "c", 1)
    await commits.wait()
    assert order == ["sync", "committed"]
    assert partition.active.synced == partition.visible


async def test_an_fsync_that_fails_is_not_believed_the_next_time(
    tmp_path: Path, commits: Commits, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel may drop the pages that it could not write: they are written anew."""
    commits.writer.retry_after = 0.0
    appender = appender_of(tmp_path, commits, "fsync")
    partition = appender.partitions[0]
    fails_once = chain([OSError(errno.EIO, "Input/output error")], repeat(None))
    monkeypatch.setattr(os, "fdatasync", Mock(side_effect=fails_once))
    monkeypatch.setattr(partition, "rollback", rollback := Mock(wraps=partition.rollback))
    appender.append(b"t", b"1", 1, False, "c", 1)
    await commits.wait()
    assert rollback.call_count == 1
    assert payloads(partition) == [b"1"]


async def test_closing_gives_a_full_disk_up(
    tmp_path: Path, commits: Commits, monkeypatch: pytest.MonkeyPatch
) -> None:
    commits.writer.retry_after = 3600
    appender = appender_of(tmp_path, commits)
    FullDisk(monkeypatch, 0)
    appender.append(b"t", b"1", 1, False, "c", 1)
    assert not await commits.close(patience=0.05)
    assert commits.committed == 0
    assert payloads(appender.partitions[0]) == []
    assert not commits.writer.thread.is_alive()
