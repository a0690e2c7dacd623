"""The PROXY protocol, versions 1 and 2: who a connection that comes through a proxy is from.

Sans-I/O: bytes in, a verdict out. A header is bounded (107 bytes of text, or 16 and what their
length says, of which nothing above `LONGEST` is taken), so a peer can make us hold little.
"""

import ipaddress
import struct
from typing import Final

SIGNATURE: Final = b"\r\n\r\n\0\r\nQUIT\n"

#: The longest version 1 header with its CRLF.
LONGEST_TEXT: Final = 107

#: The longest version 2 body taken. The standard asks for 520 at least; TLVs may carry a certificate.
LONGEST: Final = 4096

_ADDRESS_SIZES: Final = {0x1: 12, 0x2: 36, 0x3: 216}


class ProxyError(Exception):
    """The bytes are no PROXY header; the text says why."""


class ProxyHeader:
    """Reads one header, however its bytes come in pieces.

    When `feed` has returned True: `peer` is the address that the header tells, as logs write it,
    or "" if it tells none (LOCAL, UNKNOWN); `rest` is what came behind the header.
    """

    def __init__(self) -> None:
        self._data = b""
        self.peer = ""
        self.rest = b""

    def feed(self, data: bytes) -> bool:
        """Takes bytes; True once the header is complete. Not to be called again then.

        Raises:
            ProxyError: this is no PROXY header, and will not become one.
        """
        self._data = whole = self._data + data
        if whole[:1] == b"P":
            return self._text(whole)
        if whole[:12] == SIGNATURE[: len(whole)]:
            return len(whole) >= 16 and self._binary(whole)
        raise ProxyError("no PROXY header")

    def _end(self, peer: str, rest: bytes) -> bool:
        self.peer = peer
        self.rest = rest
        self._data = b""
        return True

    # Version 1

    def _text(self, whole: bytes) -> bool:
        if whole[:6] != b"PROXY "[: len(whole)]:
            raise ProxyError("no PROXY header")
        end = whole.find(b"\r\n", 0, LONGEST_TEXT)
        if end < 0:
            if len(whole) >= LONGEST_TEXT:
                raise ProxyError("PROXY header longer than 107 bytes")
            return False
        rest = whole[end + 2 :]
        words = whole[:end].split(b" ")
        if words[1] == b"UNKNOWN":
            return self._end("", rest)
        if words[1] not in (b"TCP4", b"TCP6") or len(words) != 6:
            raise ProxyError("ill-formed PROXY header")
        version = 4 if words[1] == b"TCP4" else 6
        host = _host(words[2], version)
        _host(words[3], version)
        port = _port(words[4])
        _port(words[5])
        return self._end(peer_text(host, port), rest)

    # Version 2

    def _binary(self, whole: bytes) -> bool:
        version_and_command, family, length = struct.unpack_from(">BBH", whole, 12)
        if version_and_command >> 4 != 2:
            raise ProxyError("PROXY header of an unknown version")
        command = version_and_command & 15
        if command > 1:
            raise ProxyError("PROXY header with an unknown command")
        if length > LONGEST:
            raise ProxyError(f"PROXY header longer than {LONGEST} bytes")
        if len(whole) < 16 + length:
            return False
        body = whole[16 : 16 + length]
        rest = whole[16 + length :]
        # LOCAL: the proxy's own connection, a health check; whatever else it says does not count.
        return self._end("" if command == 0 else _source(family, body), rest)


def _source(family: int, body: bytes) -> str:
    """The source address in a version 2 body; TLVs behind the addresses are not looked at."""
    kind, transport = family >> 4, family & 15
    if kind == 0 or transport == 0:
        return ""
    size = _ADDRESS_SIZES.get(kind)
    if size is None or transport > 2:
        raise ProxyError("PROXY header with an unknown address family")
    if transport != 1:
        raise ProxyError("PROXY header of a datagram")
    if len(body) < size:
        raise ProxyError("PROXY header shorter than its addresses")
    if kind == 1:
        return peer_text(str(ipaddress.IPv4Address(body[:4])), int.from_bytes(body[8:10], "big"))
    if kind == 2:
        return peer_text(str(ipaddress.IPv6Address(body[:16])), int.from_bytes(body[32:34], "big"))
    path = body[:108].partition(b"\0")[0].decode("ascii", "backslashreplace")
    return "unix:" + "".join(char if char.isprintable() else "?" for char in path)


def _host(word: bytes, version: int) -> str:
    try:
        address = ipaddress.ip_address(word.decode("ascii"))
    except ValueError:
        raise ProxyError("ill-formed address in a PROXY header") from None
    if address.version != version or "%" in str(address):
        raise ProxyError("ill-formed address in a PROXY header")
    return str(address)


def _port(word: bytes) -> int:
    # The standard forbids leading zeros, so that a number has one form.
    if not word.isdigit() or len(word) > 5 or (word[:1] == b"0" and len(word) > 1):
        raise ProxyError("ill-formed port in a PROXY header")
    port = int(word)
    if port > 65_535:
        raise ProxyError("ill-formed port in a PROXY header")
    return port


def peer_text(host: str, port: int) -> str:
    """An address as logs write it."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
