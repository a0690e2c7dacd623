"""What a bridge notes of its subscriptions at the far broker."""

import errno
import os
from pathlib import Path

import pytest
from vmq_bridge.bridge import Subscribed


def test_what_cannot_be_written_whole_leaves_what_was_noted_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    noted = Subscribed(tmp_path / "far.json")
    noted.save(["a/#"])
    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="Input/output error"):
        noted.save(["b/#"])
    assert noted.load() == ["a/#"]


def test_what_another_node_may_subscribe_to_is_noted_besides(tmp_path: Path) -> None:
    noted = Subscribed(tmp_path / "far.json")
    noted.save(["a/#", "b"])
    noted.add(["c", "b"])
    assert noted.load() == ["a/#", "b", "c"]
