import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.vmq.streams.support import Clock, options, payloads
from vmq.streams.appender import MOST_KEYS, REFUSED, ROW, Appender
from vmq.streams.log.commits import STEP, Commits
from vmq.streams.log.partition import Partition


@pytest.fixture
async def commits() -> AsyncIterator[Commits]:
    commits = Commits(asyncio.get_running_loop(), limit=300_000)
    commits.start()
    yield commits
    await commits.close()


def make(folder: Path, commits: Commits, **changes: Any) -> Appender:
    made = options(**changes)
    partitions = [
        Partition(folder / str(number), "s", number, made, Clock())
        for number in range(made.partitions)
    ]
    return Appender(made, partitions, commits)


async def test_an_acknowledgement_waits_for_the_commit_that_holds_its_message(
    tmp_path: Path, commits: Commits
) -> None:
    appender = make(tmp_path, commits)
    done: list[int] = []
    commits.on_committed = done.append
    first = appender.append(b"t", b"1", 1, False, "c", 1)
    assert appender.append(b"t", b"2", 1, False, "c", 1) == first == 1
    assert appender.partitions[0].end == 0
    await commits.wait()
    assert (commits.committed, done) == (1, [1])
    assert appender.partitions[0].end == 2
    assert appender.append_run(b"t", [b"3", b"4"], 1, False, "c", 1) == 2
    await commits.wait()
    assert payloads(appender.partitions[0]) == [b"1", b"2", b"3", b"4"]
    assert appender.messages == 4


async def test_with_acks_memory_nothing_waits(tmp_path: Path, commits: Commits) -> None:
    appender = make(tmp_path, commits, acks="memory")
    assert appender.append(b"t", b"1", 1, False, "c", 1) == 0
    assert appender.append_run(b"t", [b"2"], 1, False, "c", 1) == 0
    await commits.wait()
    assert appender.partitions[0].end == 2


@pytest.mark.parametrize("key", ["client_id", "topic", "level:2"])
async def test_messages_of_one_key_keep_their_order(
    tmp_path: Path, commits: Commits, key: str
) -> None:
    appender = make(tmp_path, commits, partitions=4, key=key)
    sent: dict[bytes, list[bytes]] = {}
    for number in range(300):
        topic, client = b"a/%d/b/%d" % (number % 7, number % 3), f"c{number % 5}"
        payload = b"%d" % number
        appender.append(topic, payload, 0, False, client, number)
        sent.setdefault(appender.keys.of(topic, client), []).append(payload)
    await commits.wait()
    for name, wanted in sent.items():
        partition = appender.partitions[appender.keys.partition(name)]
        assert [each for each in payloads(partition) if each in wanted] == wanted
    assert sum(each.end for each in appender.partitions) == 300
    assert sum(each.end > 0 for each in appender.partitions) > 1


async def test_what_the_disk_does_not_take_in_time_is_refused_and_counted(
    tmp_path: Path, commits: Commits
) -> None:
    pressed: list[bool] = []
    commits.on_pressure = pressed.append
    appender = make(tmp_path, commits)
    commits.is_writing = True  # the disk takes its time
    payload = bytes(1000 - ROW - 1)
    answers = [appender.append(b"t", payload, number % 2, False, "c", 1) for number in range(400)]
    taken = [answer for answer in answers if answer != REFUSED]
    assert len(taken) == 300, "to the limit and no further"
    assert answers == [1] * 300 + [REFUSED] * 100
    assert (appender.dropped, appender.refused) == (100, 50)
    assert pressed == [True]
    assert appender.append_run(b"t", [payload] * 7, 1, False, "c", 1) == REFUSED
    assert (appender.dropped, appender.refused) == (107, 57)
    commits.is_writing = False
    await commits.wait()
    assert pressed == [True, False]
    assert appender.partitions[0].end == 300
    assert appender.append(b"t", payload, 1, False, "c", 1) == 2


async def test_a_single_message_above_the_limit_is_taken(tmp_path: Path, commits: Commits) -> None:
    appender = make(tmp_path, commits)
    assert appender.append(b"t", bytes(1_000_000), 1, False, "c", 1) == 1
    await commits.wait()
    assert appender.partitions[0].end == 1


async def test_a_full_step_closes_a_commit_out_of_turn(tmp_path: Path) -> None:
    commits = Commits(asyncio.get_running_loop(), interval=3600)
    commits.start()
    appender = make(tmp_path, commits)
    while commits.number == 1:
        appender.append(b"t", bytes(10_000), 0, False, "c", 1)
    assert appender.messages * 10_000 >= STEP
    await commits.wait()
    await commits.close()


async def test_known_keys_are_bounded(tmp_path: Path, commits: Commits) -> None:
    appender = make(tmp_path, commits, partitions=2, key="topic")
    for number in range(MOST_KEYS + 2):
        appender.partition_of(b"%d" % number, "c")
    assert len(appender.known) == 2
