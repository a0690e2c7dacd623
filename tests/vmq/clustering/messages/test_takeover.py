"""What nodes say to each other when a session moves."""

import msgspec
import pytest

from vmq.clustering.messages.codec import WireError, decode, encode
from vmq.clustering.messages.takeover import (
    RELEASED,
    RETAIN,
    ClaimSession,
    Move,
    SessionBatch,
    SessionMessage,
    SessionState,
)


def sent(message: Move) -> object:
    return decode(encode(message))


def test_what_is_sent_is_what_comes() -> None:
    entries = [SessionMessage(b"t", b"x", 2 | RETAIN, 7), SessionMessage(b"", b"", 2 | RELEASED, 8)]
    for message in (
        SessionBatch("m", "c", entries),
        SessionState("", "c", 5, {"a/#": 1, "$share/g/b": 2}, [1, 65_535]),
        ClaimSession("", "c", "b", clean=True),
    ):
        assert sent(message) == message
    assert entries[0].retain
    assert entries[0].qos == 2
    assert entries[1].released


@pytest.mark.parametrize(
    "entry",
    [
        [b"t", b"x", 0, 0, ""],  # nothing of QoS 0 is in a session
        [b"t", b"x", 3, 0, ""],
        [b"t", b"x", 16, 0, ""],
        [b"a/+", b"x", 1, 0, ""],
        [b"", b"x", 1, 0, ""],
        [b"\xff", b"x", 1, 0, ""],
        [b"t", b"x", 1, 65_536, ""],
    ],
)
def test_what_no_client_could_have_published_is_refused(entry: list[object]) -> None:
    raw = msgspec.msgpack.encode([13, "", "c", [entry]])
    with pytest.raises(WireError):
        decode(raw)
