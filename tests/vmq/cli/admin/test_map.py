"""`vmq map`: the mappings of a running broker, from a shell."""

import io
import sys
from collections.abc import Iterator

import pytest

from tests.vmq.cli.program import on, told
from vmq.admin.jobs.mappings import MappingRow
from vmq.cli.admin import mapping
from vmq.testing.process import BrokerProcess


@pytest.fixture(scope="module")
def shared() -> Iterator[BrokerProcess]:
    """A broker with one mapping."""
    hot = {"from": "a/+", "to": ["b/${level(2)}"], "where": "json > 1"}
    with BrokerProcess.configured(mappings={"hot": hot}) as process:
        yield process


def test_columns_are_those_of_the_rows() -> None:
    assert set(mapping.COLUMNS.every) == set(MappingRow.__struct_fields__)


def test_listed_tried_and_switched(shared: BrokerProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    assert b'""' not in on(shared, "map", "list").out
    (row,) = told(shared, "map", "list")
    assert (row["mapping"], row["enabled"], row["source"]) == ("hot", True, "a/+")
    for message, code, out in (
        (b"2\n", 0, b"b/x 2\n"),
        (b"1", 0, b"is not for this mapping: where is false\n"),
        (b"\xff", 1, b"fails: the payload is no JSON\n"),
    ):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(message)))
        done = on(shared, "map", "test", "hot", "--topic", "a/x")
        assert (done.code, done.out) == (code, out)
    assert not told(shared, "map", "disable", "hot")["enabled"]
    assert told(shared, "map", "enable", "hot")["enabled"]
    done = on(shared, "map", "enable", "cold")
    done.tells(1, "accepted: hot")
