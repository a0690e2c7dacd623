"""Frames survive the wire; what is none is refused with one error."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vmq_cluster import messages
from vmq_cluster.clocks import MAX_NUMBER
from vmq_cluster.errors import ClusterError, MalformedError
from vmq_cluster.messages import (
    FORMAT,
    MAX_FRAME,
    Frame,
    Gossip,
    Graft,
    Heartbeat,
    IHave,
    MemberRecord,
    Members,
    Prune,
    Received,
    Reliable,
    StaleEpoch,
    SyncBatch,
    SyncRequest,
    Unreliable,
    WireEntry,
    decode,
    encode,
)

EVERYTHING: list[Any] = [
    Heartbeat(7, 1000, 900, 50, stops=True, address="tcp://127.0.0.1:1"),
    Members([MemberRecord("a", 1, 0, 2, "tcp://127.0.0.1:1")], asks=True, taken="ipc://a"),
    StaleEpoch(5),
    Gossip((0, 1, 2), b"payload"),
    IHave([(0, 1, 2), (1, 1, 1)]),
    Graft((0, 1, 2)),
    Prune(),
    SyncRequest(1, 2, {1: [1, 5]}, {}, full=False, cursor=b"", until=b""),
    SyncBatch(1, 2, {}, {}, False, [WireEntry(b"k", [(1, 2, 3, None)], {1: 1})], None),
    Reliable(1, 1, 1, [b"x", b""]),
    Received(1, 0),
    Unreliable([b"y"]),
]


def test_every_message_survives_the_wire() -> None:
    frame = Frame(FORMAT, "node", 1, 1, EVERYTHING)
    assert decode(encode(frame)) == frame
    kinds = set(messages.AnyMessage.__args__)
    assert {type(each) for each in EVERYTHING} == kinds


def raw_of(message: object) -> bytes:
    return msgspec.msgpack.encode([FORMAT, "node", 1, 1, [message]])


@pytest.mark.parametrize(
    ("what", "raw"),
    [
        ("nothing", b""),
        ("not msgpack", b"\xc1"),
        ("a truncated frame", encode(Frame(FORMAT, "node", 1, 1, EVERYTHING))[:-1]),
        ("bytes after the frame", encode(Frame(FORMAT, "node", 1, 1, [])) + b"\0"),
        ("another format", msgspec.msgpack.encode([FORMAT + 1, "node", 1, 1, []])),
        ("no name", msgspec.msgpack.encode([FORMAT, "", 1, 1, []])),
        ("a long name", msgspec.msgpack.encode([FORMAT, "n" * 256, 1, 1, []])),
        ("epoch 0", msgspec.msgpack.encode([FORMAT, "node", 0, 1, []])),
        ("a number too large", msgspec.msgpack.encode([FORMAT, "node", 1, 2**63, []])),
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
        decode(raw)


def test_deep_nesting_is_malformed() -> None:
    with pytest.raises(MalformedError):
        decode(b"\x95\x01\xa1n\x01\x01" + b"\x91" * 100_000)


def test_a_frame_too_large_is_neither_sent_nor_read() -> None:
    half = b"x" * (MAX_FRAME // 2)
    with pytest.raises(ClusterError, match="the limit is"):
        encode(Frame(FORMAT, "node", 1, 1, [Unreliable([half, half])]))
    with pytest.raises(MalformedError, match="the limit is"):
        decode(b"\0" * (MAX_FRAME + 1))


@given(st.binary(max_size=200))
def test_random_bytes_are_malformed_and_nothing_else(raw: bytes) -> None:
    with pytest.raises(MalformedError):
        decode(raw)


@given(st.data())
def test_a_damaged_frame_decodes_or_is_malformed(data: st.DataObject) -> None:
    raw = bytearray(encode(Frame(FORMAT, "node", MAX_NUMBER, 1, EVERYTHING)))
    for _ in range(data.draw(st.integers(1, 4))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    try:
        frame = decode(bytes(raw))
    except MalformedError:
        return
    assert decode(encode(frame)) == frame
