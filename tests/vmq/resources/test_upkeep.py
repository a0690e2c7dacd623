import asyncio
from pathlib import Path

import msgspec
import pytest

from tests.vmq.support import House
from vmq.config.options import BrokerOptions, Config, LimitOptions, StoreOptions
from vmq.resources.memory import MemoryWatch
from vmq.resources.upkeep import Upkeep


def test_everything_that_is_to_be_done_is_done(durable: House, tmp_path: Path) -> None:
    config = Config(broker=BrokerOptions(data_dir=str(tmp_path)), store=StoreOptions(max_bytes=5))
    memory = MemoryWatch(durable.core, 1000)
    upkeep = Upkeep(durable.core, {"": durable.registry}, config, memory)

    async def run() -> list[str]:
        tasks = [asyncio.ensure_future(work) for work in upkeep.works()]
        await asyncio.sleep(0)
        names = [str(task.get_coro()) for task in tasks if not task.done()]
        for task in tasks:
            task.cancel()
        return names

    names = " ".join(asyncio.run(run()))
    for each in ("expire_sessions", "QueueMemory", "DiskWatch", "DropLog", "age"):
        assert each in names
    upkeep.configure(msgspec.structs.replace(config, limits=LimitOptions(), store=StoreOptions()))
    assert upkeep.disk.options == StoreOptions()


def test_many_sessions_expire_some_at_a_time(
    durable: House, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fleet that was cut off: nobody who is connected waits for the end of all of its sessions."""
    monkeypatch.setattr("vmq.resources.upkeep.EXPIRE_EVERY", 0)
    monkeypatch.setattr("vmq.resources.upkeep.EXPIRE_PAUSE", 0)
    durable.options.persistent_client_expiration = 10.0
    for number in range(600):
        durable.registry.unregister(durable.registry.create(f"{number}", False))
    durable.pass_time(11)
    upkeep = Upkeep(
        durable.core,
        {"": durable.registry},
        Config(broker=BrokerOptions(data_dir=str(tmp_path))),
        MemoryWatch(durable.core, 1000),
    )

    async def run() -> list[int]:
        task = asyncio.ensure_future(upkeep.expire_sessions())
        seen: list[int] = []
        while durable.registry.offline:
            seen.append(len(durable.registry.offline))
            await asyncio.sleep(0)
        task.cancel()
        return list(dict.fromkeys(seen))

    assert asyncio.run(run()) == [600, 350, 100]
