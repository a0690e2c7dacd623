"""Trusted networks, and X-Forwarded-For as they say it."""

from ipaddress import IPv6Address, IPv6Network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vmq.listeners.trust import Address, Networks, forwarded_peer, network_of, parse_address

TRUSTED = Networks(["10.0.0.0/8", "::1/128"])


@pytest.mark.parametrize(
    ("peername", "verdict"),
    [
        (("10.1.2.3", 1), True),
        (("11.1.2.3", 1), False),
        (("::1", 1, 0, 0), True),
        (("::2", 1, 0, 0), False),
        (("::ffff:10.0.0.1", 1, 0, 0), True),
        (("fe80::1%eth0", 1, 0, 2), False),
        (("not an address", 1), False),
        ("", True),  # a Unix socket
    ],
)
def test_peers_of_networks(peername: object, verdict: bool) -> None:
    assert TRUSTED.has_peer(peername) is verdict


@pytest.mark.parametrize(
    ("headers", "peer"),
    [
        ([], ""),
        ([""], ""),
        (["192.0.2.1"], "192.0.2.1"),
        (["192.0.2.1, 10.0.0.1"], "192.0.2.1"),
        (["192.0.2.1", "10.0.0.1"], "192.0.2.1"),
        # What stands before the first stranger, the stranger wrote.
        (["192.0.2.1, 192.0.2.2, 10.0.0.1"], "192.0.2.2"),
        (["10.0.0.2, 10.0.0.1"], "10.0.0.2"),
        (["nonsense, 10.0.0.1"], "10.0.0.1"),
        (["192.0.2.1, nonsense"], ""),
        (["192.0.2.1:4711"], "192.0.2.1"),
        (["[2001:db8::1]:4711"], "2001:db8::1"),
        (["2001:db8::1,::1"], "2001:db8::1"),
        (["unknown"], ""),
    ],
)
def test_the_client_is_the_last_that_is_no_trusted_proxy(headers: list[str], peer: str) -> None:
    assert forwarded_peer(headers, TRUSTED) == peer


@pytest.mark.parametrize(
    ("host", "network"),
    [
        ("192.0.2.1", "192.0.2.1"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("2001:db8:1:2::1", "2001:db8:1:2::/64"),
        ("2001:db8:1:2:ffff::9", "2001:db8:1:2::/64"),
        ("2001:db8:1:3::1", "2001:db8:1:3::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("unix", ""),
        ("", ""),
    ],
)
def test_ipv6_counts_by_64_bits(host: str, network: str) -> None:
    assert network_of(host) == network


@given(st.ip_addresses(v=4) | st.ip_addresses(v=6))
def test_networks_are_written_as_ipaddress_writes_them(address: Address) -> None:
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    wanted = str(address)
    if isinstance(address, IPv6Address):
        wanted = str(IPv6Network((int(address) >> 64 << 64, 64)))
    assert network_of(str(address)) == wanted


@given(st.text() | st.text("0123456789.:%[]/ \0", max_size=20))
def test_what_is_no_address_has_no_network(host: str) -> None:
    assert (network_of(host) == "") == (parse_address(host) is None)


def test_a_trusted_proxy_counts_as_nobody() -> None:
    assert TRUSTED.network_of_client("10.1.2.3") == ""
    assert TRUSTED.network_of_client("192.0.2.1") == "192.0.2.1"


@given(st.lists(st.text() | st.ip_addresses().map(str) | st.text("0123456789.:[], "), max_size=5))
def test_any_header_gives_an_address_or_nothing(headers: list[str]) -> None:
    peer = forwarded_peer(headers, TRUSTED)
    assert not peer or parse_address(peer) is not None
