"""A member of a consumer group: a replay of the partitions that the group gives it."""

from collections.abc import Callable
from concurrent.futures import Executor

from vmq.core.queue import Queue
from vmq.streams.replay.group import ConsumerGroup
from vmq.streams.replay.replay import Replay, ReplayStart
from vmq.streams.replay.sending import Progress, ReplaySender


class GroupMember(Replay):
    """One subscription that is a member of a group.

    Args:
        start: what was found out.
        queue: of the client.
        topic_filter: which subscription it is.
        sender: its sending side.
        threads: those that read.
        on_ready: told when something can go out.
        on_over: told when it ends by itself, with the reason.
        group: the group.
    """

    def __init__(
        self,
        start: ReplayStart,
        queue: Queue,
        topic_filter: str,
        sender: ReplaySender,
        threads: Executor,
        on_ready: Callable[[Replay], None],
        on_over: Callable[[Replay, str], None],
        group: ConsumerGroup,
    ) -> None:
        start.starts = {}
        start.key = None  # its place is the group's
        super().__init__(start, queue, topic_filter, sender, threads, on_ready, on_over)
        self.group = group
        self.name = sender.token.hex()
        self.reader.parts = []
        self.reader.grows = False
        self.generations: dict[int, int] = {}
        #: Until when (monotonic) it has to settle what it is to give back.
        self.leaving: dict[int, float] = {}
        #: Since when it has acknowledged nothing, while something waits for that.
        self.quiet_since = group.clock()
        self.is_stalled = False

    def give(self, partition: int, start: int, generation: int) -> None:
        """It has a partition from now on."""
        self.generations[partition] = generation
        self.sender.progress[partition] = Progress(start)
        self.changes.append((partition, start))
        self.wake()

    def take_away(self, partition: int, until: float) -> None:
        """It is to give a partition back: nothing more of it goes out."""
        self.leaving[partition] = until
        self.sender.drop_queued(partition)
        self.changes.append((partition, None))

    def lose(self, partition: int) -> None:
        """It has a partition no more."""
        del self.generations[partition]
        if self.leaving.pop(partition, None) is None:
            self.changes.append((partition, None))
