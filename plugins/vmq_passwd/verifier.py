"""Checks passwords outside the event loop, a few at a time, and remembers those that were right."""

import asyncio
import hashlib
import hmac
import os
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Final

from vmq_hooks import Peer
from vmq_hooks.deadline import off_the_clock
from vmq_hooks.turns import Turns

from vmq_passwd.hashes import Hash, make_decoy
from vmq_passwd.users import Users

#: Calls a function in a thread.
RunInThread = Callable[[Callable[[], bool]], Awaitable[bool]]

_DIGEST_BYTES: Final = 32


class Check:
    """One password that is checked, or waits for that."""

    __slots__ = ("clients", "is_running", "work")

    def __init__(self) -> None:
        self.work: asyncio.Task[bool]
        self.clients = 0
        self.is_running = False


class Verifier:
    """Answers whether a password is right.

    An unknown user costs the same as a wrong password: else the time would tell who exists.
    Right ones are remembered as keyed hashes, the key known to this process alone. They hold for the
    stored hash that they were checked against, so a changed file needs no forgetting.

    Args:
        run_in_thread: where hashes are computed.
        threads: how many at a time.
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
        cache_size: int,
        cache_seconds: float,
    ) -> None:
        self._run_in_thread = run_in_thread
        self._clock = clock
        self._turns = Turns(threads)
        #: To be checked. Clients that come with the same name and password share the answer.
        self._pending: dict[bytes, Check] = {}
        self._cache_size = cache_size
        self._cache_seconds = cache_seconds
        self._key = os.urandom(_DIGEST_BYTES)
        #: Until when each holds, the least recently used first.
        self._right: OrderedDict[bytes, float] = OrderedDict()
        self._decoy: Hash = make_decoy()

    async def verify(self, users: Users, name: str, password: bytes, peer: Peer) -> bool:
        """Whether this is the user's password; waits for its turn, fair by the peer's address.

        Raises:
            TurnsClosedError: `close` was called meanwhile.
        """
        stored = users.get(name)
        # A file may hold the hash of no password (mosquitto_passwd makes it): that is a user whom nobody can be.
        is_known = stored is not None and len(password) > 0
        if stored is None:
            stored = self._decoy_for(name, users)
        digest = self._digest(name, password, stored)
        if is_known and self._is_remembered(digest):
            return True
        check = self._pending.get(digest)
        if check is None:
            check = Check()
            check.work = asyncio.create_task(
                self._compute(check, stored, password, digest, is_known, peer)
            )
            self._pending[digest] = check
        check.clients += 1
        try:
            with off_the_clock():
                return await asyncio.shield(check.work)
        finally:
            check.clients -= 1
            if not check.clients and not check.is_running:
                # Nobody waits for it any more. A thread at work is let finish: the result is remembered.
                check.work.cancel()
                if self._pending.get(digest) is check:
                    del self._pending[digest]

    def close(self) -> None:
        """Has those who wait for their turn get TurnsClosedError."""
        self._turns.close()

    async def _compute(
        self,
        check: "Check",
        stored: Hash,
        password: bytes,
        digest: bytes,
        is_known: bool,
        peer: Peer,
    ) -> bool:
        try:
            async with self._turns.turn(peer.network, after_others=peer.failures > 0):
                check.is_running = True
                is_right = await self._run_in_thread(lambda: stored.verify(password)) and is_known
        finally:
            if self._pending.get(digest) is check:
                del self._pending[digest]
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
