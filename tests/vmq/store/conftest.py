"""What tests of the store share."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from vmq.store.opening import open_store
from vmq.store.store import Store


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = open_store(tmp_path / "store", "os", lambda: None)
    yield opened
    opened.db.close()


@pytest.fixture(scope="module")
def memory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the tests of a file have folders."""
    return tmp_path_factory.mktemp("memory")


@pytest.fixture
def folder(memory: Path, original: Path) -> Path:
    """A copy of what the file calls its `original`, for one test."""
    shutil.rmtree(memory / "copy", ignore_errors=True)
    return Path(shutil.copytree(original, memory / "copy"))
