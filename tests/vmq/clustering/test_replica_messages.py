"""Messages about copies: what no owner sends is refused before anything is done with it."""

from __future__ import annotations

import pytest

from tests.vmq.clustering.test_replica_records import BAD, BODY, GOOD, S
from vmq.clustering.replica_messages import Begin, Changes, Part
from vmq.clustering.wire import WireError, decode, encode


def test_what_a_store_holds_passes() -> None:
    message = Changes(1, 2, 3, GOOD, [BODY], [Begin(S, "client")], [S])
    assert decode(encode(message)) == message


@pytest.mark.parametrize("change", BAD)
def test_other_records_are_refused(change: tuple[bytes, bytes | None]) -> None:
    with pytest.raises(WireError):
        decode(encode(Changes(1, 2, 3, [change], [BODY])))
    with pytest.raises(WireError):
        decode(encode(Part(1, b"", b"", [change], [BODY])))


@pytest.mark.parametrize("body", (b"", b"\0", b"\0\0", b"\0\x09short"))
def test_messages_without_a_topic_are_refused(body: bytes) -> None:
    with pytest.raises(WireError):
        decode(encode(Changes(1, 2, 3, [], [body])))
