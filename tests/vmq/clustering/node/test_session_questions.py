"""A look at sessions of other nodes: what they say. Those that say nothing: running/test_shown.py."""

from pathlib import Path

from tests.support.peer import Peer
from tests.support.present import present
from tests.support.until import until
from tests.vmq.clustering.nodes import clustering, is_subscribed, pair


async def test_a_node_tells_how_a_session_is(tmp_path: Path) -> None:
    async with pair(tmp_path) as (a, b):
        Peer(b.registry(), "c").subscribe(("t", 1))
        await until(lambda: is_subscribed(a, "c", "b"))
        await b.publish("t", b"x", qos=1)
        ask = clustering(a).sessions.ask
        found = present(await ask("b", "", "c"))
        assert (found.is_online, found.waiting_acks, found.subscriptions) == (True, 1, {"t": 1})
        assert await ask("b", "", "nobody") is None
        assert await ask("b", "no tree", "c") is None
