"""Files that are replaced as a whole."""

import os
from pathlib import Path

import pytest
from vmq_hooks.replacing import replace_file


def test_a_replaced_file_is_on_the_disk_before_it_has_its_name_and_its_name_before_that_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "rules"
    path.write_text("one")
    synced: list[tuple[str, str]] = []

    def sync(fd: int) -> None:
        synced.append((Path(f"/proc/self/fd/{fd}").readlink().name, path.read_text()))

    monkeypatch.setattr(os, "fsync", sync)
    replace_file(path, b"two")
    assert synced == [("rules.tmp", "one"), (path.parent.name, "two")]
