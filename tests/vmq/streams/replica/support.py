"""Batches of a group's log, and what readers see of a replica."""

import os
from pathlib import Path
from typing import Any
from unittest.mock import patch

from tests.vmq.streams.support import OPENED, batch_of, options, row
from vmq.streams.log.cursor import LogReader
from vmq.streams.replica.log import ReplicaLog
from vmq.streams.replica.partition import ReplicaPartition
from vmq_cluster.raft.members import Members
from vmq_cluster.raft.messages import LEADER, ROWS, STATE, Batch, Mark
from vmq_cluster.raft.state import LogState, genesis

MEMBERS = Members(("a", "b", "c"))


def partition_in(folder: Path, **given: Any) -> ReplicaPartition:
    given = {"durability": "os", "retention_age": "never", **given}
    OPENED.append(made := ReplicaPartition(folder, "s", 0, options(**given)))
    return made


def failing_syncs(folder: Path, error: Exception) -> Any:
    """What is to get to the disk of files in a folder does not."""
    sync = os.fdatasync

    def fail(fd: int) -> None:
        if Path(f"/proc/self/fd/{fd}").readlink().parent == folder:
            raise error
        sync(fd)

    return patch.object(os, "fdatasync", fail)


class Leader:
    """Makes the batches that a leader would."""

    def __init__(self, log: ReplicaLog) -> None:
        self.log = log
        self.term = 1
        self.next = 0

    def begin(self) -> list[Batch]:
        batch = Batch(0, 1, 0, STATE, (), genesis(MEMBERS))
        self.log.append([batch])
        return [batch]

    def control(self, kind: int = LEADER) -> list[Batch]:
        batch = self.log.make(self.log.end, self.term, kind, (), [b"x"])
        self.log.append([batch])
        return [batch]

    def segment(self) -> list[Batch]:
        """Begins one."""
        state = LogState.of(self.log.replay(self.log.end)).encode(self.log.first)
        batch = self.log.make(self.log.end, self.term, STATE, (), [state])
        self.log.append([batch])
        return [batch]

    def rows(self, count: int) -> list[Batch]:
        mark = Mark("p", "b", self.next, count)
        made = batch_of([row(self.next + each) for each in range(count)])
        batch = self.log.make(self.log.end, self.term, ROWS, (mark,), [made])
        self.next += count
        self.log.append([batch])
        return [batch]


def numbers_of(batches: list[Batch]) -> list[tuple[int, int]]:
    """Offset and number of each row of some batches."""
    found = []
    for batch in batches:
        if batch.kind == ROWS:
            [mark] = batch.marks
            found += [(batch.offset + at, mark.first + at) for at in range(mark.count)]
    return found


def seen(partition: ReplicaPartition) -> list[tuple[int, int]]:
    """The same of the rows that readers see."""
    reader = LogReader(partition, ["offset", "payload"])
    found = []
    for chunk in reader.read(partition.earliest):
        for each in chunk.rows.to_pylist():
            found.append((each["offset"], int(each["payload"].decode().rpartition("-")[2])))
    return found
