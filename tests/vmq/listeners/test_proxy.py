"""The PROXY protocol's headers: versions 1 and 2, in pieces, and bytes that are none."""

import ipaddress
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vmq.listeners.proxy import LONGEST, SIGNATURE, ProxyError, ProxyHeader

V4 = st.ip_addresses(v=4)
V6 = st.ip_addresses(v=6)
PORTS = st.integers(0, 65_535)


def binary(command: int, family: int, body: bytes, version: int = 2) -> bytes:
    return SIGNATURE + struct.pack(">BBH", version << 4 | command, family, len(body)) + body


def read(data: bytes) -> ProxyHeader:
    header = ProxyHeader()
    assert header.feed(data)
    return header


def in_pieces(data: bytes) -> ProxyHeader:
    """Byte by byte: complete with the last byte of the header, not before."""
    header = ProxyHeader()
    for index in range(len(data)):
        assert header.feed(data[index : index + 1]) == (index == len(data) - 1)
    assert header.rest == b""
    return header


@pytest.mark.parametrize(
    ("data", "peer"),
    [
        (b"PROXY TCP4 192.0.2.1 198.51.100.7 56324 443\r\n", "192.0.2.1:56324"),
        (b"PROXY TCP6 2001:db8::1 ::1 1 65535\r\n", "[2001:db8::1]:1"),
        (b"PROXY UNKNOWN\r\n", ""),
        (b"PROXY UNKNOWN ffff:f...f ffff:f...f 65535 65535\r\n", ""),
        (binary(1, 0x11, bytes((192, 0, 2, 1, 1, 2, 3, 4, 220, 4, 1, 187))), "192.0.2.1:56324"),
        (binary(1, 0x21, bytes(15) + b"\1" + bytes(16) + b"\0\7\0\1"), "[::1]:7"),
        (binary(1, 0x31, b"/run/a\0b".ljust(216, b"\0")), "unix:/run/a"),
        (binary(1, 0x31, b"/run/\n".ljust(216, b"\0")), "unix:/run/?"),
        (binary(0, 0x00, b""), ""),
        (binary(0, 0x11, bytes(12)), ""),
        (binary(1, 0x00, b"anything"), ""),
    ],
)
def test_headers(data: bytes, peer: str) -> None:
    assert in_pieces(data).peer == peer
    whole = read(data + b"\x10\x0c")
    assert (whole.peer, whole.rest) == (peer, b"\x10\x0c")


@given(V4 | V6, V4 | V6, PORTS, PORTS, st.binary(max_size=9))
def test_any_address_of_version_1(
    source: ipaddress.IPv4Address | ipaddress.IPv6Address,
    target: ipaddress.IPv4Address | ipaddress.IPv6Address,
    port: int,
    other: int,
    rest: bytes,
) -> None:
    data = f"PROXY TCP{source.version} {source} {target} {port} {other}\r\n".encode()
    if source.version != target.version:
        with pytest.raises(ProxyError):
            ProxyHeader().feed(data)
        return
    found = read(data + rest)
    shown = f"[{source}]" if source.version == 6 else str(source)
    assert (found.peer, found.rest) == (f"{shown}:{port}", rest)
    assert in_pieces(data).peer == found.peer


@given(V4 | V6, PORTS, st.binary(max_size=300), st.binary(max_size=9))
def test_any_address_of_version_2_with_any_tlvs(
    source: ipaddress.IPv4Address | ipaddress.IPv6Address, port: int, tlvs: bytes, rest: bytes
) -> None:
    family = 0x11 if source.version == 4 else 0x21
    ports = struct.pack(">HH", port, 1)
    data = binary(1, family, source.packed + bytes(len(source.packed)) + ports + tlvs)
    found = read(data + rest)
    shown = f"[{source}]" if source.version == 6 else str(source)
    assert (found.peer, found.rest) == (f"{shown}:{port}", rest)
    assert in_pieces(data).peer == found.peer


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"\x10", "no PROXY header"),
        (b"\x16\x03\x01", "no PROXY header"),
        (b"PROXI", "no PROXY header"),
        (b"\r\n\r\n\0\r\nQUIX", "no PROXY header"),
        (b"PROXY TCP4 192.0.2.1 198.51.100.7 56324\r\n", "ill-formed PROXY header"),
        (b"PROXY TCP5 192.0.2.1 198.51.100.7 1 2\r\n", "ill-formed PROXY header"),
        (b"PROXY \r\n", "ill-formed PROXY header"),
        (b"PROXY TCP4 192.0.2.1  198.51.100.7 1 2\r\n", "ill-formed PROXY header"),
        (b"PROXY TCP4 192.0.2.256 198.51.100.7 1 2\r\n", "address"),
        (b"PROXY TCP6 192.0.2.1 198.51.100.7 1 2\r\n", "address"),
        (b"PROXY TCP6 fe80::1%eth0 ::1 1 2\r\n", "address"),
        (b"PROXY TCP4 \xff 198.51.100.7 1 2\r\n", "address"),
        (b"PROXY TCP4 192.0.2.1 198.51.100.7 65536 2\r\n", "port"),
        (b"PROXY TCP4 192.0.2.1 198.51.100.7 01 2\r\n", "port"),
        (b"PROXY TCP4 192.0.2.1 198.51.100.7 1 -2\r\n", "port"),
        (b"PROXY UNKNOWN" + b" " * 100, "longer than 107"),
        (binary(1, 0x11, bytes(12), version=1), "unknown version"),
        (binary(2, 0x11, bytes(12)), "unknown command"),
        (binary(1, 0x41, bytes(12)), "unknown address family"),
        (binary(1, 0x13, bytes(12)), "unknown address family"),
        (binary(1, 0x12, bytes(12)), "datagram"),
        (binary(1, 0x11, bytes(11)), "shorter than its addresses"),
        (binary(1, 0x21, bytes(12)), "shorter than its addresses"),
        (SIGNATURE + struct.pack(">BBH", 0x21, 0x11, LONGEST + 1), "longer than"),
    ],
)
def test_what_is_no_header(data: bytes, reason: str) -> None:
    with pytest.raises(ProxyError, match=reason):
        ProxyHeader().feed(data)
    with pytest.raises(ProxyError, match=reason):
        in_pieces(data)


BYTES = st.binary(max_size=400)


@given(
    BYTES | BYTES.map(b"PROXY ".__add__) | BYTES.map((SIGNATURE + b"!").__add__),
    st.lists(st.integers(1, 50), max_size=20),
)
def test_any_bytes_are_a_header_or_an_error_however_they_come(
    data: bytes, sizes: list[int]
) -> None:
    def outcome(pieces: list[bytes]) -> tuple[str, str, bytes]:
        header = ProxyHeader()
        for number, piece in enumerate(pieces):
            try:
                if header.feed(piece):
                    return "done", header.peer, header.rest + b"".join(pieces[number + 1 :])
            except ProxyError:
                return "error", "", b""
        return "more", "", b""

    pieces = []
    start = 0
    for size in sizes:
        pieces.append(data[start : start + size])
        start += size
    pieces.append(data[start:])
    assert outcome([piece for piece in pieces if piece]) == outcome([data] if data else [])
