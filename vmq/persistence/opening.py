"""Opening the core over its store: with the clocks, the event loop and the group commit of this process."""

import asyncio
import logging
import random
import shutil
import time
from pathlib import Path
from typing import Any, Final

from vmq.config.core import options_of
from vmq.config.options import Config
from vmq.core.context import Core
from vmq.persistence.group_commit import Committer
from vmq.runtime.errors import StartError
from vmq.runtime.process import own_folder
from vmq.store.damage import Isolation
from vmq.store.opening import StoreDamagedError, open_database, open_store
from vmq.store.store import Store, StoreError

log = logging.getLogger("vmq.store")

#: The share of its disk that the store's write buffer takes at most, and the least that it is all the same.
PART: Final = 64
SMALLEST_BUFFER: Final = 65_536


def store_folder(config: Config) -> Path:
    """Where a broker keeps its sessions and retained messages."""
    return Path(config.broker.data_dir) / "store"


def unusable(path: Path, error: OSError) -> StartError:
    """What the operator is told."""
    return StartError(f"cannot use the data directory: {path}: {error.strerror}")


def buffer_size(config: Config) -> int:
    """`store.write_buffer_size`, or the part of a small disk that leaves room for what LevelDB makes of it.

    Its logs, tables that are not merged yet and merges under way take a dozen times as much.

    Raises:
        OSError: there is no such folder.
    """
    wanted = config.store.write_buffer_size
    most = max(shutil.disk_usage(store_folder(config)).total // PART, SMALLEST_BUFFER)
    if most >= wanted:
        return wanted
    log.info("the store has a write buffer of %d bytes: its disk is small", most)
    return most


def open_core(config: Config) -> tuple[Core, Committer]:
    """A core with an open store, and what commits it.

    Raises:
        StartError: the store cannot be used.
    """
    committer = Committer(config.store.flush_interval)
    path = store_folder(config)
    try:
        own_folder(path)
        sizes = (buffer_size(config), config.store.cache_size)
    except OSError as error:
        raise unusable(path, error) from error

    def reopen() -> Any:
        return open_database(path, *sizes)

    isolation = Isolation(path, bool(config.cluster.listen))

    def open_whole() -> Store:
        return open_store(path, config.store.durability, committer.schedule, *sizes)

    try:
        try:
            store = open_whole()
        except StoreDamagedError:
            if isolation.isolate() is None:
                raise
            store = open_whole()
    except StoreError as error:
        raise StartError(str(error)) from error
    except OSError as error:
        raise unusable(path, error) from error
    core = Core(options_of(config), store, time.monotonic, time.time, random.Random().randrange)
    core.call_soon = asyncio.get_running_loop().call_soon
    core.call_later = asyncio.get_running_loop().call_later
    committer.attach(core, store, reopen, isolation)
    return core, committer
