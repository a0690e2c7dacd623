"""What goes to other nodes: gathered in a pass, sent when what the pass did is safe.

Jobs mostly come, are stored and end in batches, and what is said of those of a batch is alike: then it is one message,
encoded once for all nodes that get it. What is sent in a pass to one node is one payload: each message with its length
in front.

That a node heard that a job is done, and that all have heard, does not hurry: it leaves with whatever is said next to
the same node, or at the next tick. Between two nodes all stays in order.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from functools import partial
from struct import Struct
from typing import Any, Final

from mypy_extensions import i64

from vmq.jobs.calls import NodeOutput
from vmq.jobs.commit import JobCommit
from vmq.jobs.queue import Job, JobQueue
from vmq.jobs.sharing.messages import AnyEntry, Copies, Done, Forget, Heard, Stored, encode

LENGTH: Final[Any] = Struct("<I")
#: Bytes of one payload; one message alone may be longer.
_MOST_BYTES: Final = 1 << 18
#: Jobs, and bytes of their bodies, of one message.
_MOST_JOBS: Final = 1000
_MOST_BODIES: Final = 1 << 16
#: Milliseconds by which the times may differ of jobs that are named together as done.
_CLOSE: Final = 1000
#: The highest of a job's counters that is told.
MOST: Final = 0xFFFF


class MessageRun(ABC):
    """What is said of jobs one after the other, to the same nodes."""

    #: It does not hurry.
    is_late = False

    def __init__(self, nodes: list[int]) -> None:
        self.nodes = nodes
        self.ids: list[bytes] = []

    def is_for(self, nodes: list[int]) -> bool:
        """Whether more may be said to these."""
        return self.nodes == nodes and len(self.ids) < _MOST_JOBS

    @abstractmethod
    def entry(self) -> AnyEntry:
        """All of it in one message."""


class StoredRun(MessageRun):
    """Jobs that this node has."""

    def entry(self) -> AnyEntry:
        return Stored(b"".join(self.ids))


class DoneRun(MessageRun):
    """Jobs that are done."""

    def __init__(self, nodes: list[int], queue: bytes, lives: i64, holders: list[int]) -> None:
        super().__init__(nodes)
        self.queue = queue
        self.lives: i64 = lives
        self.holders = holders

    def entry(self) -> AnyEntry:
        return Done(b"".join(self.ids), self.queue, int(self.lives), self.holders)


class HeardRun(MessageRun):
    """Jobs that are known to be done."""

    def __init__(self, nodes: list[int], holders: list[int]) -> None:
        super().__init__(nodes)
        self.is_late = True
        self.holders = holders

    def entry(self) -> AnyEntry:
        return Heard(b"".join(self.ids), self.holders)


class ForgetRun(MessageRun):
    """Jobs that everybody knows to be done."""

    def __init__(self, nodes: list[int]) -> None:
        super().__init__(nodes)
        self.is_late = True

    def entry(self) -> AnyEntry:
        return Forget(b"".join(self.ids))


class CopyRun(MessageRun):
    """Jobs of one queue that are alike; `lives` and `wake` in milliseconds."""

    def __init__(self, nodes: list[int], job: Job, lives: i64, wake: i64, serves: bool) -> None:
        super().__init__(nodes)
        copies = job.copies
        self.queue: JobQueue = job.queue
        self.lives: i64 = lives
        self.wake: i64 = wake
        self.serves = serves
        self.ttl: i64 = job.ttl
        self.retry: i64 = job.retry
        self.delay: i64 = job.delay
        self.priority: i64 = job.priority
        self.deliveries: i64 = job.deliveries
        self.nacks: i64 = job.nacks
        self.repeats: i64 = job.repeats
        self.reason = job.reason
        self.is_delayed = job.is_delayed
        self.wanted = 1 if copies is None else copies.wanted
        self.holders = [] if copies is None else copies.nodes
        self.size: i64 = 0
        self.created: list[int] = []
        self.bodies: list[bytes] = []
        self.keys: list[bytes] = []
        self.has_keys = False

    def takes(self, job: Job, lives: i64, wake: i64, serves: bool) -> bool:
        """Whether a job is as the others."""
        copies = job.copies
        return (
            job.queue is self.queue
            and lives == self.lives
            and wake == self.wake
            and serves == self.serves
            and job.ttl == self.ttl
            and job.retry == self.retry
            and job.delay == self.delay
            and job.priority == self.priority
            and job.deliveries == self.deliveries
            and job.nacks == self.nacks
            and job.repeats == self.repeats
            and job.reason == self.reason
            and job.is_delayed == self.is_delayed
            and copies is not None
            and copies.wanted == self.wanted
            and copies.nodes == self.holders
            and self.size < _MOST_BODIES
        )

    def add(self, job: Job, body: bytes) -> None:
        self.ids.append(job.id)
        self.created.append(job.created)
        self.bodies.append(body)
        self.keys.append(job.key)
        self.size += len(body)
        if job.key:
            self.has_keys = True

    def entry(self) -> AnyEntry:
        return Copies(
            b"".join(self.ids),
            self.queue.name,
            int(self.lives),
            int(self.wake),
            int(self.ttl),
            int(self.retry),
            int(self.delay),
            int(self.priority),
            min(int(self.deliveries), MOST),
            min(int(self.nacks), MOST),
            min(int(self.repeats), MOST),
            self.reason,
            self.wanted,
            self.holders,
            self.is_delayed,
            self.serves,
            self.created,
            self.bodies,
            self.keys if self.has_keys else [],
        )


class JobOutbox:
    """The way out of one node.

    Args:
        commit: makes a pass safe.
        transmit: gives a node, by its name in the cluster, a payload, which may be lost.
    """

    def __init__(self, commit: JobCommit, transmit: Callable[[str, bytes], None]) -> None:
        self.commit = commit
        self.transmit = transmit
        self.outputs: dict[str, NodeOutput] = {}
        #: The names of nodes that said who they are.
        self.names: dict[int, str] = {}
        self.run: MessageRun | None = None

    # What is said

    def send(self, nodes: list[int], entry: AnyEntry) -> None:
        """Says something to nodes."""
        if self.run is not None:
            self.close()
        if nodes:
            self._put(nodes, entry, False)

    def greet(self, name: str, entry: AnyEntry) -> None:
        """Says something to a member whose number may not be known."""
        if self.run is not None:
            self.close()
        self._append(name, framed(entry), False)

    def copy(
        self, nodes: list[int], job: Job, body: bytes, wake: float, serves: bool, now: float
    ) -> None:
        """Gives nodes a copy of a job."""
        lives: i64 = milliseconds(job.expires - now)
        pause: i64 = milliseconds(wake)
        run = self.run
        if (
            not isinstance(run, CopyRun)
            or not run.is_for(nodes)
            or not run.takes(job, lives, pause, serves)
        ):
            run = CopyRun(nodes, job, lives, pause, serves)
            self.begin(run)
        run.add(job, body)

    def stored(self, nodes: list[int], job_id: bytes) -> None:
        """This node has a job."""
        run = self.run
        if not isinstance(run, StoredRun) or not run.is_for(nodes):
            run = StoredRun(nodes)
            self.begin(run)
        run.ids.append(job_id)

    def done(
        self, nodes: list[int], job: Job, queue: bytes, holders: list[int], now: float
    ) -> None:
        """A job is done, which these may have."""
        lives: i64 = milliseconds(job.expires - now)
        run = self.run
        if (
            not isinstance(run, DoneRun)
            or not run.is_for(nodes)
            or run.queue != queue
            or run.holders != holders
            or lives > run.lives + _CLOSE
            or lives < run.lives - _CLOSE
        ):
            run = DoneRun(nodes, queue, lives, holders)
            self.begin(run)
        run.ids.append(job.id)

    def heard(self, nodes: list[int], job_id: bytes, holders: list[int]) -> None:
        """This node knows that a job is done, which these may have."""
        run = self.run
        if not isinstance(run, HeardRun) or not run.is_for(nodes) or run.holders != holders:
            run = HeardRun(nodes, holders)
            self.begin(run)
        run.ids.append(job_id)

    def forget(self, nodes: list[int], job_id: bytes) -> None:
        """All that may have a job know that it is done."""
        run = self.run
        if not isinstance(run, ForgetRun) or not run.is_for(nodes):
            run = ForgetRun(nodes)
            self.begin(run)
        run.ids.append(job_id)

    # Its way

    def begin(self, run: MessageRun) -> None:
        """From now on something else is said."""
        self.close()
        self.run = run
        if not run.is_late:
            for node in run.nodes:
                name = self.names.get(node)
                if name is not None:
                    self.commit.touch(self.output(name))

    def close(self) -> None:
        """What was said last is complete."""
        run = self.run
        if run is not None:
            self.run = None
            self._put(run.nodes, run.entry(), run.is_late)

    def flush(self) -> None:
        """What did not hurry leaves with this pass."""
        self.close()
        for output in self.outputs.values():
            if output.pieces:
                self.commit.touch(output)

    def output(self, name: str) -> NodeOutput:
        found = self.outputs.get(name)
        if found is None:
            found = NodeOutput(self.close, partial(self._post, name))
            self.outputs[name] = found
        return found

    def _put(self, nodes: list[int], entry: AnyEntry, is_late: bool) -> None:
        piece = framed(entry)
        for node in nodes:
            name = self.names.get(node)
            if name is not None:
                self._append(name, piece, is_late)

    def _append(self, name: str, piece: bytes, is_late: bool) -> None:
        output = self.output(name)
        output.pieces.append(piece)
        if not is_late:
            self.commit.touch(output)

    def _post(self, name: str, data: bytes) -> None:
        for payload in cut(data):
            self.transmit(name, payload)


def framed(entry: AnyEntry) -> bytes:
    """A message with its length in front."""
    raw = encode(entry)
    head: bytes = LENGTH.pack(len(raw))
    return head + raw


def milliseconds(seconds: float) -> int:
    """As messages have it."""
    return max(0, int(seconds * 1000))


def cut(data: bytes) -> Iterator[bytes]:
    """Messages in payloads that are not too long."""
    if len(data) <= _MOST_BYTES:
        yield data
        return
    start = at = 0
    while at < len(data):
        end = at + 4 + LENGTH.unpack_from(data, at)[0]
        if end - start > _MOST_BYTES and at > start:
            yield data[start:at]
            start = at
        at = end
    yield data[start:]
