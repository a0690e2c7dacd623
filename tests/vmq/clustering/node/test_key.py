"""The key file of a cluster."""

import logging
from pathlib import Path

import pytest

from vmq.clustering.node.key import read_key, write_key
from vmq_cluster.addresses import check_key
from vmq_cluster.errors import ClusterError


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What we have logged; another library may log at any time."""
    return [each.getMessage() for each in caplog.records if each.name.startswith("vmq.")]


def test_a_key_that_was_written_is_read_and_not_overwritten(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "cluster.key"
    write_key(path)
    assert path.stat().st_mode & 0o777 == 0o600
    key = read_key(path)
    assert check_key(key)
    with pytest.raises(FileExistsError):
        write_key(path)
    assert read_key(path) == key
    assert told(caplog) == []


def test_whoever_else_may_read_it_is_warned_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "cluster.key"
    write_key(path)
    path.chmod(0o640)
    with caplog.at_level(logging.WARNING, "vmq.cluster"):
        read_key(path)
    assert told(caplog) == [f"other users may read the cluster's key: chmod 600 {path}"]


@pytest.mark.parametrize("raw", [b"", b"x" * 39, b"\xff" * 40, b"y" * 100_000])
def test_what_is_no_key_is_refused(tmp_path: Path, raw: bytes) -> None:
    path = tmp_path / "cluster.key"
    path.write_bytes(raw)
    path.chmod(0o600)
    with pytest.raises(ClusterError, match="vmq cluster keygen"):
        read_key(path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ClusterError, match=r"cannot read the key: .*nowhere: No such file"):
        read_key(tmp_path / "nowhere")
