"""Deletes the records of ended sessions, a few at a time: neither long queues nor many sessions hold anybody up."""

import asyncio
import logging
from collections import deque
from typing import Final

import plyvel

from vmq.persistence.group_commit import Committer
from vmq.store.opening import text_of
from vmq.store.store import Store, StoreError

log = logging.getLogger("vmq.broker")

#: Records that are deleted between two passes of the loop.
PURGE_STEP: Final = 1000

#: What a session costs as well, in records: its lines are to be found.
SESSION_COST: Final = 25


class Purger:
    """What is to be deleted of one store.

    What is left, when the broker stops or the store fails, is deleted after the next start.

    Args:
        store: the broker's.
        committer: the same's.
    """

    def __init__(self, store: Store, committer: Committer) -> None:
        self._store = store
        self._committer = committer
        self._sessions: deque[bytes] = deque()
        self._is_due = asyncio.Event()

    def add(self, session: bytes) -> None:
        """A session has ended; the store says so already."""
        self._sessions.append(session)
        self._is_due.set()

    async def run(self) -> None:
        """Deletes in steps, each after the commit of the last, until it is cancelled."""
        while True:
            await self._is_due.wait()
            self._is_due.clear()
            while self._sessions:
                await asyncio.sleep(0)
                await self._committer.finish_all()
                self.step()

    def step(self) -> None:
        """Deletes what may be deleted between two passes of the loop."""
        store, sessions = self._store, self._sessions
        end = store.writes + PURGE_STEP
        while sessions and store.writes < end:
            try:
                if store.purge_step(sessions[0], end - store.writes):
                    return
            except (plyvel.Error, StoreError, RuntimeError) as error:
                log.error("cannot delete an ended session: %s", text_of(error))
            sessions.popleft()
            end -= SESSION_COST
