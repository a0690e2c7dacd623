"""The tasks that own what takes time: one for each connection, one for each queue that drains.

They sleep while the synchronous path suffices. A queue's task exists only while it drains.
"""

import asyncio
import logging
from typing import Final

from vmq.connection import Connection
from vmq.core import Core
from vmq.queue import Queue
from vmq.store import StoreError

log = logging.getLogger("vmq.tasks")

#: Seconds that a closing connection has to take what was written to it.
CLOSE_TIMEOUT: Final = 5.0


class SessionTask:
    """Watches one connection: connect timeout, keep-alive, lifetime, retries, a close that hangs."""

    def __init__(
        self, connection: Connection, connect_timeout: float, lifetime: float = 0.0
    ) -> None:
        """Times are in seconds; a `lifetime` of 0 has no end."""
        self.connection = connection
        #: When the connection has lived long enough; 0 is never.
        self.dies_at = connection.core.clock() + lifetime if lifetime else 0.0
        self.connect_timeout = connect_timeout
        self.loop = asyncio.get_running_loop()
        self.waiter: asyncio.Future[None] | None = None
        connection.wake_task = self.wake
        self.task = self.loop.create_task(self.run())

    def wake(self) -> None:
        """Something changed that may shorten the sleep."""
        waiter = self.waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    async def sleep(self, seconds: float | None) -> None:
        """Sleeps until woken, or for so many seconds."""
        self.waiter = waiter = self.loop.create_future()
        timer = None if seconds is None else self.loop.call_later(seconds, self.wake)
        try:
            await waiter
        finally:
            self.waiter = None
            if timer is not None:
                timer.cancel()

    async def run(self) -> None:
        connection = self.connection
        clock = connection.core.clock
        deadline = clock() + self.connect_timeout
        while connection.session.subscriber is None and not connection.closing:
            left = deadline - clock()
            if left <= 0:
                connection.core.counters.socket_close_timeout += 1
                connection.close("no CONNECT within mqtt_connect_timeout")
                connection.outbox.flush()
                break
            await self.sleep(left)
        while not connection.closing:
            await self.sleep(self.watch())
        await self.sleep(CLOSE_TIMEOUT)
        connection.abort()

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
        if stalled > 0 and connection.socket_full:
            left = connection.blocked_since + stalled - now
            if left <= 0:
                connection.core.counters.stalled_clients += 1
                connection.close("it takes nothing of what is sent to it (stalled_client_timeout)")
                connection.abort()
                return None
            due = left if due is None else min(due, left)
        if self.dies_at and not connection.closing:
            left = self.dies_at - now
            if left <= 0:
                connection.close("max_connection_lifetime is over")
                connection.outbox.flush()
            due = left if due is None else min(due, left)
        retry = connection.core.options.retry_interval
        if retry and session.subscriber is not None and not connection.closing:
            session.subscriber.queue.retry(now)
            connection.outbox.flush()
            due = retry if due is None else min(due, retry)
        return due

    def expire_or_look_again(self) -> float:
        """The keep alive ran out, unless bytes wait unread because the loop itself was late."""
        connection = self.connection
        if connection.expiring:
            connection.core.counters.client_keepalive_expired += 1
            connection.close("keep alive expired [MQTT-3.1.2-24]")
            connection.outbox.flush()
        connection.expiring = True
        return 0.01

    def cancel(self) -> None:
        """The connection is gone."""
        self.connection.wake_task = None
        self.task.cancel()


class QueueTasks:
    """Drains backlogs step by step, so that no queue keeps the loop from the others."""

    def __init__(self, core: Core) -> None:
        self.core = core
        self.tasks: dict[Queue, asyncio.Task[None]] = {}

    def wake(self, queue: Queue) -> None:
        """A queue wants `drain_step` called soon."""
        if queue not in self.tasks:
            task = asyncio.get_running_loop().create_task(self.drain(queue))
            self.tasks[queue] = task

    async def drain(self, queue: Queue) -> None:
        outbox = self.core.outbox
        try:
            while queue.drain_step():
                outbox.flush()
                await asyncio.sleep(0)
        except StoreError as error:
            log.error("cannot drain the queue of client=%s: %s", queue.client_id, error)
            queue.output.close(str(error))
        except Exception:
            log.exception("cannot drain the queue of client=%s", queue.client_id)
            queue.output.close("its queue cannot be read")
        finally:
            del self.tasks[queue]
            outbox.flush()
