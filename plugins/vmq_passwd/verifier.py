"""Checks passwords outside the event loop, a few at a time, and remembers those that were right."""

import asyncio
import hashlib
import hmac
import os
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Final

from vmq_passwd.hashes import Argon2, Hash, make_hash
from vmq_passwd.users import Users

#: Calls a function in a thread.
RunInThread = Callable[[Callable[[], bool]], Awaitable[bool]]

_DIGEST_BYTES: Final = 32


class BusyError(Exception):
    """Too many passwords wait to be checked."""


class Verifier:
    """Answers whether a password is right.

    An unknown user costs the same as a wrong password: else the time would tell who exists.
    Right ones are remembered as keyed hashes, the key known to this process alone. They hold for the
    stored hash that they were checked against, so a changed file needs no forgetting.

    Args:
        run_in_thread: where hashes are computed.
        threads: how many at a time.
        max_waiting: how many may wait for their turn.
        max_wait: for how many seconds.
        cache_size: how many right passwords are remembered; 0 = none.
        cache_seconds: how long.
        clock: seconds.
    """

    def __init__(
        self,
        run_in_thread: RunInThread,
        clock: Callable[[], float],
        *,
        threads: int,
        max_waiting: int,
        max_wait: float,
        cache_size: int,
        cache_seconds: float,
    ) -> None:
        self._run_in_thread = run_in_thread
        self._clock = clock
        self._turn = asyncio.Semaphore(threads)
        self._max_pending = threads + max_waiting
        self._max_wait = max_wait
        #: Being checked. Clients that come with the same name and password share the answer.
        self._pending: dict[bytes, asyncio.Task[bool]] = {}
        self._cache_size = cache_size
        self._cache_seconds = cache_seconds
        self._key = os.urandom(_DIGEST_BYTES)
        #: Until when each holds, the least recently used first.
        self._right: OrderedDict[bytes, float] = OrderedDict()
        self._decoy: Hash = Argon2(make_hash(os.urandom(_DIGEST_BYTES)))

    async def verify(self, users: Users, name: str, password: bytes) -> bool:
        """Whether this is the user's password.

        Raises:
            BusyError: too many wait already, or this one has waited for too long.
        """
        stored = users.get(name)
        is_known = stored is not None
        if stored is None:
            stored = self._decoy_for(name, users)
        digest = self._digest(name, password, stored)
        if is_known and self._is_remembered(digest):
            return True
        work = self._pending.get(digest)
        if work is None:
            if len(self._pending) >= self._max_pending:
                raise BusyError
            work = asyncio.create_task(self._compute(stored, password, digest, is_known))
            self._pending[digest] = work
            work.add_done_callback(lambda _: self._pending.pop(digest))
        # A client that goes away, or has waited for too long, stops neither the thread nor the others that
        # wait for it; when it comes back, its password is remembered.
        try:
            async with asyncio.timeout(self._max_wait):
                return await asyncio.shield(work)
        except TimeoutError:
            raise BusyError from None

    async def _compute(self, stored: Hash, password: bytes, digest: bytes, is_known: bool) -> bool:
        async with self._turn:
            is_right = await self._run_in_thread(lambda: stored.verify(password)) and is_known
        if is_right:
            self._remember(digest)
        return is_right

    def _decoy_for(self, name: str, users: Users) -> Hash:
        """Somebody else's hash, always the same one for a name: kinds of hash differ in cost."""
        if not users:
            return self._decoy
        return users.nth(int.from_bytes(self._keyed(name.encode())) % len(users))

    def _digest(self, name: str, password: bytes, stored: Hash) -> bytes:
        parts = (name.encode(), password, repr(stored).encode())
        return self._keyed(b"".join(len(part).to_bytes(4) + part for part in parts))

    def _keyed(self, data: bytes) -> bytes:
        return hmac.digest(self._key, data, hashlib.sha256)

    def _is_remembered(self, digest: bytes) -> bool:
        until = self._right.get(digest)
        if until is None:
            return False
        if until <= self._clock():
            del self._right[digest]
            return False
        self._right.move_to_end(digest)
        return True

    def _remember(self, digest: bytes) -> None:
        if not self._cache_size:
            return
        self._right[digest] = self._clock() + self._cache_seconds
        self._right.move_to_end(digest)
        if len(self._right) > self._cache_size:
            self._right.popitem(last=False)
