"""Records of a prefix of the metadata: what peers write there that is none is passed over."""

from unittest.mock import Mock

import pytest
from msgspec import Struct

from vmq_cluster.keyed_records import Records, decode, key_of


class Known(Struct):
    at: int


def test_what_is_no_record_under_no_key_is_passed_over() -> None:
    keys = {key_of("kind", "one"): b'{"at":1}', key_of("kind", "two", "x"): b"[]"}
    keys |= {b"kind": b"1", b"kind\0\xff": b'{"at":2}', b"kinds\0a": b'{"at":3}'}
    node = Mock()
    node.items = lambda _, begin: [each for each in keys.items() if each[0].startswith(begin)]
    records = Records(node, "prefix", "a thing")
    assert records.all("kind") == [(["one"], b'{"at":1}'), (["two", "x"], b"[]")]
    assert list(records.records("kind", Known)) == [(["one"], Known(1))]
    node.is_running = False
    assert records.all("kind") == []


@pytest.mark.parametrize("raw", [None, b"", b"nonsense", b"[" * 9999, b'{"at":"1"}'])
def test_a_record_is_read_or_there_is_none(raw: bytes | None) -> None:
    assert decode(raw, Known) is None
