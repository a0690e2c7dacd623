"""A member of a consumer group: a replay of the partitions that the group gives it."""

from collections.abc import Callable, Mapping

from vmq.core.queue import Queue
from vmq.streams.replay.group import ConsumerGroup, GivenBack
from vmq.streams.replay.replay import Readers, Replay, ReplayStart
from vmq.streams.replay.sending import Progress, ReplaySender


class GroupMember(Replay):
    """One subscription that is a member of a group.

    Args:
        start: what was found out.
        queue: of the client.
        topic_filter: which subscription it is.
        sender: its sending side.
        readers: those who read.
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
        readers: Readers,
        on_ready: Callable[[Replay], None],
        on_over: Callable[[Replay, str], None],
        group: ConsumerGroup,
    ) -> None:
        start.starts = {}
        start.key = None  # its place is the group's
        super().__init__(start, queue, topic_filter, sender, readers, on_ready, on_over)
        self.group = group
        self.name = f"{sender.number:016x}"
        self.reader.parts = []
        self.reader.grows = False
        self.generations: dict[int, int] = {}
        self.leaving: dict[int, float] = {}
        self.quiet_since = group.clock()
        self.is_stalled = False

    @property
    def client_id(self) -> str:
        return self.queue.client_id

    def give(self, partition: int, start: int, generation: int) -> None:
        self.generations[partition] = generation
        self.sender.progress[partition] = Progress(start)
        self.changes.append((partition, start))
        self.wake()

    def take_away(self, partition: int, until: float) -> None:
        self.leaving[partition] = until
        self.sender.drop_queued(partition)
        self.changes.append((partition, None))
        self.fill()  # for the others: there is room again, perhaps, and nothing to send that would say so

    def lose(self, partition: int) -> GivenBack:
        del self.generations[partition]
        if self.leaving.pop(partition, None) is None:
            self.changes.append((partition, None))
        progress = self.sender.forget(partition)
        self.fill()
        return GivenBack(progress.done, progress.first_waiting())

    def is_waiting(self, partition: int | None = None) -> bool:
        sender = self.sender
        return bool(sender.waiting if partition is None else sender.progress_of(partition).order)

    def may_give_back(self, _partition: int) -> bool:
        return True

    def positions(self) -> Mapping[int, int]:
        return self.sender.positions()

    def ends(self) -> Mapping[int, int]:
        return self.reader.seen

    def moved(self) -> int:
        return self.sender.moved

    def end(self, why: str) -> None:
        self.on_over(self, why)
