"""What can go wrong with a stream, in words that name the stream, the file and the offset."""

import logging
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Protocol

log = logging.getLogger("vmq.streams")

#: What is expected to fail: the log says it in a line, of all else where it came from.
EXPECTED: Final = OSError, EOFError


class StreamError(Exception):
    """A stream cannot do what was asked; the text says why."""


class UnknownStreamError(StreamError):
    """There is no stream of this name."""

    def __init__(self, name: str, known: list[str]) -> None:
        there = ", ".join(sorted(known)[:20]) or "none"
        super().__init__(f"there is no stream {name!r}; there are: {there}")
        self.name = name


class UnknownPartitionError(StreamError):
    """A stream has no partition of this number."""

    def __init__(self, stream: str, partition: int, partitions: int) -> None:
        super().__init__(
            f"stream {stream!r} has no partition {partition}; accepted: 0 to {partitions - 1}"
        )


class OutOfRangeError(StreamError):
    """An offset is asked for that a partition has no longer, or not yet."""

    def __init__(
        self, stream: str, partition: int, offset: int, earliest: int, latest: int
    ) -> None:
        super().__init__(
            f"offset {offset} of stream {stream!r}, partition {partition}, is out of range; "
            f"accepted: {earliest} to {latest}"
        )
        self.offset = offset
        self.earliest = earliest
        self.latest = latest


class RecreatedError(StreamError):
    """Offsets are of a stream that was deleted; another one has its name."""

    def __init__(self, stream: str) -> None:
        super().__init__(
            f"stream {stream!r} was deleted and made anew: what is asked for was in the one before"
        )


class DamagedError(StreamError):
    """A segment holds something else than what was written.

    `position` is in bytes from the start of the file, `offset` the first that cannot be read.
    """

    def __init__(self, path: Path, position: int, offset: int, reason: str) -> None:
        super().__init__(f"{path} is damaged at byte {position} (offset {offset}): {reason}")
        self.path = path
        self.position = position
        self.offset = offset
        self.reason = reason


class MissingError(DamagedError):
    """Offsets in front of a segment, from `offset` on, are in none."""

    def __init__(self, path: Path, offset: int) -> None:
        last = int(path.stem) - 1
        super().__init__(path, 0, offset, f"offsets {offset} to {last} are in no segment")


class DamagedElsewhereError(StreamError):
    """A partition is damaged on the node that has it, which says why."""

    def __init__(self, stream: str, partition: int, node: str, reason: str) -> None:
        super().__init__(
            f"partition {partition} of stream {stream!r} is damaged on node {node!r} and refused: {reason}"
        )


class ElsewhereError(StreamError):
    """A partition is another node's, to be read there."""

    def __init__(self, stream: str, partition: int, node: str, location: str) -> None:
        there = location or "which serves no Flight"
        super().__init__(f"partition {partition} of stream {stream!r} is on node {node!r}: {there}")
        self.location = location


class NotLocalError(StreamError):
    """Files are named to programs of this machine only, and not to them where the operator says so."""


class PassingError(StreamError):
    """What is wrong may be right a moment later: try again."""


class AwayError(PassingError):
    """Another node, which has part of a stream, does not answer."""

    def __init__(self, stream: str, partition: int, node: str) -> None:
        super().__init__(
            f"node {node!r} does not answer, which has partition {partition} of stream {stream!r}: try again"
        )


class Concerned(Protocol):
    """A partition, as far as failures say which it is."""

    stream: str
    number: int
    gone: bool


class PartitionFailures:
    """What a background thread could not do for partitions: whatever fails for one, the thread goes on with the others.

    The log says it when it begins or changes, and `/health` while it lasts.

    Args:
        what: is not done: "cannot be tidied".
    """

    def __init__(self, what: str) -> None:
        self.what = what
        #: By stream and number.
        self.reasons: dict[tuple[str, int], str] = {}

    def note(self, partition: Concerned, error: Exception) -> None:
        """It failed."""
        if partition.gone:
            return  # its files are being deleted
        place = partition.stream, partition.number
        reason = " ".join(str(error).split())[:300] or type(error).__name__
        if self.reasons.get(place) != reason:
            trace = None if isinstance(error, (*EXPECTED, StreamError)) else error
            log.error("stream=%s partition=%d %s: %s", *place, self.what, reason, exc_info=trace)
        self.reasons[place] = reason

    def clear(self, partition: Concerned) -> None:
        """It was done."""
        self.reasons.pop((partition.stream, partition.number), None)

    @contextmanager
    def watch(
        self, partition: Concerned, passes: tuple[type[Exception], ...] = ()
    ) -> Iterator[None]:
        """What fails in the block is noted, and goes no further, but for what `passes`: that is no failure."""
        try:
            yield
        except passes:
            raise
        except Exception as error:  # noqa: BLE001 - a thread that ended would do nothing for all the others
            self.note(partition, error)
        else:
            self.clear(partition)

    def told(self, streams: Collection[str]) -> Iterator[str]:
        """What `/health` says, of the streams that there are."""
        for (stream, number), reason in list(self.reasons.items()):
            if stream in streams:
                yield f"partition {number} of stream {stream!r} {self.what}: {reason}"
