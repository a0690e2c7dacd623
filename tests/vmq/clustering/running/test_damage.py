"""A disk of slots that does not give all records, or does not take some for a while."""

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

import pytest

from tests.support.until import turns, until
from tests.support.wire import TIMEOUT
from tests.vmq.clustering.device import Device
from tests.vmq.clustering.running.slotted import SLOTS, leave, service, slotted
from vmq.clustering.running.disk import SlotDisk
from vmq.clustering.slots.effects import Effects
from vmq.clustering.slots.words import slot_of
from vmq_cluster.errors import StorageError
from vmq_cluster.storage import Batch, MemoryStorage


def client_of(slot: int) -> str:
    return next(f"c{at}" for at in range(1000) if slot_of(f"c{at}", SLOTS) == slot)


async def test_a_slot_that_cannot_be_read_concerns_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new follower is to have what the one that died had: of one slot the owner cannot give it that."""
    async with slotted(tmp_path, "abc") as nodes:
        here = service(nodes["a"])
        owners = here.machines.slots.owners
        followers = {slot: owner.view.followers[0] for slot, owner in owners.items()}
        stores = {service(nodes[name]).here.store: name for name in "bc"}
        dead = max(stores, key=list(followers.values()).count)
        damaged, *whole = sorted(slot for slot, store in followers.items() if store == dead)
        assert whole
        live = nodes[next(name for store, name in stores.items() if store != dead)]
        for slot in (damaged, *whole):
            async with Device(client_of(slot)) as device:
                await device.connect(live)
                await device.subscribe((f"t/{slot}", 1))
                await leave(nodes, device)
            await live.publish(f"t/{slot}", b"x", 1)
        scan = here.disk.storage.scan
        prefix = b"S" + damaged.to_bytes(2, "big")

        def fails(first: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
            for key, value in scan(first, end):
                if key.startswith(prefix) and key[7:8] == b"m":
                    raise StorageError("no sector there")
                yield key, value

        monkeypatch.setattr(here.disk.storage, "scan", fails)
        await nodes.kill(stores[dead])
        async with asyncio.timeout(TIMEOUT):
            for slot in whole:
                await live.publish(f"t/{slot}", b"y", 1)
        assert f"slot {damaged} is not served: no sector there" in " ".join(nodes["a"].health())


@patch("vmq.clustering.running.disk.RETRY_AFTER", 0.0)
async def test_a_disk_is_not_closed_under_a_thread_that_tries_again(tmp_path: Path) -> None:
    begun, go = threading.Event(), threading.Event()
    seen: list[str] = []

    class Failing(MemoryStorage):
        def write(self, batch: Batch, sync: bool) -> None:
            seen.append("begun")
            if len(seen) == 1:
                raise StorageError("no space left")
            begun.set()
            go.wait(TIMEOUT)
            seen.append("written")

        def close(self) -> None:
            seen.append("closed")

    disk = SlotDisk(tmp_path, "fsync", lambda _: Failing())
    disk._write(1, {b"k": b"v"}, True, lambda _: None)
    await until(begun.is_set)
    closing = asyncio.create_task(disk.close(Effects(disk.storage)))
    await turns()
    go.set()
    await closing
    assert seen == ["begun", "begun", "written", "closed"]
