"""Files that are open only while they are used, and a while longer."""

import os
import resource
import threading
from pathlib import Path
from unittest.mock import patch

import pytest

from vmq.disk import open_files
from vmq.disk.open_files import OpenFiles, RestingFile, count_open, most_open
from vmq.runtime.process import open_files as descriptors


@pytest.fixture(autouse=True)
def own(monkeypatch: pytest.MonkeyPatch) -> None:
    """What other tests left open counts for nothing."""
    monkeypatch.setattr(open_files, "_OPEN", OpenFiles())


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> int:
    """So many may be open."""
    monkeypatch.setattr(open_files, "most_open", lambda: 2)
    return 2


def make(folder: Path, count: int) -> list[RestingFile]:
    made = []
    for number in range(count):
        path = folder / str(number)
        path.write_bytes(b"%d" % number)
        made.append(RestingFile(path))
    return made


def test_as_many_as_may_be_are_open_and_each_can_be_used(tmp_path: Path, few: int) -> None:
    before = descriptors()
    files = make(tmp_path, 20)
    for number, file in enumerate(files):
        with file as fd:
            assert os.pread(fd, 10, 0) == b"%d" % number
            os.pwrite(fd, b"%d" % (number + 1), 0)
        assert count_open() == few
    assert descriptors() == before + 2
    for file in files:
        file.close()
    assert count_open() == 0
    assert [int((tmp_path / str(each)).read_bytes()) for each in range(20)] == [*range(1, 21)]


def test_what_was_used_last_stays_open(tmp_path: Path, few: int) -> None:
    first, second, third = make(tmp_path, 3)
    assert (first.fd, count_open()) == (-1, few)
    with second:
        pass
    with first:
        pass
    assert third.fd == -1
    assert second.fd >= 0
    for file in (first, second, third):
        file.close()


@patch.object(open_files, "most_open", lambda: 0)
def test_a_file_in_use_is_not_closed_for_another(tmp_path: Path) -> None:
    first, second = make(tmp_path, 2)
    with first as fd, second:
        assert os.pread(fd, 10, 0) == b"0"
        first.close()
        assert os.pread(fd, 10, 0) == b"0"  # until it is let go of
    with pytest.raises(OSError, match="Bad file descriptor"), first:
        pass
    second.close()
    assert count_open() == 0


def test_a_file_that_cannot_be_opened_is_an_error_and_is_tried_again(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        RestingFile(tmp_path / "none")
    made = RestingFile(tmp_path / "made", os.O_RDWR | os.O_CREAT)
    made.close()
    assert (tmp_path / "made").stat().st_mode & 0o777 == 0o640 & ~_umask()


def _umask() -> int:
    found = os.umask(0o022)
    os.umask(found)
    return found


@patch.object(open_files, "most_open", lambda: 3)
def test_threads_use_and_close_files_at_the_same_time(tmp_path: Path) -> None:
    files = make(tmp_path, 12)
    wrong: list[object] = []

    def use(begin: int) -> None:
        for turn in range(300):
            number = (begin + turn * 5) % len(files)
            with files[number] as fd:
                if (found := os.pread(fd, 10, 0)) != b"%d" % number:
                    wrong.append((number, found))

    threads = [threading.Thread(target=use, args=(begin,)) for begin in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    for file in files:
        file.close()
    assert count_open() == 0


@pytest.mark.parametrize(
    ("limit", "most"), [(1024, 256), (20_000, 5000), (8, 16), (1 << 20, 16_384), (-1, 16_384)]
)
def test_a_quarter_of_what_the_process_may_have_is_kept_open(
    limit: int, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _which: (limit, limit))
    assert most_open() == most
