"""Old segments of a replica, written anew: compacted as decided, merged; and what others fetch of them."""

from pathlib import Path
from threading import Thread

import pytest

from tests.support.flipped import flip
from tests.vmq.streams.replica.support import Leader, partition_in
from tests.vmq.streams.support import Row, batch_of, plain, row
from tests.vmq.streams.test_compaction_model import left_of
from vmq.streams.log.cursor import LogReader
from vmq.streams.replica.partition import ReplicaPartition
from vmq.streams.replica.tidying import due, final_of, tidy
from vmq.streams.tidying.compaction import CompactionNote, read_note
from vmq_cluster.raft.messages import ROWS, Mark
from vmq_cluster.raft.state import LogState

GAP: Row = {"topic": "", "payload": b"gap", "timestamp": 0}


class Writer(Leader):
    """Writes segments whose rows are known; an offset is a place in `rows`, one without a row has `GAP`."""

    def __init__(self, partition: ReplicaPartition) -> None:
        super().__init__(partition.open())
        self.partition = partition
        self.rows_by_offset: list[Row] = []

    def put(self, topics: str) -> None:
        """A batch with a row for each letter; capital letters are tombstones."""
        at = self.log.end
        self.rows_by_offset += [GAP] * (at - len(self.rows_by_offset))
        rows = [
            row(at + number, each.lower(), b"" if each.isupper() else b"p%d" % (at + number))
            for number, each in enumerate(topics)
        ]
        mark = Mark("p", "b", self.next, len(rows))
        self.next += len(rows)
        self.log.append([self.log.make(at, self.term, ROWS, (mark,), [batch_of(rows)])])
        self.rows_by_offset += rows

    def fill(self, count: int = 4) -> None:
        """Some segments, all committed."""
        self.begin()
        for number in range(count):
            for topics in ("ab", "a", "Cb", "ac"):
                self.put(topics)
            self.term += 1
            self.control()
            self.put("d" if number else "x")
            if number < count - 1:
                self.segment()
        self.log.commit(self.log.end)
        self.rows_by_offset += [GAP] * (self.log.end - len(self.rows_by_offset))

    def expected(self, note: CompactionNote) -> list[tuple[int, Row]]:
        return [
            (offset, each)
            for offset, each in left_of(self.rows_by_offset, note).items()
            if each is not GAP
        ]


def seen(partition: ReplicaPartition) -> list[tuple[int, Row]]:
    found: list[tuple[int, Row]] = []
    for chunk in LogReader(partition).read(partition.earliest):
        found += zip(chunk.rows.column("offset").to_pylist(), plain(chunk.rows), strict=True)
    return found


def state_of(partition: ReplicaPartition) -> bytes:
    log = partition.log
    assert log is not None
    return LogState.of(log.replay(log.end)).encode(log.first)


def made(folder: Path) -> Writer:
    writer = Writer(partition_in(folder, compact=True))
    writer.fill()
    return writer


def compact(writer: Writer, end: int, before: int = 0) -> CompactionNote:
    writer.partition.decided = note = CompactionNote(end, before)
    tidy(writer.partition, lambda: False)
    return note


def test_a_leader_decides_up_to_where_nobody_writes_any_more(tmp_path: Path) -> None:
    writer = made(tmp_path)
    final = final_of(writer.log)
    assert len(final) == 2
    wanted = due(writer.partition, CompactionNote(), 7)
    assert wanted == CompactionNote(final[-1].end, 7)
    assert due(writer.partition, wanted, 9) == wanted, "nothing is new, and this one is not done"
    writer.partition.shut()


@pytest.mark.parametrize("is_reopened", [False, True])
def test_all_replicas_have_the_same_left_in_however_many_rounds(
    tmp_path: Path, *, is_reopened: bool
) -> None:
    before = 1 << 60  # all tombstones are old
    ends, left = [], []
    for name, steps in (("a", [1, 2]), ("b", [2]), ("c", [2, 2])):
        writer = made(tmp_path / name)
        state = state_of(writer.partition)
        final = final_of(writer.log)
        for step in steps:
            note = compact(writer, final[step - 1].end, before)
            if is_reopened:
                writer.partition.shut()
                writer.log = writer.partition.open()
        assert read_note(tmp_path / name) == note
        assert seen(writer.partition) == writer.expected(note)
        assert state_of(writer.partition) == state, "members, terms and producers are the same"
        ends.append([(each.base, each.end) for each in writer.log.old])
        left.append(seen(writer.partition))
        writer.partition.shut()
    assert ends[0] == ends[1] == ends[2], "segments begin and end where they did"
    assert left[0] == left[1] == left[2]
    assert len(left[0]) < len(writer.expected(CompactionNote()))


def test_merging_changes_no_row_and_no_control_batch(tmp_path: Path) -> None:
    writer = made(tmp_path)
    rows, state = seen(writer.partition), state_of(writer.partition)
    size = [each.size for each in writer.log.old]
    tidy(writer.partition, lambda: False)
    assert [each.merged for each in writer.log.old] == [True, True]
    assert sum(each.size for each in writer.log.old) < sum(size)
    assert seen(writer.partition) == rows
    heads = [batch for batch in writer.log.read(0, 1 << 30) if batch.kind != ROWS]
    assert [batch.span for batch in heads] == [1, 1]
    marks = [batch.marks for batch in writer.log.read(0, 1 << 30) if batch.kind == ROWS]
    assert marks == [(Mark("p", "b", 0, 7),), (Mark("p", "b", 7, 1),)]
    writer.partition.shut()
    writer.partition.open()
    assert (seen(writer.partition), state_of(writer.partition)) == (rows, state)
    writer.partition.shut()


def test_another_replica_fetches_what_is_compacted_as_a_file(tmp_path: Path) -> None:
    writer = made(tmp_path / "a")
    note = compact(writer, final_of(writer.log)[-1].end)
    other = partition_in(tmp_path / "b", compact=True)
    log = other.open()
    for file in writer.log.files(0):
        data = writer.log.read_file(file, 0, file.size)
        assert log.write_aside(file, 0, data) == file.size
        assert log.install(file)
    assert read_note(other.folder) == CompactionNote()
    assert log.is_full, "nothing is written behind what is compacted but a new segment"
    assert log.loose == log.end
    assert seen(other) == [each for each in writer.expected(note) if each[0] < log.end]
    log.append(writer.log.read(log.end, 1 << 30))
    log.append(writer.log.read(log.end, 1 << 30))
    log.commit(log.end)
    assert seen(other) == writer.expected(note)
    other.shut()
    other.open()
    assert seen(other) == writer.expected(note)
    other.shut()
    writer.partition.shut()


def test_who_reads_while_a_file_takes_a_segment_s_place_sees_it_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that is compacted begins with another schema: its batches lie elsewhere."""
    writer = made(tmp_path)
    found: list[list[tuple[int, Row]]] = []
    readers: list[Thread] = []
    replace = Path.replace

    def and_is_read(work: Path, target: Path) -> Path:
        moved = replace(work, target)
        if target == writer.log.old[0].path:
            reader = Thread(target=lambda: found.append(seen(writer.partition)))
            readers.append(reader)
            reader.start()
            reader.join(0.05)  # it waits for the lock; without one it is done by then
        return moved

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", and_is_read)
        note = compact(writer, final_of(writer.log)[0].end)
    for reader in readers:
        reader.join()
    assert len(readers) == 1
    assert found == [writer.expected(note)]
    assert not writer.partition.flaws
    writer.partition.shut()


@pytest.mark.parametrize("order", ["ab", "ba", "abab", "bbaa"])
def test_a_damaged_segment_is_mended_from_others_whatever_form_theirs_has(
    tmp_path: Path, order: str
) -> None:
    plain_one, compacted, ill = (made(tmp_path / name) for name in "abc")
    note = compact(compacted, final_of(compacted.log)[0].end)
    sealed = ill.log.old[0]
    flip(sealed.path, sealed.path.stat().st_size // 2)
    with pytest.raises(Exception, match=r"CRC|offset|message"):
        seen(ill.partition)
    assert ill.log.find_damage() is None
    asked = 0
    while ill.log.damage:
        source = {"a": plain_one, "b": compacted}[order[asked % len(order)]]
        asked += 1
        assert asked < 50
        first, end = ill.log.damage[0]
        found = source.log.read(first, 1)  # a batch at a time: they take turns within the segment
        ill.log.mend([each for each in found if each.offset < end])
    left, all_rows = ill.expected(note), ill.expected(CompactionNote())
    assert {offset for offset, _ in left} <= {offset for offset, _ in seen(ill.partition)}
    assert all(each in all_rows for each in seen(ill.partition))
    note = compact(ill, final_of(ill.log)[-1].end)
    assert seen(ill.partition) == ill.expected(note)
    for each in (plain_one, compacted, ill):
        each.partition.shut()


def test_what_is_cut_within_a_merged_batch_is_forgotten_whole(tmp_path: Path) -> None:
    writer = made(tmp_path)
    tidy(writer.partition, lambda: False)
    second = writer.log.old[1]
    writer.log.committed = 0
    writer.log.cut(second.base + 3)
    assert writer.log.end == second.base
    writer.partition.shut()


def test_a_copy_is_not_taken_where_the_segment_has_gone(tmp_path: Path) -> None:
    writer = made(tmp_path)
    calls = []

    def late(what: object, *about: object) -> bool:
        calls.append(what)
        writer.log.trim(writer.log.old[-1].end)
        assert callable(what)
        return bool(what(*about))

    writer.partition.call = late
    compact(writer, final_of(writer.log)[-1].end)
    assert calls
    assert not list(tmp_path.glob("*.tmp"))
    assert read_note(tmp_path) == CompactionNote()
    writer.partition.shut()
