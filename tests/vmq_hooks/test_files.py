"""A watched file: what is new counts, what is broken changes nothing."""

# ruff: noqa: ASYNC240 - files of a test's own folder block nobody

import asyncio
import logging
import os
from pathlib import Path
from typing import Any

import pytest
from vmq_hooks.files import MAX_FILE_BYTES, FileError, FileOptions, WatchedFile
from vmq_hooks.testing import FakeBroker


def parse(data: bytes) -> list[str]:
    if b"bad" in data:
        raise FileError(Path("rules"), data[: data.index(b"bad")].count(b"\n") + 1, "a bad word")
    return data.decode().split()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "rules"
    path.write_text("one")
    return path


@pytest.fixture
def file(path: Path) -> WatchedFile[list[str]]:
    file = WatchedFile(path, parse)
    assert file.load()
    return file


def age(path: Path) -> None:
    """As if the file had been written long ago, which makes its time stamp count."""
    os.utime(path, (1, 1))


def test_what_is_read_is_new_once(file: WatchedFile[list[str]]) -> None:
    assert file.content == ["one"]
    assert not file.load()


def test_a_file_written_in_place_is_seen(file: WatchedFile[list[str]], path: Path) -> None:
    path.write_text("two")
    assert file.load()
    assert file.content == ["two"]


def test_a_file_put_in_its_place_is_seen(file: WatchedFile[list[str]], path: Path) -> None:
    age(path)
    file.load()
    other = path.with_name("new")
    other.write_text("two")
    age(other)
    other.replace(path)
    assert file.load()
    assert file.content == ["two"]


def test_a_file_written_twice_within_a_time_stamp_is_seen(
    file: WatchedFile[list[str]], path: Path
) -> None:
    before = path.stat()
    path.write_text("two")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert file.load()
    assert file.content == ["two"]


def test_an_old_file_is_not_read_again(file: WatchedFile[list[str]], path: Path) -> None:
    age(path)
    assert not file.load()  # read, and found to be the same
    path.write_text("two")
    age(path)
    assert not file.load()  # same file, size and time stamp


def test_what_is_refused_leaves_the_content(file: WatchedFile[list[str]], path: Path) -> None:
    path.write_text("two\nbad")
    for _ in range(2):
        with pytest.raises(FileError, match="rules, line 2: a bad word"):
            file.load()
    assert file.content == ["one"]
    path.write_text("one")
    assert not file.load()
    path.write_text("three")
    assert file.load()


def test_a_missing_file_is_an_error_and_leaves_the_content(
    file: WatchedFile[list[str]], path: Path
) -> None:
    path.unlink()
    with pytest.raises(FileError, match="rules: No such file or directory"):
        file.load()
    assert file.content == ["one"]


def test_a_huge_file_is_refused(path: Path) -> None:
    os.truncate(path, MAX_FILE_BYTES + 1)
    with pytest.raises(FileError, match="rules: larger than 67108864 bytes"):
        WatchedFile(path, parse).load()


class TestWatching:
    async def test_a_complaint_is_made_once_for_each_fault(
        self,
        file: WatchedFile[list[str]],
        path: Path,
        tmp_path: Path,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        async def on_change() -> None:
            raise AssertionError("nothing new is in force")

        caplog.set_level(logging.WARNING)
        async with FakeBroker(tmp_path) as broker:
            for text in ("bad", "bad", "\nbad", "one", "bad"):
                path.write_text(text)
                await file.look(broker, on_change)
                said = broker.problems.get("rules", "")
                assert said.endswith(": a bad word") is (text != "one")
        rules = Path("rules").absolute()
        assert [record.message.split(";")[0] for record in caplog.records] == [
            f"{rules}, line 1: a bad word",
            f"{rules}, line 2: a bad word",
            f"{rules}, line 1: a bad word",
        ]

    async def test_a_defect_of_the_plugin_does_not_end_it(
        self, path: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        told = asyncio.Queue[str]()
        faults = [AttributeError("in on_change")]

        def read(data: bytes) -> str:
            return data.decode()

        async def on_change() -> None:
            if faults:
                raise faults.pop()
            told.put_nowait(watched.content)

        watched = WatchedFile(path, read)
        watched.load()
        async with FakeBroker(tmp_path) as broker:
            path.write_bytes(b"\xff")
            await watched.look(broker, on_change)
            await watched.look(broker, on_change)
            for word in ("two", "three"):
                path.write_text(word)
                await watched.look(broker, on_change)
            assert told.get_nowait() == "three"
        unreadable, unchanged = (each.message for each in caplog.records)
        assert unreadable.startswith(f"{path}: UnicodeDecodeError: ")
        assert unreadable.endswith("; what was read before stays in force")
        assert unchanged == f"{path}: after a change"

    async def test_a_file_that_is_being_written_is_waited_for(
        self, file: WatchedFile[list[str]], path: Path, tmp_path: Path
    ) -> None:
        contents = [b"", b"tw", b"two", b"two"]

        class Writing(FakeBroker):
            """Each reading finds the file as its writer has left it so far."""

            async def run_in_thread(self, function: Any, /, *args: Any, **kwargs: Any) -> Any:
                if not args:
                    path.write_bytes(contents.pop(0))
                return function(*args, **kwargs)

        told: list[list[str]] = []

        async def on_change() -> None:
            told.append(file.content)

        async with Writing(tmp_path) as broker:
            await file.look(broker, on_change)
        assert told == [["two"]]
        assert not contents


class TestFollowing:
    async def test_the_file_of_a_plugin_s_options(self, path: Path) -> None:
        changed = asyncio.Queue[str]()
        options = FileOptions("rules", 0.01)

        async def on_change() -> None:
            changed.put_nowait(followed.content[0])

        def read(data: bytes, seen: Path) -> list[str]:
            assert seen == path
            return parse(data)

        async with FakeBroker(path.parent) as broker:
            followed = WatchedFile.follow(broker, options, read, on_change)
            assert followed.content == ["one"]
            for word in ("two", "three"):
                path.write_text(word)
                async with asyncio.timeout(10):
                    assert await changed.get() == word

    async def test_it_has_to_be_there_and_may_be_left_alone(self, path: Path) -> None:
        async def on_change() -> None:
            raise AssertionError("nobody looks")

        def read(data: bytes, _path: Path) -> list[str]:
            return parse(data)

        async with FakeBroker(path.parent) as broker:
            WatchedFile.follow(broker, FileOptions("rules", 0), read, on_change)
            assert not broker._tasks
            with pytest.raises(FileError, match="other: No such file"):
                WatchedFile.follow(broker, FileOptions("other"), read, on_change)
