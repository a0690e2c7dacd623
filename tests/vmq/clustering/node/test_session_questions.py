"""A look at sessions of other nodes: what they say, and that nobody waits for who says nothing."""

from pathlib import Path

import pytest

from tests.support.peer import Peer
from tests.support.until import until
from tests.vmq.clustering.nodes import clustering, is_subscribed, pair, silence
from vmq.clustering.node import session_questions


async def test_a_node_tells_how_a_session_is(tmp_path: Path) -> None:
    async with pair(tmp_path) as (a, b):
        Peer(b.registry(), "c").subscribe(("t", 1))
        await until(lambda: is_subscribed(a, "c", "b"))
        await b.publish("t", b"x", qos=1)
        ask = clustering(a).sessions.ask
        found = await ask("b", "", "c")
        assert found is not None
        assert (found.is_online, found.waiting_acks, found.subscriptions) == (True, 1, {"t": 1})
        assert await ask("b", "", "nobody") is None
        assert await ask("b", "no tree", "c") is None


async def test_who_says_nothing_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_questions, "PATIENCE", 0.05)
    async with pair(tmp_path) as (a, b):
        Peer(b.registry(), "c", clean=False)
        silence(b, monkeypatch)
        assert await clustering(a).sessions.ask("b", "", "c") is None
