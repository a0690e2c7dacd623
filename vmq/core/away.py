"""The durable sessions of one mountpoint that have no connection, and since when, by the wall clock.

Within one life of the broker time counts that has passed, whatever the wall clock says: when that is set, as NTP does
on a machine that began hours behind, those who are away move with it, here and in the store. Else a step forward would
end their sessions early. Across lives there is nothing but the wall clock.
"""

from typing import Final

from vmq.core.context import Core
from vmq.core.subscriber import Subscriber
from vmq.store.entries import scope_of

#: Sessions that are written anew in one step.
SESSIONS_A_STEP: Final = 256


class AwaySessions:
    """Who is away; see `vmq.core.registry`."""

    def __init__(self, core: Core, mountpoint: str) -> None:
        self.core = core
        self.mountpoint = mountpoint
        #: Stands in front of client ids and topics in the store.
        self.scope = scope_of(mountpoint)
        self.subscribers: dict[str, Subscriber] = {}
        #: Durable sessions without a connection, the one that left first in front:
        #: client id -> milliseconds of wall clock time.
        self.offline: dict[str, int] = {}
        #: Those of them that are to be written anew.
        self.moved: list[str] = []
        #: `Core.clock_set` when it was looked at last.
        self.clock_set: int = core.clock_set

    def now_ms(self) -> int:
        """Milliseconds of wall clock time; who is away has moved with it, if it was set."""
        core = self.core
        core.waits_now()  # looks at the clocks
        now = int(core.wall_clock() * 1000)
        step = core.clock_set - self.clock_set
        self.clock_set = core.clock_set
        if step and self.offline:
            for client_id in self.offline:
                self.offline[client_id] += step
            is_writing = bool(self.moved)
            self.moved = list(self.offline)
            if not is_writing:
                self.write_moved()
        return now

    def write_moved(self) -> None:
        """Writes some of those that moved, and asks for another step if there are more."""
        for _ in range(min(SESSIONS_A_STEP, len(self.moved))):
            client_id = self.moved.pop()
            if client_id in self.offline:
                self.write_away(client_id)
        if self.moved:
            self.core.call_soon(self.write_moved)

    def write_away(self, client_id: str) -> None:
        """Writes since when a session has no connection."""
        subscriber, store = self.subscribers[client_id], self.core.store
        if store is not None:
            since, session = self.offline[client_id], subscriber.queue.session
            store.put_session(self.scope + client_id, session, since, subscriber.owner)
