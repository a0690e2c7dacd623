"""How many sessions and subscriptions each node of the cluster has, counted as the records change."""

from vmq.clustering.directory.records import Record


class Tally:
    """What one node has."""

    __slots__ = ("clean", "durable", "subscriptions")

    def __init__(self) -> None:
        #: Sessions that end with their connections: their clients are connected.
        self.clean = 0
        #: Sessions that stay; whether their clients are connected is known to their node only.
        self.durable = 0
        self.subscriptions = 0

    @property
    def is_empty(self) -> bool:
        """Whether it has nothing."""
        return not (self.clean or self.durable or self.subscriptions)


class Census:
    """The tallies of all nodes. A session of several pieces is one session, and each piece has subscriptions."""

    def __init__(self) -> None:
        self._tallies: dict[str, Tally] = {}

    def of(self, node: str) -> Tally:
        """What a node has at this moment."""
        return self._tallies.get(node) or Tally()

    def change(self, before: Record | None, after: Record | None, *, is_session: bool) -> None:
        """A record became another: of a session with its first piece, or of a further piece."""
        self._count(before, -1, is_session)
        self._count(after, 1, is_session)

    def _count(self, record: Record | None, sign: int, is_session: bool) -> None:
        if record is None:
            return
        tally = self._tallies.setdefault(record.node, Tally())
        tally.subscriptions += sign * len(record.subscriptions)
        if is_session and record.clean:
            tally.clean += sign
        elif is_session:
            tally.durable += sign
        if tally.is_empty:
            del self._tallies[record.node]
