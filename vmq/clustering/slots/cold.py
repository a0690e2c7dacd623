"""What waits in a slot: in memory what is sent soon, and of all else a bit for its place.

A queue is **cold** from some record of messages on: what is in it from there on, and not in memory, is read from the
disk when its client is about to get it. Its order is that of the records, so of those that owners wrote one after the
other: what a merge, or a share group, has put into its place later is in memory until it is done, and all that was in
the slot before that (`mixed`). A queue whose client is away is cold from its first message on.
"""

from collections.abc import Container, Iterator
from typing import Final

from mypy_extensions import i64

from vmq.clustering.slots.flow import SlotQueues
from vmq.clustering.slots.queued import (
    PLACES,
    RUN,
    RUN_BYTES,
    QueueBlock,
    SharedRecord,
    StoredMessage,
    messages_of,
)
from vmq.clustering.slots.words import GROUP, UNCLAIMED, Dot
from vmq_cluster.errors import StorageError

#: More than any queue has.
ALL: Final = 1 << 62
_NO_BLOCKS: Final[dict[str, QueueBlock]] = {}
_NO_DOTS: Final[dict[Dot, int]] = {}


class RunReader:
    """Reads records of messages; of a state that nobody owns there are none."""

    def runs(self, first: int, last: int) -> Iterator[tuple[int, bytes]]:
        """Those of the numbers from `first` to `last` that there are, in order."""
        return iter([])


def read_record(number: int, value: bytes) -> list[tuple[Dot, StoredMessage]]:
    """Its messages.

    Raises:
        StorageError: it is damaged.
    """
    try:
        return messages_of(value)
    except (ValueError, TypeError) as error:
        raise StorageError(f"record {number} of messages is damaged: {error}") from None


class ColdQueue:
    """Of one client's queue, what is not in memory."""

    def __init__(self, first: int) -> None:
        #: The record of messages with the first of it, or one before, and how many it is.
        self.first = first
        self.count: i64 = 0
        #: What has joined since, with its QoS, and is in no record yet.
        self.behind: dict[Dot, int] = {}
        #: Whether its bytes are in `sizes`.
        self.is_measured = True


class ColdQueues(SlotQueues):
    """The queues of a slot."""

    def __init__(self) -> None:
        super().__init__()
        #: Where records of messages are, if anything is to be cold.
        self.reader: RunReader | None = None
        self.cold: dict[str, ColdQueue] = {}
        #: Of what is in queues, what share groups chose them for.
        self.shared: dict[str, dict[Dot, None]] = {}
        #: What is in records up to this one is in memory.
        self.mixed: int = 0
        self.is_mixed = False
        self.new_runs: list[tuple[SharedRecord, list[Dot]]] = []
        #: Queues that may have more in memory than there is to be.
        self.grown: dict[str, None] = {}

    # What is in queues

    def waiting(self, client: str) -> int:
        """How many messages are in a client's queue."""
        count = len(self.queues.get(client, ()))
        cold = self.cold.get(client)
        return count if cold is None else count + cold.count + len(cold.behind)

    def waits(self) -> bool:
        """Whether any message is in any queue."""
        return bool(self.queues or self.cold)

    def all_waiting(self) -> int:
        """The messages in all queues."""
        count = sum([len(each) for each in self.queues.values()])
        return count + sum([each.count + len(each.behind) for each in self.cold.values()])

    def size_of(self, client: str) -> int:
        """The bytes of a client's queue."""
        cold = self.cold.get(client)
        if cold is not None and not cold.is_measured:
            self._measure()
        return self.sizes.get(client, 0)

    def has(self, client: str, dot: Dot) -> bool:
        """Whether a message is in a client's queue."""
        block = self.blocks.get((dot[0], dot[1] // PLACES), _NO_BLOCKS).get(client)
        return block is not None and block.qos(dot[1] % PLACES) > 0

    def is_cold(self, client: str, dot: Dot) -> bool:
        """Whether a message is in a client's queue, and on the disk alone."""
        cold = self.cold.get(client)
        if cold is None or dot in cold.behind or dot in self.queues.get(client, _NO_DOTS):
            return False
        return self.has(client, dot)

    def size_in_memory(self, dot: Dot) -> int:
        """Bytes of a message that is not done by all."""
        message = self.messages.get(dot)
        return 0 if message is None else message.size()

    def message_of(self, client: str, dot: Dot) -> StoredMessage:
        """A message that is in a client's queue."""
        found = self.messages.get(dot)
        if found is None:
            self.load(client)
            found = self.messages[dot]
        return found

    def put(self, client: str, dot: Dot, qos: int, message: StoredMessage) -> None:
        """A message joins a client's queue, where it is not already."""
        if message.is_shared():
            self.load(client)  # whoever takes it from there finds it in memory
        cold = self.cold.get(client)
        if cold is not None:
            if self.has(client, dot):
                return
            queue = cold.behind
        else:
            found = self.queues.get(client)
            if found is None:
                found = self.queues[client] = {}
            elif dot in found:
                return
            queue = found
        present = self.messages.get(dot)
        if present is None:
            # One of another state, or that was this one's, stays as it is.
            if message.holders or message.run is not None:
                message = message.placed(message.stamp, message.moves)
            self.messages[dot] = present = message
            self.fresh.append(dot)
        elif present.run is not None:
            present.run.left += 1
        queue[dot] = qos
        self.grown[client] = None
        if present.is_shared():
            self.shared.setdefault(client, {})[dot] = None
        self.sizes[client] = self.sizes.get(client, 0) + present.size()
        present.holders += 1
        self.block_of(client, dot[0], dot[1] // PLACES).add(dot[1] % PLACES, qos)

    def put_late(self, client: str, dot: Dot, qos: int, message: StoredMessage) -> None:
        """A message that may have been here for others before joins a client's queue: in another record.

        Who has the record that it was in does not know that it is for this client, too.
        """
        present = self.messages.get(dot)
        if present is not None and present.run is not None:
            self._leave_run(present)
            self._is_fresh_again(dot)
        self.is_mixed = True
        self.put(client, dot, qos, message)

    def take_out(self, client: str, dot: Dot) -> None:
        """A message leaves a client's queue, if it is there."""
        queue = self.queues.get(client)
        if queue is None or dot not in queue:
            cold = self.cold.get(client)
            if cold is None or not self.has(client, dot):
                return
            queue = cold.behind
            if dot not in queue:
                self.load(client)
                queue = self.queues[client]
        del queue[dot]
        self.block_of(client, dot[0], dot[1] // PLACES).remove(dot[1] % PLACES)
        message = self.messages[dot]
        self.sizes[client] -= message.size()
        if message.is_shared():
            del self.shared[client][dot]
            if not self.shared[client]:
                del self.shared[client]
        self._end_queue(client)
        message.holders -= 1
        run = message.run
        if message.holders == 0:
            del self.messages[dot]
            self.forget_run(message)
        if run is not None:
            run.left -= 1
            if run.left == 0:
                self.gone.append(run.number)

    def _end_queue(self, client: str) -> None:
        """A queue that is empty is none."""
        queue = self.single_queues.get(client)
        if queue is not None and not queue:
            del self.single_queues[client]
            queue = None
        if queue is None and client not in self.cold:
            del self.single_sizes[client]

    def _leave_run(self, message: StoredMessage) -> None:
        """A message is to be in another record."""
        run = message.run
        if run is not None:
            self.forget_run(message)
            run.left -= message.holders
            if run.left == 0:
                self.gone.append(run.number)

    def place(self, dot: Dot, stamp: int, moves: int) -> None:
        """A message gets another place in the queues, which are sorted later."""
        before = self.messages[dot]
        self.messages[dot] = after = before.placed(stamp, moves)
        self._leave_run(before)
        after.holders, before.holders = before.holders, 0
        self._is_fresh_again(dot)
        self.is_mixed = True

    def _is_fresh_again(self, dot: Dot) -> None:
        """A message is to be in another record; those of its queues are written with that.

        A copy that has the message, and was never whole, has to know whom it is for.
        """
        self.fresh.append(dot)
        place = dot[1] % PLACES
        for client, block in self.blocks.get((dot[0], dot[1] // PLACES), _NO_BLOCKS).items():
            if block.qos(place):
                self.block_of(client, block.origin, block.number)

    def sort(self) -> None:
        """Brings queues into the order of stamps, after a merge or from disk."""
        for client, queue in self.queues.items():
            stamped = sorted(queue, key=lambda dot: (self.messages[dot].stamp, dot))
            self.queues[client] = {dot: queue[dot] for dot in stamped}

    def gather(self) -> None:
        """Messages that are in no record yet come into new ones."""
        fresh, self.fresh = self.fresh, []
        dots: list[Dot] = []
        run: SharedRecord | None = None
        size: i64 = 0
        for dot in fresh:
            message = self.single_messages.get(dot)  # what flows has records of its own
            if message is None or message.run is not None:
                continue
            if run is None or len(dots) >= RUN or size >= RUN_BYTES:
                self.last_run += 1
                run, dots = SharedRecord(self.last_run), []
                self.new_runs.append((run, dots))
                size = 0
            self.join_run(message, run)
            run.left += message.holders
            dots.append(dot)
            size += message.size()
            self.is_mixed = self.is_mixed or message.is_shared()
        if self.is_mixed or UNCLAIMED in self.single_queues:
            self.mixed, self.is_mixed = self.last_run, False
        elif not self.single_messages and not self.cold:
            self.mixed = 0

    # What is in memory

    def is_newest_first(self, client: str) -> bool:
        """Whether a client is sent first what came last: no, but where states know what clients want."""
        return False

    def cool(self, serving: Container[str], most: int) -> None:
        """Everything is in records: queues have no more in memory than so many messages, and of who is away none."""
        grown, self.grown = self.grown, {}
        if self.reader is None:
            return
        for client in grown:
            cold = self.cold.get(client)
            if cold is None:
                first, found = self._behind(client, most if client in serving else 0)
                if not found:
                    continue
                cold = self.cold[client] = ColdQueue(first)
            else:
                found = list(cold.behind)
                cold.behind = {}
            for dot in found:
                self._release(dot)
            cold.count += len(found)

    def _behind(self, client: str, most: int) -> tuple[int, list[Dot]]:
        """Of a queue that is not cold, what is to be: the record with the first of it, and all."""
        queue = self.single_queues.get(client)
        if queue is None or client in self.shared or client in self.flows:
            return 0, []
        if client.startswith(GROUP) or client == UNCLAIMED:
            return 0, []
        if most and (len(queue) <= 2 * most or self.is_newest_first(client)):
            return 0, []
        found: list[Dot] = []
        first = 0
        left = len(queue) - most
        for dot in reversed(queue):
            run = self.single_messages[dot].run
            if not left or run is None or run.number <= self.mixed:
                break
            first = run.number
            found.append(dot)
            left -= 1
        for dot in found:
            del queue[dot]
        if not queue:
            del self.single_queues[client]
        return first, found

    def _release(self, dot: Dot) -> None:
        """A message is for one client less in memory."""
        message = self.single_messages[dot]
        message.holders -= 1
        if message.holders == 0:
            del self.single_messages[dot]
            self.forget_run(message)

    def load(self, client: str, most: int = ALL) -> bool:
        """Has so many messages of a queue in memory, the first, or all; whether that is more than before.

        Raises:
            StorageError: the disk does not give them; what it gave is in memory.
        """
        cold = self.cold.get(client)
        if cold is None:
            return False
        queue = self.queues.get(client)
        if queue is None:
            queue = self.queues[client] = {}
        before = len(queue)
        if before >= most:
            return False
        try:
            self._read_on(client, queue, cold, most)
        finally:
            if not cold.count:
                queue.update(cold.behind)
                del self.cold[client]
                if not cold.is_measured:
                    self.single_sizes[client] = self._size_in_memory(queue)
            if not queue:
                self._end_queue(client)
            self.grown[client] = None
        return len(queue) > before

    def _read_on(self, client: str, queue: dict[Dot, int], cold: ColdQueue, most: int) -> None:
        """Reads records until so much of a queue is in memory; what cannot be read now is read another time."""
        assert self.reader is not None
        for number, value in self.reader.runs(cold.first, self.last_run):
            if not cold.count or len(queue) >= most:
                return
            cold.count -= self._read(client, queue, cold, number, value)
            cold.first = number + 1
        cold.count = 0

    def _read(
        self, client: str, queue: dict[Dot, int], cold: ColdQueue, number: int, value: bytes
    ) -> int:
        """Takes what a record has of a client's queue; returns how much."""
        found = read_record(number, value)
        count = 0
        for dot, message in found:
            block = self.blocks.get((dot[0], dot[1] // PLACES), _NO_BLOCKS).get(client)
            qos = 0 if block is None else block.qos(dot[1] % PLACES)
            if not qos or dot in queue or dot in cold.behind:
                continue
            present = self.single_messages.get(dot)
            if present is None:
                run = self.warm_runs.get(number)
                if run is None:  # what of it is in memory, is in a later record
                    run = SharedRecord(number)
                    known = self.single_messages
                    run.left = sum([self._holders(each) for each, _ in found if each not in known])
                self.single_messages[dot] = present = message
                self.join_run(present, run)
            present.holders += 1
            queue[dot] = qos
            count += 1
        return count

    def _holders(self, dot: Dot) -> int:
        """How many queues have a message."""
        place = dot[1] % PLACES
        blocks = self.blocks.get((dot[0], dot[1] // PLACES), _NO_BLOCKS)
        return sum([each.qos(place) > 0 for each in blocks.values()])

    def put_cold(self, client: str, dot: Dot, qos: int) -> None:
        """A message that is on disk, in a record that is not `mixed`, is in a client's queue."""
        cold = self.cold.get(client)
        if cold is None:
            cold = self.cold[client] = ColdQueue(self.mixed + 1)
            cold.is_measured = False
            self.single_sizes.setdefault(client, 0)
        cold.count += 1
        self.block_of(client, dot[0], dot[1] // PLACES).add(dot[1] % PLACES, qos)

    def load_all(self) -> None:
        """Has everything in memory."""
        for client in list(self.cold):
            self.load(client)

    def _measure(self) -> None:
        """Counts the bytes of queues that were cold from the start on."""
        found = {client: each for client, each in self.cold.items() if not each.is_measured}
        for client, cold in found.items():
            warm = self.single_queues.get(client, _NO_DOTS)
            self.single_sizes[client] = self._size_in_memory(warm) + self._size_in_memory(
                cold.behind
            )
        try:
            self._add_sizes(found)
        except StorageError:  # told when a client is about to get it; until then there is room
            return
        for cold in found.values():
            cold.is_measured = True

    def _add_sizes(self, found: dict[str, ColdQueue]) -> None:
        """Adds what is on the disk of these queues."""
        assert self.reader is not None
        first = min([each.first for each in found.values()])
        for number, value in self.reader.runs(first, self.last_run):
            for dot, message in read_record(number, value):
                blocks = self.blocks.get((dot[0], dot[1] // PLACES), _NO_BLOCKS)
                for client, block in blocks.items():
                    its = found.get(client)
                    if its is None or number < its.first or not block.qos(dot[1] % PLACES):
                        continue
                    if dot not in its.behind and dot not in self.single_queues.get(
                        client, _NO_DOTS
                    ):
                        self.single_sizes[client] += message.size()

    def _size_in_memory(self, dots: dict[Dot, int]) -> int:
        return sum([self.single_messages[dot].size() for dot in dots])
