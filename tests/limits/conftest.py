"""What tests of limits share."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.limits.small_disk import SmallDisk, small_disk


@pytest.fixture
def disk(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[SmallDisk]:
    """A file's `DISK` is its size."""
    folder = tmp_path / "disk"
    folder.mkdir()
    with small_disk(folder, getattr(request.module, "DISK", "6m")) as made:
        yield made
