"""How the store is opened: what depends on the disk that it lies on."""

import shutil
from pathlib import Path
from typing import NamedTuple

import pytest

from vmq.config.options import BrokerOptions, Config, StoreOptions
from vmq.persistence.opening import buffer_size


class Usage(NamedTuple):
    total: int
    used: int
    free: int


@pytest.mark.parametrize(
    ("total", "expected"),
    [(100 << 30, 16 << 20), (1 << 30, 16 << 20), (64 << 20, 1 << 20), (1 << 20, 65_536)],
)
def test_the_write_buffer_of_a_small_disk_is_a_64th_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, total: int, expected: int
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(total, 0, total))
    config = Config(broker=BrokerOptions(data_dir=str(tmp_path)))
    assert buffer_size(config) == expected


def test_a_smaller_write_buffer_stays(tmp_path: Path) -> None:
    store = StoreOptions(write_buffer_size=65_536)
    (tmp_path / "store").mkdir()
    config = Config(broker=BrokerOptions(data_dir=str(tmp_path)), store=store)
    assert buffer_size(config) == 65_536
