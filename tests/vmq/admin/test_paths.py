"""Addresses of sockets whose paths are too long for addresses."""

import socket
import sys
from pathlib import Path

import pytest

from vmq.admin.paths import MAX_PATH, socket_of, within_limit


def test_a_short_path_is_its_own_address(tmp_path: Path) -> None:
    with within_limit(Path("/tmp/x.sock")) as address:
        assert address == "/tmp/x.sock"


@pytest.mark.skipif(sys.platform != "linux", reason="the way around goes through /proc")
def test_a_long_path_works(tmp_path: Path) -> None:
    folder = tmp_path / ("d" * 100)
    folder.mkdir()
    path = socket_of(folder)
    assert len(str(path)) > MAX_PATH
    with socket.socket(socket.AF_UNIX) as server, socket.socket(socket.AF_UNIX) as client:
        with within_limit(path) as address:
            server.bind(address)
        server.listen()
        assert path.is_socket()
        with within_limit(path) as address:
            client.connect(address)


def test_a_missing_folder_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / ("d" * 100) / "admin.sock"
    with pytest.raises(FileNotFoundError), within_limit(path):
        pass
