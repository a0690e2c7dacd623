"""A connection: the callbacks of an asyncio transport on one side, a session on the other.

Compiled, since the event loop calls it for every chunk. asyncio and uvloop ask for no base class;
a WebSocket or an in-process client brings a stand-in for the transport.
"""

from collections.abc import Callable
from typing import Any, Literal

from vmq_hooks.types import Peer

from vmq.limits import RateLimit
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
        self.replies_unread = False
        #: Reasons at present not to read from the peer.
        self.pauses: int = 0
        self.blocked_since: float = 0.0
        options = registry.core.options
        self.message_rate: RateLimit | None = None
        self.byte_rate: RateLimit | None = None
        if options.max_message_rate > 0:
            self.message_rate = RateLimit(options.max_message_rate, registry.core.clock())
        if options.max_byte_rate > 0:
            self.byte_rate = RateLimit(options.max_byte_rate, registry.core.clock())
        #: When the connection has lived long enough; 0 is never.
        self.dies_at: float = 0.0
        #: How it came in: the listener's name and scheme.
        self.listener = ""
        self.scheme: Literal["tcp", "tls", "ws", "wss", "unix", "local"] = "local"
        #: A peer that takes no replies is not read further above this many buffered bytes.
        self.reply_limit: int = 4 * 262_144
        self.peer = ""

    # Callbacks of the transport

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        self.core.counters.socket_open += 1
        self.seen = self.core.clock()
        self.opened(self)

    def data_received(self, data: bytes) -> None:
        core = self.core
        now = core.clock()
        self.seen = now
        self.expiring = False
        counters = core.counters
        counters.bytes_received += len(data)
        session = self.session
        known = session.subscriber is not None
        published = counters.mqtt_publish_received
        core.publisher = self
        if core.tap is not None:
            core.tap(self, True, data)
        if session.kept_generation >= 0:
            session.look_at_clock(now)
        session.receive(data)
        core.publisher = None
        self.outbox.flush()
        published = counters.mqtt_publish_received - published
        if published:
            self.hold_publisher(published, len(data), now)
        if not known and session.subscriber is not None and self.wake_task is not None:
            self.wake_task()

    def go_on(self) -> None:
        if self.closing:
            return
        core = self.core
        session = self.session
        known = session.subscriber is not None
        published = core.counters.mqtt_publish_received
        core.publisher = self
        session.look_at_clock(core.clock())
        session.resume()
        core.publisher = None
        self.outbox.flush()
        published = core.counters.mqtt_publish_received - published
        if published:
            self.hold_publisher(published, 0, core.clock())
        if not known and session.subscriber is not None and self.wake_task is not None:
            self.wake_task()
        self.resume()

    def limit(self, rate: int | None, lifetime: int | None) -> None:
        now = self.core.clock()
        if rate is not None:
            self.message_rate = RateLimit(float(rate), now) if rate else None
        if lifetime is not None:
            self.dies_at = now + lifetime if lifetime else 0.0
            if self.wake_task is not None:
                self.wake_task()

    def seen_peer(self) -> Peer:
        host, port = split_peer(self.describe())
        return Peer(host, port, self.listener, self.scheme, self.session.identity)

    def hold_publisher(self, published: int, size: int, now: float) -> None:
        """Stops reading for a while if the client passed its rates, or nobody can follow."""
        core = self.core
        wait = 0.0
        if self.message_rate is not None:
            wait = self.message_rate.spend(published, now)
        if self.byte_rate is not None:
            wait = max(wait, self.byte_rate.spend(size, now))
        if wait > 0.0 and core.call_later is not None:
            core.counters.rate_limited += 1
            self.pause()
            core.call_later(wait, self.resume)
        if core.memory_is_high:
            self.pause()
            core.waiting_for_memory.append(self)
        store = core.store
        if store is not None and len(store.dirty) > core.options.max_uncommitted_writes:
            self.pause()
            core.waiting_for_store.append(self)

    def pause(self) -> None:
        self.pauses += 1
        if self.pauses == 1 and self.transport is not None:
            self.core.counters.publishers_paused += 1
            self.transport.pause_reading()

    def resume(self) -> None:
        self.pauses -= 1
        if self.pauses == 0 and self.transport is not None and not self.closing:
            self.seen = self.core.clock()  # its silence was our doing
            self.transport.resume_reading()

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, error: Exception | None) -> None:
        if self.lost:
            return
        self.lost = True
        self.core.counters.socket_close += 1
        if error is not None:
            self.core.counters.socket_error += 1
        self.close("connection lost" if error is None else "connection lost: " + str(error))
        self.transport = None
        self.closed(self)
        self.outbox.flush()

    def pause_writing(self) -> None:
        """The socket's buffer is full: messages wait in the queue from now on."""
        self.blocked = True
        self.blocked_since = self.core.clock()
        if self.core.options.stalled_client_timeout > 0 and self.wake_task is not None:
            self.wake_task()
        subscriber = self.session.subscriber
        if subscriber is not None and not self.closing:
            subscriber.queue.update_fast()

    def resume_writing(self) -> None:
        self.blocked = False
        if self.replies_unread:
            self.replies_unread = False
            self.resume()
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
            data = pieces[0] if len(pieces) == 1 else b"".join(pieces)
            core = self.core
            core.counters.bytes_sent += len(data)
            if core.tap is not None:
                core.tap(self, False, data)
            transport.write(data)
            pieces.clear()
        if self.closing and not self.held:
            transport.close()
        elif self.blocked and not self.replies_unread:
            # Replies come on top of what the queue holds back; a peer that sends and never reads
            # must not fill our memory with them.
            if transport.get_write_buffer_size() > self.reply_limit:
                self.replies_unread = True
                self.pause()

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


def split_peer(text: str) -> tuple[str, int]:
    """Host and port of what `describe` shows; port 0 where there is none."""
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdigit() or (":" in host and host[:1] != "["):
        return text, 0
    return host.strip("[]"), int(port)
