"""A connection: the callbacks of an asyncio transport on one side, a session on the other.

Compiled, since the event loop calls it for every chunk. asyncio and uvloop ask for no base class;
a WebSocket or an in-process client brings a stand-in for the transport.
"""

from collections.abc import Callable
from typing import Any

from vmq.output import Output
from vmq.registry import Registry
from vmq.session import Session


class Connection(Output):
    """One client's connection. `opened` and `closed` tell the listener."""

    def __init__(
        self,
        registry: Registry,
        anonymous: bool,
        new_id: str,
        opened: "Callable[[Connection], None]",
        closed: "Callable[[Connection], None]",
    ) -> None:
        super().__init__(registry.core.outbox)
        self.core = registry.core
        self.session = Session(registry, self, anonymous, new_id)
        self.opened = opened
        self.closed = closed
        self.transport: Any = None
        self.lost = False
        #: When bytes last came, by the core's clock.
        self.seen: float = 0.0
        #: The keep alive ran out, and one more look is taken before the end.
        self.expiring = False
        #: Set by the session task; called when it should look again.
        self.wake_task: Callable[[], None] | None = None
        self.reading_paused = False
        #: A peer that takes no replies is not read further above this many buffered bytes.
        self.reply_limit: int = 4 * 262_144
        self.peer = ""

    # Callbacks of the transport

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        self.seen = self.core.clock()
        self.opened(self)

    def data_received(self, data: bytes) -> None:
        self.seen = self.core.clock()
        self.expiring = False
        session = self.session
        known = session.subscriber is not None
        session.receive(data)
        self.outbox.flush()
        if not known and session.subscriber is not None and self.wake_task is not None:
            self.wake_task()

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, error: Exception | None) -> None:
        if self.lost:
            return
        self.lost = True
        self.close("connection lost" if error is None else "connection lost: " + str(error))
        self.transport = None
        self.closed(self)
        self.outbox.flush()

    def pause_writing(self) -> None:
        """The socket's buffer is full: messages wait in the queue from now on."""
        self.blocked = True
        subscriber = self.session.subscriber
        if subscriber is not None and not self.closing:
            subscriber.queue.update_fast()

    def resume_writing(self) -> None:
        self.blocked = False
        if self.reading_paused:
            self.reading_paused = False
            if not self.closing:
                self.transport.resume_reading()
        subscriber = self.session.subscriber
        if subscriber is not None and not self.closing:
            subscriber.queue.on_unblocked()
        self.outbox.flush()

    # The outgoing side

    def write(self) -> None:
        pieces = self.pieces
        transport = self.transport
        if transport is None:
            pieces.clear()
            return
        if pieces:
            if len(pieces) == 1:
                transport.write(pieces[0])
            else:
                transport.write(b"".join(pieces))
            pieces.clear()
        if self.closing and not self.held:
            transport.close()
        elif self.blocked and not self.reading_paused:
            # Replies come on top of what the queue holds back; a peer that sends and never reads
            # must not fill our memory with them.
            if transport.get_write_buffer_size() > self.reply_limit:
                self.reading_paused = True
                transport.pause_reading()

    def close(self, reason: str) -> None:
        """Ends the session now and the connection as soon as the output is written."""
        if self.closing:
            return
        self.closing = True
        self.session.end(reason)
        self.touch()
        if self.wake_task is not None:
            self.wake_task()

    def abort(self) -> None:
        """Drops the transport at once, whatever is unwritten."""
        if self.transport is not None:
            self.transport.abort()

    def describe(self) -> str:
        if not self.peer and self.transport is not None:
            address = self.transport.get_extra_info("peername")
            if isinstance(address, tuple):
                host = str(address[0])
                self.peer = f"[{host}]:{address[1]}" if ":" in host else f"{host}:{address[1]}"
            else:
                self.peer = str(address)
        return self.peer
