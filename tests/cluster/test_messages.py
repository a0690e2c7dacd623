"""Frames survive the wire; what is none is refused with one error."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vmq_cluster import messages
from vmq_cluster.clocks import MAX_NUMBER
from vmq_cluster.errors import ClusterError, MalformedError

EVERYTHING: list[Any] = [
    messages.Heartbeat(7, 1000, 900, 50, stops=True, address="tcp://127.0.0.1:1"),
    messages.Members(
        [messages.MemberRecord("a", 1, 0, 2, "tcp://127.0.0.1:1")], asks=True, taken="ipc://a"
    ),
    messages.StaleEpoch(5),
    messages.Gossip((0, 1, 2), b"payload"),
    messages.IHave([(0, 1, 2), (1, 1, 1)]),
    messages.Graft((0, 1, 2)),
    messages.Prune(),
    messages.SyncRequest(1, 2, {1: [1, 5]}, {}, full=False, cursor=b"", until=b""),
    messages.SyncBatch(
        1, 2, {}, {}, False, [messages.WireEntry(b"k", [(1, 2, 3, None)], {1: 1})], None
    ),
    messages.Reliable(1, 1, 1, [b"x", b""]),
    messages.Received(1, 0),
    messages.Unreliable([b"y"]),
]


def test_every_message_survives_the_wire() -> None:
    frame = messages.Frame(messages.FORMAT, "node", 1, 1, EVERYTHING)
    assert messages.decode(messages.encode(frame)) == frame
    kinds = set(messages.AnyMessage.__args__)
    assert {type(each) for each in EVERYTHING} == kinds


def raw_of(message: object) -> bytes:
    return msgspec.msgpack.encode([messages.FORMAT, "node", 1, 1, [message]])


@pytest.mark.parametrize(
    ("what", "raw"),
    [
        ("nothing", b""),
        ("not msgpack", b"\xc1"),
        (
            "a truncated frame",
            messages.encode(messages.Frame(messages.FORMAT, "node", 1, 1, EVERYTHING))[:-1],
        ),
        (
            "bytes after the frame",
            messages.encode(messages.Frame(messages.FORMAT, "node", 1, 1, [])) + b"\0",
        ),
        ("another format", msgspec.msgpack.encode([messages.FORMAT + 1, "node", 1, 1, []])),
        ("no name", msgspec.msgpack.encode([messages.FORMAT, "", 1, 1, []])),
        ("a long name", msgspec.msgpack.encode([messages.FORMAT, "n" * 256, 1, 1, []])),
        ("epoch 0", msgspec.msgpack.encode([messages.FORMAT, "node", 0, 1, []])),
        ("a number too large", msgspec.msgpack.encode([messages.FORMAT, "node", 1, 2**63, []])),
        ("an unknown message", raw_of([99])),
        ("a message without its fields", raw_of([1])),
        ("an unknown status", raw_of([2, [["a", 1, 5, 0, ""]], False])),
        ("too many ids", raw_of([11, [[0, 1, 1]] * (messages.MAX_IDS + 1)])),
        ("dot 0", raw_of([12, [0, 1, 0]])),
        ("a key too long", raw_of([20, 1, 1, {}, {}, False, b"k" * (messages.MAX_KEY + 1), b""])),
        ("an empty key", raw_of([21, 1, 1, {}, {}, False, [[b"", [], {}]], None])),
        ("a clock with counter 0", raw_of([20, 1, 1, {1: [0, 1]}, {}, False, b""])),
        ("a text for bytes", raw_of([32, ["text"]])),
    ],
)
def test_what_is_no_frame_is_malformed(what: str, raw: bytes) -> None:
    assert what
    with pytest.raises(MalformedError):
        messages.decode(raw)


def test_deep_nesting_is_malformed() -> None:
    with pytest.raises(MalformedError):
        messages.decode(b"\x95\x01\xa1n\x01\x01" + b"\x91" * 100_000)


def test_a_frame_too_large_is_neither_sent_nor_read() -> None:
    half = b"x" * (messages.MAX_FRAME // 2)
    with pytest.raises(ClusterError, match="the limit is"):
        messages.encode(
            messages.Frame(messages.FORMAT, "node", 1, 1, [messages.Unreliable([half, half])])
        )
    with pytest.raises(MalformedError, match="the limit is"):
        messages.decode(b"\0" * (messages.MAX_FRAME + 1))


@given(st.binary(max_size=200))
def test_random_bytes_are_malformed_and_nothing_else(raw: bytes) -> None:
    with pytest.raises(MalformedError):
        messages.decode(raw)


@given(st.data())
def test_a_damaged_frame_decodes_or_is_malformed(data: st.DataObject) -> None:
    raw = bytearray(
        messages.encode(messages.Frame(messages.FORMAT, "node", MAX_NUMBER, 1, EVERYTHING))
    )
    for _ in range(data.draw(st.integers(1, 4))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    try:
        frame = messages.decode(bytes(raw))
    except MalformedError:
        return
    assert messages.decode(messages.encode(frame)) == frame
