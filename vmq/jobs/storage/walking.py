"""The events of a frame, one after the other: for a start, and for who makes an index."""

from typing import Any, Final

from mypy_extensions import i64

from vmq.jobs import record
from vmq.jobs.storage.frames import (
    ALIKE,
    ALIKE_SIZE,
    DEATH,
    DEATH_SIZE,
    JOB,
    JOB_SIZE,
    NOTE,
    NOTE_SIZE,
    SHARE,
    SHARE_SIZE,
    ends,
)

_NAME_SIZE: Final = 10
_KEY_SIZE: Final = 11
_REASON_SIZE: Final = 12
_SIZE: Final = 6


class FrameWalk:
    """Goes through frames. Subclasses say what an event means."""

    def added(
        self,
        head: tuple[Any, ...],
        name: bytes,
        data: bytes,
        at: i64,
        serial: int,
        offset: int,
        shared: bytes,
    ) -> bool:
        """A job was added: its header, the name of its queue, where its key, reason and body are, and which nodes may
        have it, if others may; whether those behind it that are alike may be looked at together.
        """
        return False

    def alike(
        self,
        head: tuple[Any, ...],
        name: bytes,
        serial: int,
        events: "memoryview[int]",
        data: bytes,
        at: i64,
        offset: int,
        shared: bytes,
    ) -> int:
        """Jobs follow that may be as the last one, from a number on; how many of them were seen to."""
        return 0

    def keyed(
        self,
        head: tuple[Any, ...],
        name: bytes,
        serial: int,
        events: "memoryview[int]",
        data: bytes,
        at: i64,
        offset: int,
    ) -> int:
        """Jobs follow one with a key, whose header ends there: those that have keys are all written whole."""
        return 0

    def follow(
        self,
        event: int,
        head: tuple[Any, ...],
        name: bytes,
        serial: int,
        events: "memoryview[int]",
        data: bytes,
        at: i64,
        offset: int,
        shared: bytes,
    ) -> int:
        """Has jobs that may be as the last one seen to; how many of them were."""
        if not head[_KEY_SIZE]:
            own = shared if events[0] & 15 == record.SHARED_ALIKE else b""
            return self.alike(head, name, serial, events, data, at, offset, own)
        if event == record.ADDED:
            return self.keyed(head, name, serial, events, data, at, offset)
        return 0

    def told(self, serial: int, event: int, data: bytes, start: i64, end: i64) -> None:
        """Something happened to a job; what is said of it stands there."""

    def walk(self, data: bytes, count: int, bodies: i64) -> None:
        """Goes through the events of a frame, whose bodies begin there."""
        at: i64 = count * 8
        offset: i64 = bodies
        events = memoryview(data)[: count * 8].cast("Q")
        number: i64 = 0
        head: tuple[Any, ...] = ()
        name = shared = b""
        while number < count:
            word: int = events[number]
            number += 1
            event = word & 15
            serial = word >> 4
            if event == record.ADDED or event == record.ADDED_ALIKE or event == record.SHARED_ALIKE:
                if event == record.ADDED:
                    head = JOB.unpack_from(data, at)
                    name = data[at + JOB_SIZE : at + JOB_SIZE + head[_NAME_SIZE]]
                    at += JOB_SIZE + len(name)
                else:
                    job_id, created = ALIKE.unpack_from(data, at)
                    head = (job_id, created, ends(created, head[5], head[4]), *head[3:])
                    at += ALIKE_SIZE
                size: i64 = head[_SIZE]
                start = at
                at += int(head[_KEY_SIZE]) + int(head[_REASON_SIZE])
                own = shared if event == record.SHARED_ALIKE else b""
                if number < count and events[number] == serial << 4 | record.SHARED:
                    number += 1
                    told = at
                    at = end_of_share(data, at)
                    own = shared = data[told:at]
                may_follow = self.added(head, name, data, start, serial, int(offset), own)
                offset += size
                if may_follow and number < count:
                    many = self.follow(
                        event,
                        head,
                        name,
                        serial + 1,
                        events[number:],
                        data,
                        at,
                        int(offset),
                        shared,
                    )
                    number += many
                    at += many * step_of(head)
                    offset += many * size
            elif event == record.PLACED:
                offset = serial
            else:
                end: i64 = at
                if event == record.BURIED or event == record.REVIVED:
                    end += DEATH_SIZE + int(DEATH.unpack_from(data, at)[3])
                elif event == record.SHARED:
                    end = end_of_share(data, at)
                elif event == record.NOTED:
                    end += NOTE_SIZE + int(NOTE.unpack_from(data, at)[0])
                self.told(serial, event, data, at, end)
                at = end


def step_of(head: tuple[Any, ...]) -> int:
    """Bytes of what is said of each job behind one with this header, which is as that one."""
    if not head[_KEY_SIZE]:
        return ALIKE_SIZE
    return JOB_SIZE + int(head[_NAME_SIZE]) + int(head[_KEY_SIZE])


def end_of_share(data: bytes, at: i64) -> i64:
    """Where that ends which is said of the nodes that may have a job."""
    return at + SHARE_SIZE + 8 * int(SHARE.unpack_from(data, at)[1])
