import base64
import stat
from pathlib import Path

import pytest

from tests.support.present import present
from tests.vmq.support import Clock
from vmq.http.dashboard.tokens import (
    FILE,
    MOST_TOKENS,
    PAGE_SECONDS,
    PREFIX,
    TOKEN_SECONDS,
    PageKeys,
    is_of_page,
)


@pytest.fixture
def clock() -> Clock:
    return Clock(1_000_000.0)


@pytest.fixture
def keys(tmp_path: Path, clock: Clock) -> PageKeys:
    return PageKeys(tmp_path, clock, clock)


def key_from(keys: PageKeys, token: str) -> str:
    found = present(keys.redeem(token))
    return found[0]


def test_a_token_is_good_for_once(keys: PageKeys) -> None:
    token = keys.token()
    key = key_from(keys, token)
    assert keys.redeem(token) is None
    row = present(keys.find(key))
    assert row.scope == "read", "unless asked, a page may only look"
    assert is_of_page(row)
    assert not is_of_page(None)


def test_a_token_is_good_for_a_minute(keys: PageKeys, clock: Clock) -> None:
    early, late = keys.token(), keys.token()
    clock.now += TOKEN_SECONDS - 0.1
    assert keys.redeem(early) is not None
    clock.now += 0.1
    assert keys.redeem(late) is None


def test_a_wall_clock_that_is_set_changes_nothing_about_tokens(
    tmp_path: Path, clock: Clock
) -> None:
    passed = Clock(0.0)
    keys = PageKeys(tmp_path, clock, passed)
    early, late = keys.token(), keys.token()
    clock.now += 3600
    assert keys.redeem(early) is not None
    clock.now -= 7200
    passed.now += TOKEN_SECONDS
    assert keys.redeem(late) is None


def test_tokens_are_bounded(keys: PageKeys) -> None:
    tokens = [keys.token() for _ in range(MOST_TOKENS + 1)]
    assert keys.redeem(tokens[0]) is None
    assert all(keys.redeem(each) for each in tokens[1:])


@pytest.mark.parametrize("token", ["", "x", "é\ud800", "a" * 200])
def test_what_is_no_token_opens_nothing(keys: PageKeys, token: str) -> None:
    assert keys.redeem(token) is None


def test_a_key_ends_after_half_a_day(keys: PageKeys, clock: Clock) -> None:
    key = key_from(keys, keys.token())
    clock.now += PAGE_SECONDS - 1
    assert keys.find(key) is not None
    clock.now += 1
    assert keys.find(key) is None


def test_a_key_outlives_the_broker(keys: PageKeys, tmp_path: Path, clock: Clock) -> None:
    key = key_from(keys, keys.token())
    assert PageKeys(tmp_path, clock).find(key) is not None
    assert stat.S_IMODE((tmp_path / FILE).stat().st_mode) == 0o600
    (tmp_path / FILE).unlink()
    assert PageKeys(tmp_path, clock).find(key) is None, (
        "without the secret no page is known any more"
    )


def test_a_secret_that_was_cut_is_made_anew(tmp_path: Path, clock: Clock) -> None:
    (tmp_path / FILE).write_bytes(b"")
    keys = PageKeys(tmp_path, clock)
    key_from(keys, keys.token())
    assert len((tmp_path / FILE).read_bytes()) == 32


def test_nothing_about_a_key_can_be_changed(keys: PageKeys) -> None:
    key = key_from(keys, keys.token())
    body, signature = key.removeprefix(PREFIX).split(".")
    plain = base64.urlsafe_b64decode(body + "==")
    forged = base64.urlsafe_b64encode(plain.replace(b"read", b"all")).decode().rstrip("=")
    other = key_from(keys, keys.token("all")).removeprefix(PREFIX)
    for text in (
        f"{forged}.{signature}",
        f"{body}.",
        body,
        f"{body}.{signature[:-1]}",
        f"{body}.{other.split('.')[1]}",
        f"{body}.é",
        "\ud800.\ud800",
        "",
        "a" * 10_000,
    ):
        assert keys.find(PREFIX + text) is None
    assert keys.find(key.removeprefix(PREFIX)) is None
    assert keys.find(key) is not None
