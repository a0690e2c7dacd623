"""What a queue would do with one more message, told without doing it."""

from typing import Final

from vmq.core.output import Output
from vmq.core.queue import Queue

#: How well placed a member of a share group is, best first.
READY: Final = 0
BUSY: Final = 1
AWAY: Final = 2

ONLINE: Final = "queue.max_online_messages"
OFFLINE: Final = "queue.max_offline_messages"


def send_state(queue: Queue) -> int:
    """READY to send at once, BUSY though connected, or AWAY; as `Registry.deliver_to_member` looks at it."""
    if not queue.online:
        return AWAY
    ready = not queue.output.blocked and not queue.has_waiting() and queue.window_open()
    return READY if ready else BUSY


def outcome(queue: Queue, qos: int, publisher: Output | None, length: int) -> tuple[str, str]:
    """What becomes of a message of so many bytes (topic and payload) at its effective QoS, and the reason.

    Returns:
        sent, queued, stored or dropped; why.
    """
    if qos == 0:
        return _quick(queue, publisher, length)
    if send_state(queue) == READY and queue.has_place(length):
        return "sent", "connected, and nothing waits before it"
    reasons = _reasons(queue, length)
    full, room = _room(queue, length)
    if not full:
        return "queued" if queue.online else "stored", f"{reasons}; {room}"
    full = f"{reasons}; {full}"
    if _pauses(queue, publisher):
        return "queued", f"{full}, and queue.overflow pauses the publisher"
    if queue.options.drop_oldest and queue.count_limit() and (queue.pending or queue.backlog):
        return _after_drop(queue, full)
    return "dropped", f"{full} and queue.drop gives up what arrives"


def _pauses(queue: Queue, publisher: Output | None) -> bool:
    """As `Queue.pause_publisher`: a client never waits for its own queue."""
    wanted = queue.core.options.pause_publisher and queue.online
    return wanted and publisher is not None and publisher is not queue.output


def _after_drop(queue: Queue, full: str) -> tuple[str, str]:
    where = "queued" if queue.online else "stored"
    return where, f"{full}; queue.drop gives up the message that waits longest for it"


def _quick(queue: Queue, publisher: Output | None, size: int) -> tuple[str, str]:
    """QoS 0 waits for the socket only."""
    if not queue.online:
        return "dropped", "the client is not connected, and QoS 0 is kept for nobody"
    if not (queue.output.blocked or queue.quick or queue.burst):
        return "sent", "connected, and its socket takes it"
    why = "its socket is full" if queue.output.blocked else "others wait for its socket"
    full, room = _filled(queue, size, queue.options.max_online_messages, ONLINE, is_quick=True)
    if not full:
        return "queued", f"{why}; {room}"
    full = f"{why}; {full}"
    if _pauses(queue, publisher):
        return "queued", f"{full}, and queue.overflow pauses the publisher"
    if queue.options.drop_oldest and queue.quick:
        return "queued", f"{full}; queue.drop gives up the message that waits longest for it"
    return "dropped", f"{full} and queue.drop gives up what arrives"


def _reasons(queue: Queue, length: int) -> str:
    """Why a message at QoS 1 or 2 cannot go out at once."""
    if not queue.online:
        return "the client is not connected"
    found: list[str] = []
    if queue.output.blocked:
        found.append("its socket is full")
    if not queue.window_open():
        inflight = queue.inflight.messages()
        found.append(f"{inflight} await its acknowledgement (queue.max_inflight_messages)")
    elif not queue.has_place(length):
        found.append(
            f"{queue.inflight_bytes} bytes await its acknowledgement (queue.max_inflight_bytes)"
        )
    if queue.has_waiting():
        found.append("others wait before it")
    return ", ".join(found)


def _room(queue: Queue, size: int) -> tuple[str, str]:
    """What makes the queue full at QoS 1 and 2 ("": it is not), and how much waits of what may."""
    limit = queue.count_limit()
    is_online = queue.online and limit == queue.options.max_online_messages
    return _filled(queue, size, limit, ONLINE if is_online else OFFLINE)


def _filled(
    queue: Queue, size: int, limit: int, name: str, *, is_quick: bool = False
) -> tuple[str, str]:
    """As in `Waiting.is_full` and `Waiting.is_quick_full`."""
    count = queue.waiting()
    if 0 <= limit <= count:
        return f"the queue is full ({name} = {limit})", ""
    if queue.durable and not is_quick:
        used, most, bytes_name = queue.waiting_bytes(), queue.options.max_bytes, "queue.max_bytes"
    else:
        used, most = queue.pending_bytes + queue.quick_bytes, queue.options.max_memory_bytes
        bytes_name = "queue.max_memory_bytes"
    if 0 <= most < used + size:
        return f"the queue is full ({used} bytes, {bytes_name} = {most})", ""
    shown, shown_bytes = _shown(limit), _shown(most)
    return "", f"{count} wait of {shown} ({name}), {used} bytes of {shown_bytes} ({bytes_name})"


def _shown(limit: int) -> str:
    return "any number" if limit < 0 else str(limit)
