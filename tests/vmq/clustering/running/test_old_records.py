"""What nodes of before had in their stores besides their own sessions comes into slots, too."""

from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any, cast

import msgspec
import pytest

from tests.support.present import present
from tests.vmq.support import House
from vmq.clustering.delivery.outbox_storage import outgoing_key
from vmq.clustering.directory.records import Record
from vmq.clustering.front.sessions import SessionNode
from vmq.clustering.messages.codec import HEAD, close, encode_into
from vmq.clustering.messages.publishes import RemotePublish
from vmq.clustering.running import old_records
from vmq.clustering.running.disk import SlotDisk
from vmq.clustering.running.migration import Migration
from vmq.clustering.slots.here import LocalNode
from vmq.clustering.slots.reach import Reach
from vmq.clustering.slots.words import incarnation_of, slot_of
from vmq.store.lines import scan

SLOTS = 8
#: The store of another node, and a life of it.
STORE, LIFE = 7, 1


class Told:
    """What the directory says of sessions of nodes."""

    def __init__(self, **records: Record) -> None:
        self._records = records
        self.forgotten: list[str] = []

    def records(self) -> Iterator[tuple[str, str, Record]]:
        return iter([("", client, record) for client, record in self._records.items()])

    def forget(self, _mountpoint: str, client: str) -> None:
        self.forgotten.append(client)

    def flush(self) -> None:
        pass


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    made = House(tmp_path / "store", is_alone=False)
    yield made
    made.close()


def of_node(node: str) -> Record:
    return Record(node, 1, False, {"t": 2})


def migrated(house: House, told: Told, *, has_copies: bool) -> SessionNode:
    """Node `a` with slots, in which is what its store had."""
    disk = SlotDisk(None, "memory")
    store, life = disk.begin_life(SLOTS, 1_800_000_000.0, Random(1))
    here = LocalNode(
        incarnation_of(store, life), Reach(store, "a", 1000, 100), 2, disk=disk.storage
    )
    machines = SessionNode(here, SLOTS)
    registries = {"": house.registry}
    parts = disk, machines.slots, house.core, registries, cast("Any", told)
    Migration("a", *parts, lambda _slot, _filters: None, has_copies).run()
    return machines


def waiting(machines: SessionNode, client: str) -> tuple[dict[str, int], list[tuple[bytes, int]]]:
    """The subscriptions of a session, and what waits for it with the QoS."""
    copy = machines.slots.copies[slot_of(client, SLOTS)]
    state = copy.state(machines.slots.here.effects)
    queue = state.queues.get(client, {})
    return state.registers[client].granted(), [
        (state.messages[dot].payload, qos) for dot, qos in queue.items()
    ]


def commit(house: House) -> None:
    house.settle()
    house.commit()


def copy_of(house: House, owner: str, *payloads: bytes, **head: Any) -> bytes:
    """Has a store keep a copy of session `c` of another node; returns its number."""
    client = house.subscriber("c", ("t", 2), clean=False)
    client.disconnect()
    for payload in payloads:
        house.publish("t", payload, 2)
    commit(house)
    number = house.queue("c").session
    present(house.store).delete(b"sc")
    said = {"life": 1, "offline_at": 5, "complete": True, **head}
    header = old_records.CopyHeader(owner=owner, session=bytes(8), scoped_id="c", **said)
    present(house.store).put(old_records.COPY + number, msgspec.msgpack.encode(header))
    commit(house)
    house.restart()
    return number


def test_a_copy_becomes_what_this_node_has_of_the_session(house: House) -> None:
    number = copy_of(house, "b", b"1", b"2")
    assert not house.registry.subscribers
    told = Told(c=of_node("b"))
    machines = migrated(house, told, has_copies=True)
    assert waiting(machines, "c") == ({"t": 2}, [(b"1", 2), (b"2", 2)])
    assert told.forgotten == []  # the record of another node, which forgets it itself
    assert not list(scan(present(house.store).db, old_records.COPY))
    assert number in house.purged


@pytest.mark.parametrize(
    ("owner", "head"), [("c", {}), ("b", {"complete": False})], ids=["of another", "not whole"]
)
def test_a_copy_that_does_not_count_is_not_taken(
    house: House, owner: str, head: dict[str, Any]
) -> None:
    copy_of(house, owner, b"1", **head)
    machines = migrated(house, Told(c=of_node("b")), has_copies=True)
    assert not machines.slots.copies
    assert not list(scan(present(house.store).db, old_records.COPY))


def test_what_waits_for_another_node_waits_for_its_sessions(house: House) -> None:
    raw = bytearray(HEAD)
    for topic, qos in ((b"t", 1), (b"u", 1), (b"t", 0)):
        encode_into(RemotePublish(topic, b"%s%d" % (topic, qos), qos), raw, -1)
    parcel = close(raw, (STORE, LIFE, 3), 3)
    present(house.store).put(outgoing_key("b", LIFE, 3), parcel)
    commit(house)
    machines = migrated(house, Told(c=of_node("b"), x=of_node("x")), has_copies=False)
    assert waiting(machines, "c") == ({"t": 2}, [(b"t1", 1)])
    assert waiting(machines, "x") == ({"t": 2}, [])


def test_what_was_left_here_of_that_waits_for_them_as_well_and_once(house: House) -> None:
    place = LIFE.to_bytes(8, "big") + (3).to_bytes(8, "big")
    key = old_records.KEPT + b"o\0" + STORE.to_bytes(8, "big") + b"b\0" + place
    hints = old_records.HintRecord(
        [old_records.HintedPublish(RemotePublish(b"t", b"1", 2), ["c"])], ["a"]
    )
    present(house.store).put(key, msgspec.msgpack.encode(hints))
    commit(house)
    machines = migrated(house, Told(c=of_node("b")), has_copies=False)
    assert waiting(machines, "c") == ({"t": 2}, [(b"1", 2)])
    assert not list(scan(present(house.store).db, old_records.KEPT))
