"""What a queue would do with one more message, told without doing it."""

from typing import Final

from vmq.output import Output
from vmq.queue import Queue

#: How well placed a member of a share group is, best first.
READY: Final = 0
BUSY: Final = 1
AWAY: Final = 2


def send_state(queue: Queue) -> int:
    """READY to send at once, BUSY though connected, or AWAY; as `Registry.deliver_to_member` looks at it."""
    if not queue.online:
        return AWAY
    ready = not queue.output.blocked and not queue.has_waiting() and queue.window_open()
    return READY if ready else BUSY


def outcome(queue: Queue, qos: int, publisher: Output | None) -> tuple[str, str]:
    """What becomes of a message at its effective QoS (sent, queued, stored, dropped), and the reason."""
    if qos == 0:
        return _quick(queue, publisher)
    if send_state(queue) == READY:
        return "sent", "connected, and nothing waits before it"
    reasons = _reasons(queue)
    limit, name = _limit(queue)
    if limit < 0 or queue.waiting() < limit:
        where = "queued" if queue.online else "stored"
        return where, f"{reasons}; {queue.waiting()} wait of {_shown(limit)} ({name})"
    full = f"{reasons}; the queue is full ({name} = {limit})"
    if _pauses(queue, publisher):
        return "queued", f"{full}, and queue.overflow pauses the publisher"
    if queue.core.options.drop_oldest and limit > 0 and (queue.pending or queue.backlog):
        return _after_drop(queue, full)
    return "dropped", f"{full} and queue.drop gives up what arrives"


def _pauses(queue: Queue, publisher: Output | None) -> bool:
    """As `Queue.pause_publisher`: a client never waits for its own queue."""
    wanted = queue.core.options.pause_publisher and queue.online
    return wanted and publisher is not None and publisher is not queue.output


def _after_drop(queue: Queue, full: str) -> tuple[str, str]:
    where = "queued" if queue.online else "stored"
    return where, f"{full}; queue.drop gives up the message that waits longest for it"


def _quick(queue: Queue, publisher: Output | None) -> tuple[str, str]:
    """QoS 0 waits for the socket only."""
    if not queue.online:
        return "dropped", "the client is not connected, and QoS 0 is kept for nobody"
    if not (queue.output.blocked or queue.quick or queue.burst):
        return "sent", "connected, and its socket takes it"
    why = "its socket is full" if queue.output.blocked else "others wait for its socket"
    limit = queue.core.options.max_online_messages
    if limit < 0 or queue.waiting() < limit:
        return "queued", f"{why}; {queue.waiting()} wait of {_shown(limit)} (max_online_messages)"
    full = f"{why}; the queue is full (queue.max_online_messages = {limit})"
    if _pauses(queue, publisher):
        return "queued", f"{full}, and queue.overflow pauses the publisher"
    if queue.core.options.drop_oldest and queue.quick:
        return "queued", f"{full}; queue.drop gives up the message that waits longest for it"
    return "dropped", f"{full} and queue.drop gives up what arrives"


def _reasons(queue: Queue) -> str:
    """Why a message at QoS 1 or 2 cannot go out at once."""
    if not queue.online:
        return "the client is not connected"
    found: list[str] = []
    if queue.output.blocked:
        found.append("its socket is full")
    if not queue.window_open():
        inflight = len(queue.inflight)
        found.append(f"{inflight} await its acknowledgement (queue.max_inflight_messages)")
    if queue.has_waiting():
        found.append("others wait before it")
    return ", ".join(found)


def _limit(queue: Queue) -> tuple[int, str]:
    """The limit that holds now, as in `Queue.make_room`, and its name."""
    options = queue.core.options
    limit, name = options.max_offline_messages, "queue.max_offline_messages"
    if queue.online:
        online = options.max_online_messages
        if queue.backlog == 0 or online < 0 or (limit >= 0 and online > limit):
            limit, name = online, "queue.max_online_messages"
    return limit, name


def _shown(limit: int) -> str:
    return "any number" if limit < 0 else str(limit)
