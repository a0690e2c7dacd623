"""What was read for one client goes out, as its socket and its acknowledgements allow; in the event loop.

At QoS 1 rows go out in runs under packet ids that they have since they were read; where these are taken, or a plugin
looks at each, a row is a `Transient` delivery by itself. What is not acknowledged with the connection's end is not the
session's.
"""

from bisect import bisect_right
from collections import deque
from typing import Any, Final

from mypy_extensions import i64

from vmq.core.context import Core
from vmq.core.queue import Queue
from vmq.core.window import LAST_ID, PacketRun
from vmq.mqtt.message import NO_MESSAGE, Message, Transient

#: Bytes of one step at QoS 1 (others wait for it; less costs more a message), and rows between two looks at the clock.
_STEP_BYTES: Final = 12_288
_STEP_ROWS: Final = 64


class Progress:
    """How far the rows of one partition are done, without a gap: sent at QoS 0, acknowledged at QoS 1."""

    def __init__(self, start: int) -> None:
        self.done = start
        self.order: deque[SentRow | SentRun] = deque()
        #: What is acknowledged from now on counts for nothing.
        self.is_over = False

    def send(self, following: int, sender: "ReplaySender | None" = None) -> "SentRow":
        """A row goes out, behind which comes this offset."""
        row = SentRow(sender, self, following)
        self.order.append(row)
        return row

    def skip(self, following: int) -> None:
        """What comes before this offset needs no acknowledgement of its own."""
        if self.order:
            self.order[-1].following = following
        else:
            self.done = following

    def finish(self, row: "SentRow") -> int:
        """A row is done; by how many offsets the progress has grown."""
        row.is_done = True
        return self.advance()

    def advance(self) -> int:
        """Passes what is done; by how many offsets the progress has grown."""
        order = self.order
        before = self.done
        while order:
            first = order[0]
            if isinstance(first, SentRun):
                if first.left:
                    self.done = max(self.done, first.reached)
                    break
            elif not first.is_done:
                break
            self.done = order.popleft().following
        return self.done - before

    def replace(self, run: "SentRun", rows: "list[SentRow]") -> None:
        """A run becomes the rows that are left of it."""
        order: deque[SentRow | SentRun] = deque()
        for each in self.order:
            order += rows if each is run else [each]
        self.order = order

    def first_waiting(self) -> int:
        """The offset of the first row that is not acknowledged; -1: there is none."""
        for each in self.order:
            if isinstance(each, SentRun):
                if each.left:
                    return int(each.frames.offsets[each.at])
            elif not each.is_done:
                return each.offset
        return -1

    def waiting(self) -> i64:
        """How many are not acknowledged."""
        count: i64 = 0
        for each in self.order:
            if isinstance(each, SentRun):
                count += each.left
            elif not each.is_done:
                count += 1
        return count


class SentRow(Transient):
    """A row on its way."""

    def __init__(self, sender: "ReplaySender | None", progress: Progress, following: int) -> None:
        super().__init__(NO_MESSAGE, b"")
        self.sender = sender
        self.progress = progress
        self.offset = following - 1
        #: The offset that is next once it is done.
        self.following = following
        self.is_done = False
        #: The packet that it is one of; None: it goes out as a message.
        self.frames: Frames | None = None
        self.at: i64 = 0
        self.bytes: i64 = 0

    def content(self) -> Message:
        frames = self.frames
        return self.message if frames is None else frames.message(self.at)

    def length(self) -> i64:
        return self.bytes

    def settle(self) -> bool:
        sender = self.sender
        if sender is not None:
            sender.has_news = True
            progress = self.progress
            if not progress.is_over:
                sender.waiting -= 1
                sender.moved += progress.finish(self)
        return True


class SentRun(PacketRun):
    """Rows on their way: `count` of these frames from `at` on, whose packet ids are `first` and those behind it."""

    def __init__(
        self,
        sender: "ReplaySender",
        progress: Progress,
        frames: "Frames",
        at: int,
        first: int,
        count: int,
    ) -> None:
        super().__init__(first, count)
        self.sender = sender
        self.progress = progress
        self.frames = frames
        self.at = at
        #: The offset that is next once all are done, and behind the last one that is.
        self.following: int = frames.offsets[at + count - 1] + 1
        self.reached = 0

    def size(self) -> i64:
        ends = self.frames.ends
        begin: i64 = ends[self.at]
        end: i64 = ends[self.at + int(self.left)]
        return end - begin

    def acknowledge(self, count: i64) -> None:
        super().acknowledge(count)
        self.at += int(count)
        self.reached = self.frames.offsets[self.at - 1] + 1
        sender = self.sender
        sender.has_news = True
        progress = self.progress
        if not progress.is_over:
            sender.waiting -= count
            sender.moved += progress.advance()

    def single(self) -> list[Transient]:
        rows = [self.row(at) for at in range(self.at, self.at + int(self.left))]
        if rows:
            rows[-1].following = self.following
        self.progress.replace(self, rows)
        return [*rows]

    def content(self) -> list[Transient]:
        return [self.row(at) for at in range(self.at, self.at + int(self.left))]

    def row(self, at: int) -> SentRow:
        """One of them, by itself."""
        frames = self.frames
        row = SentRow(self.sender, self.progress, frames.offsets[at] + 1)
        row.frames = frames
        row.at = at
        row.bytes = frames.ends[at + 1] - frames.ends[at]
        return row


class Frames:
    """Packets of QoS 1 behind one another, as they go out if the packet ids are free that they have; or of QoS 0.

    Args:
        data: the packets, in a memoryview of bytes.
        ends: where each begins in it, and the last one ends; a memoryview of numbers, as are these:
        ids: where their packet ids are; empty at QoS 0.
        offsets: of the rows.
        first: the packet id of the first one; those that follow count on, after the last there is from
        least: on again.
    """

    def __init__(
        self, data: Any, ends: Any, ids: Any, offsets: Any, first: int, least: int
    ) -> None:
        self.data = data
        self.ends = ends
        self.ids = ids
        self.offsets = offsets
        self.first = first
        self.least = least
        self.count = len(offsets)

    def packet_id(self, at: int) -> int:
        """The packet id that one of them has."""
        return self.least + (self.first - self.least + at) % (LAST_ID - self.least + 1)

    def message(self, at: int) -> Message:
        """What one of them says."""
        data, begin, end = self.data, self.ends[at], self.ends[at + 1]
        head = 2
        while data[begin + head - 1] & 0x80:
            head += 1
        qos = data[begin] >> 1 & 1
        name = begin + head + 2
        where = name + (data[name - 2] << 8) + data[name - 1]
        topic, payload = bytes(data[name:where]), bytes(data[where + 2 * qos : end])
        return Message(topic, payload, qos, bool(data[begin] & 1))


class ReadyRows:
    """Rows of one partition in order: as packets of QoS 0, of QoS 1, or one by one."""

    def __init__(self, partition: int, following: int, rows: Any, size: int) -> None:
        self.partition = partition
        #: The offset behind them, and what was left out.
        self.following = following
        #: As they were read, rows or packets, and their bytes.
        self.rows = rows
        self.size = size
        #: Packets of so many rows each, as bytes or views of them.
        self.pieces: list[tuple[Any, int]] = []
        self.frames: Frames | None = None
        self.topics: list[bytes] = []
        self.payloads: list[bytes] = []
        self.retained: list[bool] = []
        self.offsets: list[int] = []
        #: How many pieces, or rows, are out.
        self.at: i64 = 0

    def count(self) -> int:
        """How many there are."""
        return len(self.pieces) + len(self.topics) if self.frames is None else self.frames.count


class ReplaySender:
    """The sending side of one replay.

    Args:
        core: the broker's.
        queue: of the client.
        number: of this replay; no other one of this broker's life has it.
        qos: 0 or 1.
        prefetch: messages that may be unacknowledged.
    """

    def __init__(self, core: Core, queue: Queue, number: int, qos: int, prefetch: int) -> None:
        self.core = core
        self.queue = queue
        self.number = number
        self.qos = qos
        self.prefetch = prefetch
        self.most: i64 = queue.most_transient()
        #: What is to go out, and its bytes.
        self.items: deque[ReadyRows] = deque()
        self.size = 0
        self.progress: dict[int, Progress] = {}
        #: Messages that are not acknowledged, and whether some were since somebody asked.
        self.waiting: i64 = 0
        self.has_news = False
        #: Messages that went out, and by how many rows the progress has grown since somebody asked.
        self.messages = 0
        self.moved = 0
        #: The packet id of the next row that is read.
        self.next_id: int = queue.least_id() + core.choose(LAST_ID - queue.least_id())
        queue.has_readers = True

    def begin(self, starts: dict[int, int]) -> None:
        """Where each partition begins."""
        for partition, start in starts.items():
            self.progress[partition] = Progress(start)

    def put(self, item: ReadyRows) -> None:
        """More is ready."""
        self.items.append(item)
        self.size += item.size

    def reserve(self, count: int) -> int:
        """The first of so many packet ids for rows that are read: they may turn out to be taken."""
        first, least = self.next_id, self.queue.least_id()
        self.next_id = least + (first - least + count) % (LAST_ID - least + 1)
        return first

    def is_ready(self) -> bool:
        """Whether something can go out now."""
        if not self.items or self.queue.output.blocked:
            return False
        return self.qos == 0 or self.has_place(0)

    def has_place(self, length: i64) -> bool:
        """Whether one more message may be unacknowledged."""
        count = self.waiting
        queue = self.queue
        if count >= self.prefetch or queue.inflight.total() >= self.most:
            return False
        limit: i64 = queue.options.max_inflight_bytes
        return count == 0 or limit < 0 or queue.transient_bytes + length <= limit

    def step(self, until: float) -> bool:
        """Sends for a while; True if more could go out now."""
        output = self.queue.output
        room = _STEP_BYTES
        clock = self.core.clock
        while self.items and room > 0 and not output.blocked:
            item = self.items[0]
            if item.pieces:
                room -= self.send_piece(item)
            elif item.count():
                frames = item.frames
                sent = self.send_rows(item, room) if frames is None else self.send_run(item, frames)
                if sent < 0:
                    return False
                room -= sent
            if item.at >= item.count():
                self.end(item)
            if clock() >= until:
                break
        return self.is_ready()

    def end(self, item: ReadyRows) -> None:
        """All of it is out."""
        self.items.popleft()
        self.size -= item.size
        progress = self.progress_of(item.partition)
        before = progress.done
        progress.skip(item.following)
        self.moved += progress.done - before

    def progress_of(self, partition: int) -> Progress:
        found = self.progress.get(partition)
        if found is None:
            self.progress[partition] = found = Progress(0)
        return found

    def send_piece(self, item: ReadyRows) -> int:
        """Packets that are ready; their bytes."""
        view, rows = item.pieces[item.at]
        data = bytes(view)
        item.at += 1
        self.core.counters.mqtt_publish_sent += rows
        self.messages += rows
        self.queue.output.add(data)
        return len(data)

    def places(self, frames: Frames, first: int) -> int:
        """How many more rows may be unacknowledged, these next: as far as one step goes, and packet ids count on."""
        queue = self.queue
        ends = frames.ends
        begin: int = ends[first]
        room = _STEP_BYTES
        limit: int = queue.options.max_inflight_bytes
        if limit >= 0:
            room = min(room, limit - int(queue.transient_bytes))
        most: int = min(self.prefetch - self.waiting, self.most - queue.inflight.total())
        most = min(most, frames.count - first, LAST_ID + 1 - frames.packet_id(first))
        count = bisect_right(ends, begin + room, first + 1, frames.count + 1) - 1 - first
        return max(min(most, count), 1 if self.has_place(ends[first + 1] - begin) else 0)

    def send_run(self, item: ReadyRows, frames: Frames) -> int:
        """Some packets of QoS 1 as they are; their bytes, -1 if none may go out now."""
        first = int(item.at)
        count = self.places(frames, first)
        if count <= 0:
            return -1
        queue = self.queue
        packet_id = frames.packet_id(first)
        if not queue.is_free(packet_id, count):
            return self.send_frames(item, frames)
        progress = self.progress_of(item.partition)
        progress.order.append(run := SentRun(self, progress, frames, first, packet_id, count))
        queue.send_run(run)
        self.waiting += count
        item.at += count
        self.messages += count
        data = bytes(frames.data[frames.ends[first] : frames.ends[first + count]])
        queue.output.add(data)
        return len(data)

    def send_frames(self, item: ReadyRows, frames: Frames) -> int:
        """Some packets of QoS 1 under other packet ids; their bytes, -1 if none may go out now."""
        queue = self.queue
        progress = self.progress_of(item.partition)
        first = item.at
        last = min(first + _STEP_ROWS, frames.count)
        begin: i64 = frames.ends[first]
        end = begin
        data = bytearray(frames.data[begin : frames.ends[last]])
        at = first
        while at < last:
            behind: i64 = frames.ends[at + 1]
            if not self.has_place(behind - end):
                break
            row = progress.send(frames.offsets[at] + 1, self)
            row.frames = frames
            row.at = at
            row.bytes = behind - end
            self.waiting += 1
            queue.enter_window(row)
            where: i64 = frames.ids[at]
            packet_id = row.packet_id
            data[where - begin] = packet_id >> 8
            data[where - begin + 1] = packet_id & 0xFF
            end = behind
            at += 1
        if at == first:
            return -1
        item.at = at
        self.messages += at - first
        queue.output.add(bytes(data[: end - begin]))
        return end - begin

    def send_rows(self, item: ReadyRows, room: int) -> int:
        """Some rows one by one; their bytes, -1 if none may go out now."""
        queue = self.queue
        sent = 0
        for _ in range(_STEP_ROWS):
            at = item.at
            if at >= len(item.topics) or sent >= room:
                break
            message = Message(item.topics[at], item.payloads[at], self.qos, item.retained[at])
            length = len(message.topic) + len(message.payload)
            if self.qos == 0:
                queue.send_quick(message, message.retain)
            elif not self.has_place(length):
                return sent or -1
            else:
                self.send_one(message, item.partition, item.offsets[at] + 1)
            item.at = at + 1
            self.messages += 1
            sent += length
        return sent

    def send_one(self, message: Message, partition: int, following: int) -> None:
        """One row at QoS 1."""
        queue = self.queue
        row = self.progress_of(partition).send(following, self)
        if self.core.hooks.on_deliver is not None:
            changed = queue.rewrite(message, 1, message.retain)
            if changed is None:
                self.moved += row.progress.finish(row)
                return
            message = Message(changed.topic, changed.payload, 1, message.retain)
        self.waiting += 1
        row.message = message
        row.retain = message.retain
        row.bytes = message.length()
        queue.send_transient(row)

    def drop_queued(self, partition: int) -> None:
        """What has not gone out of a partition does not."""
        stays: deque[ReadyRows] = deque()
        for item in self.items:
            if item.partition == partition:
                self.size -= item.size
            else:
                stays.append(item)
        self.items = stays

    def forget(self, partition: int) -> Progress:
        """It sends for a partition no more: what is acknowledged from now on counts for nothing. How far it came."""
        self.drop_queued(partition)
        progress = self.progress_of(partition)
        del self.progress[partition]
        progress.is_over = True
        self.waiting -= progress.waiting()
        return progress

    def take_back(self) -> None:
        """What is not acknowledged is in flight no more."""
        queue = self.queue
        for run in queue.inflight.all_runs():
            if isinstance(run, SentRun) and run.sender is self:
                queue.take_back_run(run)
        for delivery in queue.inflight.values():
            if isinstance(delivery, SentRow) and delivery.sender is self:
                queue.take_back(delivery)

    def positions(self) -> dict[int, int]:
        """How far each partition is done."""
        return {partition: each.done for partition, each in self.progress.items()}
