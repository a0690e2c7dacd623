"""Queries on what has holes: the offsets that were given up have no rows, and all else is there, once."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.vmq.streams.replica.test_holes import holed
from tests.vmq.streams.sql.queries import answer
from vmq.streams import logs
from vmq.streams.column_writer import ColumnWriter
from vmq.streams.logs import LogsHere, RowPage, as_rows, within_reach
from vmq.streams.places import PageQuery
from vmq.streams.sql.running import SqlSource


class Elsewhere(LogsHere):
    """Those of another node, which answers with pages."""

    def owner(self, _number: int) -> str:
        return "b"

    def rows(self, number: int, wanted: PageQuery, columns: Sequence[str]) -> RowPage:
        return as_rows(self.page(number, within_reach(wanted)), columns)


@pytest.mark.parametrize("there", [LogsHere, Elsewhere])
def test_a_hole_has_no_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, there: type[LogsHere]
) -> None:
    """By segments, by the columns beside them, and by pages, some of which are within the hole."""
    monkeypatch.setattr(logs, "_FAR_LOOK", 10)
    schema = {"device": "string level:1"}
    partition, left = holed(tmp_path, schema=schema)
    source = SqlSource("s", schema, there([partition]), [partition])
    for _ in range(2):
        for start in (0, 10, partition.sealed[0].end + 20):
            query = f'select "offset" from s where "offset" >= {start} order by 1'
            wanted = [at for at, _ in left if at >= start]
            assert answer(query, [source]).column(0).to_pylist() == wanted
        found = answer('select payload from s order by "offset"', [source])
        assert found.column(0).to_pylist() == [b"payload-%d" % number for _, number in left]
        ColumnWriter(lambda: [partition], least=0).tidy()
