"""Bans in force: who connects is looked up, who is connected and banned has to go."""

import logging
from collections.abc import Callable, Iterable
from typing import Final, Protocol

from vmq.core.context import Core
from vmq.core.ports import BanList
from vmq.protocol.connection import Connection
from vmq.runtime.bans import Ban, Bans, BansError, Kind
from vmq_cluster.ticks import sleep_to_tick

log = logging.getLogger("vmq.broker")

#: Seconds between looks at the file: another worker of the broker may have written it.
INTERVAL: Final = 1.0
#: Seconds in which all workers of a broker are told of a ban.
_MOMENT: Final = 5.0


class Others(Protocol):
    """The other nodes of a cluster, which are to have the same bans."""

    def added(self, ban: Ban) -> None: ...

    def removed(self, ban: Ban) -> None: ...


class Banning(BanList):
    """The bans of a running broker.

    Args:
        bans: those of its data directory.
        core: asks whom it may let in.
        connections: those that there are.
    """

    def __init__(
        self, bans: Bans, core: Core, connections: Callable[[], Iterable[Connection]]
    ) -> None:
        super().__init__()
        self.bans = bans
        self._core = core
        core.bans = self
        self._connections = connections
        #: The other nodes of a cluster.
        self.others: Others | None = None
        #: When each ban ended connections the last time, and how many shortly before that.
        self._ended: dict[tuple[Kind, str], tuple[float, int]] = {}
        #: Who else has clients: each ends those that are banned, by (client id, user, address), and says how many.
        self.ends: list[Callable[[Callable[[str, str | None, str], str]], int]] = []

    def begin(self) -> None:
        """Reads the file.

        Raises:
            BansError: it cannot be read; nobody is to be let in who was banned.
        """
        self.bans.reload()
        self.apply()

    async def run(self) -> None:
        """Follows the file."""
        while True:
            await sleep_to_tick(INTERVAL)
            try:
                if self.bans.reload():
                    self.apply()
            except BansError as error:
                log.error("the bans of before hold on: %s", error)

    def add(self, kind: Kind, value: str, seconds: float | None, reason: str) -> tuple[Ban, int]:
        """Bans by the operator's word, here and on the other nodes; returns how many connections it ended here.

        Raises:
            BansError: as `Bans.add`.
        """
        ban = self.bans.add(kind, value, seconds, reason)
        if self.others is not None:
            self.others.added(ban)
        self.apply()
        # Another worker of this broker may have told of this very ban a moment ago.
        when, ended = self._ended.pop((ban.kind, ban.value), (0.0, 0))
        return ban, ended if self.bans.now() - when < _MOMENT else 0

    def remove(self, kind: Kind, value: str) -> Ban | None:
        """Ends a ban by the operator's word, here and on the other nodes; None if there is none.

        Raises:
            BansError: as `Bans.remove`.
        """
        ban = self.bans.remove(kind, value)
        if ban is not None and self.others is not None:
            self.others.removed(ban)
        self.apply()
        return ban

    def refusal(self, client_id: str, user: str | None, host: str) -> str:
        return self.bans.refusal(client_id, user, host)

    def apply(self) -> None:
        """Ends the connections of those who are banned."""
        # Without bans, which is nearly always, a CONNECT costs nothing for them.
        self.is_empty = not len(self.bans)
        now = self.bans.now()
        # Whom others have banned long ago nobody asks about any more.
        self._ended = {key: each for key, each in self._ended.items() if now - each[0] < _MOMENT}
        if not len(self.bans):
            return
        for connection in list(self._connections()):
            session = connection.session
            if session.subscriber is None or connection.closing:
                continue
            host = connection.seen_peer().host
            reason = self._ends(session.client_id, session.username, host)
            if reason:
                connection.close(reason)
        self._core.outbox.flush()
        for end in self.ends:
            end(self._ends)

    def _ends(self, client_id: str, user: str | None, host: str) -> str:
        """Why a client that is connected has to go; empty if it may stay. The ban that says so counts it."""
        ban = self.bans.find(client_id, user, host)
        if ban is None:
            return ""
        key, now = (ban.kind, ban.value), self.bans.now()
        when, count = self._ended.get(key, (now, 0))
        self._ended[key] = (now, count + 1 if now - when < _MOMENT else 1)
        return ban.said()
