import ctypes
import logging
import platform
from collections.abc import Callable, Iterable

import pytest

import vmq.resources.memory
from tests.support.wire import connect_packet, publish_packet
from tests.vmq.support import Client, House
from vmq.core.retained import MESSAGE_SIZE
from vmq.core.subscription_set import NODE_SIZE, SUBSCRIPTION_SIZE
from vmq.protocol.connection import LARGE_CUT, Connection
from vmq.resources.memory import INTERVAL, LEAST_ROOM, MemoryWatch, machine_bytes
from vmq.runtime.process import keep_freed_memory, resident_bytes


def watch_of(
    house: House,
    used: list[int],
    limit: int = 1000,
    connections: Callable[[], Iterable[Connection]] = tuple,
) -> MemoryWatch:
    return MemoryWatch(house.core, limit, connections, lambda: used[0])


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


def cut_publish(size: int) -> bytes:
    """The beginning of a PUBLISH, of so many bytes, of which more would follow."""
    return publish_packet("t", bytes(1_000_000))[:size]


def test_of_large_packets_under_way_no_more_is_read(house: House) -> None:
    """Those that were there when the alarm was raised, and those that grow while it lasts."""
    used = [10]
    large, small = house.client("large"), house.client("small")
    watch = watch_of(house, used, connections=lambda: [large.connection, small.connection])
    watch.look()
    large.send(cut_publish(LARGE_CUT + 1))
    small.send(cut_publish(LARGE_CUT - 100))
    used[0] = 1050
    watch.look()
    assert (large.transport.reading, small.transport.reading) == (False, True)
    small.send(bytes(101))
    assert not small.transport.reading
    used[0] = 10
    watch.look()
    assert (large.transport.reading, small.transport.reading) == (True, True)


def test_if_waiting_does_not_help_the_largest_packets_under_way_go(
    house: House, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    limit = 10_000_000
    used = [limit + 1]
    clients = [house.client(f"c{number}") for number in range(4)]
    watch = watch_of(house, used, limit, lambda: [each.connection for each in clients])
    for number, client in enumerate(clients):
        client.send(cut_publish(200_000 * (1 + number)))
    watch.look()
    watch.look()
    assert not any(client.is_closed() for client in clients)  # they have a second
    house.clock.advance(INTERVAL)
    watch.look()
    # A tenth of the limit is to be had: 800,000 and 600,000 bytes.
    assert [client.is_closed() for client in clients] == [False, False, True, True]
    assert house.core.counters.memory_ended == 2
    assert "client=c3" in caplog.text
    assert "800000 bytes of a packet that it sends are kept" in caplog.text
    assert clients[3].connection.kept_bytes() == 0


def test_far_above_the_limit_nobody_has_a_second(house: House) -> None:
    limit = 1_000_000
    used = [limit + 1]
    client = house.client("c")
    watch = watch_of(house, used, limit, lambda: [client.connection])
    client.send(cut_publish(900_000))
    watch.look()
    used[0] = int(1.2 * limit)
    watch.look()
    assert client.is_closed()


def test_nobody_goes_for_a_few_bytes_that_do_not_help(house: House) -> None:
    used = [10_000_000]
    client, large = house.client("c"), house.client("large")
    watch = watch_of(house, used, 1_000_000, lambda: [client.connection, large.connection])
    client.send(cut_publish(50_000))
    large.send(cut_publish(70_000))
    watch.look()
    watch.look()
    assert (client.is_closed(), large.is_closed()) == (False, True)


def test_who_is_not_known_yet_goes_first(house: House) -> None:
    used = [2000]
    waiting, idle = Client(house), Client(house)
    watch = watch_of(house, used, connections=lambda: [waiting.connection, idle.connection])
    waiting.send(connect_packet("c")[:5])
    watch.look()
    assert (waiting.is_closed(), idle.is_closed()) == (True, False)
    idle.send(connect_packet("c")[:5])
    assert idle.is_closed()
    assert house.core.counters.memory_refused == 2


def test_memory_is_measured_when_as_much_has_come_as_there_was_room(house: House) -> None:
    measured: list[int] = []
    limit = 100_000_000

    def measure() -> int:
        measured.append(1)
        return limit - LEAST_ROOM - 500_000

    watch = MemoryWatch(house.core, limit, tuple, measure)
    watch.look()
    client = house.client("c")
    measured.clear()
    for _ in range(10):
        client.send(publish_packet("t", bytes(400_000)))
    assert not measured
    for _ in range(10):
        client.send(publish_packet("t", bytes(400_000)))
    assert len(measured) == 1


def test_what_the_trees_take_counts_as_come(house: House) -> None:
    watch_of(house, [10])
    client = house.client("c")
    before = house.core.memory_grown
    packet = publish_packet("a/b", b"x", retain=True)
    client.send(packet)
    assert house.core.memory_grown - before >= len(packet) + MESSAGE_SIZE
    before = house.core.memory_grown
    client.subscribe(("c/d", 0))
    assert house.core.memory_grown - before >= NODE_SIZE + SUBSCRIPTION_SIZE


def test_no_limit_given_means_four_fifths_of_the_machine(house: House) -> None:
    assert MemoryWatch(house.core, 0).limit == machine_bytes() * 4 // 5
    assert 0 < resident_bytes() < machine_bytes()


def test_of_a_container_four_fifths_of_its_limit_and_anew_when_that_changes(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vmq.resources.memory, "memory_limit", lambda: 1_000_000)
    watch = MemoryWatch(house.core, 0)
    assert (watch.limit, house.core.memory_limit) == (800_000, 800_000)
    monkeypatch.setattr(vmq.resources.memory, "memory_limit", lambda: 500_000)
    watch.read_limit()
    assert (watch.limit, house.core.memory_limit) == (400_000, 400_000)


def test_workers_share_a_limit_as_many_as_there_are(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of an earlier start, of which there were more, go; one that is started again keeps its part."""
    monkeypatch.setattr(vmq.resources.memory, "memory_limit", lambda: 1_000_000)
    workers = 4
    watch = MemoryWatch(house.core, 0, measure=lambda: 250_000, sharers=lambda: workers)
    watch.look()
    assert (watch.limit, house.core.memory_is_high) == (200_000, True)
    workers = 2
    watch.look()
    assert (watch.limit, house.core.memory_is_high) == (400_000, False)
    watch.set_limit(600_000)
    assert (watch.limit, house.core.memory_limit) == (300_000, 300_000)
    watch.set_limit(-1)
    workers = 1
    watch.look()
    assert (watch.limit, house.core.memory_limit) == (-1, 0)


def test_a_limit_above_the_container_is_told(
    house: House, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(vmq.resources.memory, "memory_limit", lambda: 1_000_000)
    MemoryWatch(house.core, 900_000)
    assert not caplog.records
    MemoryWatch(house.core, 1_000_001)
    assert "limits.max_memory = 1000001 is above the 1000000 bytes" in caplog.text


def test_freed_memory_is_kept_where_the_c_library_lets_itself_be_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert keep_freed_memory() is (platform.libc_ver()[0] == "glibc")
    monkeypatch.setattr(ctypes, "CDLL", lambda _: object())
    assert keep_freed_memory() is False
