"""The watch over connections: connect timeout, keep-alive, lifetime, stalls, retries, a close that hangs.

One timer of the event loop serves all connections. A task or a timer for each would cost more than
all else that a new connection needs; and of the times that they wait for, hardly any ever comes.
"""

import logging
from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any, Final

from mypy_extensions import mypyc_attr

from vmq.core.output import SOCKET
from vmq.core.ports import NOBODY, ConnectionWatch
from vmq.core.states import AUTHENTICATING, AWAITING_CONNECT
from vmq.protocol.connection import Connection

log = logging.getLogger("vmq.watch")

#: Seconds that a connection is looked at late, at most: those due in one step are looked at together.
STEP: Final = 0.05
#: Seconds from one look to the next, at most; what is due later is put off again. Bounds the steps.
FARTHEST: Final = 60.0
#: Seconds that the timer may come late before the loop counts as late itself; and those that it then reads first.
LATE: Final = 0.1
READ_FIRST: Final = 0.01
#: Seconds that a closing connection has to take what was written to it.
CLOSE_TIMEOUT: Final = 5.0


class Deadlines:
    """When which watch is to look: watches by step, and one timer for the next step.

    Args:
        clock: monotonic seconds.
        call_later, call_soon: the event loop's.
    """

    def __init__(
        self,
        clock: Callable[[], float],
        call_later: Callable[..., Any],
        call_soon: Callable[..., Any],
    ) -> None:
        self.clock = clock
        self.call_later = call_later
        self.call_soon = call_soon
        #: Who was set last for each step; the others are behind it (`SessionWatch.behind`). None: nobody any more.
        self.steps: dict[int, SessionWatch | None] = {}
        self.order: list[int] = []
        self.timer: Any = None
        self.has_read = False
        self.woken: list[SessionWatch] = []

    def set(self, watch: "SessionWatch", seconds: float) -> None:
        """Has a watch look within so many seconds (and a step); an earlier look that is set stays."""
        now = self.clock()
        step = int((now + min(seconds, FARTHEST)) / STEP) + 1
        if watch.step:
            if watch.step <= step:
                return
            self.clear(watch)
        if step not in self.steps:
            heappush(self.order, step)
            if self.order[0] == step:
                self.arm(now)
        watch.step = step
        watch.behind = behind = self.steps.get(step)
        if behind is not None:
            behind.before = watch
        self.steps[step] = watch

    def clear(self, watch: "SessionWatch") -> None:
        """Has a watch not look."""
        before, behind = watch.before, watch.behind
        if before is not None:
            before.behind = behind
        elif watch.step:
            self.steps[watch.step] = behind
        if behind is not None:
            behind.before = before
        watch.before = watch.behind = None
        watch.step = 0

    def soon(self, watch: "SessionWatch") -> None:
        """Has a watch look in the next pass of the loop."""
        self.woken.append(watch)
        if len(self.woken) == 1:
            self.call_soon(self.look_at_woken)

    def close(self) -> None:
        """No watch looks any more."""
        if self.timer is not None:
            self.timer.cancel()

    def arm(self, now: float) -> None:
        """Sets the timer for the next step."""
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None
        if self.order:
            self.timer = self.call_later(max(0.0, self.order[0] * STEP - now), self.fire)

    def fire(self) -> None:
        """Has those look whose time has come.

        A loop that was late itself (a machine that stood still, a storm of connections) reads first: what came in
        time lies unread, and timers come before sockets. Else it would end those that did all that they had to.
        """
        now = self.clock()
        if not self.has_read and self.order and now - self.order[0] * STEP > LATE:
            self.has_read = True
            self.timer = self.call_later(READ_FIRST, self.fire)
            return
        self.has_read = False
        try:
            while self.order and self.order[0] * STEP <= now:
                self.look_at(self.take(heappop(self.order)))
        finally:
            self.arm(now)

    def take(self, step: int) -> "list[SessionWatch]":
        """The watches of a step, which stand nowhere from now on, in the order in which they were set."""
        found = []
        watch = self.steps.pop(step)
        while watch is not None:
            found.append(watch)
            behind = watch.behind
            watch.before = watch.behind = None
            watch.step = 0
            watch = behind
        found.reverse()
        return found

    def look_at_woken(self) -> None:
        woken = self.woken
        self.woken = []
        self.look_at(woken)

    def look_at(self, watches: "list[SessionWatch]") -> None:
        for watch in watches:
            try:
                watch.look()
            except Exception:
                log.exception("cannot watch a connection")


@mypyc_attr(allow_interpreted_subclasses=True)
class SessionWatch(ConnectionWatch):
    """Watches one connection, from its beginning until `cancel`."""

    def __init__(
        self,
        connection: Connection,
        deadlines: Deadlines,
        connect_timeout: float,
        lifetime: float = 0.0,
    ) -> None:
        """Times are in seconds; a `lifetime` of 0 has no end."""
        super().__init__()
        now = connection.core.clock()
        self.connection = connection
        self.deadlines = deadlines
        #: When CONNECT must have come; of a connection that closes, when it is cut.
        self.until = now + connect_timeout
        #: When the connection has lived long enough; 0 is never.
        if lifetime:
            connection.dies_at = now + lifetime
        #: When the peer had been seen whose keep alive ran out: one more look is taken before the end.
        self.expired_at = -1.0
        #: Where it stands among the deadlines; 0 if nowhere. A list of its own for each step takes less than a dict.
        self.step: int = 0
        self.before: SessionWatch | None = None
        self.behind: SessionWatch | None = None
        self.is_woken = False
        self.is_closing = False
        self.is_over = False
        connection.watch = self
        deadlines.set(self, connect_timeout)

    def wake(self) -> None:
        if not self.is_woken:
            self.is_woken = True
            self.deadlines.soon(self)

    def cancel(self) -> None:
        """The connection is gone."""
        self.is_over = True
        self.connection.watch = NOBODY
        self.deadlines.clear(self)

    def look(self) -> None:
        """Does what is due, and sets the next look."""
        self.is_woken = False
        if self.is_over:
            return
        due = self.due()
        if due is not None:
            self.deadlines.set(self, due)

    def due(self) -> float | None:
        """Does what is due; returns the seconds until something is due again."""
        connection = self.connection
        now = connection.core.clock()
        if connection.closing:
            return self.cut(now)
        if connection.state == AUTHENTICATING:
            left = connection.session.connect_at + connection.core.options.login_timeout - now
            if left <= 0:
                connection.session.give_up()
                connection.outbox.flush()
                return None  # closing has woken us
            return left
        if connection.state == AWAITING_CONNECT:
            left = self.until - now
            if left <= 0:
                connection.core.counters.socket_close_timeout += 1
                connection.close("no CONNECT within mqtt_connect_timeout")
                connection.outbox.flush()
                return None  # closing has woken us
            return left
        return self.watch()  # who waits for its session has done its part

    def cut(self, now: float) -> float | None:
        """Ends a close that hangs."""
        if not self.is_closing:
            self.is_closing = True
            self.until = now + CLOSE_TIMEOUT
        if now < self.until:
            return self.until - now
        self.connection.abort()
        return None

    def watch(self) -> float | None:
        """Does what is due now; returns the seconds until something is due again."""
        connection = self.connection
        session = connection.session
        now = connection.core.clock()
        due: float | None = None
        if connection.pauses:
            connection.seen = now  # whoever is not read cannot show that it lives
        if session.keep_alive:
            # One and a half times the keep alive [MQTT-3.1.2-24].
            due = connection.seen + session.keep_alive * 1.5 - now
            if due <= 0:
                due = self.expire_or_look_again()
        stalled = connection.core.options.stalled_client_timeout
        if stalled > 0 and connection.blocked & SOCKET:
            left = connection.blocked_since + stalled - now
            if left <= 0:
                connection.core.counters.stalled_clients += 1
                connection.close("it takes nothing of what is sent to it (stalled_client_timeout)")
                connection.abort()
                return None
            due = left if due is None else min(due, left)
        if connection.dies_at and not connection.closing:
            left = connection.dies_at - now
            if left <= 0:
                connection.close("max_connection_lifetime is over")
                connection.outbox.flush()
            due = left if due is None else min(due, left)
        if connection.judged_until and not connection.closing:
            left = connection.judged_until - now
            if left <= 0:
                connection.judged_until = 0.0  # the new verdicts say until when they hold
                core = connection.core
                if session.subscriber is not None:
                    core.rechecks.put(session.registry, session.subscriber)
            else:
                due = left if due is None else min(due, left)
        retry = session.options.retry_interval
        if retry and session.subscriber is not None and not connection.closing:
            session.subscriber.queue.retry(now)
            connection.outbox.flush()
            due = retry if due is None else min(due, retry)
        return due

    def expire_or_look_again(self) -> float:
        """The keep alive ran out, unless bytes wait unread because the loop itself was late."""
        connection = self.connection
        if self.expired_at == connection.seen:
            connection.core.counters.client_keepalive_expired += 1
            connection.close("keep alive expired [MQTT-3.1.2-24]")
            connection.outbox.flush()
        self.expired_at = connection.seen
        return 0.01
