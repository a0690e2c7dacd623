"""What is to happen once everything that was written so far is safe.

Compiled with `vmq.core.output`: a compiled class has no interpreted subclasses.
"""

from collections import deque
from collections.abc import Callable

from vmq.core.output import Outbox, Output
from vmq.store.store import Store


class OnCommit(Output):
    """An output of actions instead of bytes: each leaves with the acknowledgements of the commit that it waits for.

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
            outbox: with the commits that are done.
            store: whose commits they are.
            resumed: called as a connection's `resume`: who waits for room in the store has a checkpoint wait for it.
            on_disk: whether also a store that acknowledges early has to write first.
        """
        super().__init__(outbox)
        self.store = store
        self.resumed = resumed
        self.on_disk = on_disk
        #: In order, each with the commits of the store and of the streams that it waits for.
        self.actions: deque[tuple[int, int, Callable[[], None]]] = deque()

    def after(self, action: Callable[[], None]) -> None:
        """Has something done when all writes of the store so far are committed, soon if they are already.

        And when the streams have committed what the present `stream_barrier` says.
        """
        store = self.store
        barrier = store.last_barrier()
        if self.on_disk:
            barrier = store.number if store.dirty else store.number - 1
        self.barrier = max(self.barrier, barrier)
        self.actions.append((barrier, self.stream_barrier, action))
        self.touch()

    def write(self) -> None:
        self.pieces.clear()
        actions = self.actions
        outbox = self.outbox
        while (
            actions
            and actions[0][0] <= outbox.committed
            and actions[0][1] <= outbox.streams_committed
        ):
            actions.popleft()[2]()

    def close(self, reason: str) -> None:
        if self.actions:
            self.barrier, self.stream_barrier, _ = self.actions[-1]
            self.touch()

    def resume(self) -> None:
        if self.resumed is not None:
            self.resumed()

    def describe(self) -> str:
        return "checkpoint"
