"""The file of users."""

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from vmq_hooks.files import FileError
from vmq_passwd.users import check_name, missing, parse, with_user

PATH = Path("/etc/vmq/passwd")
HASH = "$argon2id$v=19$m=8,t=1,p=1$c29tZXNhbHQ$AAAAAA"


def test_a_file_as_people_write_it() -> None:
    users = parse(f"# ours\n\nbob:{HASH}\r\n  eve smith : {HASH} \n\ufeffx:{HASH}".encode(), PATH)
    assert len(users) == 3
    assert "bob" in users
    assert "eve smith" in users
    assert users.get("mallory") is None
    assert users.nth(1) == users.get("eve smith")


def test_who_is_gone_or_has_another_password() -> None:
    other = HASH.replace("AAAAAA", "BBBBBB")
    before = parse(f"bob:{HASH}\neve:{HASH}\nann:{HASH}".encode(), PATH)
    later = parse(f"ann:{HASH}\nbob:{other}\nzoe:{HASH}".encode(), PATH)
    marks = before.marks
    assert missing(marks, later.marks, False) == {"eve"}
    assert missing(marks, later.marks, True) == {"bob", "eve"}
    assert missing(marks, before.marks, True) == set()


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("bob", "accepted: NAME:HASH"),
        (f":{HASH}", "accepted: NAME:HASH"),
        ("bob:secret", "user 'bob': no hash of a password"),
        (f"eve:{HASH}", "user 'eve' stands in the file twice"),
    ],
)
def test_a_bad_line_is_named_and_its_secret_kept(line: str, problem: str) -> None:
    with pytest.raises(FileError, match=re.escape(problem)) as refused:
        parse(f"eve:{HASH}\n\n{line}\n".encode(), PATH)
    assert str(refused.value).startswith("/etc/vmq/passwd, line 3: ")
    assert "secret" not in str(refused.value)


def test_what_is_no_text_is_named_with_its_line() -> None:
    with pytest.raises(FileError, match="/etc/vmq/passwd, line 2: not UTF-8"):
        parse(f"eve:{HASH}\n\xff".encode("latin1"), PATH)


@pytest.mark.parametrize("name", ["", " a", "a\t", "a:b", "#a", "a\nb", "a\0", "a" * 65536])
def test_names_that_the_file_cannot_hold(name: str) -> None:
    with pytest.raises(ValueError, match="a user name"):
        check_name(name)


def _is_name(name: str) -> bool:
    try:
        name.encode()
        check_name(name)
    except ValueError:
        return False
    return True


names = st.text(min_size=1, max_size=5).filter(_is_name)


@given(st.dictionaries(names, st.just(HASH)), names)
def test_a_user_is_put_in_and_taken_out(others: dict[str, str], name: str) -> None:
    file = b"# kept\n" + b"".join(f"{key}:{value}\n".encode() for key, value in others.items())
    added = with_user(file, name, f"{name}:{HASH}")
    assert name in parse(added, PATH)
    assert len(parse(added, PATH)) == len(others | {name: HASH})
    deleted = with_user(added, name, None)
    left = parse(deleted, PATH)
    assert name not in left
    assert all(each in left for each in others if each != name)
    assert deleted.startswith(b"# kept\n")


def test_a_last_line_without_line_feed_is_a_line() -> None:
    assert with_user(b"a:1\nb:2", "c", "c:3") == b"a:1\nb:2\nc:3\n"
    assert with_user(b"a:1\nb:2", "b", "b:3") == b"a:1\nb:3\n"
    assert with_user(b"", "a", "a:1") == b"a:1\n"


MARK = b"\xef\xbb\xbf"


def test_a_byte_order_mark_is_no_part_of_the_first_name() -> None:
    assert with_user(MARK + b"a:1\nb:2\n", "a", None) == MARK + b"b:2\n"
    assert with_user(MARK + b"a:1\n", "a", "a:3") == MARK + b"a:3\n"
    assert with_user(MARK + b"a:1\n", "b", "b:2") == MARK + b"a:1\nb:2\n"
    assert with_user(MARK, "a", "a:1") == MARK + b"a:1\n"


def test_a_name_that_begins_with_u_feff_is_not_taken_for_a_mark() -> None:
    added = with_user(b"", "\ufeffa", f"\ufeffa:{HASH}")
    assert "\ufeffa" in parse(added, PATH)
    second = f"b:{HASH}\n\ufeffa:{HASH}\n".encode()
    assert "\ufeffa" in parse(with_user(second, "b", None), PATH)
    assert len(parse(with_user(added, "\ufeffa", None), PATH)) == 0


def test_who_is_not_there_changes_nothing() -> None:
    for data in (b"a:1", MARK + b"a:1\n", b""):
        assert with_user(data, "b", None) == data


def test_a_comment_is_no_user() -> None:
    assert with_user(b"#a:1\n", "#a", None) == b"#a:1\n"
