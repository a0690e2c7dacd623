"""Files of jobs that are not what was written: all is there that was written elsewhere, and it is told."""

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests.support.flipped import flip
from tests.vmq.jobs.storage.lives import Node
from vmq.jobs.queue import Job
from vmq.jobs.storage import segments
from vmq.jobs.storage.frames import HEAD, HEAD_SIZE, frame, job_header
from vmq.jobs.storage.journal import SegmentWalk
from vmq.jobs.storage.segments import HEADER


def filled(folder: Path, count: int, segment_size: int = 1 << 20) -> tuple[Node, list[Job]]:
    """Jobs in frames of their own."""
    node = Node(folder)
    node.journal.segment_size = segment_size
    jobs = []
    for number in range(count):
        jobs.append(node.add(b"%03d" % number * 50))
        node.journal.commit()
    node.segments.close()
    return node, jobs


def places(data: bytes) -> list[tuple[int, int, int]]:
    """Where each frame's head, its bodies and its end are."""
    at = len(HEADER)
    found = []
    while at < len(data):
        _, _, _, told, bodies, _ = HEAD.unpack(data[at : at + HEAD_SIZE])
        middle = at + HEAD_SIZE + told
        found.append((at, middle, middle + bodies))
        at = middle + bodies
    return found


def ids(jobs: list[Job]) -> set[bytes]:
    return {each.id for each in jobs}


@pytest.mark.parametrize("part", ["magic", "crc", "length", "events", "body"])
@pytest.mark.parametrize("which", [0, 4, 9])
def test_one_flipped_bit_costs_one_frame(tmp_path: Path, part: str, which: int) -> None:
    node, jobs = filled(tmp_path, 10)
    [path] = tmp_path.glob("*.jobs")
    head, middle, _ = places(path.read_bytes())[which]
    offsets = {"magic": head, "crc": head + 5, "length": head + 13, "events": middle - 3}
    flip(path, offsets.get(part, middle + 7))
    node = Node(tmp_path, node.now)
    rest = ids(jobs[:which] + jobs[which + 1 :])
    assert set(node.machine.jobs) == rest
    is_torn = (part, which) == ("length", 9)  # it says that it is longer than the file
    assert node.damaged == ([] if is_torn else [path.name + ".damaged"])
    # What is kept outlives the segment, and everything goes on.
    for each in rest:
        node.machine.acknowledge(each)
    fresh = node.add(b"fresh")
    node.journal.commit()
    node = node.again()
    assert set(node.machine.jobs) == {fresh.id}
    assert [each.name for each in tmp_path.glob("*.damaged")] == node.damaged
    assert is_torn or not path.exists()
    for name in node.damaged:
        (tmp_path / name).unlink()
    assert node.segments.damaged() == []


def test_damage_in_an_older_segment_costs_one_frame(tmp_path: Path) -> None:
    node, jobs = filled(tmp_path, 9, 700)
    first = min(tmp_path.glob("*.jobs"))
    frames = places(first.read_bytes())
    assert 1 < len(frames) < 9
    flip(first, frames[0][0] + HEAD_SIZE + 3)
    node = Node(tmp_path, node.now)
    assert set(node.machine.jobs) == ids(jobs[1:])
    assert node.damaged == [first.name + ".damaged"]


def test_a_body_that_is_not_what_was_written_is_given_to_nobody(tmp_path: Path) -> None:
    """In an older segment nobody looks at bodies at the start."""
    node, jobs = filled(tmp_path, 9, 700)
    first = min(tmp_path.glob("*.jobs"))
    _, middle, _ = places(first.read_bytes())[1]
    flip(first, middle + 20)
    node = Node(tmp_path, node.now)
    assert set(node.machine.jobs) == ids(jobs)
    for number, job in enumerate(jobs):
        found = node.machine.jobs[job.id]
        if number != 1:
            assert node.body(found) == b"%03d" % number * 50
            continue
        for _ in range(2):
            with pytest.raises(OSError, match=rf"{first.name} is damaged"):
                node.body(found)
    # The others move out of the segment all the same.
    oldest = node.segments.oldest()
    assert oldest is not None
    with pytest.raises(OSError, match="is damaged"):
        node.journal.clean(SegmentWalk(node.machine).some(oldest.number, oldest.live))
    node.journal.commit()
    assert oldest.live == 1
    node = node.again()
    assert set(node.machine.jobs) == ids(jobs)


def test_a_file_with_another_beginning_is_read_all_the_same(tmp_path: Path) -> None:
    node, jobs = filled(tmp_path, 3)
    [path] = tmp_path.glob("*.jobs")
    flip(path, 2)
    node = Node(tmp_path, node.now)
    assert set(node.machine.jobs) == ids(jobs)
    assert node.damaged


def test_a_body_that_looks_like_a_frame_is_none(tmp_path: Path) -> None:
    """The bodies are the clients': what the head of a damaged frame says of their length counts."""
    node = Node(tmp_path)
    other = node.add(b"y", b"other")
    node.journal.commit()
    other.serial = 99
    forged = b"".join(frame([99 << 4], [job_header(other, 1 << 62)], [b"forged!" * 10]))
    evil = node.add(b"x" * 5 + forged)
    node.journal.commit()
    last = node.add(b"z")
    node.journal.commit()
    node.segments.close()
    [path] = tmp_path.glob("*.jobs")
    head, _, _ = places(path.read_bytes())[1]
    flip(path, head + HEAD_SIZE + 2)
    node = Node(tmp_path, node.now)
    assert set(node.machine.jobs) == {other.id, last.id}
    assert evil.id not in node.machine.jobs
    assert node.body(node.machine.jobs[other.id]) == b"y"


def test_bodies_full_of_what_frames_begin_with_are_searched_through_in_bounded_time(
    tmp_path: Path,
) -> None:
    node = Node(tmp_path)
    first = node.add(b"a")
    node.journal.commit()
    head = HEAD.pack(0x4A4F4231, 1, 1, 1 << 20, 0, 1)
    node.add(head * 100_000)
    node.journal.commit()
    node.segments.close()
    [path] = tmp_path.glob("*.jobs")
    place, _, _ = places(path.read_bytes())[1]
    flip(path, place)
    node = Node(tmp_path, node.now)
    assert list(node.machine.jobs) == [first.id]
    assert node.damaged


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.integers(0, 1 << 20), st.integers(0, 7)), min_size=1, max_size=4))
@example([(8, 0), (292, 6)])  # the second frame claims to be longer than the file
def test_whatever_bits_flip_the_other_frames_are_there(
    tmp_path_factory: pytest.TempPathFactory, flips: list[tuple[int, int]]
) -> None:
    folder = tmp_path_factory.mktemp("jobs")
    node, jobs = filled(folder, 12)
    [path] = folder.glob("*.jobs")
    data = bytearray(path.read_bytes())
    frames = places(bytes(data))
    hurt = set()
    for place, bit in flips:
        at = place % len(data)
        data[at] ^= 1 << bit
        hurt.add(at)
    path.write_bytes(data)
    whole = [
        job
        for job, (head, _, end) in zip(jobs, frames, strict=True)
        if not any(head <= at < end for at in hurt)
    ]
    node = Node(folder, node.now)
    assert ids(whole) <= set(node.machine.jobs) <= ids(jobs)
    for each in whole:
        assert node.body(node.machine.jobs[each.id]) == b"%03d" % jobs.index(each) * 50


def test_what_was_torn_and_could_not_be_cut_off_is_before_anything_else_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node, jobs = Node(tmp_path), []
    whole = segments.write_all

    def tears(fd: int, pieces: list[bytes]) -> int:
        whole(fd, [pieces[0][:-1]])
        raise OSError("no space")

    def cannot_cut(fd: int, size: int) -> None:
        raise OSError("not today")

    jobs.append(node.add(b"before"))
    node.journal.commit()
    jobs.append(node.add(b"behind"))
    with monkeypatch.context() as broken:
        broken.setattr(os, "ftruncate", cannot_cut)
        with monkeypatch.context() as full:
            full.setattr(segments, "write_all", tears)
            with pytest.raises(OSError, match="not today"):
                node.journal.commit()
        node.journal.segment_size = 0
        for size in (0, 1 << 20):  # nor does another segment begin
            node.journal.segment_size = size
            with pytest.raises(OSError, match="not today"):
                node.journal.commit()
    node.journal.commit()
    node = node.again()
    assert not node.damaged
    assert set(node.machine.jobs) == ids(jobs)


def test_a_start_syncs_what_a_life_left_that_died_before_it_did(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = Node(tmp_path, persistence=2)
    node.add()
    node.journal.commit()
    synced: list[int] = []
    monkeypatch.setattr(os, "fdatasync", lambda fd: synced.append(os.fstat(fd).st_ino))
    node = node.again()
    assert synced == [segment.path.stat().st_ino for segment in node.segments.all.values()]
