"""The members of a group, and how they change: one voter at a time, so that any two majorities have a node in common.

Members are known by their nodes' names; the order of voters is that of preference: of those that a dead leader leaves,
the first stands first. (Ongaro's single-server change; with the correction of 2015: not before the leader has
committed something of its own term.)
"""

from collections.abc import Callable, Iterable

from msgspec import Struct


class Members(Struct, array_like=True, frozen=True):
    """Who votes, and who learns."""

    voters: tuple[str, ...] = ()
    #: They get the log, and count for nothing.
    learners: tuple[str, ...] = ()

    @property
    def all(self) -> tuple[str, ...]:
        return self.voters + self.learners

    @property
    def majority(self) -> int:
        return len(self.voters) // 2 + 1

    def has_majority(self, names: Iterable[str]) -> bool:
        """Whether most voters are among these."""
        return 2 * len(set(names).intersection(self.voters)) > len(self.voters)

    def agreed(self, values: Callable[[str], int]) -> int:
        """The highest number that a majority of the voters has reached."""
        reached = sorted(map(values, self.voters), reverse=True)
        return reached[len(reached) // 2] if reached else 0

    def can_follow(self, before: "Members") -> bool:
        """Whether this is one change away: at most one voter more, or one less."""
        return bool(self.voters) and len(set(self.voters) ^ set(before.voters)) <= 1


def step_towards(
    members: Members, wanted: tuple[str, ...], leader: str, is_ready: Callable[[str], bool]
) -> Members | None:
    """The next single change on the way to these voters; None: nothing is to be done, or not yet.

    New ones learn first, and become voters when they are `is_ready`; old ones go when there is nobody left to come. The
    leader goes last: it hands over before.
    """
    new = [name for name in wanted if name not in members.all]
    if new:
        return Members(members.voters, (*members.learners, new[0]))
    for name in members.learners:
        rest = tuple(each for each in members.learners if each != name)
        if name not in wanted:
            return Members(members.voters, rest)
        if is_ready(name):
            return Members((*members.voters, name), rest)
    if members.learners:
        return None
    for name in members.voters:
        if name not in wanted and name != leader:
            return Members(tuple(each for each in members.voters if each != name))
    if leader in members.voters and leader not in wanted:
        return None
    return Members(wanted) if members.voters != wanted else None
