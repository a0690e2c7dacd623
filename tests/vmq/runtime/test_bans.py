"""Bans: of what, until when, and kept."""

import stat
from pathlib import Path

import pytest

from tests.vmq.support import Clock
from vmq.runtime import bans as module
from vmq.runtime.bans import FILE, LOCK, Bans, BansError, Kind, checked


@pytest.fixture
def clock() -> Clock:
    return Clock(1_700_000_000.0)


@pytest.fixture
def bans(tmp_path: Path, clock: Clock) -> Bans:
    return Bans(tmp_path, clock)


def test_a_client_a_user_and_an_address_are_kept_out(bans: Bans) -> None:
    assert bans.refusal("c", "u", "192.0.2.7") == ""
    bans.add("client_id", "c", reason="floods")
    assert bans.refusal("c", None, "192.0.2.7") == "banned by client_id c: floods (vmq ban)"
    assert not bans.refusal("u", "c", "192.0.2.7")
    bans.add("user", "u")
    assert bans.refusal("d", "u", "192.0.2.7") == "banned by user u (vmq ban)"
    bans.add("address", "192.0.2.9")
    assert bans.refusal("d", None, "192.0.2.9")
    assert not bans.refusal("d", None, "192.0.2.8")
    assert not bans.refusal("d", None, "unix")


@pytest.mark.parametrize(
    ("network", "inside", "outside"),
    (
        ("192.0.2.0/24", "192.0.2.255", "192.0.3.0"),
        ("192.0.2.77/24", "192.0.2.1", "192.0.1.1"),
        ("2001:db8:1:2::/64", "2001:db8:1:2:3::4", "2001:db8:1:3::"),
        ("::ffff:192.0.2.0/120", "192.0.2.7", "192.0.3.1"),
        ("192.0.2.7", "::ffff:192.0.2.7", "192.0.2.8"),
        ("0.0.0.0/0", "203.0.113.1", "::1"),
    ),
)
def test_networks(bans: Bans, network: str, inside: str, outside: str) -> None:
    bans.add("address", network)
    assert bans.refusal("c", None, inside)
    assert not bans.refusal("c", None, outside)
    assert bans.remove("address", network)
    assert not bans.refusal("c", None, inside)


def test_a_ban_ends_by_itself(bans: Bans, clock: Clock) -> None:
    bans.add("client_id", "c", 60.0)
    bans.add("client_id", "d")
    clock.advance(59.9)
    assert bans.refusal("c", None, "")
    clock.advance(0.2)
    assert not bans.refusal("c", None, "")
    assert [each.value for each in bans.all()] == ["d"]
    assert bans.remove("client_id", "c") is None


def test_a_new_word_on_the_same_one_counts(bans: Bans, clock: Clock) -> None:
    bans.add("client_id", "c", 60.0)
    bans.add("client_id", "c", 600.0)
    clock.advance(100)
    assert bans.refusal("c", None, "")
    assert len(bans) == 1


def test_they_outlive_the_broker_for_its_owner_to_read(bans: Bans, tmp_path: Path) -> None:
    bans.add("user", "ann", 60.0, "left")
    bans.add("address", "192.0.2.0/24")
    later = Bans(tmp_path, lambda: 1_700_000_001.0)
    assert later.reload()
    assert later.all() == bans.all()
    assert not later.reload(), "it has not changed"
    assert stat.S_IMODE((tmp_path / FILE).stat().st_mode) == 0o600
    assert {each.name for each in tmp_path.iterdir()} == {FILE, LOCK}


def test_another_worker_s_word_counts(bans: Bans, tmp_path: Path, clock: Clock) -> None:
    other = Bans(tmp_path, clock)
    other.add("client_id", "c")
    assert bans.reload()
    assert bans.refusal("c", None, "")
    other.remove("client_id", "c")
    assert bans.reload()
    assert not bans.refusal("c", None, "")


@pytest.mark.parametrize("text", ("{", '{"bans": [{"kind": "moon"}]}', '{"bans": 3}'))
def test_a_file_that_is_none_ends_no_ban(bans: Bans, text: str) -> None:
    bans.add("client_id", "c")
    bans.path.write_text(text)
    with pytest.raises(BansError, match="cannot be read"):
        bans.reload()
    assert bans.refusal("c", None, "")
    assert not bans.reload(), "it is told once"


@pytest.mark.parametrize(
    ("kind", "value"), (("client_id", ""), ("user", "x" * 65_536), ("address", "house 7"))
)
def test_what_is_no_client_user_or_address(bans: Bans, kind: Kind, value: str) -> None:
    with pytest.raises(BansError, match="accepted"):
        bans.add(kind, value)
    assert not bans.path.exists()


def test_there_are_only_so_many(bans: Bans, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_BANS", 2)
    bans.add("client_id", "a")
    bans.add("client_id", "b")
    with pytest.raises(BansError, match="vmq ban remove"):
        bans.add("client_id", "c")
    bans.add("client_id", "b", 60.0)


def test_one_network_has_one_name() -> None:
    assert checked("address", "192.0.2.7/24") == checked("address", "192.0.2.0/24")
