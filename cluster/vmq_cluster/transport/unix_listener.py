"""Where other processes of this machine speak to this one; what is said is told in `vmq_cluster.transport.unix`.

Compiled, as that is.
"""

import asyncio
import hmac
import logging
import secrets
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from mypy_extensions import i64

from vmq_cluster.messages import MAX_FRAME
from vmq_cluster.transport.accepting import Accepting
from vmq_cluster.transport.sockets import READS, Warn
from vmq_cluster.transport.unix import (
    AT_ONCE,
    DIGEST,
    LENGTH,
    LIFE,
    NONCE,
    NUMBERED,
    PLACE,
    End,
    proof_of,
)
from vmq_cluster.transport.unix_paths import listening_at

log = logging.getLogger("vmq.cluster.link")

#: Connections at a time; each node that is met has one.
_MAX_CONNECTIONS: Final = 4096

_WRONG_KEY: Final = (
    "it has another cluster key than this node, or one of the two has none; it is refused until both have the same "
    "cluster.key_file"
)


class _Heard(End):
    """A connection of another node, which speaks."""

    def __init__(self, listener: "UnixListener", name: bytes) -> None:
        super().__init__()
        self._listener = listener
        self.name = name
        self._drawn = secrets.token_bytes(NONCE)
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
        if len(buffer) < LENGTH.size:
            return LENGTH.size
        length: int = LENGTH.unpack_from(buffer)[0]
        if length & AT_ONCE:
            length += LIFE - AT_ONCE
        elif length & NUMBERED:
            length += PLACE - NUMBERED
        return LENGTH.size + length if length <= MAX_FRAME else 0

    def _greet(self) -> None:
        """Looks at what the other side shows, and answers what it has drawn."""
        if len(self._buffer) < DIGEST + NONCE or self.transport is None:
            return
        shown, drawn = bytes(self._buffer[:DIGEST]), bytes(self._buffer[DIGEST:][:NONCE])
        if not hmac.compare_digest(shown, self._listener.proof(b"speaks", self._drawn)):
            self._listener.warn(f"refused a node at {self._listener.address}: {_WRONG_KEY}")
            self.abort()
            return
        del self._buffer[: DIGEST + NONCE]
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
            is_at_once = length & AT_ONCE != 0
            if is_at_once:
                length &= ~AT_ONCE
                start += LIFE
            is_numbered = length & NUMBERED != 0
            if is_numbered:
                length &= ~NUMBERED
                start += PLACE
            if length > MAX_FRAME:
                self._refuse(length)
                return False
            if start + length > end:
                break
            if is_at_once:
                life = _life_at(data, start - LIFE)
                payloads.append(data[start : start + length])
            else:
                if payloads:
                    self._listener.heard_at_once(self.name, life, payloads)
                    payloads = []
                body = data[start : start + length]
                if is_numbered:
                    place = _numbers_at(data, start - PLACE)
                    self._listener.heard_numbered(self.name, place, body)
                else:
                    self._listener.heard(self.name, body)
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
    return int.from_bytes(data[at : at + LIFE], "little")


def _numbers_at(data: bytes, at: int) -> tuple[int, int, int]:
    return _life_at(data, at), _life_at(data, at + 8), _life_at(data, at + 16)


class UnixListener:
    """Where other nodes of this machine speak to this one; `closed` is done when it is gone."""

    last_host: Final = ""

    def __init__(
        self,
        received: Callable[[list[bytes]], None],
        received_at_once: Callable[[bytes, int, list[bytes]], None],
        received_numbered: Callable[[bytes, tuple[int, int, int], bytes], None],
        warn: Warn,
        key: str | None,
        patience: float,
    ) -> None:
        """`received` is told of each frame, `received_at_once` of payloads without one and the life of their sender,
        `received_numbered` of one of a reliable channel: behind that life the oldest number kept, and its own.
        """
        self._received = received
        self._received_at_once = received_at_once
        self._received_numbered = received_numbered
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
        return proof_of(self._key, side, drawn)

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

    def heard_numbered(
        self, connection: bytes, place: tuple[int, int, int], payload: bytes
    ) -> None:
        """One payload of a reliable channel, of a connection that has a name."""
        try:
            self._received_numbered(connection, place, payload)
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
