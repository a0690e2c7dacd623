"""Tests mirror rooms: what lies in vmq/ROOM is tested below tests/vmq/ROOM."""

from pathlib import Path

import vmq

SOURCES = Path(vmq.__file__).parent
TESTS = Path(__file__).parent

#: Rooms whose tests are elsewhere: the file that tests them, and why.
ELSEWHERE = {
    "admin/jobs": ("cli/admin/test_jobs.py", "seen in the commands"),
    "http/operations": ("http/test_openapi.py", "each is asked there"),
    "admin/readers": ("streams/groups/test_members.py", "seen in the commands for groups"),
}


def rooms(root: Path, pattern: str) -> set[str]:
    """The folders below one that hold files of a kind."""
    return {path.parent.relative_to(root).as_posix() for path in root.rglob(pattern)}


def test_every_room_has_its_tests() -> None:
    assert rooms(SOURCES, "*.py") - rooms(TESTS, "test_*.py") == set(ELSEWHERE)
    for file, _ in ELSEWHERE.values():
        assert (TESTS / file).is_file(), f"{file} is no test file"


def test_no_tests_are_left_of_a_room_that_is_gone() -> None:
    assert rooms(TESTS, "test_*.py") - rooms(SOURCES, "*.py") == set()
