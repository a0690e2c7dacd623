"""Addresses and keys: what is one, and what may be used without the other."""

import pytest

from vmq_cluster.addresses import check_address, check_key, generate_key, is_private
from vmq_cluster.errors import ClusterError

KEY = generate_key()


def test_a_new_key_is_one_and_no_other_is_like_it() -> None:
    assert len(check_key(KEY)) == 40
    assert generate_key() != KEY


@pytest.mark.parametrize(
    ("address", "private"),
    [
        ("tcp://127.0.0.1:1", True),
        ("tcp://127.9.9.9:1", True),
        ("tcp://[::1]:1", True),
        ("tcp://localhost:1", True),
        ("ipc:///run/vmq", True),
        ("tcp://0.0.0.0:1", False),
        ("tcp://10.0.0.1:1", False),
        ("tcp://[::]:1", False),
        ("tcp://example.org:1", False),
    ],
)
def test_without_a_key_only_this_machine_is_reached(address: str, private: bool) -> None:
    assert is_private(address) == private
    check_address(address, KEY)
    if private:
        check_address(address, None)
    else:
        with pytest.raises(ClusterError, match="needs a cluster key"):
            check_address(address, None)


@pytest.mark.parametrize(
    "address",
    [
        *("", "127.0.0.1:1", "tcp://host", "tcp://:1", "udp://h:1", "ipc://"),
        *("tcp://host:\u00b2", "tcp://a..b:1", f"tcp://{'x' * 64}:1", "tcp://a\0b:1", "ipc://a\0b"),
    ],
)
def test_what_is_no_address_is_refused(address: str) -> None:
    with pytest.raises(ClusterError, match="is no address"):
        check_address(address, KEY)


@pytest.mark.parametrize("address", ["tcp://127.0.0.1:65536", "tcp://127.0.0.1:99999999"])
def test_a_port_that_does_not_exist_is_refused(address: str) -> None:
    with pytest.raises(ClusterError, match=r"there is no port [0-9]+; accepted: up to 65535"):
        check_address(address, KEY)


@pytest.mark.parametrize("key", ["", "short", "x" * 39, "\u2603" * 40, "~" * 40])
def test_what_is_no_key_is_refused(key: str) -> None:
    with pytest.raises(ClusterError, match="cluster key"):
        check_key(key)
