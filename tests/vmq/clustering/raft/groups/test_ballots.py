"""Votes outlive whatever befalls their file, or the node votes under its name no more."""

import errno
import os
import struct
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from unittest.mock import patch

import crc32c
import msgspec
import pytest

from tests.support.flipped import flip
from vmq.clustering.raft.groups.ballots import Ballots
from vmq_cluster.raft.effects import Ballot
from vmq_cluster.raft.members import Members


def written(path: Path) -> Ballots:
    ballots = Ballots(path)
    ballots.save({"g": Ballot(1, "a"), "h": Ballot(2)})
    ballots.save({"g": Ballot(3, "b", True)})
    return ballots


def test_the_last_ballot_of_a_group_counts(tmp_path: Path) -> None:
    first = written(tmp_path / "ballots")
    first.close()
    again = Ballots(tmp_path / "ballots")
    assert again.known == {"g": Ballot(3, "b", True), "h": Ballot(2)}
    assert (again.identity, again.boot) == (first.identity, first.boot + 1)
    again.close()


def test_a_ballot_of_an_earlier_version_says_nothing_of_members(tmp_path: Path) -> None:
    path = tmp_path / "ballots"
    body = msgspec.msgpack.encode(("g", (3, "b", True)))
    path.write_bytes(struct.pack(">II", len(body), crc32c.crc32c(body)) + body)
    ballots = Ballots(path)
    assert ballots.known == {"g": Ballot(3, "b", True)}
    known = Ballot(3, "b", True, Members(("a", "b"), ("c",)), 7)
    ballots.save({"g": known})
    ballots.close()
    assert read(path)[0] == {"g": known}


def read(path: Path) -> tuple[dict[str, Ballot], str]:
    """The ballots as a start finds them, and whose they are."""
    with closing(Ballots(path)) as found:
        return found.known, found.identity


@pytest.mark.parametrize("cut", range(1, 40, 3))
def test_a_write_that_was_cut_off_takes_nothing_else_with_it(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "ballots"
    first = written(path)
    size = path.stat().st_size
    first.save({"i": Ballot(9, "somebody with a name")})
    first.close()
    raw = path.read_bytes()
    path.write_bytes(raw[: min(size + cut, len(raw) - 1)])
    assert read(path) == ({"g": Ballot(3, "b", True), "h": Ballot(2)}, first.identity)


def test_who_cannot_read_a_vote_comes_back_under_another_name(tmp_path: Path) -> None:
    path = tmp_path / "ballots"
    first = written(path)
    first.close()
    flip(path, path.stat().st_size // 2)
    again = Ballots(path)
    assert again.identity != first.identity
    assert again.known == {}
    assert (tmp_path / "ballots.damaged").exists()
    again.close()


def test_the_file_does_not_grow_for_ever(tmp_path: Path) -> None:
    ballots = Ballots(tmp_path / "ballots")
    name = "a" * 200
    ballots.save({"g": Ballot(1, name)})
    ballots._size = 1 << 20
    ballots.save({"g": Ballot(20_000, name)})
    assert (tmp_path / "ballots").stat().st_size < 4096
    ballots.close()
    assert read(tmp_path / "ballots")[0] == {"g": Ballot(20_000, name)}


@contextmanager
def full_disk(room: int) -> Iterator[None]:
    """A disk that takes so many bytes more: of the write that reaches its end a part."""
    left = room
    real_write, real_pwrite = os.write, os.pwrite

    def part(raw: bytes) -> memoryview:
        nonlocal left
        if not left:
            raise OSError(errno.ENOSPC, "No space left on device")
        taken = memoryview(raw)[:left]
        left -= len(taken)
        return taken

    with (
        patch.object(os, "write", lambda fd, raw: real_write(fd, part(raw))),
        patch.object(os, "pwrite", lambda fd, raw, at: real_pwrite(fd, part(raw), at)),
    ):
        yield


def test_a_vote_of_which_a_full_disk_took_a_part_is_not_given(tmp_path: Path) -> None:
    path = tmp_path / "ballots"
    first = written(path)
    before = path.read_bytes()
    with full_disk(10), pytest.raises(OSError, match="No space"):
        first.save({"g": Ballot(4, "somebody with a name")})
    assert path.read_bytes() == before
    first.save({"g": Ballot(5, "c")})
    first.close()
    assert read(path) == ({"g": Ballot(5, "c"), "h": Ballot(2)}, first.identity)


@pytest.mark.parametrize("room", [0, 5, 40])
def test_a_start_on_a_full_disk_takes_no_vote_away(tmp_path: Path, room: int) -> None:
    path = tmp_path / "ballots"
    first = written(path)
    first.close()
    before = path.read_bytes()
    with full_disk(room), pytest.raises(OSError, match="No space"):
        Ballots(path)
    assert path.read_bytes() == before
    assert [each.name for each in tmp_path.iterdir()] == ["ballots"]
    assert read(path) == ({"g": Ballot(3, "b", True), "h": Ballot(2)}, first.identity)


def test_a_file_whose_new_name_is_not_on_the_disk_is_written_anew(tmp_path: Path) -> None:
    """What is added to the one before it would be lost with that: it has no name any more."""
    path = tmp_path / "ballots"
    first = written(path)
    first._size = 1 << 20
    with (
        patch(
            "vmq.clustering.raft.groups.ballots.sync_folder", side_effect=OSError("the disk failed")
        ),
        pytest.raises(OSError, match="the disk failed"),
    ):
        first.save({"g": Ballot(4, "c")})
    first._size = 100
    first.save({"g": Ballot(5, "d")})
    first.close()
    assert read(path)[0] == {"g": Ballot(5, "d"), "h": Ballot(2)}
