"""Listings: slices, limits, orders."""

import asyncio
from collections.abc import Iterator
from itertools import pairwise, product
from random import Random

import pytest
from msgspec import Struct

from vmq.admin.errors import AdminError
from vmq.admin.listing import SLICE, Listing, Selection


class Row(Struct, frozen=True):
    number: int
    kind: str | None = None


def numbers(count: int) -> Iterator[Row]:
    return (Row(number) for number in range(count))


def shuffled(count: int) -> list[Row]:
    rows = [Row(number, None if number % 7 == 0 else str(number % 3)) for number in range(count)]
    Random(1).shuffle(rows)
    return rows


@pytest.mark.parametrize("count", [0, 1, 10, SLICE, SLICE + 1, 3 * SLICE])
async def test_the_limit_is_kept_and_says_whether_there_is_more(count: int) -> None:
    for limit, sort in product([1, 10, SLICE, SLICE + 1, 0], ["", "-number"]):
        listing = Listing(Row, numbers(count), Selection(limit=limit, sort=sort))
        found = [row.number for row in await listing.rows()]
        expected = sorted(range(count), reverse=bool(sort))
        assert found == (expected[:limit] if limit else expected)
        assert listing.more is (0 < limit < count)


@pytest.mark.parametrize("offset", [0, 1, SLICE - 1, SLICE, SLICE + 3, 3 * SLICE])
async def test_pages_follow_each_other(offset: int) -> None:
    count = 2 * SLICE + 5
    for limit, sort in product([0, 1, SLICE + 1], ["", "-number"]):
        listing = Listing(Row, numbers(count), Selection(limit=limit, offset=offset, sort=sort))
        found = [row.number for row in await listing.rows()]
        expected = sorted(range(count), reverse=bool(sort))[offset:]
        assert found == (expected[:limit] if limit else expected)
        assert listing.more is (0 < limit < len(expected))


@pytest.mark.parametrize("limit", [5, SLICE + 5, 0])
async def test_orders_hold_across_slices(limit: int) -> None:
    rows = shuffled(5 * SLICE)
    listing = Listing(Row, iter(rows), Selection(sort="kind,-number", limit=limit))
    found = await listing.rows()
    by_both = sorted(rows, key=lambda row: (row.kind is None, row.kind or "", -row.number))
    assert found == by_both[: limit or None]


async def test_filters_come_before_the_limit() -> None:
    first = 2 * SLICE + 7
    chosen = Selection(where=f"number >= {first}", limit=2)
    listing = Listing(Row, numbers(3 * SLICE), chosen)
    assert await listing.rows() == [Row(first), Row(first + 1)]
    assert listing.more


async def test_steps_without_a_row_count_as_work_and_give_nothing() -> None:
    source = (Row(number) if number % 2 else None for number in range(3 * SLICE))
    assert len(await Listing(Row, source).rows()) == 3 * SLICE // 2


@pytest.mark.parametrize("chosen", [Selection(limit=0), Selection(limit=0, sort="-number")])
async def test_the_loop_serves_others_between_slices(chosen: Selection) -> None:
    made = 0
    seen: list[int] = []

    def source() -> Iterator[Row]:
        nonlocal made
        for made in range(1, 10 * SLICE + 1):
            yield Row(made)

    async def other() -> None:
        while made < 10 * SLICE:
            seen.append(made)
            await asyncio.sleep(0)

    watcher = asyncio.create_task(other())
    await Listing(Row, source(), chosen).rows()
    await watcher
    assert max(after - before for before, after in pairwise(seen)) <= SLICE


@pytest.mark.parametrize("chosen", [Selection(sort="nmber"), Selection(where="nmber = 1")])
def test_a_wrong_column_names_the_right_ones(chosen: Selection) -> None:
    with pytest.raises(AdminError, match="no column 'nmber'; accepted: number, kind"):
        Listing(Row, numbers(1), chosen)
