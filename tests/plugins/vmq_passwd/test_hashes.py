"""Hashes: those of mosquitto_passwd, those of argon2, and what is none."""

import base64
import re
import subprocess
from pathlib import Path

import argon2
import pytest
from argon2.exceptions import VerifyMismatchError
from hypothesis import given
from hypothesis import strategies as st
from vmq_passwd.hashes import Argon2, Pbkdf2, Sha512, make_decoy, make_hash, parse_hash

DIGEST = base64.b64encode(bytes(64)).decode()


@pytest.mark.parametrize(
    ("kind", "prefix", "expected"), [("sha512", "$6$", Sha512), ("sha512-pbkdf2", "$7$", Pbkdf2)]
)
def test_what_mosquitto_writes(
    tmp_path: Path, kind: str, prefix: str, expected: type[Sha512 | Pbkdf2]
) -> None:
    file = tmp_path / "passwd"
    command = ["mosquitto_passwd", "-H", kind, "-b", "-c", str(file), "bob", "café 5"]
    subprocess.run(command, check=True, capture_output=True)
    name, text = file.read_text().rstrip("\n").split(":")
    stored = parse_hash(text)
    assert (name, text[:3]) == ("bob", prefix)
    assert isinstance(stored, expected)
    assert stored.verify("café 5".encode())
    assert not stored.verify(b"cafe 5")
    assert not stored.verify(b"")


def test_what_is_made_here_is_argon2id_and_each_time_another() -> None:
    text = make_hash(b"secret")
    assert text.startswith("$argon2id$v=19$m=19456,t=2,p=1$")
    assert text != make_hash(b"secret")
    stored = parse_hash(text)
    assert isinstance(stored, Argon2)
    assert stored.verify(b"secret")
    assert not stored.verify(b"Secret")


def test_a_decoy_is_no_ones_password_and_takes_what_a_hash_takes() -> None:
    decoy = make_decoy()
    costs = argon2.extract_parameters(make_hash(b"secret"))
    assert argon2.extract_parameters(decoy.text) == costs
    assert parse_hash(decoy.text) == decoy
    assert not decoy.verify(b"")
    with pytest.raises(VerifyMismatchError):  # it was computed, and not found wrong before
        argon2.PasswordHasher().verify(decoy.text, b"")


def test_any_bytes_are_a_password() -> None:
    password = bytes(range(256)) * 255
    assert parse_hash(make_hash(password)).verify(password)


def test_an_argon2_hash_that_is_torn_is_no_ones_password() -> None:
    assert not parse_hash("$argon2id$v=19$m=8,t=1,p=1$c29tZXNhbHQ$AAAAAA").verify(b"secret")
    assert not parse_hash("$argon2id$v=99$m=8,t=1,p=1$c29tZXNhbHQ$AAAAAA").verify(b"secret")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "no hash of a password; accepted"),
        ("secret", "no hash of a password; accepted"),
        ("$5$c2FsdA==$" + DIGEST, "no hash of a password; accepted"),
        ("$6$" + DIGEST, "no hash of a password; accepted"),
        ("$6$c2FsdA==$AAAA", "the hash is not of 64 bytes"),
        ("$6$c2Fs dA==$" + DIGEST, "not base64"),
        ("$7$0$c2FsdA==$" + DIGEST, "1 to 10000000 iterations"),
        ("$7$10000001$c2FsdA==$" + DIGEST, "1 to 10000000 iterations"),
        ("$7$9999999999999999999$c2FsdA==$" + DIGEST, "1 to 10000000 iterations"),
        ("$7$x$c2FsdA==$" + DIGEST, "1 to 10000000 iterations"),
        ("$7$²$c2FsdA==$" + DIGEST, "1 to 10000000 iterations"),
        ("$argon2id$v=19$m=8,t=1$c29tZXNhbHQ$AAAAAA", "not of the form $argon2id$"),
        ("$argon2id$v=19$m=9999999,t=1,p=1$c29tZXNhbHQ$AAAAAA", "m up to 1048576"),
        ("$argon2id$v=19$m=8,t=65,p=1$c29tZXNhbHQ$AAAAAA", "t up to 64"),
    ],
)
def test_what_is_no_hash_is_refused_without_repeating_it(text: str, problem: str) -> None:
    with pytest.raises(ValueError, match=re.escape(problem)) as refused:
        parse_hash(text)
    assert not text or text not in str(refused.value)


@given(st.text() | st.from_regex(r"\$[67]\$[0-9]{0,9}\$[A-Za-z0-9=+/]*\$.*"))
def test_whatever_the_text_is_it_is_a_hash_or_refused(text: str) -> None:
    try:
        parse_hash(text)
    except ValueError as error:
        assert str(error)
