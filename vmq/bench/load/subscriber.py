"""The receiving end of a flow."""

from array import array
from collections.abc import Iterable

from vmq.bench.load.acks import LENGTH, PUBACK, PUBCOMP, PUBREC, PUBREL, run_of
from vmq.bench.load.checks import Faults, MessageVerdict, Track, judge
from vmq.bench.load.client import LoadClient
from vmq.bench.load.frames import LoadFrames
from vmq.bench.load.histogram import LatencyHistogram
from vmq.bench.load.loop import Loop
from vmq.bench.load.publisher import LoadPublisher
from vmq.bench.load.transport import LoadEndpoint

_PUBLISH = 3
_DUP = 8
_PUBCOMP = bytes((PUBCOMP,))


class LoadSubscriber(LoadClient):
    """Checks every message, times it, and acknowledges it."""

    def __init__(
        self,
        loop: Loop,
        endpoint: LoadEndpoint,
        client_id: str,
        publishers: Iterable[LoadPublisher],
        latency: LatencyHistogram,
    ) -> None:
        super().__init__(loop, endpoint, client_id)
        self.latency = latency
        self.faults = Faults()
        self.publishers: dict[int, LoadPublisher] = {}
        self.tracks: dict[int, Track] = {}
        for each in publishers:
            self.publishers[each.frames.publisher] = each
            self.tracks[each.frames.publisher] = Track(each.frames, each.timeline)
            each.fan += 1
        frames: LoadFrames = next(iter(self.publishers.values())).frames
        #: What the messages of all publishers have in common.
        self._head = frames.head
        self._length = frames.length
        self._payload_at = frames.payload_at
        self._id_at = frames.id_at
        self._qos = frames.qos
        self._answer = bytes((PUBACK if frames.qos == 1 else PUBREC, 2, 0, 0))
        #: Of the publisher whose messages came last; often more of them follow.
        self._track = next(iter(self.tracks.values()))
        #: QoS 2: packet ids between PUBLISH and PUBREL.
        self._held: set[int] = set()
        self._replies: list[bytes] = []

    # Runs of packets that are as they should be

    def take(self, buffer: bytearray, size: int) -> int:
        """Handles messages and PUBRELs by the run, anything else one by one."""
        at = 0
        head = self._head
        while not self.is_over and at < size:
            end = 0
            if buffer[at] == head:
                end = self._take_messages(buffer, at, size)
            elif buffer[at] == PUBREL and self._qos == 2:
                end = self._take_releases(buffer, at, size)
            end = end or self.take_one(buffer, at, size)
            if not end:
                break
            at = end
        return at

    def _take_messages(self, buffer: bytearray, at: int, size: int) -> int:
        """Handles a run of messages that come when they should; returns its end, or 0 if there is none."""
        length = self._length
        count = (size - at) // length
        if not self._qos:
            count = self._match(self.loop.view, at, count)
            return at + count * length if count else 0
        if not count:
            return 0
        # As if all that is left were messages. Where it is not, the bytes do not match either.
        id_at = self._id_at
        packets = buffer[at : at + count * length]
        packets[id_at::length] = packets[id_at + 1 :: length] = bytes(count)
        count = self._match(memoryview(packets), 0, count)
        if not count:
            return 0
        end = at + count * length
        self._acknowledge(buffer[at + id_at : end : length], buffer[at + id_at + 1 : end : length])
        return end

    def _match(self, data: memoryview, at: int, count: int) -> int:
        """How many packets are the next ones of their publishers; those have arrived."""
        length = self._length
        track = self._track
        done = 0
        while done < count:
            start = at + done * length
            matched = track.match(data, start, count - done)
            if not matched:
                other = self._track_at(data, start)
                if other is None or other is track:
                    break
                matched = other.match(data, start, count - done)
                if not matched:
                    break
                track = other
            track.arrived(matched, self.loop.now, self.latency)
            self.publishers[track.frames.publisher].on_passed(matched)
            done += matched
        self._track = track
        return done

    def _track_at(self, data: memoryview, start: int) -> Track | None:
        at = start + self._payload_at
        return self.tracks.get(int.from_bytes(data[at : at + 4], "big"))

    def _acknowledge(self, high: bytearray, low: bytearray) -> None:
        """Answers messages with these bytes of packet ids."""
        answer = bytearray(self._answer * len(high))
        answer[2::LENGTH] = high
        answer[3::LENGTH] = low
        packets = bytes(answer)
        self._replies.append(packets)
        # The packet ids of messages under way differ, and none is 0 [MQTT-2.3.1-1]. They are in the machine's byte
        # order here, not the network's: only whether they are equal matters.
        fresh = set(array("H", packets)[1::2])
        if len(fresh) < len(high) or 0 in fresh or not self._held.isdisjoint(fresh):
            self.loop.protocol_error(f"{self.client_id}: packet id 0, or one that is in use")
        if self._qos == 2:
            self._held |= fresh

    def _take_releases(self, buffer: bytearray, at: int, size: int) -> int:
        end = run_of(buffer, at, size, PUBREL)
        if end == at:
            return 0
        answer = buffer[at:end]
        answer[0::LENGTH] = _PUBCOMP * ((end - at) // LENGTH)
        packets = bytes(answer)
        self._replies.append(packets)
        self._held.difference_update(array("H", packets)[1::2])
        return end

    def on_taken(self) -> None:
        """Sends the answers to what one read brought."""
        if self._replies:
            replies, self._replies = self._replies, []
            self.write(replies[0] if len(replies) == 1 else b"".join(replies))

    # A message that is not what was to come next

    def on_packet(self, head: int, packet: bytes, body: int) -> None:
        """A single packet, which no run was found for."""
        if head >> 4 != _PUBLISH:
            super().on_packet(head, packet, body)
            return
        qos = head >> 1 & 3
        if qos and not self._answer_one(qos, packet, body):
            return
        packet = self._without_id(packet, body) if qos else packet
        at = self._payload_at
        publisher = self.publishers.get(int.from_bytes(packet[at : at + 4], "big"))
        track = None if publisher is None else self.tracks[publisher.frames.publisher]
        verdict, sequence = judge(packet, track, 0 if publisher is None else publisher.sent)
        self.faults.add(verdict)
        if verdict is MessageVerdict.FOREIGN:
            self.loop.problem(f"{self.client_id}: a message that nobody sent here")
        elif track is not None and publisher is not None:
            placed, ahead = track.place(sequence, self.loop.now, self.latency)
            self.faults.add(placed)
            publisher.on_passed(ahead)

    def _answer_one(self, qos: int, packet: bytes, body: int) -> bool:
        """Acknowledges one message; False if it is QoS 2 and was handed on already."""
        at = body + 2 + int.from_bytes(packet[body : body + 2], "big")
        raw = packet[at : at + 2]
        number = array("H", raw)[0] if len(raw) == 2 else 0
        is_again = qos == 2 and number in self._held
        if not number or (is_again and not packet[0] & _DUP):
            self.loop.protocol_error(f"{self.client_id}: packet id 0, or one that is in use")
        if qos == 2:
            self._held.add(number)
        self._replies.append(bytes((PUBACK if qos == 1 else PUBREC, 2)) + raw)
        return not is_again

    def _without_id(self, packet: bytes, body: int) -> bytes:
        """The packet as it is compared: packet id 0, no DUP."""
        at = body + 2 + int.from_bytes(packet[body : body + 2], "big")
        return bytes((packet[0] & ~_DUP,)) + packet[1:at] + bytes(2) + packet[at + 2 :]
