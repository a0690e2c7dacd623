"""Long listings in slices, so that the loop serves its clients in between."""

import asyncio
import heapq
from collections.abc import AsyncIterator, Callable, Iterable
from functools import cmp_to_key
from itertools import islice
from typing import Annotated, Any, Final, Generic, TypeVar

from msgspec import Meta, Struct

from vmq.admin.where import Predicate, check_column, columns_of, compile_where

Row = TypeVar("Row", bound=Struct)

#: Rows looked at between two passes of the loop.
SLICE: Final = 500
#: The largest whole number that the API takes: with it the broker, which counts in 64 bits, can still add.
LARGEST: Final = 1 << 62


class Selection(Struct, frozen=True, kw_only=True):
    """Which rows of a listing are wanted."""

    where: Annotated[
        str,
        Meta(
            description='Only rows for which this holds, as in: queue_size > 100 and client_id ~ "^dev"'
        ),
    ] = ""
    sort: Annotated[
        str,
        Meta(description="Order by these columns, as in: -queue_size,client_id (- is descending)"),
    ] = ""
    limit: Annotated[int, Meta(ge=0, le=LARGEST, description="At most so many rows; 0 = all")] = 100
    offset: Annotated[int, Meta(ge=0, le=LARGEST, description="Leave out so many rows first")] = 0


class Listing(Generic[Row]):
    """Rows that are made, tested and sorted while they are asked for.

    `source` makes rows lazily and must bear that the broker goes on between two of them; None says that a step gave no
    row. Behind them come those of `others`, which have to be waited for. When `slices` has ended, `more` says whether
    the limit left rows out, and `missing` the nodes that were asked for theirs and have not answered.

    Raises:
        AdminError: filter or order name no column, or make no sense otherwise.
    """

    def __init__(
        self,
        row: type[Row],
        source: Iterable[Row | None],
        selection: Selection | None = None,
        others: AsyncIterator[list[Row]] | None = None,
        missing: list[str] | None = None,
    ) -> None:
        chosen = selection if selection is not None else Selection(limit=0)
        self._source = iter(source)
        self._others = others
        self._limit = chosen.limit
        self._offset = chosen.offset
        self._accepts: Predicate | None = None
        if chosen.where.strip():
            self._accepts = compile_where(chosen.where, row)
        self._order = _order(chosen.sort, row)
        self.more = False
        self.missing = [] if missing is None else missing

    async def slices(self) -> AsyncIterator[list[Row]]:
        """The rows, in lists of at most SLICE."""
        steps = self._matching() if self._order is None else self._sorted(self._order)
        left = self._limit
        skip = self._offset
        async for step in steps:
            rows = step[skip:]
            skip -= len(step) - len(rows)
            if self._limit and len(rows) > left:
                self.more = True
                if left:
                    yield rows[:left]
                return
            left -= len(rows)
            yield rows
            await asyncio.sleep(0)

    async def rows(self) -> list[Row]:
        """All of them at once, for callers that know them to be few."""
        return [row async for rows in self.slices() for row in rows]

    async def _matching(self) -> AsyncIterator[list[Row]]:
        while step := list(islice(self._source, SLICE)):
            yield self._accepted(step)
            await asyncio.sleep(0)
        if self._others is not None:
            async for rows in self._others:
                yield self._accepted(rows)

    def _accepted(self, rows: Iterable[Row | None]) -> list[Row]:
        accepts = self._accepts
        return [row for row in rows if row is not None and (accepts is None or accepts(row))]

    async def _sorted(self, order: Callable[[Any], Any]) -> AsyncIterator[list[Row]]:
        """Slices that are each sorted, merged; of many rows only those within the limit are kept."""
        runs: list[list[Row]] = []
        keep = self._offset + self._limit + 1 if self._limit else 0
        async for rows in self._matching():
            run = rows if not runs or not 0 < keep <= SLICE else runs.pop() + rows
            run.sort(key=order)
            runs.append(run[:keep] if keep else run)
        merged = heapq.merge(*runs, key=order)
        while rows := list(islice(merged, SLICE)):
            yield rows


def _order(text: str, row: type[Struct]) -> Callable[[Any], Any] | None:
    """The key of an order such as `-queue_size,client_id`; null comes last."""
    names = [name.strip() for name in text.split(",") if name.strip()]
    if not names:
        return None
    columns = columns_of(row)
    wanted = [(name.lstrip("-"), -1 if name.startswith("-") else 1) for name in names]
    for name, _ in wanted:
        check_column(columns, name, "sort")

    def compare(one: Any, other: Any) -> int:
        for name, sign in wanted:
            a, b = getattr(one, name), getattr(other, name)
            if a != b:
                if a is None or b is None:
                    return 1 if a is None else -1
                return sign if a > b else -sign
        return 0

    return cmp_to_key(compare)
