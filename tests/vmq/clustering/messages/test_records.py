"""Records of sessions: what no owner has is refused, and told from what it has."""

import pytest

from vmq.clustering.messages.records import check_changes, check_places
from vmq.store.entries import encode_message

S = bytes(8)
PLACE = (1).to_bytes(8, "big")
BODY = encode_message(b"topic", b"payload")
GROUP = b"$share/g/t"

GOOD = [
    (b"q" + S + PLACE, b"\1\0\0" + BODY),
    (b"q" + S + PLACE, b"\x09\0\0" + bytes(8)),
    (b"q" + S + PLACE, b"\x29\0\0" + bytes(8) + GROUP + b"\0\x0a"),
    (b"q" + S + PLACE, b"\x22\0\0" + BODY + GROUP + b"\0\x0a"),
    (b"i" + S + PLACE, b"\x12\0\1" + encode_message(b"", b"")),
    (b"i" + S + PLACE, None),
    (b"h" + S + PLACE, b"node\0\1\0\0" + BODY),
    (b"h" + S + PLACE, None),
    (b"u" + S + b"a/#", b"\2"),
    (b"u" + S + b"a/#", None),
    (b"x" + S + b"\0\1", b""),
    (b"s" + S, bytes(8)),
]

BAD = [
    (b"r" + S + PLACE, b"\0x"),
    (b"m" + S, BODY),
    (b"v" + S, b"vmq 2"),
    (b"q" + S + PLACE + b"\0", b"\1\0\0" + BODY),
    (b"q" + S, b"\1\0\0" + BODY),
    (b"q" + S + PLACE, b""),
    (b"q" + S + PLACE, b"\0\0\0" + BODY),
    (b"q" + S + PLACE, b"\3\0\0" + BODY),
    (b"q" + S + PLACE, b"\x41\0\0" + BODY),
    (b"q" + S + PLACE, b"\1\0\0" + b"\xff\xff" + b"short"),
    (b"q" + S + PLACE, b"\x09\0\0" + PLACE),
    (b"q" + S + PLACE, b"\x09\0\0" + bytes(9)),
    (b"q" + S + PLACE, b"\x29\0\0" + bytes(8) + b"\xff\xff"),
    (b"h" + S + PLACE, b"\1\0\0" + BODY),
    (b"h" + S + PLACE, b"node\0\x09\0\0" + bytes(8)),
    (b"u" + S, b"\1"),
    (b"u" + S + b"a", b"\3"),
    (b"x" + S + b"\0\1", b"x"),
    (b"x" + S + b"\0", b""),
    (b"s" + S, None),
    (b"s" + S, b"\0"),
    (b"s" + S + b"x", bytes(8)),
]


def test_what_a_store_holds_passes() -> None:
    check_changes(GOOD, [BODY])
    check_places(b"", *(key[:1] + key[9:] for key, _ in GOOD if key[:1] != b"s"))


@pytest.mark.parametrize("change", BAD)
def test_other_records_are_refused(change: tuple[bytes, bytes | None]) -> None:
    with pytest.raises(ValueError, match=r"record|entry|subscription|held|packet id"):
        check_changes([*GOOD, change], [BODY])


def test_a_place_of_no_record_is_refused() -> None:
    with pytest.raises(ValueError, match="a place of no record"):
        check_places(b"q", b"m")
