"""A connection: the callbacks of an asyncio transport on one side, a session on the other.

Compiled, since the event loop calls it for every chunk. asyncio and uvloop ask for no base class;
a WebSocket or an in-process client brings a stand-in for the transport.
"""

from typing import Any, Final

from mypy_extensions import i64
from vmq_hooks.types import Peer

from vmq.core.cork import CorkedOutput
from vmq.core.limits import RateLimit
from vmq.core.output import COMMITS, MEMORY, RATE, REPLIES, REST, SOCKET, VERDICT
from vmq.core.ports import NOBODY, ConnectionWatch
from vmq.core.registry import Registry
from vmq.core.states import AUTHENTICATING, BUSY, CLOSED, CLOSING, WAITING
from vmq.protocol.listener_context import ListenerContext
from vmq.protocol.session import Session

#: Seconds that a client which is over its rate waits at least: a remainder of none would have no end.
SHORTEST_WAIT: Final = 0.001
#: A client of whose packet more than this is kept is not read while memory is high.
LARGE_CUT: Final = 65_536

#: Bytes by which a packet under way must grow to show that its sender lives: less is a drip that could go on for years.
GROWTH: Final = 1000


class Connection(CorkedOutput):
    """One client's connection.

    What it may do is told by its `state`; whether it is read, by `pauses` and `stops`; whether it is written to, by
    `blocked`. Beside them stand that its next pass is asked for (`is_due`), and that the peer has ended (`peer_ended`).
    """

    def __init__(
        self,
        registry: Registry,
        anonymous: bool,
        new_id: str,
        listener: ListenerContext,
    ) -> None:
        super().__init__(registry.core.outbox, registry.core.cork)
        self.core = registry.core
        self.session = Session(registry, self, anonymous, new_id)
        #: How it came in.
        self.listener = listener
        self.transport: Any = None
        #: When bytes last came, by the core's clock.
        self.seen: float = 0.0
        #: Who keeps its deadlines.
        self.watch: ConnectionWatch = NOBODY
        #: Reasons at present not to read from the peer, and bits for those that it has once.
        self.pauses: int = 0
        self.stops: int = 0
        self.blocked_since: float = 0.0
        self.message_rate: RateLimit | None = None
        self.byte_rate: RateLimit | None = None
        #: What is below has a framing of its own, and calls `charge` for all that it reads.
        self.is_framed = False
        #: Bytes that it keeps of what it could not hand on yet.
        self.framed_bytes: int = 0
        #: Messages a second that a plugin allows; below 0: the option holds.
        self.own_rate: float = -1.0
        #: When the connection has lived long enough; 0 is never.
        self.dies_at: float = 0.0
        #: When the first of its verdicts on subscriptions ends; 0 is never.
        self.judged_until: float = 0.0
        #: The next pass of the session's rest is asked for.
        self.is_due = False
        #: The peer has ended while there was a rest: why, as `connection_lost` was told.
        self.peer_ended = False
        self.end_error: Exception | None = None
        #: The packet that was cut when the peer was last seen, and its bytes then.
        self.cut: bytearray | None = None
        self.cut_size: i64 = 0
        self.peer = ""
        #: What the peer counts as where addresses count (`Peer.network`); "" = it does not.
        self.network = ""
        self.set_rates()

    def set_rates(self) -> None:
        """Goes by the rates of the options from now on; no debt is taken along."""
        options, now = self.core.options, self.core.clock()
        rate = self.own_rate if self.own_rate >= 0 else options.max_message_rate
        self.message_rate = RateLimit(rate, now) if rate > 0 else None
        rate = options.max_byte_rate
        self.byte_rate = RateLimit(rate, now) if rate > 0 else None

    # Callbacks of the transport

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        self.core.counters.socket_open += 1
        self.seen = self.core.clock()
        self.listener.opened(self)

    def data_received(self, data: bytes) -> None:
        core = self.core
        now = core.clock()
        cork = self.cork
        if now >= cork.until:
            cork.pull()
        cork.now = now
        counters = core.counters
        counters.bytes_received += len(data)
        session = self.session
        if self.state == BUSY:
            self.pause_for(REST)
        known = session.subscriber is not None
        published = counters.mqtt_publish_received
        if core.traffic.is_on:
            core.traffic.see(self, True, data)
        if session.kept_generation >= 0:
            session.look_at_clock(now)
        session.receive(data)
        self.outbox.flush()
        cork.now = 0.0
        if session.decoder.rest is None:
            self.cut = None
            self.seen = now
        elif self.has_grown():
            self.seen = now
        published = counters.mqtt_publish_received - published
        if not self.is_framed:
            self.charge(len(data))
        if published:
            self.hold_publisher(published, now)
        elif core.store is not None:
            if core.store.gathered > core.options.max_uncommitted_writes:
                self.hold_for_store()
        if not known and session.subscriber is not None:
            self.watch.look()
        if self.state == BUSY:
            self.ask_for_pass()

    def has_grown(self) -> bool:
        """Whether the packet that is cut is another one than at the last look, or larger by enough."""
        rest = self.session.decoder.rest
        size: i64 = 0 if rest is None else len(rest)
        if rest is not None and rest is self.cut and size - self.cut_size < GROWTH:
            return False
        self.cut = rest
        self.cut_size = size
        return True

    # The rest of what came, in passes of its own

    def has_to_wait(self) -> bool:
        """Whether somebody has the peer wait, its own rest apart."""
        return self.pauses > (1 if self.stops & REST else 0)

    def ask_for_pass(self) -> None:
        """Has the rest go on in the next turn of the event loop, unless somebody has the peer wait."""
        if not self.is_due and not self.has_to_wait():
            self.is_due = True
            self.core.call_soon(self.next_pass)

    def next_pass(self) -> None:
        self.is_due = False
        if self.state == BUSY:
            if self.has_to_wait():
                return  # `resume` asks again
            self.run_pass(False)
        self.after_pass()

    def after_pass(self) -> None:
        """The rest goes on, or the peer is read again, or has its end."""
        if self.state == BUSY:
            self.ask_for_pass()
        elif self.awaits_verdict():
            return
        elif self.peer_ended:
            if self.transport is None:
                self.end_now(self.end_error)
            elif not self.closing:
                self.close("connection lost")
                self.outbox.flush()
        else:
            self.resume_from(REST)

    def awaits_verdict(self) -> bool:
        """Whether nothing is handled before somebody has answered."""
        return AUTHENTICATING <= self.state <= WAITING

    def go_on(self) -> None:
        if self.closing:
            return
        self.seen = self.core.clock()  # it waited for us
        self.run_pass(True)
        if not self.awaits_verdict():
            self.resume_from(VERDICT)
        self.after_pass()

    def run_pass(self, resumes: bool) -> None:
        """A pass over what came before: the session goes on with its rest, or `resumes` what waited for a verdict."""
        core = self.core
        session = self.session
        known = session.subscriber is not None
        published = core.counters.mqtt_publish_received
        session.look_at_clock(core.clock())
        if resumes:
            session.resume()
        else:
            session.go_further()
        self.outbox.flush()
        published = core.counters.mqtt_publish_received - published
        if published:
            self.hold_publisher(published, core.clock())
        if not known and session.subscriber is not None:
            self.watch.look()

    def limit(self, rate: int | None, lifetime: int | None) -> None:
        if rate is not None:
            self.own_rate = float(rate)
            self.set_rates()
        if lifetime is not None:
            self.dies_at = self.core.clock() + lifetime if lifetime else 0.0
            self.watch.wake()

    def judge_again(self, until: float) -> None:
        if until <= 0.0 or 0.0 < self.judged_until <= until:
            return
        self.judged_until = until
        self.watch.wake()

    def seen_peer(self) -> Peer:
        host, port = split_peer(self.describe())
        listener, session = self.listener, self.session
        return Peer(host, port, listener.name, listener.scheme, session.identity, self.network)

    def charge(self, size: int) -> None:
        """So many bytes were read, whatever they are of: no more for a while if rate or memory do not allow it."""
        core = self.core
        if self.byte_rate is not None:
            self.hold_back(self.byte_rate.spend(size, core.clock()))
        core.memory_grown += size
        if core.memory_is_high:
            self.hold_for_memory()
        if core.memory_grown > core.memory_room:
            core.memory.look()

    def kept_bytes(self) -> int:
        """Bytes that came and are not handled: of a cut packet, of a cut frame, or behind a packet that waits."""
        return self.framed_bytes + self.session.kept_bytes()

    def hold_for_memory(self) -> None:
        """Memory is high: who has us keep much is not read, and who is not known yet has to go."""
        kept = self.kept_bytes()
        if kept > LARGE_CUT:
            self.wait_for_memory()
        if kept and self.session.subscriber is None and not self.closing:
            self.core.counters.memory_refused += 1
            self.close("memory is above max_memory, and its CONNECT is not whole or waits")

    def wait_for_memory(self) -> None:
        """Reads nothing more until there is memory."""
        if not self.stops & MEMORY:
            self.pause_for(MEMORY)
            self.core.waiting_for_memory.append(self)

    def hold_back(self, wait: float) -> None:
        """Stops reading for so many seconds, or longer if more is charged meanwhile."""
        core = self.core
        if wait > 0.0 and core.call_later is not None and not self.stops & RATE:
            core.counters.rate_limited += 1
            self.pause_for(RATE)
            core.call_later(wait, self.look_at_rates)

    def look_at_rates(self) -> None:
        """Reads again once nothing is owed."""
        core = self.core
        now = core.clock()
        wait = 0.0
        if self.message_rate is not None:
            wait = self.message_rate.spend(0, now)
        if self.byte_rate is not None:
            wait = max(wait, self.byte_rate.spend(0, now))
        if wait > 0.0 and core.call_later is not None and not self.closing:
            core.call_later(max(wait, SHORTEST_WAIT), self.look_at_rates)
            return
        self.resume_from(RATE)

    def hold_publisher(self, published: int, now: float) -> None:
        """Stops reading for a while if the client passed its rate of messages, or nobody can follow."""
        core = self.core
        if self.message_rate is not None:
            self.hold_back(self.message_rate.spend(published, now))
        if core.memory_is_high:
            self.wait_for_memory()
        store = core.store
        if store is not None and store.gathered > core.options.max_uncommitted_writes:
            self.hold_for_store()
        session = self.session
        if session.feeds_streams:
            session.feeds_streams = False
            if core.streams_are_behind:
                self.pause()
                core.waiting_for_streams.append(self)

    def hold_for_store(self) -> None:
        """Stops reading until the next commit is done."""
        self.pause()
        self.core.waiting_for_store.append(self)

    def pause(self) -> None:
        self.stop_reading(True)

    def pause_for(self, reason: int) -> None:
        if not self.stops & reason:
            self.stops |= reason
            self.stop_reading(reason != REST)

    def resume_from(self, reason: int) -> None:
        if self.stops & reason:
            self.stops ^= reason
            self.resume()

    def stop_reading(self, is_counted: bool) -> None:
        self.pauses += 1
        if self.pauses == 1 and self.transport is not None:
            if is_counted:
                self.core.counters.publishers_paused += 1
            self.transport.pause_reading()

    def resume(self) -> None:
        self.pauses -= 1
        if self.pauses == 0 and self.transport is not None and not self.closing:
            self.seen = self.core.clock()  # its silence was our doing
            self.transport.resume_reading()
        if self.state == BUSY:
            self.ask_for_pass()

    def eof_received(self) -> bool:
        """The peer sends no more. What it sent before is handled, and answered, before its end."""
        self.send_corked()
        if self.has_rest():
            self.peer_ended = True
        return self.peer_ended

    def has_rest(self) -> bool:
        """Whether packets that came are still to be handled: after the present pass, or once a verdict is there."""
        return WAITING <= self.state <= BUSY

    def connection_lost(self, error: Exception | None) -> None:
        if self.state == BUSY or (self.peer_ended and self.has_rest()):
            self.describe()
            self.transport = None
            self.peer_ended = True
            self.end_error = error
            self.resume_from(REPLIES)  # nobody is left to take them
            self.ask_for_pass()
            return
        self.end_now(error)

    def end_now(self, error: Exception | None) -> None:
        """The connection is gone, and nothing of what came is left to do."""
        if self.state == CLOSED:
            return
        self.core.counters.socket_close += 1
        if error is not None:
            self.core.counters.socket_error += 1
        self.close("connection lost" if error is None else "connection lost: " + str(error))
        self.state = CLOSED
        self.transport = None
        self.listener.closed(self)
        self.outbox.flush()
        # Each has the other: what is left of both goes at once, not when the collector of garbage looks.
        self.session.output = self.outbox.nowhere

    def pause_writing(self) -> None:
        """The socket's buffer is full: messages wait in the queue from now on."""
        self.blocked |= SOCKET
        self.blocked_since = self.core.clock()
        if self.core.options.stalled_client_timeout > 0:
            self.watch.wake()
        self.on_blocked()

    def resume_writing(self) -> None:
        self.unblock(SOCKET)
        self.outbox.flush()

    def on_held(self) -> None:
        """What waits to be safe is bounded like what waits for the peer."""
        deliveries, limit = self.deliveries, self.listener.reply_limit // 4
        if not self.blocked & COMMITS and deliveries is not None and deliveries.size > limit:
            self.blocked |= COMMITS
            self.on_blocked()
        self.limit_replies()

    def on_released(self) -> None:
        deliveries, limit = self.deliveries, self.listener.reply_limit // 8
        if self.blocked & COMMITS and deliveries is not None and deliveries.size <= limit:
            self.unblock(COMMITS)
        else:
            self.maybe_read_on()

    def on_blocked(self) -> None:
        subscriber = self.session.subscriber
        if subscriber is not None and not self.closing:
            subscriber.queue.update_fast()

    def unblock(self, reason: int) -> None:
        """Socket or disk is behind no more: the queue goes on if the other is not, either."""
        self.blocked &= ~reason
        if self.blocked:
            return
        self.maybe_read_on()
        subscriber = self.session.subscriber
        if subscriber is not None and not self.closing:
            subscriber.queue.on_unblocked()

    def limit_replies(self) -> None:
        """Replies come on top of what the queue holds back.

        A peer that sends and never reads, or sends faster than the disk is, must not fill our
        memory with them.
        """
        transport, held = self.transport, self.held_bytes
        if self.stops & REPLIES or transport is None:
            return
        if not self.blocked and held <= self.listener.reply_limit // 4:
            return
        if held + self.corked_bytes + transport.get_write_buffer_size() > self.listener.reply_limit:
            self.pause_for(REPLIES)

    def maybe_read_on(self) -> None:
        """The peer is read again if its replies wait neither for it nor, most of them, for anything to be safe."""
        if (
            self.stops & REPLIES
            and not self.blocked
            and self.held_bytes <= self.listener.reply_limit // 8
        ):
            self.resume_from(REPLIES)

    # The outgoing side

    def write(self) -> None:
        transport, pieces = self.transport, self.pieces
        self.pieces = None
        if transport is None:
            return
        if pieces:
            self.put(pieces)
        if self.closing and not self.is_held():
            self.send_corked()
            transport.close()
        elif self.blocked:
            self.limit_replies()

    def send(self, pieces: list[bytes]) -> None:
        transport = self.transport
        if transport is None:
            return
        data = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        core = self.core
        core.counters.bytes_sent += len(data)
        if core.traffic.is_on:
            core.traffic.see(self, False, data)
        transport.write(data)

    def close(self, reason: str) -> None:
        """Ends the session now and the connection as soon as the output is written."""
        self.finish(reason, CLOSING)

    def finish(self, reason: str, state: int) -> None:
        if self.closing:
            return
        self.state = state
        self.cut = None
        if self.peer_ended and self.transport is None:
            self.core.call_soon(self.next_pass)  # nobody else tells of the end
        self.forget_far()
        self.session.end(reason)
        self.touch()
        self.watch.look()

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
