"""Bytes to commands: whatever the chunks, and whatever a peer writes."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vmq.jobs.resp.reader import MOST_ARGUMENTS, RespError, RespReader, TooLargeError, split_words

LIMIT = 10_000


def encoded(command: list[bytes]) -> bytes:
    return b"*%d\r\n" % len(command) + b"".join(
        b"$%d\r\n%b\r\n" % (len(each), each) for each in command
    )


def commands_of(reader: RespReader) -> list[list[bytes]]:
    """Those that came; empty where one is passed over."""
    found: list[list[bytes]] = []
    while True:
        try:
            command = reader.next()
        except TooLargeError:
            command = []
        if command is None:
            return found
        found.append(command)


def chunks(data: bytes, cuts: list[int]) -> list[bytes]:
    places = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    return [data[a:b] for a, b in pairwise(places)]


TOO_LARGE = [[b"x" * LIMIT], [b"ECHO", b"x" * LIMIT, b"$"], [b""] * (MOST_ARGUMENTS + 1)]
COMMAND = st.lists(st.binary(max_size=40), min_size=1, max_size=6)
COMMANDS = st.lists(COMMAND | st.sampled_from(TOO_LARGE), max_size=8)


@given(COMMANDS, st.lists(st.integers(0, 10_000), max_size=12))
def test_the_chunks_do_not_matter(commands: list[list[bytes]], cuts: list[int]) -> None:
    reader = RespReader(LIMIT)
    found: list[list[bytes]] = []
    for chunk in chunks(b"".join(map(encoded, commands)), cuts):
        reader.feed(chunk)
        found.extend(commands_of(reader))
        assert reader.kept() <= LIMIT
    assert found == [[] if each in TOO_LARGE else each for each in commands]
    assert reader.kept() == 0


def test_every_byte_alone() -> None:
    commands = [[b"ADDJOB", b"q", b"\r\n$*\0", b"0"], [b"PING"], [b"", b""]]
    reader = RespReader(LIMIT)
    found: list[list[bytes]] = []
    for byte in b"".join(map(encoded, commands)) + b"QLEN q\r\n":
        reader.feed(bytes([byte]))
        found.extend(commands_of(reader))
    assert found == [*commands, [b"QLEN", b"q"]]


def test_what_is_whole_is_not_read_again_when_the_rest_drips() -> None:
    """Else each byte of a client that sends them one by one would cost as much as all before it."""
    reader = RespReader(2_000_000)
    command = [b"x" * 1_000_000, *[b"12345"] * 100]
    raw = encoded(command)
    start = raw.index(b"$5")
    reader.feed(raw[:start])
    for place in range(start, len(raw)):
        assert reader.next() is None
        assert len(reader.rest or b"") <= len(b"$5\r\n12345\r\n")
        assert reader.kept() == place
        reader.feed(raw[place : place + 1])
    assert reader.next() == command
    assert reader.kept() == 0


def test_commands_may_be_left_for_later() -> None:
    reader = RespReader(LIMIT)
    reader.feed(encoded([b"A"]) + encoded([b"B"]))
    assert reader.next() == [b"A"]
    reader.feed(encoded([b"C"])[:5])
    assert reader.next() == [b"B"]
    assert reader.next() is None
    reader.feed(encoded([b"C"])[5:])
    assert reader.next() == [b"C"]


@settings(max_examples=200)
@given(
    st.lists(
        st.one_of(
            st.binary(max_size=30),
            st.sampled_from(
                [
                    b"*",
                    b"$",
                    b"\r\n",
                    b"*3\r\n",
                    b"$5\r\n",
                    b"-1",
                    b"*1\r\n$4\r\nPING\r\n",
                    b"9" * 12,
                    b'"',
                    b"'",
                ]
            ),
        ),
        max_size=30,
    )
)
def test_anything_is_a_command_or_an_error_and_memory_is_bounded(pieces: list[bytes]) -> None:
    reader = RespReader(1000)
    try:
        for piece in pieces:
            reader.feed(piece)
            for command in commands_of(reader):
                assert len(command) <= MOST_ARGUMENTS
                assert sum(map(len, command)) <= 4096
            assert reader.kept() <= 4200
    except RespError as error:
        assert str(error).startswith("ERR Protocol error")


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"*99999999999999\r\n", "bulk length"),
        (b"*1\r\n+OK\r\n", r"expected '\$', got '\+'"),
        (b"*x\r\n", "no number"),
        (b"*\r\n", "no number"),
        (b"*1\r\n$-1\r\n", "bulk length"),
        (b"*1\r\n$1\r\nab\r\n", "does not end"),
        (b"*1\r\n$1\rx", "no number"),
        (b"x" * 5000, "too big inline"),
        (b"x" * 5000 + b"\n", "too big inline"),
        (b'"abc\n', "unbalanced"),
        (b'"abc"d\n', "unbalanced"),
    ],
)
def test_what_is_refused_at_once(data: bytes, reason: str) -> None:
    reader = RespReader(9000)
    reader.feed(data)
    with pytest.raises(RespError, match=reason):
        commands_of(reader)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"*1000000000\r\n", "^ERR a command has at most 1024 arguments"),
        (b"*1025\r\n", "^ERR a command has at most 1024 arguments"),
        (b"*1\r\n$536870912\r\n", "^TOOBIG .* 9000 bytes here .limits.max_job_size"),
        (b"*2\r\n$5000\r\n" + b"x" * 5000 + b"\r\n$5000\r\n", "^TOOBIG"),
        (b"*3\r\n" + b"$4400\r\n" + b"x" * 4400 + b"\r\n$4600\r\n", "^TOOBIG"),
    ],
)
def test_what_is_too_large_is_refused_before_it_is_there(data: bytes, reason: str) -> None:
    reader = RespReader(9000)
    reader.feed(data)
    with pytest.raises(TooLargeError, match=reason):
        reader.next()
    assert reader.next() is None
    assert reader.kept() == 0


def test_a_header_keeps_only_what_came() -> None:
    reader = RespReader(1 << 30)
    reader.feed(b"*2\r\n$3\r\nSET\r\n$536870912\r\n")
    assert reader.next() is None
    assert reader.kept() < 100


def test_empty_commands_are_passed_over() -> None:
    reader = RespReader(LIMIT)
    reader.feed(b"*0\r\n*-1\r\n\r\n   \n" + encoded([b"PING"]))
    assert commands_of(reader) == [[b"PING"]]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (b"  ADDJOB q  body 0\r", [b"ADDJOB", b"q", b"body", b"0"]),
        (b'ADDJOB q "a b\\n\\x41\\"\\t" 0', [b"ADDJOB", b"q", b'a b\nA"\t', b"0"]),
        (b"ECHO 'it\\'s \\n'", [b"ECHO", b"it's \\n"]),
        (b'ECHO ""', [b"ECHO", b""]),
        (b'ECHO "\\', None),
    ],
)
def test_lines_of_words(line: bytes, words: list[bytes] | None) -> None:
    if words is None:
        with pytest.raises(RespError):
            split_words(line)
    else:
        assert split_words(line) == words
