"""Async notices: in order for each client, beside each other for different ones, bounded."""

import asyncio
from typing import Any

from vmq_hooks import SubscriberId

from tests.support.until import until
from vmq.plugins.guard import PluginGuard
from vmq.plugins.notices import NoticeQueues
from vmq.plugins.steps import ChainStep


async def test_one_client_waits_and_another_does_not() -> None:
    gates = {"a": asyncio.Event(), "b": asyncio.Event()}
    told: list[tuple[str, list[str]]] = []

    async def tell(subscriber_id: SubscriberId, topic_filters: list[str]) -> None:
        await gates[subscriber_id.client_id].wait()
        told.append((subscriber_id.client_id, topic_filters))

    guard = PluginGuard("p")
    notices = NoticeQueues(guard)
    names = ("subscriber_id", "topic_filters")
    step = ChainStep("on_topic_unsubscribed", guard, tell, names, names)
    for client, text in (("a", "1"), ("a", "2"), ("b", "3")):
        notices.put(step, (SubscriberId(client), [text]))
    gates["b"].set()
    await until(lambda: told)
    assert told == [("b", ["3"])]
    gates["a"].set()
    await notices.finish(5)
    assert told == [("b", ["3"]), ("a", ["1"]), ("a", ["2"])]


async def test_what_is_too_much_is_left_out_and_what_fails_is_counted() -> None:
    told: list[Any] = []

    async def tell(subscriber_id: SubscriberId) -> None:
        told.append(subscriber_id)
        if len(told) == 1:
            raise OSError("broken")

    guard = PluginGuard("p")
    notices = NoticeQueues(guard, limit=2)
    step = ChainStep("on_client_gone", guard, tell, ("subscriber_id",), ("subscriber_id",))
    for _ in range(3):
        notices.put(step, (SubscriberId("c"),))
    await notices.finish(5)
    assert len(told) == 2
    assert guard.dropped == {"on_client_gone": 1}
    assert guard.errors == {"on_client_gone": 1}
    assert guard.failures == 0


async def test_a_notice_that_hangs_is_ended() -> None:
    async def hang() -> None:
        await asyncio.Event().wait()

    guard = PluginGuard("p", deadline=60)
    notices = NoticeQueues(guard)
    notices.put(
        ChainStep("on_client_gone", guard, hang, (), ("subscriber_id",)), (SubscriberId("c"),)
    )
    await notices.finish(0.01)
