"""TLS between a TCP transport and what speaks inside it.

Python's `ssl` over memory, without the event loop's own TLS: that one tells nobody of a failed
handshake, keeps the context that it was opened with, and cannot begin behind a PROXY header. For
one message at a time the CPU that both take is the same.
"""

import ssl
from typing import Any, Final, Protocol

from vmq.listeners.certificates import reason_of
from vmq.mqtt.first_bytes import FIRST_BYTES, protocol_of

#: One TLS record holds no more than this, so that a read takes all of it.
RECORD: Final = 16_384

#: Bytes given to OpenSSL at once: the shared buffers keep the size of the largest piece.
PIECE: Final = 16_384

#: Bytes of a handshake that wait to be looked at, above which no more is read.
LONGEST_FLIGHT: Final = 65_536

#: Bytes of new keys, which a peer may ask for without an end, that wait for one which takes nothing.
MOST_ANSWERS: Final = 65_536

#: Ciphertext on its way to OpenSSL, and from it.
INCOMING: Final = ssl.MemoryBIO()
OUTGOING: Final = ssl.MemoryBIO()


class Owner(Protocol):
    """Whom a connection tells how its handshake goes: after `begun` one of the two others, once."""

    def begun(self, tls: "Tls") -> None:
        """It has a transport, and waits for the client."""

    def due(self, tls: "Tls") -> None:
        """The client has sent something of the handshake: `go_on` when its turn is."""

    def secured(self, tls: "Tls", identity: str | None) -> Any:
        """It succeeded: returns the protocol that speaks inside. `identity` is the client's name."""

    def refused(self, layer: Any, reason: str, expected: bool = False) -> None:
        """It failed; `expected` says that this is nothing to write of."""


class Tls:
    """One TLS connection: an asyncio protocol below, a transport for what is inside."""

    def __init__(self, context: ssl.SSLContext, owner: Owner, wants_identity: bool) -> None:
        # What `wrap_bio` puts into an SSLObject, by the same call: that takes a fifth of a microsecond more for each
        # message. The class that has it is not typed.
        native: Any = context
        self.openssl = native._wrap_bio(INCOMING, OUTGOING, server_side=True)
        self.owner = owner
        self.wants_identity = wants_identity
        self.transport: Any = None
        #: What speaks inside, once the handshake is done.
        self.inner: Any = None
        self.ended = False
        self.broken: Exception | None = None
        #: Nothing more comes from inside the stream.
        self.over = False
        #: OpenSSL may have the beginning of a record, or all of one.
        self.is_cut = True
        #: What came of the handshake while it had to wait; the transport is not read if that is a lot.
        self.unread = b""
        self.is_held = False
        #: The peer takes nothing at present; and bytes of the protocol's own that wait for it.
        self.is_blocked = False
        self.answers: int = 0

    # The protocol of the transport below

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        self.owner.begun(self)

    def data_received(self, data: bytes) -> None:
        if self.inner is None:
            self.wait(data)
        elif len(data) > PIECE:
            view = memoryview(data)
            chunks: list[bytes] = []
            for start in range(0, len(data), PIECE):
                self.take(view[start : start + PIECE], chunks)
            self.hand_on(chunks)
        else:
            chunks = []
            self.take(data, chunks)
            self.hand_on(chunks)

    def eof_received(self) -> bool:
        """The peer sends no more; True as long as what came before is to be handled: who handles it closes."""
        return self.inner is not None and not self.ended and self.inner.eof_received()

    def connection_lost(self, error: Exception | None) -> None:
        if self.inner is not None:
            self.ended = True
            self.inner.connection_lost(self.broken or error)
        elif not self.ended:
            self.ended = True
            # Port scanners and health checks connect and go.
            self.owner.refused(self, "connection lost in the TLS handshake", True)

    def pause_writing(self) -> None:
        self.is_blocked = True
        if self.inner is not None:
            self.inner.pause_writing()

    def resume_writing(self) -> None:
        self.is_blocked = False
        self.answers = 0
        if self.inner is not None:
            self.inner.resume_writing()

    def take(self, piece: Any, chunks: list[bytes]) -> None:
        """Ciphertext comes in; what it says goes to `chunks`."""
        if self.ended or self.over:
            return
        INCOMING.write(piece)
        is_read = False
        try:
            if self.inner is None:
                self.shake_hands(piece, chunks)
            else:
                self.read(chunks, len(piece))
            # Whole records, and both buffers were empty at last: to look once more would cost a thirtieth of a message.
            is_read = not self.is_cut
        finally:
            # Whatever went wrong: what is left is nobody else's.
            if not is_read:
                empty(INCOMING)
                empty(OUTGOING)

    # The handshake

    def wait(self, data: bytes) -> None:
        """A part of the handshake has come: the owner says when it goes on."""
        if self.ended:
            return
        self.unread += data
        if len(self.unread) > LONGEST_FLIGHT and not self.is_held:
            self.is_held = True
            self.transport.pause_reading()
        self.owner.due(self)

    def go_on(self) -> None:
        """Goes on with the handshake, by all that came meanwhile."""
        data = self.unread
        self.unread = b""
        chunks: list[bytes] = []
        if len(data) <= PIECE:
            self.take(data, chunks)
        else:
            view = memoryview(data)
            for start in range(0, len(data), PIECE):
                self.take(view[start : start + PIECE], chunks)
        if self.is_held and not self.ended:
            self.is_held = False
            self.transport.resume_reading()
        self.hand_on(chunks)

    def shake_hands(self, piece: Any, chunks: list[bytes]) -> None:
        try:
            self.openssl.do_handshake()
            identity = common_name(self.openssl.getpeercert()) if self.wants_identity else None
        except ssl.SSLWantReadError:
            self.flush()
            return
        except (ssl.SSLError, ValueError) as error:
            self.flush()  # the alert that tells the client why
            spoken = protocol_of(bytes(piece[:FIRST_BYTES]))
            is_other = spoken not in ("", "TLS")
            reason = f"{spoken} instead of TLS" if is_other else reason_of(error)
            self.fail("TLS handshake failed: " + reason)
            return
        self.flush()
        self.inner = self.owner.secured(self, identity)
        self.inner.connection_made(self)
        self.read(chunks, INCOMING.pending)

    def fail(self, reason: str) -> None:
        """Ends a connection whose handshake is not done."""
        if not self.ended:
            self.ended = True
            self.owner.refused(self, reason)
            self.transport.close()

    # Data

    def read(self, chunks: list[bytes], left: int) -> None:
        """Decrypts what can be decrypted now of the bytes that are left."""
        incoming = INCOMING
        try:
            # With nothing left to decrypt, another read would only raise: a costly way to learn it.
            while left:
                # What a whole record says is shorter than the record. Asked for more, Python first makes room for that.
                chunk = self.openssl.read(RECORD if self.is_cut else min(left, RECORD))
                self.is_cut = False
                if not chunk:
                    self.over = True
                    break
                chunks.append(chunk)
                left = incoming.pending
        except ssl.SSLWantReadError:
            self.is_cut = True
        except ssl.SSLZeroReturnError:
            self.over = True
        except ssl.SSLError as error:
            self.broken = ConnectionError(f"TLS failed: {reason_of(error)}")
            self.over = True
        if self.over:
            self.is_cut = True  # whatever else there is
        if OUTGOING.pending:
            self.answer()

    def answer(self) -> None:
        """Says what the protocol itself has to: alerts, new keys. A peer that asks for keys and takes none is left."""
        if self.is_blocked:
            self.answers += OUTGOING.pending
            if self.answers > MOST_ANSWERS:
                empty(OUTGOING)
                self.broken = ConnectionError("TLS failed: new keys are asked for and not taken")
                self.abort()
                return
        self.flush()

    def hand_on(self, chunks: list[bytes]) -> None:
        """What one read of the transport brought goes inside at once: it is one pass there."""
        if chunks:
            self.inner.data_received(chunks[0] if len(chunks) == 1 else b"".join(chunks))
        if self.over and not self.ended and (self.broken or not self.inner.eof_received()):
            self.inner.send_corked()
            self.ended = True
            self.transport.close()

    def flush(self) -> None:
        data = OUTGOING.read()
        if data:
            self.transport.write(data)

    # The transport of what is inside

    def write(self, data: bytes) -> None:
        if len(data) > PIECE:
            view = memoryview(data)
            for start in range(0, len(data), PIECE):
                self.give(view[start : start + PIECE])
        else:
            self.give(data)

    def give(self, piece: Any) -> None:
        """Plaintext goes out."""
        if self.ended:
            return
        try:
            self.openssl.write(piece)
            data = OUTGOING.read()
        except ssl.SSLError as error:
            empty(OUTGOING)
            self.broken = ConnectionError(f"TLS failed: {reason_of(error)}")
            self.abort()
            return
        self.transport.write(data)

    def close(self) -> None:
        """Ends the stream after a close_notify, without waiting for the peer's."""
        if not self.ended:
            self.ended = True
            try:
                self.openssl.shutdown()
            except ssl.SSLError:
                pass
            self.flush()
        self.transport.close()

    def abort(self) -> None:
        self.ended = True
        self.transport.abort()

    def pause_reading(self) -> None:
        self.transport.pause_reading()

    def resume_reading(self) -> None:
        self.transport.resume_reading()

    def get_write_buffer_size(self) -> int:
        size: int = self.transport.get_write_buffer_size()
        return size

    def set_write_buffer_limits(self, high: int) -> None:
        self.transport.set_write_buffer_limits(high=high)

    def get_extra_info(self, name: str) -> Any:
        return self.transport.get_extra_info(name)


def empty(buffer: ssl.MemoryBIO) -> None:
    """Drops what is in a shared buffer."""
    if buffer.pending:
        buffer.read()


def common_name(certificate: Any) -> str:
    """The common name in a certificate as `getpeercert` gives it.

    Raises:
        ValueError: there is none, or more than one, or one that no user name can be.
    """
    names = [
        value
        for part in (certificate or {}).get("subject", ())
        for key, value in part
        if key == "commonName"
    ]
    if len(names) != 1:
        raise ValueError(f"the certificate has {len(names)} common names, and needs one")
    name: str = names[0]
    if not name.isprintable() or not name or len(name.encode()) > 65_535:
        raise ValueError("the common name of the certificate cannot be a user name")
    return name
