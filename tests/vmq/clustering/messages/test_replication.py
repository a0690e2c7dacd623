"""Messages about copies: what no owner sends is refused before anything is done with it."""

import pytest

from tests.vmq.clustering.messages.test_records import BAD, BODY, GOOD, S
from vmq.clustering.messages.codec import WireError, decode, encode
from vmq.clustering.messages.replication import MAX_RANGES, BeginCopy, Changes, CopyPart, Undone


def test_what_a_store_holds_passes() -> None:
    message = Changes(1, 2, 3, GOOD, [BODY], [BeginCopy(S, "client")], [S])
    assert decode(encode(message)) == message


@pytest.mark.parametrize("change", BAD)
def test_other_records_are_refused(change: tuple[bytes, bytes | None]) -> None:
    with pytest.raises(WireError):
        decode(encode(Changes(1, 2, 3, [change], [BODY])))
    with pytest.raises(WireError):
        decode(encode(CopyPart(1, b"", b"", [change], [BODY])))


@pytest.mark.parametrize("body", (b"", b"\0", b"\0\0", b"\0\x09short"))
def test_messages_without_a_topic_are_refused(body: bytes) -> None:
    with pytest.raises(WireError):
        decode(encode(Changes(1, 2, 3, [], [body])))


@pytest.mark.parametrize("ranges", ([(2, 1)], [(3, 4), (4, 5)], [(0, 0)] * 2))
def test_ranges_that_nobody_makes_are_refused(ranges: list[tuple[int, int]]) -> None:
    for waiting, inflight in ((ranges, []), ([], ranges)):
        with pytest.raises(WireError):
            decode(encode(Undone(1, "client", S, waiting, inflight, [])))


def test_there_is_a_limit_to_what_is_said_to_be_left() -> None:
    ranges = [(2 * number, 2 * number) for number in range(MAX_RANGES)]
    message = Undone(1, "client", S, ranges, ranges, [1, 65_535])
    assert decode(encode(message)) == message
    with pytest.raises(WireError):
        decode(encode(Undone(1, "client", S, [*ranges, (5000, 5000)], [], [])))
    with pytest.raises(WireError):
        decode(encode(Undone(1, "client", S, [], [], [0])))
