import asyncio
from pathlib import Path

import pytest

from tests.support.present import present
from tests.support.wire import CONNACK, PUBACK, connect_packet, publish_packet
from tests.vmq.support import Client, House, publish_numbers, read_on, subscribed
from vmq.config.options import StoreOptions
from vmq.resources.disk import DiskWatch, half_of, usage_of
from vmq.runtime.health import Health, add_core

GIB = 1 << 30


class Disk:
    """A disk as the test says, and the watch over it."""

    def __init__(self, house: House, options: StoreOptions | None = None, share: int = 1) -> None:
        self.total, self.free, self.own = 100 * GIB, 50 * GIB, 2 * GIB
        self.house = house
        self.watch = DiskWatch(
            house.core,
            lambda: [house.registry],
            StoreOptions() if options is None else options,
            lambda: (self.total, self.free, self.own),
            lambda: share,
        )

    def look(self) -> None:
        asyncio.run(self.watch.look())
        self.house.settle()

    @property
    def limit(self) -> int:
        store = present(self.house.store)
        return store.max_total


def away(house: House, name: str, count: int, seconds: float, size: int = 2000) -> None:
    """A durable session that goes away, gets numbers, and stays away for so long."""
    client = house.subscriber(name, (name, 1), clean=False)
    client.lose()
    for number in range(count):
        house.publish(name, (b"%d" % number).ljust(size), 1)
    house.pass_time(seconds)


def counts(house: House) -> dict[str, int]:
    return {name: each.queue.waiting() for name, each in house.registry.subscribers.items()}


def refused(house: House) -> Client:
    """A publisher whose message concerns a durable session."""
    publisher = house.client("publisher")
    publisher.send(publish_packet("t", b"1", qos=1, packet_id=1))
    return publisher


# --- how much there may be


def test_half_of_what_is_free_and_the_stores_own(durable: House) -> None:
    disk = Disk(durable)
    disk.look()
    assert disk.limit == 26 * GIB


def test_several_stores_share_what_is_free(durable: House) -> None:
    disk = Disk(durable, share=5)
    disk.look()
    assert disk.limit == 6 * GIB


def test_the_disk_is_looked_at_again_every_minute(durable: House) -> None:
    disk = Disk(durable)
    disk.look()
    disk.free = 30 * GIB
    for _ in range(59):
        disk.look()
        assert disk.limit == 26 * GIB
    disk.look()
    assert disk.limit == 16 * GIB


def test_the_option_says_otherwise(durable: House) -> None:
    disk = Disk(durable, StoreOptions(max_bytes=12345))
    disk.look()
    assert disk.limit == 12345
    disk.watch.configure(StoreOptions(max_bytes=-1))
    disk.look()
    assert disk.limit == 0


def test_the_files_of_the_store_are_its_own(tmp_path: Path) -> None:
    (tmp_path / "one").write_bytes(bytes(1000))
    (tmp_path / "two").write_bytes(bytes(500))
    total, free, own = usage_of(tmp_path)
    assert own == 1500
    assert 0 < free < total


# --- nine tenths


def test_who_is_away_longest_with_most_loses_first(durable: House) -> None:
    away(durable, "long", 10, 1000)
    away(durable, "short", 10, 10)
    away(durable, "large", 50, 10)
    subscribed(durable, clean=False)
    store = present(durable.store)
    disk = Disk(durable, StoreOptions(max_bytes=int(store.sizes.total / 0.91)))
    disk.look()
    assert counts(durable)["large"] == 50
    assert counts(durable)["short"] == 10
    assert 0 < counts(durable)["long"] < 10
    assert 0.8 < store.sizes.total / disk.limit < 0.86
    (lost,) = durable.core.losses.take()
    assert (lost.client_id, lost.reason) == ("long", "store_full")
    left = [int(each) for each in read_on(durable.client("long", clean=False))]
    assert left == list(range(10 - len(left), 10)), "the oldest went"


def test_a_connected_session_loses_nothing_and_the_rest_is_refused(durable: House) -> None:
    client = subscribed(durable, clean=False)
    publish_numbers(durable, *range(100))
    store = present(durable.store)
    disk = Disk(durable, StoreOptions(max_bytes=store.sizes.total))
    disk.look()
    assert refused(durable).is_closed()
    health = Health([], [])
    add_core(health, durable.core, 0.0)
    assert health.degraded == ["durable work is refused: the store is full (store.max_bytes)"]
    assert read_on(client) == list(range(100))
    disk.look()
    publisher = refused(durable)
    publisher.take_one(PUBACK)


def test_below_nine_tenths_nothing_goes(durable: House) -> None:
    away(durable, "long", 10, 1000)
    store = present(durable.store)
    Disk(durable, StoreOptions(max_bytes=int(store.sizes.total / 0.89))).look()
    assert counts(durable)["long"] == 10


def test_a_body_that_many_absent_hold_goes_when_the_last_lost_it(durable: House) -> None:
    for name in ("one", "two", "three"):
        client = durable.subscriber(name, ("t", 1), clean=False)
        client.lose()
    for number in range(20):
        durable.publish("t", (b"%d" % number).ljust(5000), 1)
    store = present(durable.store)
    assert store.sizes.total < 25 * 5000
    disk = Disk(durable, StoreOptions(max_bytes=int(store.sizes.total / 0.95)))
    disk.look()
    assert store.sizes.total <= disk.limit * 0.85
    assert sum(counts(durable).values()) < 60


# --- room on the disk


def test_a_disk_with_less_than_a_gib_free_takes_no_durable_work(durable: House) -> None:
    client = subscribed(durable, clean=False)
    live = durable.subscriber("live", ("live", 1))
    disk = Disk(durable)
    disk.free = GIB - 1
    disk.look()
    assert refused(durable).is_closed()
    newcomer = durable.client()
    newcomer.send(connect_packet("newcomer", clean=False))
    assert newcomer.take_one(CONNACK).return_code == 3
    durable.publish("live", b"1", 1)
    assert read_on(live) == [1]
    client.lose()
    client = durable.client("s", clean=False)  # who has a session may have what waits for it
    disk.free = GIB + GIB // 20
    disk.look()
    assert refused(durable).is_closed()
    disk.free = 2 * GIB
    disk.look()
    publisher = refused(durable)
    publisher.take_one(PUBACK)
    assert read_on(client) == [1]


def test_a_small_disk_keeps_a_tenth_and_says_so(
    durable: House, caplog: pytest.LogCaptureFixture
) -> None:
    disk = Disk(durable)
    disk.total, disk.free = 2 * GIB, GIB // 2
    disk.look()
    disk.look()
    (line,) = [record.getMessage() for record in caplog.records]
    assert f"has {2 * GIB} bytes in all" in line
    assert f"under {2 * GIB // 10} bytes free" in line
    assert "store.min_free_bytes" in line
    store = present(durable.store)
    assert not store.is_short
    disk.free = GIB // 10
    disk.look()
    assert store.is_short


def test_a_tiny_disk_keeps_room_for_what_the_store_merges(durable: House) -> None:
    disk = Disk(durable)
    disk.total, disk.free, disk.own = 64 << 20, 60 << 20, 4 << 20
    disk.look()
    assert disk.limit == 16 << 20
    store = present(durable.store)
    assert not store.is_short
    disk.free = (16 << 20) - 1
    disk.look()
    assert store.is_short


def test_what_messages_may_have_of_a_small_disk_comes_to_half_of_a_large_one() -> None:
    room = [size << 20 for size in (8, 64, 96, 200, 1000, 1024, 4096)]
    found = [half_of(each) / each for each in room]
    assert found == sorted(found)
    assert (found[0], found[-1]) == (0.25, 0.5)


def test_a_disk_that_cannot_be_looked_at_changes_nothing_and_is_told_of_once(
    durable: House, caplog: pytest.LogCaptureFixture
) -> None:
    disk = Disk(durable)
    measure = disk.watch.measure

    def fail() -> tuple[int, int, int]:
        raise OSError("no file is left")

    for failing in (fail, fail, measure, measure, fail):
        disk.watch.measure = failing
        disk.look()
    failed = "cannot look at the disk of the store: no file is left"
    assert caplog.messages == [failed, "the disk of the store is looked at again", failed]
    assert disk.limit == 26 * GIB
