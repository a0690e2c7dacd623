"""The judge: which messages came, whether each came once and in order, and how long they took.

Knows no sockets and no clock. What is as it should be is found by comparing runs of bytes; only what is not is looked
at message by message.
"""

from bisect import bisect_right
from dataclasses import dataclass
from enum import Enum

from vmq.bench.load.frames import LoadFrames
from vmq.bench.load.histogram import LatencyHistogram

_TRIM: int = 4096


class MessageVerdict(Enum):
    """What a message is that came on its own."""

    NEW = "new"
    REORDERED = "reordered"
    DUPLICATE = "duplicate"
    DAMAGED = "damaged"
    FOREIGN = "foreign"


@dataclass
class Faults:
    """What went wrong with messages."""

    lost: int = 0
    duplicates: int = 0
    reordered: int = 0
    damaged: int = 0  # a message of ours with other bytes than it was sent with
    foreign: int = 0  # a message that nobody sent here

    def add(self, verdict: MessageVerdict) -> None:
        """Counts one verdict."""
        if verdict is MessageVerdict.REORDERED:
            self.reordered += 1
        elif verdict is MessageVerdict.DUPLICATE:
            self.duplicates += 1
        elif verdict is MessageVerdict.DAMAGED:
            self.damaged += 1
        elif verdict is MessageVerdict.FOREIGN:
            self.foreign += 1


class Timeline:
    """When one publisher sent its messages: runs of them, each with its time."""

    def __init__(self) -> None:
        self._ends: list[int] = []
        self._stamps: list[int] = []
        self._dropped = 0
        #: How many messages were sent.
        self.end = 0
        self.tracks: list[Track] = []

    def add(self, end: int, stamp: int) -> None:
        """The messages up to `end` (exclusive) that were not sent before were sent now."""
        self.end = end
        self._ends.append(end)
        self._stamps.append(stamp)
        if len(self._ends) >= 2 * _TRIM and len(self._ends) % _TRIM == 0:
            self._trim()

    def _trim(self) -> None:
        """Forgets what every subscriber has had."""
        done = min((track.cursor for track in self.tracks), default=0) - self._dropped
        if done > 0:
            del self._ends[:done]
            del self._stamps[:done]
            self._dropped += done

    def observe(
        self, cursor: int, first: int, end: int, now: int, histogram: LatencyHistogram
    ) -> int:
        """Notes that the messages from `first` to before `end` came now.

        `cursor` is where the search for them may begin; returns where the next one may.
        """
        ends, stamps = self._ends, self._stamps
        index = max(cursor - self._dropped, 0)
        while first < end:
            stop = ends[index]
            if stop > first:
                count = min(stop, end) - first
                histogram.add(now - stamps[index], count)
                first += count
            if stop <= end:
                index += 1
        return index + self._dropped

    def observe_late(self, sequence: int, now: int, histogram: LatencyHistogram) -> None:
        """Notes that a single message came out of its turn."""
        index = bisect_right(self._ends, sequence)
        if index < len(self._ends):
            histogram.add(now - self._stamps[index])


class Track:
    """What one subscriber has had from one publisher."""

    def __init__(self, frames: LoadFrames, timeline: Timeline) -> None:
        self.frames = frames
        self.timeline = timeline
        timeline.tracks.append(self)
        #: Nothing from here on has come.
        self.next = 0
        #: What is missing below `next`, as ranges in order.
        self.holes: list[tuple[int, int]] = []
        #: Where in the timeline `next` is.
        self.cursor = 0
        self._number = 0
        self._block = frames.plain(0)

    def match(self, data: memoryview, start: int, count: int) -> int:
        """How many of `count` packets at `start` are the ones that come next. Stops at the end of a block.

        The packets lie back to back, with packet ids set to 0. `next` stays as it is.
        """
        frames = self.frames
        length, per_block = frames.length, frames.per_block
        number, index = divmod(self.next, per_block)
        if number != self._number:
            self._number = number
            self._block = frames.plain(number)
        block = self._block
        count = min(count, per_block - index, self.timeline.end - self.next)
        at = index * length
        if block.startswith(data[start : start + count * length], at):
            return count
        # Somewhere there is another packet. Ever longer steps until one meets it, then ever shorter ones.
        found, step = 0, 1
        while found + step <= count and block.startswith(
            data[start + found * length : start + (found + step) * length], at + found * length
        ):
            found += step
            step *= 2
        while step > 1:
            step //= 2
            if found + step <= count and block.startswith(
                data[start + found * length : start + (found + step) * length], at + found * length
            ):
                found += step
        return found

    def arrived(self, count: int, now: int, histogram: LatencyHistogram) -> None:
        """The next `count` messages have come, in order."""
        first = self.next
        self.next = end = first + count
        self.cursor = self.timeline.observe(self.cursor, first, end, now, histogram)

    def place(
        self, sequence: int, now: int, histogram: LatencyHistogram
    ) -> tuple[MessageVerdict, int]:
        """A message has come that was or was not the next: the verdict, and by how much `next` went on."""
        if sequence >= self.next:
            ahead = sequence + 1 - self.next
            if ahead > 1:
                self.holes.append((self.next, sequence))
                self.next = sequence
            self.arrived(1, now, histogram)
            return MessageVerdict.NEW, ahead
        if not self._fill(sequence):
            return MessageVerdict.DUPLICATE, 0
        self.timeline.observe_late(sequence, now, histogram)
        return MessageVerdict.REORDERED, 0

    def _fill(self, sequence: int) -> bool:
        """Takes a number out of the holes; False if it is in none of them."""
        index = bisect_right(self.holes, sequence, key=lambda hole: hole[0]) - 1
        if index < 0 or sequence >= self.holes[index][1]:
            return False
        first, end = self.holes[index]
        parts = [(first, sequence), (sequence + 1, end)]
        self.holes[index : index + 1] = [part for part in parts if part[0] < part[1]]
        return True

    def missing(self, sent: int) -> int:
        """How many of the first `sent` messages have not come."""
        return sent - self.next + self.skipped()

    def skipped(self) -> int:
        """How many messages have not come although later ones have."""
        return sum(end - first for first, end in self.holes)

    def received(self) -> int:
        """How many messages have come, each counted once."""
        return self.next - self.skipped()


def judge(packet: bytes, track: Track | None, sent: int) -> tuple[MessageVerdict, int]:
    """What a packet is that is not the next of its track: a verdict, and its number unless it is foreign.

    NEW stands for any message with the right bytes; `Track.place` tells whether it had its turn.

    Args:
        packet: the PUBLISH with packet id 0 and without DUP.
        track: of the publisher that the payload names; None if there is none.
        sent: how many messages that publisher has sent.
    """
    if track is None or len(packet) != track.frames.length:
        return MessageVerdict.FOREIGN, -1
    sequence = track.frames.sequence_of(packet)
    if sequence >= sent:
        return MessageVerdict.FOREIGN, -1
    if packet != track.frames.one(sequence):
        return MessageVerdict.DAMAGED, sequence
    return MessageVerdict.NEW, sequence
