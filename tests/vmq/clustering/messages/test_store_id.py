"""A node that has lost its disk, and those that do not know it yet."""

from pathlib import Path

from tests.support.until import until
from tests.vmq.clustering.nodes import clustering, pair
from vmq.clustering.messages.publishes import RemotePublish


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
        name = outboxes._names["b"]
        assert name == clustering(b).outboxes._name
        outboxes._names["b"] = outboxes.outbox("b").target = name + 1
        outboxes.send("b", RemotePublish(b"t", b"2", 1))
        # It was refused, `a` has heard why, and sent it to the store that there is.
        await until(lambda: got == [b"1", b"2"])
        await until(lambda: outboxes.waiting() == (0, 0))
        assert outboxes._names["b"] == name
