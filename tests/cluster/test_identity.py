"""A node keeps its incarnation as long as it is sure of its memory."""

from random import Random

import pytest

from vmq_cluster.errors import ClusterError, StorageError
from vmq_cluster.identity import Identity
from vmq_cluster.storage import MemoryStorage, Transaction


def life(
    storage: MemoryStorage,
    name: str = "a",
    boot: bytes = b"1",
    wall: int = 1000,
    stop: bool = False,
) -> Identity:
    transaction = Transaction(storage)
    identity = Identity(transaction, name, boot, wall, Random(wall))
    if stop:
        identity.stopped()
    transaction.commit()
    return identity


def test_a_stopped_node_goes_on() -> None:
    storage = MemoryStorage()
    first = life(storage, stop=True)
    second = life(storage, boot=b"2")
    assert second.incarnation == first.incarnation
    assert second.epoch > first.epoch


def test_a_killed_node_goes_on_while_the_machine_runs() -> None:
    storage = MemoryStorage()
    first = life(storage)
    assert life(storage).incarnation == first.incarnation


@pytest.mark.parametrize(("before", "after"), [(b"1", b"2"), (b"", b"")])
def test_a_node_that_may_have_forgotten_is_another(before: bytes, after: bytes) -> None:
    storage = MemoryStorage()
    first = life(storage, boot=before)
    second = life(storage, boot=after, wall=10)
    assert second.incarnation > first.incarnation
    assert second.epoch > first.epoch


def test_renewing_rises_above_what_others_know() -> None:
    storage = MemoryStorage()
    identity = life(storage)
    above = identity.incarnation + 10**12
    identity.renew(0, above)
    assert identity.incarnation > above
    identity.outlive(10**15)
    assert identity.epoch == 10**15 + 1


def test_the_record_is_synced_before_a_life_begins() -> None:
    storage = MemoryStorage(crashes=True)
    life(storage)
    assert storage.unsynced == 0


def test_a_storage_belongs_to_one_name() -> None:
    storage = MemoryStorage()
    life(storage)
    with pytest.raises(ClusterError, match="that of node 'a', not of 'b'"):
        life(storage, name="b")


@pytest.mark.parametrize("name", ["", "n" * 256, "a\nb"])
def test_not_every_text_is_a_name(name: str) -> None:
    with pytest.raises(ClusterError, match="cannot have the name"):
        life(MemoryStorage(), name=name)


def test_a_damaged_record_is_an_error() -> None:
    storage = MemoryStorage()
    storage.write({b"i": b"\xc1"}, sync=False)
    with pytest.raises(StorageError, match="damaged"):
        life(storage)
