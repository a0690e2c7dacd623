"""What tests of the configuration share."""

from pathlib import Path

import pytest


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Where a test's configuration file is written."""
    return tmp_path / "test.toml"
