"""Replies of RESP, in any pieces."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vmq.jobs.reply import BrokenReplyError, JobError, ReplyReader, command

WHOLE = b"+OK\r\n:-3\r\n$-1\r\n$4\r\n\r\n$1\r\n*2\r\n$1\r\na\r\n*1\r\n:7\r\n*-1\r\n*0\r\n-NOREPL not so\r\n"
VALUES = [b"OK", -3, None, b"\r\n$1", [b"a", [7]], None, []]


@given(st.lists(st.integers(0, len(WHOLE))))
def test_replies_come_whole_whatever_the_pieces(cuts: list[int]) -> None:
    reader = ReplyReader()
    places = [0, *sorted(cuts), len(WHOLE)]
    found: list[object] = []
    for start, end in itertools.pairwise(places):
        reader.feed(WHOLE[start:end])
        while True:
            is_whole, value = reader.next()
            if not is_whole:
                break
            found.append(value)
    assert found[:-1] == VALUES
    assert isinstance(found[-1], JobError)
    assert str(found[-1]) == "NOREPL not so"


@pytest.mark.parametrize("data", [b"HTTP/1.1 200\r\n", b":x\r\n", b"$9999999999\r\n", b"\r\n"])
def test_what_is_no_reply(data: bytes) -> None:
    reader = ReplyReader()
    reader.feed(data)
    with pytest.raises(BrokenReplyError):
        reader.next()


def test_a_command() -> None:
    found = command("ADDJOB", "q", b"\0", 0)
    assert found == b"*4\r\n$6\r\nADDJOB\r\n$1\r\nq\r\n$1\r\n\0\r\n$1\r\n0\r\n"
