"""A node that has lost its disk, and those that do not know it yet."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.until import until
from tests.vmq.clustering.nodes import clustering, pair
from vmq.clustering.messages.publishes import Publish
from vmq.clustering.messages.store_id import StoreName


def test_a_name_comes_with_a_clock_or_without() -> None:
    StoreName(1).check()
    StoreName(1, clock={7: [1, 5]}).check()
    with pytest.raises(ValueError, match=r"clock|runs|numbers"):
        StoreName(1, clock={7: [5, 1]}).check()


async def test_what_is_for_another_store_is_not_taken_and_not_lost(tmp_path: Path) -> None:
    """As if `a` had not heard yet that the store of `b` is another one: nothing of it is taken by the wrong one."""
    async with pair(tmp_path) as (a, b):
        lanes = clustering(a).lanes
        got: list[bytes] = []
        clustering(b).lanes.arrivals._handlers[Publish] = lambda _, publish: got.append(
            publish.payload
        )
        lanes.send("b", Publish(b"t", b"1", 1))
        await until(lambda: got == [b"1"] and lanes.waiting() == (0, 0))
        name = lanes.known("b").name
        assert name == clustering(b).lanes._name
        lanes.known("b").name = lanes.lane("b").target = name + 1
        lanes.send("b", Publish(b"t", b"2", 1))
        # It was refused, `a` has heard why, has looked for heirs, and sent it to the store that there is.
        await until(lambda: got == [b"1", b"2"])
        await until(lambda: lanes.waiting() == (0, 0))
        assert lanes.known("b").name == name
