"""Who wants a session that was made of a copy waits for a moment, if its owner before is just coming back.

That one says first what of the copy is done, and hands over what it had in flight
(`vmq.clustering.replication.reconcile_talk`): a client that was connected to it all the time would else get again what
it has. No clock and no loop here.
"""

from collections.abc import Callable
from typing import Final

from vmq.clustering.messages.takeover import Who

#: Seconds that an owner before is waited for, once for each session: it may know nothing of that any more.
PATIENCE: Final = 3.0


class _Line:
    """Those who wait for one session."""

    def __init__(self, owner: str, session: bytes, until: float) -> None:
        self.owner = owner
        self.session = session
        self.until = until
        self.waiting: list[Callable[[], None]] = []


class ClaimQueue:
    """Everybody who waits so on one node."""

    def __init__(self) -> None:
        self._lines: dict[Who, _Line] = {}
        #: Sessions whose owners before were waited for in vain.
        self._in_vain: set[bytes] = set()

    def wait(
        self, who: Who, session: bytes, owner: str, now: float, then: Callable[[], None]
    ) -> bool:
        """Has somebody wait for the owner before of a session; False: that is of no use."""
        if session in self._in_vain:
            return False
        line = self._lines.get(who)
        if line is None or line.session != session:
            self.end(who)
            self._lines[who] = line = _Line(owner, session, now + PATIENCE)
        line.waiting.append(then)
        return True

    def heard(self, who: Who, peer: str) -> None:
        """A node has handed over what it had in flight."""
        line = self._lines.get(who)
        if line is not None and line.owner == peer:
            self.end(who)

    def peer_down(self, peer: str) -> None:
        """A node cannot be reached any more."""
        for who in [who for who, line in self._lines.items() if line.owner == peer]:
            self.end(who)

    def tick(self, now: float) -> None:
        """Ends what has lasted for too long."""
        for who, line in list(self._lines.items()):
            if now >= line.until:
                self._in_vain.add(line.session)
                self.end(who)

    def end(self, who: Who) -> None:
        """They go on, in the order in which they came."""
        line = self._lines.pop(who, None)
        if line is not None:
            for then in line.waiting:
                then()
