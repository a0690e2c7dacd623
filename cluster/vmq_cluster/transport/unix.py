"""The link between processes of one machine: Unix sockets on the event loop itself.

ZeroMQ brings a frame to its threads and back, which wakes somebody up twice on each side; between processes of one
machine that is most of what a frame costs. What is said is the same: a node listens at one socket, and connects to
that of each other node to speak; a frame goes one way on one connection, with its length in front.

What arrives at most once needs no frame around it: such a payload goes by itself, behind its length with `AT_ONCE` in
it and the life of its sender, once a frame has said on this connection who that is. It waits at most for others of its
turn of the event loop (`bunches`). So does not a reliable payload that is the next one of its channel, with `NUMBERED`
in its length and its place there: what the system has taken of it whole reaches the peer though this process ends.
Compiled: a class of asyncio's own would not be.

**Who may.** The socket belongs to the node's user alone. Besides, each side shows that it has the cluster's key, or
that it has none either, by a digest of what the other one has just drawn (HMAC, RFC 2104): nodes of two clusters on one
machine do not mix. Nobody else can listen in, so nothing is encrypted.
"""

import asyncio
import hmac
import logging
import secrets
import struct
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from time import monotonic
from typing import Any, Final, cast

from vmq_cluster.messages import MAX_FRAME
from vmq_cluster.transport.bunches import LONGEST, Bunches
from vmq_cluster.transport.refusals import Refusals
from vmq_cluster.transport.sockets import SMALL_BUFFER, Warn

log = logging.getLogger("vmq.cluster.link")

LENGTH: Final = struct.Struct("<I")
#: In the length of a payload that comes without a frame. Then follows the life of the sender.
AT_ONCE: Final = 1 << 31
_LENGTH_AND_LIFE: Final = struct.Struct("<IQ")
LIFE: Final = 8
#: The same of one of a reliable channel. Then follow the life, the oldest number that is kept, and its own.
NUMBERED: Final = 1 << 30
_LENGTH_AND_PLACE: Final = struct.Struct("<IQQQ")
PLACE: Final = 24
#: Bytes up to which it costs less to copy a payload than to write two pieces.
_COPIED: Final = 16 * 1024
#: Bytes that wait for no others of their turn.
_LARGEST: Final = 64 * 1024
#: Bytes that each side draws, and of the digest that answers them.
NONCE: Final = 32
DIGEST: Final = 32
# Not final, for tests set them otherwise: a compiled module has constants in its code.
#: Seconds between attempts to connect: at first, and at most.
_RECONNECT = 0.1
_RECONNECT_MAX = 2.0
#: What a frame that waits counts for besides its bytes.
_FRAME: Final = 64


def proof_of(key: str | None, side: bytes, drawn: bytes) -> bytes:
    """What shows that a side has the key. Each side's is its own, or an echo would be one."""
    return hmac.digest((key or "").encode(), side + drawn, "sha256")


class End:
    """One connection, until it is over."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self._buffer = bytearray()
        self._is_greeted = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # Of a stream socket. uvloop's own is no subclass.
        self.transport = cast("asyncio.Transport", transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self.transport = None

    def eof_received(self) -> bool:
        return False

    def pause_writing(self) -> None:
        """Who writes asks how much waits."""

    def resume_writing(self) -> None:
        """See `pause_writing`."""

    def abort(self) -> None:
        if self.transport is not None:
            self.transport.abort()


class _Spoken(End):
    """The connection by which this node speaks."""

    def __init__(self, peer: "UnixPeer") -> None:
        super().__init__()
        self._peer = peer
        self._drawn = secrets.token_bytes(NONCE)
        self._has_shown = False
        #: Whether a frame has said who speaks.
        self.is_introduced = False

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._peer.ended(self)

    @property
    def is_greeted(self) -> bool:
        return self._is_greeted

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        if self._is_greeted or self.transport is None:
            self.abort()  # who listens says nothing more
        elif not self._has_shown:
            if len(self._buffer) >= NONCE:
                self._has_shown = True
                shown = self._peer.proof(b"speaks", bytes(self._buffer[:NONCE]))
                self.transport.write(shown + self._drawn)
        elif len(self._buffer) >= NONCE + DIGEST:
            expected = self._peer.proof(b"hears", self._drawn)
            self._is_greeted = hmac.compare_digest(bytes(self._buffer[NONCE:]), expected)
            if self._is_greeted:
                self._peer.greeted(self)
            else:
                self.abort()


def _same(connection: _Spoken) -> _Spoken:
    return connection


class UnixPeer:
    """What this node says to one address; connects, and connects again with growing pauses.

    What a connection that breaks had in hand is dropped, which the machines above know how to bear.
    """

    def __init__(
        self,
        address: str,
        warn: Warn,
        key: str | None,
        patience: float,
        on_gone: Callable[[], None],
    ) -> None:
        """`on_gone` is called when a connection has ended and nobody listens there any more."""
        self.address = address
        #: Bytes that may wait; what is said to a dead peer for days is not to reach it all at once.
        self.limit = SMALL_BUFFER
        self._path = address.removeprefix("ipc://")
        self._warn = warn
        self._key = key
        self._patience = patience
        self._refusals = Refusals(on_gone)
        #: Frames for a connection that is not there yet.
        self._early: list[bytes] = []
        self._early_bytes = 0
        #: What waits for the end of its turn, since when, and whether that end is told.
        self._bunches = Bunches()
        self._held: list[bytes] = []
        self._held_bytes = 0
        self._since = 0.0
        self._is_due = False
        self._ready: _Spoken | None = None
        self._current: _Spoken | None = None
        self._lost = asyncio.Event()
        self._greeted = asyncio.Event()
        self._is_back = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._connecting = self._loop.create_task(self._connect())

    def proof(self, side: bytes, drawn: bytes) -> bytes:
        """What shows that a side has the key of this node."""
        return proof_of(self._key, side, drawn)

    async def _connect(self) -> None:
        loop = asyncio.get_running_loop()
        pause = _RECONNECT
        while True:
            self._lost.clear()
            self._greeted.clear()
            self._current = connection = _Spoken(self)
            try:
                async with asyncio.timeout(self._patience):
                    making: Any = partial(_same, connection)
                    await loop.create_unix_connection(making, self._path)
                    await self._greeted.wait()
            except TimeoutError:
                connection.abort()
            except (ConnectionRefusedError, FileNotFoundError):
                self._refusals.refused()
            except OSError as error:
                self._warn(f"cannot connect to {self.address}: {error.strerror}")
            else:
                if connection.is_greeted:
                    self._refusals.linked()
                    since = loop.time()
                    await self._lost.wait()
                    if loop.time() - since >= _RECONNECT_MAX:
                        pause = _RECONNECT
                        continue  # at once: whether its process lives shows now
            with suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._is_back.wait()
            pause = _RECONNECT if self._is_back.is_set() else min(2 * pause, _RECONNECT_MAX)
            self._is_back.clear()

    def hurry(self) -> None:
        """Who listens there is back: the pause before the next attempt is over."""
        self._is_back.set()

    def greeted(self, connection: _Spoken) -> None:
        """Both sides have the key."""
        self._ready = connection
        early, self._early, self._early_bytes = self._early, [], 0
        for raw in early:
            self.send(raw)
        self._greeted.set()

    def ended(self, connection: _Spoken) -> None:
        """A connection is over, whether it was good or not."""
        if self._current is connection:
            self._ready = self._current = None
            self._held, self._held_bytes = [], 0
            self._lost.set()
            self._greeted.set()

    def send(self, raw: bytes) -> bool:
        """Returns whether there was room."""
        connection = self._ready
        if connection is not None and connection.transport is not None:
            if connection.transport.get_write_buffer_size() > self.limit:
                return False
            self._write(connection.transport, LENGTH.pack(len(raw)), raw)
            connection.is_introduced = True
            return True
        if self._connecting.done() or self._early_bytes > self.limit:
            return False
        self._early.append(raw)
        self._early_bytes += len(raw) + _FRAME
        return True

    def is_ready(self) -> bool:
        """Whether a payload may go without a frame."""
        connection = self._ready
        return connection is not None and connection.is_introduced

    def send_at_once(self, life: int, payload: bytes) -> bool:
        """A payload without a frame; returns whether that may be now, and there was room."""
        transport = self._with_room(payload)
        if transport is None:
            return False
        head = _LENGTH_AND_LIFE.pack(len(payload) | AT_ONCE, life)
        now = monotonic()
        if self._bunches.wait(now) and len(payload) <= _COPIED:
            self._hold(transport, head + payload, now)
        else:
            self._write(transport, head, payload)
        return True

    def _hold(self, transport: asyncio.Transport, raw: bytes, now: float) -> None:
        """Writes it with what comes behind it in this turn, unless that is long or much."""
        held = self._held
        if not held:
            self._since = now
        held.append(raw)
        self._held_bytes += len(raw)
        if self._held_bytes > _LARGEST or now - self._since > LONGEST:
            self._write(transport, b"", b"")
        elif not self._is_due:
            self._is_due = True
            self._loop.call_soon(self._end_turn)

    def _end_turn(self) -> None:
        self._is_due = False
        connection = self._ready
        if self._held and connection is not None and connection.transport is not None:
            self._write(connection.transport, b"", b"")

    def _write(self, transport: asyncio.Transport, head: bytes, payload: bytes) -> None:
        """Writes a head and a payload behind what waits."""
        held = self._held
        if held:
            self._held, self._held_bytes = [], 0
            head = b"".join(held) + head
        if len(payload) <= _COPIED:
            transport.write(head + payload)
        else:
            transport.writelines((head, payload))

    def send_numbered(self, place: tuple[int, int, int], payload: bytes) -> bool | None:
        """Sends a payload of a reliable channel: the life, the oldest number that is kept, and its own.

        Returns whether the system has taken it whole; None: it may not go so now.
        """
        transport = self._with_room(payload)
        if transport is None:
            return None
        self._write(transport, _LENGTH_AND_PLACE.pack(len(payload) | NUMBERED, *place), payload)
        return transport.get_write_buffer_size() == 0 and not transport.is_closing()

    def _with_room(self, payload: bytes) -> asyncio.Transport | None:
        """The connection, if a payload may go on it without a frame."""
        connection = self._ready
        if connection is None or not connection.is_introduced or len(payload) > MAX_FRAME:
            return None
        transport = connection.transport
        if transport is None or transport.get_write_buffer_size() > self.limit:
            return None
        return transport

    async def end(self) -> None:
        """Closes the connection; what was written leaves within a moment, or not at all."""
        self._connecting.cancel()
        with suppress(asyncio.CancelledError):
            await self._connecting
        self._end_turn()
        connection = self._current
        if connection is not None and connection.transport is not None:
            self._lost.clear()
            connection.transport.close()
            with suppress(TimeoutError):
                async with asyncio.timeout(0.5):
                    await self._lost.wait()
            connection.abort()
