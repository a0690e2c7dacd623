"""What is stored of copies besides their records is read as it was written, and nothing else is."""

import pytest

from vmq.clustering.replication.headers import CopyHeader, decode_head, decode_lives, encode_stored


def test_a_head_is_read_as_it_was_written() -> None:
    for head in (
        CopyHeader("a", bytes(8), "client", 1, 0),
        CopyHeader("a", bytes(8), "client", 1, 5, complete=True, frozen_at=7),
    ):
        assert decode_head(encode_stored(head)) == head


def test_lives_are_read_as_they_were_written() -> None:
    assert decode_lives(encode_stored([(1, 2, 3), (4, 5, 6)])) == [(1, 2, 3), (4, 5, 6)]


def test_a_damaged_record_is_told() -> None:
    with pytest.raises(ValueError, match="Expected"):
        decode_head(encode_stored([(1, 2, 3)]))
