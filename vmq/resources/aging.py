"""Drops messages that have waited longer than `queue.max_age`.

A queue is in the order of arrival, so that a look at its first message tells whether any of it is too old; and until
that one is, nothing is read. Clients that are connected get nothing too old in between either: see `Queue.pump`.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Final

from vmq.core.context import Core
from vmq.core.queue import Queue
from vmq.core.registry import Registry
from vmq.store.store import StoreError

log = logging.getLogger("vmq.queue")

#: Seconds between two sweeps.
INTERVAL: Final = 60.0

#: Queues that are looked at, and messages dropped, between two passes of the event loop.
QUEUES: Final = 200
MESSAGES: Final = 200


async def age(core: Core, registries: Callable[[], Iterable[Registry]]) -> None:
    """Sweeps until cancelled."""
    while True:
        await asyncio.sleep(INTERVAL)
        await sweep(core, registries())


async def sweep(core: Core, registries: Iterable[Registry]) -> None:
    """Drops what is too old in all queues."""
    if core.options.max_age <= 0:
        return
    looked = 0
    for registry in list(registries):
        for subscriber in list(registry.subscribers.values()):
            looked += 1
            if looked % QUEUES == 0:
                await asyncio.sleep(0)
            await sweep_queue(subscriber.queue)


async def sweep_queue(queue: Queue) -> None:
    """Drops what is too old in one."""
    try:
        more = queue.waiting() > 0
        while more:
            more = queue.drop_expired(MESSAGES)
            await asyncio.sleep(0)
    except StoreError as error:
        log.error("cannot look for old messages of client=%s: %s", queue.client_id, error)
