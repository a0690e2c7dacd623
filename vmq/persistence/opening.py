"""Opening the core over its store: with the clocks, the event loop and the group commit of this process."""

import asyncio
import random
import time
from pathlib import Path
from typing import Any

from vmq.config.core import options_of
from vmq.config.options import Config
from vmq.core.context import Core
from vmq.persistence.group_commit import Committer
from vmq.runtime.errors import StartError
from vmq.runtime.process import own_folder
from vmq.store.damage import Isolation
from vmq.store.opening import StoreDamagedError, open_database, open_store
from vmq.store.store import Store, StoreError


def store_folder(config: Config) -> Path:
    """Where a broker keeps its sessions and retained messages."""
    return Path(config.broker.data_dir) / "store"


def open_core(config: Config) -> tuple[Core, Committer]:
    """A core with an open store, and what commits it.

    Raises:
        StartError: the store cannot be used.
    """
    committer = Committer(config.store.flush_interval)
    path = store_folder(config)
    sizes = (config.store.write_buffer_size, config.store.cache_size)

    def reopen() -> Any:
        return open_database(path, *sizes)

    isolation = Isolation(path, bool(config.cluster.listen))

    def open_whole() -> Store:
        return open_store(path, config.store.durability, committer.schedule, *sizes)

    try:
        own_folder(path)
        try:
            store = open_whole()
        except StoreDamagedError:
            if isolation.isolate() is None:
                raise
            store = open_whole()
    except StoreError as error:
        raise StartError(str(error)) from error
    except OSError as error:
        raise StartError(f"cannot use the data directory: {path}: {error.strerror}") from error
    core = Core(options_of(config), store, time.monotonic, time.time, random.Random().randrange)
    core.call_soon = asyncio.get_running_loop().call_soon
    core.call_later = asyncio.get_running_loop().call_later
    committer.attach(core, store, reopen, isolation)
    return core, committer
