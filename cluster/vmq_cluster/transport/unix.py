"""The link between processes of one machine: Unix sockets on the event loop itself.

ZeroMQ brings a frame to its threads and back, which wakes somebody up twice on each side; between processes of one
machine that is most of what a frame costs. What is said is the same: a node listens at one socket, and connects to
that of each other node to speak; a frame goes one way on one connection, with its length in front.

What arrives at most once needs no frame around it: such a payload goes by itself, behind its length with `_AT_ONCE` in
it and the life of its sender, once a frame has said on this connection who that is. It waits for no turn of the event
loop, which gathers by itself what one turn writes. Compiled: a class of asyncio's own would not be.

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
from pathlib import Path
from typing import Any, Final, cast

from mypy_extensions import i64

from vmq_cluster.messages import MAX_FRAME
from vmq_cluster.transport.accepting import Accepting
from vmq_cluster.transport.refusals import Refusals
from vmq_cluster.transport.sockets import READS, SMALL_BUFFER, Warn
from vmq_cluster.transport.unix_paths import listening_at

log = logging.getLogger("vmq.cluster.link")

_LENGTH: Final = struct.Struct("<I")
#: In the length of a payload that comes without a frame. Then follows the life of the sender.
_AT_ONCE: Final = 1 << 31
_LENGTH_AND_LIFE: Final = struct.Struct("<IQ")
_LIFE: Final = 8
#: Bytes up to which it costs less to copy a payload than to write two pieces.
_COPIED: Final = 16 * 1024
#: Bytes that each side draws, and of the digest that answers them.
_NONCE: Final = 32
_DIGEST: Final = 32
# Not final, for tests set them otherwise: a compiled module has constants in its code.
#: Seconds between attempts to connect: at first, and at most.
_RECONNECT = 0.1
_RECONNECT_MAX = 2.0
#: What a frame that waits counts for besides its bytes.
_FRAME: Final = 64
#: Connections at a time; each node that is met has one.
_MAX_CONNECTIONS: Final = 4096

_WRONG_KEY: Final = (
    "it has another cluster key than this node, or one of the two has none; it is refused until both have the same "
    "cluster.key_file"
)


def _proof(key: str | None, side: bytes, drawn: bytes) -> bytes:
    """What shows that a side has the key. Each side's is its own, or an echo would be one."""
    return hmac.digest((key or "").encode(), side + drawn, "sha256")


class _End:
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


class _Heard(_End):
    """A connection of another node, which speaks."""

    def __init__(self, listener: "UnixListener", name: bytes) -> None:
        super().__init__()
        self._listener = listener
        self.name = name
        self._drawn = secrets.token_bytes(_NONCE)
        #: What is left for the next pass, from a place on.
        self._data = b""
        self._at = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._listener.came(self)
        if self.transport is not None:
            self.transport.write(self._drawn)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._buffer.clear()
        self._data = b""
        self._at = 0
        self._listener.went(self)

    @property
    def is_greeted(self) -> bool:
        return self._is_greeted

    def data_received(self, data: bytes) -> None:
        buffer = self._buffer
        if buffer or not self._is_greeted:
            buffer.extend(data)
            if not self._is_greeted:
                self._greet()
            if not self._is_greeted or len(buffer) < self._needed():
                return
            data = bytes(buffer)
            buffer.clear()
        self._data = data if self._at == len(self._data) else self._data[self._at :] + data
        self._at = 0
        if self._take():
            self._pause()

    def _needed(self) -> int:
        """How long the first frame is, as far as it is known."""
        buffer = self._buffer
        if len(buffer) < _LENGTH.size:
            return _LENGTH.size
        length: int = _LENGTH.unpack_from(buffer)[0]
        if length & _AT_ONCE:
            length += _LIFE - _AT_ONCE
        return _LENGTH.size + length if length <= MAX_FRAME else 0

    def _greet(self) -> None:
        """Looks at what the other side shows, and answers what it has drawn."""
        if len(self._buffer) < _DIGEST + _NONCE or self.transport is None:
            return
        shown, drawn = bytes(self._buffer[:_DIGEST]), bytes(self._buffer[_DIGEST:][:_NONCE])
        if not hmac.compare_digest(shown, self._listener.proof(b"speaks", self._drawn)):
            self._listener.warn(f"refused a node at {self._listener.address}: {_WRONG_KEY}")
            self.abort()
            return
        del self._buffer[: _DIGEST + _NONCE]
        self._is_greeted = True
        self.transport.write(self._listener.proof(b"hears", drawn))

    def _take(self) -> bool:
        """Hands on what is there, up to a bound, so that clients have their turn; returns whether there may be more."""
        data = self._data
        end: i64 = len(data)
        at: i64 = self._at
        frames: i64 = 0
        life: i64 = 0
        payloads: list[bytes] = []
        while frames < READS:
            start = at + 4
            length: i64 = 0
            if start <= end:
                length = data[at] | data[at + 1] << 8 | data[at + 2] << 16 | data[at + 3] << 24
            is_at_once = length & _AT_ONCE != 0
            if is_at_once:
                length &= ~_AT_ONCE
                start += _LIFE
            if length > MAX_FRAME:
                self._refuse(length)
                return False
            if start + length > end:
                break
            if is_at_once:
                life = _life_at(data, start - _LIFE)
                payloads.append(data[start : start + length])
            else:
                if payloads:
                    self._listener.heard_at_once(self.name, life, payloads)
                    payloads = []
                self._listener.heard(self.name, data[start : start + length])
                frames += 1
            at = start + length
        if payloads:
            self._listener.heard_at_once(self.name, life, payloads)
        if frames == READS:
            self._at = at
            return True
        if at < end:
            self._buffer.extend(data[at:])
        self._data = b""
        self._at = 0
        return False

    def _refuse(self, length: int) -> None:
        self._listener.warn(
            f"a frame of {length} bytes at {self._listener.address}: the limit is {MAX_FRAME}; its connection is closed"
        )
        self.abort()

    def _pause(self) -> None:
        if self.transport is not None:
            self.transport.pause_reading()
            asyncio.get_running_loop().call_soon(self._go_on)

    def _go_on(self) -> None:
        """Takes what was left for this pass."""
        if self.transport is None:
            return
        if self._take():
            asyncio.get_running_loop().call_soon(self._go_on)
        elif self.transport is not None:
            self.transport.resume_reading()


def _life_at(data: bytes, at: int) -> int:
    return int.from_bytes(data[at : at + _LIFE], "little")


class UnixListener:
    """Where other nodes of this machine speak to this one; `closed` is done when it is gone."""

    last_host: Final = ""

    def __init__(
        self,
        received: Callable[[list[bytes]], None],
        received_at_once: Callable[[bytes, int, list[bytes]], None],
        warn: Warn,
        key: str | None,
        patience: float,
    ) -> None:
        """`received` is told of each frame, `received_at_once` of payloads without one and the life of their sender."""
        self._received = received
        self._received_at_once = received_at_once
        self._key = key
        self._patience = patience
        self._accepting: Accepting | None = None
        self._connections: set[_Heard] = set()
        self._named = 0
        self.warn = warn
        self.address = ""
        self.closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def open(self, path: str) -> str:
        """Listens at a path; returns the address.

        Raises:
            OSError: it cannot, or somebody listens there.
        """
        self.address = f"ipc://{path}"
        self._accepting = Accepting(listening_at(path), self._connection, self.warn)
        return self.address

    def _connection(self) -> _Heard:
        self._named += 1
        # ZeroMQ's begin with a zero, where it listens as well.
        return _Heard(self, b"u%d" % self._named)

    def proof(self, side: bytes, drawn: bytes) -> bytes:
        """What shows that a side has the key of this node."""
        return _proof(self._key, side, drawn)

    def came(self, connection: _Heard) -> None:
        """Somebody has connected, and is given a while to say who it is."""
        # One that was accepted as this was closed comes afterwards.
        if self.closed.done() or len(self._connections) >= _MAX_CONNECTIONS:
            connection.abort()
            return
        self._connections.add(connection)
        asyncio.get_running_loop().call_later(self._patience, self._look_at, connection)

    def _look_at(self, connection: _Heard) -> None:
        if not connection.is_greeted:
            connection.abort()

    def went(self, connection: _Heard) -> None:
        self._connections.discard(connection)

    def heard(self, connection: bytes, raw: bytes) -> None:
        """One frame of a connection that has a name."""
        try:
            self._received([connection, raw])
        except Exception:  # a defect here, which keeps nobody from the next frame
            log.exception("cannot take what a node sent")

    def heard_at_once(self, connection: bytes, life: int, payloads: list[bytes]) -> None:
        """Payloads of a connection that has a name, all of one life of its owner."""
        try:
            self._received_at_once(connection, life, payloads)
        except Exception:  # as above
            log.exception("cannot take what a node sent")

    def close(self) -> None:
        if self._accepting is not None:
            self._accepting.close()
            with suppress(OSError):
                Path(self.address.removeprefix("ipc://")).unlink()
        for connection in list(self._connections):
            connection.abort()
        if not self.closed.done():
            self.closed.set_result(None)


class _Spoken(_End):
    """The connection by which this node speaks."""

    def __init__(self, peer: "UnixPeer") -> None:
        super().__init__()
        self._peer = peer
        self._drawn = secrets.token_bytes(_NONCE)
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
            if len(self._buffer) >= _NONCE:
                self._has_shown = True
                shown = self._peer.proof(b"speaks", bytes(self._buffer[:_NONCE]))
                self.transport.write(shown + self._drawn)
        elif len(self._buffer) >= _NONCE + _DIGEST:
            expected = self._peer.proof(b"hears", self._drawn)
            self._is_greeted = hmac.compare_digest(bytes(self._buffer[_NONCE:]), expected)
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
        self._ready: _Spoken | None = None
        self._current: _Spoken | None = None
        self._lost = asyncio.Event()
        self._greeted = asyncio.Event()
        self._is_back = asyncio.Event()
        self._connecting = asyncio.get_running_loop().create_task(self._connect())

    def proof(self, side: bytes, drawn: bytes) -> bytes:
        """What shows that a side has the key of this node."""
        return _proof(self._key, side, drawn)

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
            self._lost.set()
            self._greeted.set()

    def send(self, raw: bytes) -> bool:
        """Returns whether there was room."""
        connection = self._ready
        if connection is not None and connection.transport is not None:
            if connection.transport.get_write_buffer_size() > self.limit:
                return False
            connection.transport.writelines((_LENGTH.pack(len(raw)), raw))
            connection.is_introduced = True
            return True
        if self._connecting.done() or self._early_bytes > self.limit:
            return False
        self._early.append(raw)
        self._early_bytes += len(raw) + _FRAME
        return True

    def send_at_once(self, life: int, payload: bytes) -> bool:
        """A payload without a frame; returns whether that may be now, and there was room."""
        connection = self._ready
        if connection is None or not connection.is_introduced or len(payload) > MAX_FRAME:
            return False
        transport = connection.transport
        if transport is None or transport.get_write_buffer_size() > self.limit:
            return False
        head = _LENGTH_AND_LIFE.pack(len(payload) | _AT_ONCE, life)
        if len(payload) <= _COPIED:
            transport.write(head + payload)
        else:
            transport.writelines((head, payload))
        return True

    async def end(self) -> None:
        """Closes the connection; what was written leaves within a moment, or not at all."""
        self._connecting.cancel()
        with suppress(asyncio.CancelledError):
            await self._connecting
        connection = self._current
        if connection is not None and connection.transport is not None:
            self._lost.clear()
            connection.transport.close()
            with suppress(TimeoutError):
                async with asyncio.timeout(0.5):
                    await self._lost.wait()
            connection.abort()
