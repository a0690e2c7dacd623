from __future__ import annotations

import ctypes
import platform

import pytest

from tests.vmq.support import House
from vmq.memory import MemoryWatch, machine_bytes
from vmq.process import keep_freed_memory, resident_bytes


def watch_of(house: House, used: list[int], limit: int = 1000) -> MemoryWatch:
    return MemoryWatch(house.core, limit, lambda: used[0])


def test_above_the_limit_the_alarm_is_raised_and_ends_below_nine_tenths(house: House) -> None:
    used = [1000]
    watch = watch_of(house, used)
    seen = []
    for amount in (1000, 1001, 950, 901, 899, 1000):
        used[0] = amount
        watch.look()
        seen.append(house.core.memory_is_high)
    assert seen == [False, True, True, True, False, False]


def test_a_publisher_is_not_read_until_memory_is_there(house: House) -> None:
    used = [2000]
    client = house.client("c")
    watch = watch_of(house, used)
    watch.look()
    client.send(b"\x30\x03\x00\x01a")
    assert not client.transport.is_reading()
    used[0] = 10
    watch.look()
    assert client.transport.is_reading()


def test_no_limit_given_means_four_fifths_of_the_machine(house: House) -> None:
    assert MemoryWatch(house.core, 0).limit == machine_bytes() * 4 // 5
    assert 0 < resident_bytes() < machine_bytes()


def test_freed_memory_is_kept_where_the_c_library_lets_itself_be_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert keep_freed_memory() is (platform.libc_ver()[0] == "glibc")
    monkeypatch.setattr(ctypes, "CDLL", lambda _: object())
    assert keep_freed_memory() is False
