"""Whose word on addresses counts: networks of proxies, and what they say in X-Forwarded-For."""

import ipaddress
from collections.abc import Sequence
from socket import AF_INET, AF_INET6, inet_ntop, inet_pton
from typing import Final

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

#: How an IPv4 address begins in IPv6's form (RFC 4291, 2.5.5.2).
MAPPED: Final = bytes(10) + b"\xff\xff"


class Networks:
    """A list of networks, to be asked whether an address is in one of them."""

    def __init__(self, texts: Sequence[str]) -> None:
        self._networks = [ipaddress.ip_network(text) for text in texts]

    def __contains__(self, address: Address) -> bool:
        return any(address in network for network in self._networks)

    def has_peer(self, peername: object) -> bool:
        """Whether a socket's peer is in one of the networks.

        Who comes through a Unix socket was let in by its permissions.
        """
        if not isinstance(peername, tuple):
            return True
        address = parse_address(str(peername[0]))
        return address is not None and address in self

    def network_of_client(self, host: str) -> str:
        """`network_of` a host, unless it is in one of these networks."""
        return "" if self.has_peer((host,)) else network_of(host)


def parse_address(text: str) -> Address | None:
    """An address, without its scope; an IPv4 address in IPv6's form is IPv4. None if it is none."""
    try:
        address = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return None
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped
    return address


def network_of(host: str) -> str:
    """What a client's host counts as where addresses count: an IPv4 address, the /64 of an IPv6 one; "" if it is none.

    Whoever has one address of an IPv6 network has all of them. Every connection asks: `ipaddress` would cost a sixth of
    all that a CONNECT does.
    """
    host = host.partition("%")[0]
    try:
        if ":" not in host:
            inet_pton(AF_INET, host)
            return host
        raw = inet_pton(AF_INET6, host)
    except (OSError, ValueError):
        return ""
    if raw.startswith(MAPPED):
        return inet_ntop(AF_INET, raw[12:])
    return inet_ntop(AF_INET6, raw[:8] + bytes(8)) + "/64"


def forwarded_peer(headers: Sequence[str], trusted: Networks) -> str:
    """The client's address out of the X-Forwarded-For headers of a trusted proxy.

    Each proxy appends whom it was called by, so the list is read from its end: the first that is no
    trusted proxy is the client; what stands before it, the client may have invented. Returns "" if
    the last proxy says nothing that can be read.
    """
    found = ""
    for text in reversed(",".join(headers).split(",")):
        address = parse_address(_without_port(text.strip()))
        if address is None:
            break
        found = str(address)
        if address not in trusted:
            break
    return found


def _without_port(text: str) -> str:
    """Some proxies write `1.2.3.4:5678` or `[::1]:5678`."""
    if text.startswith("["):
        return text[1:].partition("]")[0]
    return text.partition(":")[0] if text.count(":") == 1 else text
