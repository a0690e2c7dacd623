"""Deletes the records of ended sessions, a few at a time, so that a long queue holds nobody up."""

import asyncio
import logging
from typing import Final

import plyvel

from vmq.commits import Committer
from vmq.store import Store, StoreError
from vmq.store_open import text_of

log = logging.getLogger("vmq.broker")

#: Records that are deleted between two passes of the loop.
PURGE_STEP: Final = 1000


async def purge(store: Store, committer: Committer, session: bytes) -> None:
    """Deletes the records of an ended session in steps, each after the commit of the last.

    What is left of it, when the broker stops or the store fails, is deleted after the next start.
    """
    try:
        more = True
        while more:
            await asyncio.sleep(0)
            await committer.finish_all()
            more = store.purge_step(session, PURGE_STEP)
    except (plyvel.Error, StoreError, RuntimeError) as error:
        log.error("cannot delete an ended session: %s", text_of(error))
