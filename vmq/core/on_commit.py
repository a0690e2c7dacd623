"""What is to happen inside the broker once everything that was written so far is safe; a client's PUBACK waits in
`vmq.core.output`.

Compiled with `vmq.core.output`: a compiled class has no interpreted subclasses.
"""

from collections import deque
from collections.abc import Callable

from vmq.core.output import Outbox, Output
from vmq.disk.durable import Need, unmet
from vmq.store.store import Store


class OnCommit(Output):
    """An output of actions instead of bytes: each is done, in order, once what it waits for is safe.

    A commit that fails is tried again with what it held, and the actions wait on: unlike a client, who is cut off and
    asks anew, nobody would ask for them.
    """

    def __init__(
        self,
        outbox: Outbox,
        store: Store,
        resumed: Callable[[], None] | None = None,
        on_disk: bool = False,
    ) -> None:
        """Makes one without any actions.

        Args:
            outbox: releases what waits.
            store: whose commits are waited for.
            resumed: called as a connection's `resume`: who waits for room in the store has a checkpoint wait for it.
            on_disk: whether also a store that acknowledges early has to write first.
        """
        super().__init__(outbox)
        self.store = store
        self.resumed = resumed
        self.on_disk = on_disk
        self.is_patient = True
        #: In order, each with what it waits for.
        self.actions: deque[tuple[Need | None, Callable[[], None]]] = deque()

    def after(self, action: Callable[[], None]) -> None:
        """Has something done when all writes of the store so far are committed, soon if they are already.

        And when whatever else `answer_after` was told of since the last pass is safe.
        """
        store = self.store
        number = store.last_barrier()
        if self.on_disk:
            number = store.number if store.has_work() else store.number - 1
        self.answer_after(self.outbox.stored, number)
        self.actions.append((self.answer_needs, action))
        self.touch()

    def needs_more(self) -> bool:
        """Whether what is done next has to wait for something that is not safe, the store apart."""
        needs = unmet(self.answer_needs)
        while needs is not None:
            if needs.durable is not self.outbox.stored:
                return True
            needs = unmet(needs.more)
        return False

    def write(self) -> None:
        actions = self.actions
        while actions and unmet(actions[0][0]) is None:
            actions.popleft()[1]()

    def close(self, reason: str) -> None:
        """One action has failed: the others are done all the same."""
        if self.actions:
            self.touch()

    def resume(self) -> None:
        if self.resumed is not None:
            self.resumed()

    def describe(self) -> str:
        return "checkpoint"
