import asyncio
from pathlib import Path

import msgspec

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
