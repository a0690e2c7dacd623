"""What acknowledgements wait for: so much of something that becomes safe, a number of it by its name.

A name is a `Durable`: the store with its commits, a partition of a stream with the commits that have its rows, the
nodes that are to have what one pass sent to them. Others count in the same way: the versions of a slot, the copies of a
job. Who makes something durable says how far it is (`advance`), and knows nothing of who waits. Who waits parks at the
first name that it lacks, so that one that never comes on costs those nothing who wait for others.

In the lowest room, for the store's commits, streams and the cluster are to meet in it. Compiled: to compare two numbers
is all that waiting costs, and nothing is called back.
"""

from typing import Final

#: What the number of `Confirmations` is once all have confirmed.
ALL: Final = 1


class Waiter:
    """Who parks at a `Durable`; see `vmq.core.output.Lane`."""

    def wake(self) -> None:
        """What it is parked at has come on. It is parked there no more."""


class Durable:
    """Something that becomes safe in steps that count up."""

    def __init__(self, is_near: bool = False) -> None:
        """`is_near`: this machine alone brings it, soon or never, so that who ends waits for it all the same."""
        self.is_near = is_near
        #: It is safe up to this number.
        self.reached: int = 0
        #: The last number that somebody was told to wait for, where that is noted.
        self.wanted: int = 0
        #: Who waits for a higher number first of all, in order.
        self.parked: dict[Waiter, None] = {}

    def advance(self, number: int) -> None:
        """It is safe up to a number; takes effect with the next flush of the outbox."""
        if number > self.reached:  # noqa: PLR1730 - max() boxes its numbers
            self.reached = number
        parked = self.parked
        if parked:
            self.parked = {}
            for waiter in parked:
                waiter.wake()


class Confirmations(Durable):
    """The nodes, or anybody else, who are to confirm what one pass gave them. Who asks for it expects one at least."""

    def __init__(self) -> None:
        super().__init__()
        #: So many have not confirmed yet.
        self.open: int = 0

    def expect(self) -> None:
        """One more is to confirm."""
        self.open += 1

    def confirm(self) -> None:
        """One has it, or needs not be waited for any more."""
        self.open -= 1
        if self.open == 0:
            self.advance(ALL)


class Need:
    """A number of a name, and what else is needed."""

    def __init__(self, durable: Durable, number: int, more: "Need | None") -> None:
        self.durable = durable
        self.number = number
        self.more = more


def with_need(needs: Need | None, durable: Durable, number: int) -> Need:
    """These needs and one more; each name is once among them, with its highest number."""
    each = needs
    while each is not None:
        if each.durable is durable:
            if number > each.number:  # noqa: PLR1730 - as above
                each.number = number
            assert needs is not None
            return needs
        each = each.more
    return Need(durable, number, needs)


def unmet(needs: Need | None) -> Need | None:
    """The first of these needs that is not met, with all behind it."""
    while needs is not None and needs.number <= needs.durable.reached:
        needs = needs.more
    return needs


def is_far(needs: Need | None) -> bool:
    """Whether some of these needs is unmet, and not this machine's alone."""
    while needs is not None:
        if not needs.durable.is_near and needs.number > needs.durable.reached:
            return True
        needs = needs.more
    return False
