"""True deletion: a deleted key is forgotten when every member has seen its deletion.

A deletion is an entry without a value, kept so that it can be told to those who have not heard of it. What the
others have seen is in their clocks, which come with each exchange. The dots that are in all of them, and in this
node's own, are **stable**: whoever compares clocks with this node will not lack them. So a deletion with a stable
dot goes if there is a value beside it. If there is none, the whole entry goes, when

- all its siblings are deletions with stable dots, and
- nothing that it overwrote can come again as news: its context lies below the bases of this node's own clock. Of
  past incarnations this is not asked, for what got lost with them stays a gap for ever.

Who is no member is not waited for: one dead member that nobody removes keeps deleted keys from going, one that was
removed does not. But it may come back, and a clock that lacks a deletion which is forgotten here must not be
trusted to an exchange of differences. That is what the **horizon** is for: all stable dots at the times when keys
were forgotten. A node whose clock does not dominate the horizon of another gets everything from it instead
(`vmq_cluster.metadata.exchange`).
"""

from typing import Final

from vmq_cluster.clocks import Dot, NodeClock
from vmq_cluster.identity import Identity
from vmq_cluster.membership import Membership
from vmq_cluster.metadata.entries import Entry
from vmq_cluster.metadata.metadata import Metadata
from vmq_cluster.metadata.records import DELETED, NO_DELETION
from vmq_cluster.options import Options
from vmq_cluster.storage import after_prefix

#: Seconds between the beginnings of two passes, at least.
_PAUSE: Final = 1.0


class Collector:
    """Forgets deleted keys, some in each tick."""

    def __init__(
        self, identity: Identity, membership: Membership, metadata: Metadata, options: Options
    ) -> None:
        self._identity = identity
        self._membership = membership
        self._metadata = metadata
        self._options = options
        #: The clock that each incarnation last sent.
        self.clocks: dict[int, NodeClock] = {}
        self._has_news = True
        self._next_pass = 0.0
        #: Where the pass over the deletions stands, and the stable dots that it goes by.
        self._cursor: Dot | None = None
        self._stable = NodeClock()
        #: Deletions that were forgotten since the start.
        self.forgotten = 0

    def report(self, incarnation: int, clock: NodeClock) -> None:
        """A member has seen all of this."""
        if self.clocks.get(incarnation) != clock:
            self.clocks[incarnation] = clock
            self._has_news = True

    def members_changed(self) -> None:
        """Others are to be waited for now."""
        self._has_news = True
        active = self._incarnations()
        self.clocks = {each: clock for each, clock in self.clocks.items() if each in active}

    def tick(self, now: float) -> None:
        """Begins a pass if there is reason to hope; goes on with one that has begun."""
        has_news = self._has_news or self._metadata.has_news
        if self._cursor is None and has_news and now >= self._next_pass:
            self._next_pass = now + _PAUSE
            self._begin()
        if self._cursor is not None:
            self._step(self._cursor)

    def stable(self) -> NodeClock | None:
        """The dots that every member has seen; nothing if one has not been heard of."""
        found = self._metadata.clock.copy()
        for incarnation in self._incarnations() - {self._identity.incarnation}:
            clock = self.clocks.get(incarnation)
            if clock is None:
                return None
            found = found.common(clock)
        return found

    def _incarnations(self) -> set[int]:
        names = self._membership.others
        found = {self._membership.incarnation(name) for name in names}
        return found | {self._identity.incarnation}

    def _begin(self) -> None:
        self._has_news = False
        self._metadata.has_news = False
        stable = self.stable()
        if stable is not None and stable.runs:
            self._stable = stable
            self._cursor = self._metadata.first_deletion

    def _step(self, first: Dot) -> None:
        metadata = self._metadata
        limit = self._options.collect_keys
        found: list[bytes] = []
        self._cursor = None
        index = metadata.index(DELETED, first, after_prefix(DELETED))
        lowest = NO_DELETION
        for count, (dot, key) in enumerate(index):
            if count == 0:
                lowest = dot
            if count == limit:
                self._cursor = dot
                break
            if dot in self._stable:
                found.append(key)
        if first == metadata.first_deletion:
            # No later pass walks over what was forgotten before it.
            metadata.first_deletion = lowest
        current = self._incarnations()
        for key in found:
            entry = metadata.load(key)
            if entry is None:
                continue
            rest = self._without_deletions(entry, current)
            if rest is not entry:
                metadata.replace(key, entry, rest)
                metadata.widen_horizon(self._stable)
                self.forgotten += 1

    def _without_deletions(self, entry: Entry, current: set[int]) -> Entry:
        """What is left of an entry; the entry itself if all of it is still needed."""
        needed = [
            sibling
            for sibling in entry.siblings
            if sibling[3] is not None or sibling[:2] not in self._stable
        ]
        if len(needed) == len(entry.siblings):
            return entry
        if not entry.is_deleted:
            return Entry(needed, entry.context)
        clock = self._metadata.clock
        is_known = all(
            clock.base(incarnation) >= counter or incarnation not in current
            for incarnation, counter in entry.context.items()
        )
        return entry if needed or not is_known else Entry([], {})
