"""A node that has lost its disk, and those that do not know it yet."""

from pathlib import Path

import pytest

from tests.support.until import until
from tests.vmq.clustering.nodes import clustering, pair
from vmq.clustering.messages.publishes import RemotePublish
from vmq.clustering.messages.store_id import StoreName


def test_a_name_comes_with_a_clock_or_without() -> None:
    StoreName(1).check()
    StoreName(1, clock={7: [1, 5]}).check()
    with pytest.raises(ValueError, match=r"clock|runs|numbers"):
        StoreName(1, clock={7: [5, 1]}).check()


async def test_what_is_for_another_store_is_not_taken_and_not_lost(tmp_path: Path) -> None:
    """As if `a` had not heard yet that the store of `b` is another one: nothing of it is taken by the wrong one."""
    async with pair(tmp_path) as (a, b):
        outboxes = clustering(a).outboxes
        got: list[bytes] = []
        clustering(b).outboxes.arrivals._handlers[RemotePublish] = lambda _, publish: got.append(
            publish.payload
        )
        outboxes.send("b", RemotePublish(b"t", b"1", 1))
        await until(lambda: got == [b"1"] and outboxes.waiting() == (0, 0))
        name = outboxes.known("b").name
        assert name == clustering(b).outboxes._name
        outboxes.known("b").name = outboxes.outbox("b").target = name + 1
        outboxes.send("b", RemotePublish(b"t", b"2", 1))
        # It was refused, `a` has heard why, has looked for heirs, and sent it to the store that there is.
        await until(lambda: got == [b"1", b"2"])
        await until(lambda: outboxes.waiting() == (0, 0))
        assert outboxes.known("b").name == name
