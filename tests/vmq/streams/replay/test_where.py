"""Expressions of clients: what they are true for, and that none holds anybody up."""

import os
import signal
import sys
import time
from collections.abc import Iterator

import pyarrow as pa
import pytest

from tests.vmq.streams.support import batch_of, make, put, row
from vmq.streams.log.cursor import LogReader
from vmq.streams.replay.reading import ALL_COLUMNS
from vmq.streams.replay.where import COMMAND, ExpressionError, Expressions


@pytest.fixture(scope="module")
def expressions() -> Iterator[Expressions]:
    found = Expressions()
    yield found
    found.close()


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> pa.RecordBatch:
    partition = make(tmp_path_factory.mktemp("where"))
    payloads = [
        b'{"temp": 21.5, "tags": ["x"]}',
        b'{"temp": 19}',
        b"hot",
        b"\xff",
        b'{"temp": "warm"}',
        b"{",
    ]
    put(partition, [row(at, f"room/{at}", each) for at, each in enumerate(payloads)])
    (chunk,) = LogReader(partition, ALL_COLUMNS).read(0)
    partition.close()
    return chunk.rows


@pytest.mark.parametrize(
    ("text", "wanted", "failed"),
    [
        ("payload.temp > 20.0", [0], 4),
        ("payload.temp > 15", [0, 1], 4),
        ("has(payload.temp) && payload.temp == 19", [1], 3),
        ('payload == "hot"', [2], 0),
        ('"x" in payload.tags', [0], 5),
        ('topic == "room/3" || levels[1] == "4"', [3, 4], 0),
        ("qos == 2 && offset > 2", [5], 0),
        ("retain", [0, 2, 4], 0),
        ('client_id == "client-1" && partition == 0', [1], 0),
        ('time < timestamp("2023-11-14T22:13:20.000002Z")', [0, 1], 0),
        ("1 == 1", [0, 1, 2, 3, 4, 5], 0),
        ("payload.temp", [], 3),
        ("size(topic)", [], 0),
    ],
)
def test_what_it_is_true_for(
    expressions: Expressions, rows: pa.RecordBatch, text: str, wanted: list[int], failed: int
) -> None:
    expressions.check(text)
    before = expressions.failed
    mask = expressions.mask(text, 0, rows).to_pylist()
    assert [at for at, each in enumerate(mask) if each] == wanted
    assert expressions.failed - before == failed


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("1 +", "is no expression"),
        ("password == 1", "there is no password; accepted: topic"),
        ("(" * 600, "is no expression"),
    ],
)
def test_what_is_no_expression(expressions: Expressions, text: str, reason: str) -> None:
    with pytest.raises(ExpressionError, match=reason):
        expressions.check(text)
    expressions.check("true")


def test_no_rows(expressions: Expressions) -> None:
    empty = batch_of([]).select(["topic", "payload"])
    assert expressions.mask('topic == "a"', 0, empty).to_pylist() == []


def test_one_that_takes_too_long_is_ended_and_the_next_is_well() -> None:
    expressions = Expressions((sys.executable, "-c", "import time; time.sleep(1000)"), 0.2, 0)
    began = time.process_time()
    with pytest.raises(ExpressionError, match=r"it took more than 0\.2 s"):
        expressions.check("true")
    assert expressions.process is None
    assert time.process_time() - began < 5
    expressions.command, expressions.patience = COMMAND, 100
    expressions.check("true")
    expressions.close()


def test_a_process_that_dies_is_started_again(expressions: Expressions) -> None:
    expressions.check("true")
    assert expressions.process is not None
    os.kill(expressions.process.pid, signal.SIGKILL)
    with pytest.raises(ExpressionError, match="cannot be evaluated"):
        expressions.check("true")
    expressions.check("true")
