"""What an operation has changed is on disk when it says so."""

from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from msgspec.structs import replace

from tests.support.peer import Peer
from vmq.admin.errors import UnavailableError
from vmq.admin.queues import purge
from vmq.admin.retained import delete_retained
from vmq.admin.sessions import disconnect, unsubscribe
from vmq.broker import Broker
from vmq.config.options import Config, StoreOptions

CHANGES: list[Callable[[Broker], Awaitable[object]]] = [
    lambda node: disconnect(node, "away", cleanup=True),
    lambda node: disconnect(node, "here", cleanup=True),
    lambda node: unsubscribe(node, "here", "t"),
    lambda node: unsubscribe(node, "away", "t"),
    lambda node: purge(node, "away"),
    lambda node: delete_retained(node, "#"),
]


@pytest.fixture
async def node(config: Config) -> AsyncIterator[Broker]:
    """A broker whose acknowledgements wait for commits, as they do unless told otherwise."""
    async with Broker(replace(config, store=StoreOptions())) as broker:
        yield broker


async def _set_up(node: Broker) -> None:
    Peer(node.registry(), "here", ("t", 1), clean=False)
    away = Peer(node.registry(), "away", ("t", 1), clean=False)
    away.leave()
    await node.publish("t", b"x", qos=1, retain=True)


@pytest.mark.parametrize("change", CHANGES)
async def test_nothing_is_to_be_written_any_more(
    node: Broker, change: Callable[[Broker], Awaitable[object]]
) -> None:
    await _set_up(node)
    core = node.registry().core
    assert core.store is not None
    before = core.outbox.stored.reached
    await change(node)
    assert core.outbox.stored.reached > before
    assert core.outbox.stored.reached >= core.store.last_barrier()


@pytest.mark.parametrize("change", CHANGES)
async def test_a_disk_that_fails_is_told(
    node: Broker, change: Callable[[Broker], Awaitable[object]], monkeypatch: pytest.MonkeyPatch
) -> None:
    await _set_up(node)

    def refuse(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(node.parts.committer, "write", refuse)
    with pytest.raises(UnavailableError, match="it is done, and not on disk yet"):
        await change(node)
