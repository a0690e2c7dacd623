"""Users whom the plugins let in, and who may open the page by name and password (`page_users` of its listener)."""

import asyncio
from typing import Final

from vmq.admin.errors import NotAuthenticatedError, UnavailableError
from vmq.admin.keys import Scope
from vmq.http.dashboard.source import PageSource
from vmq.runtime.audit import tell_of_key

#: Who knocks at a time; a further one is told to come again.
MOST_WAITING: Final = 16
#: Seconds that a refusal holds up whoever comes next: nobody finds a password by trying.
PAUSE: Final = 1.0


class PageLogins:
    """Asks the plugins about one user after the other."""

    def __init__(self, source: PageSource) -> None:
        self._source = source
        self._turn = asyncio.Lock()
        self._waiting = 0

    def scope_of(self, user: str) -> Scope | None:
        """What a user may do on the page; None: not even open it."""
        listeners = self._source.config.listeners.values()
        found = {each.page_users[user] for each in listeners if user in each.page_users}
        return "all" if "all" in found else "read" if found else None

    async def enter(self, user: str, password: str, address: str, path: str) -> Scope:
        """What a user may do, who knows the password.

        Raises:
            NotAuthenticatedError: the name may not open the page, or the plugins do not let it in.
            UnavailableError: too many wait, or nobody could decide.
            RefusedError: no plugin decides about users.
        """
        if self._waiting >= MOST_WAITING:
            raise UnavailableError("too many want to come in; try again in a moment")
        self._waiting += 1
        try:
            async with self._turn:
                try:
                    return await self._asked(user, password, address)
                except NotAuthenticatedError:
                    tell_of_key(address, path, f"user {user}")
                    await asyncio.sleep(PAUSE)
                    raise
        finally:
            self._waiting -= 1

    async def _asked(self, user: str, password: str, address: str) -> Scope:
        scope = self.scope_of(user)
        if scope is None:  # as a wrong password is answered: names are not told
            raise NotAuthenticatedError("this user with this password may not open the page")
        try:
            await self._source.let_in(user, password, address)
        except NotAuthenticatedError:
            raise NotAuthenticatedError(
                "this user with this password may not open the page"
            ) from None
        return scope
