"""What `why` says of other nodes, compared with what then happens."""

from pathlib import Path

from tests.support.peer import Peer
from tests.support.until import until
from tests.vmq.clustering.nodes import clustering, pair
from vmq.admin.why import Explanation, Publish, explain
from vmq.broker import Broker


async def ask(broker: Broker, topic: str, qos: int = 1, client_id: str = "pub") -> Explanation:
    return await explain(broker, Publish(client_id=client_id, topic=topic, qos=qos))


def nodes(explanation: Explanation) -> list[tuple[str, str]]:
    return [(each.verdict, each.reason) for each in explanation.steps if each.step == "node"]


async def test_other_nodes_are_named_with_what_they_get(tmp_path: Path) -> None:
    async with pair(tmp_path) as (a, b):
        registry = b.registry()
        Peer(a.registry(), "pub")
        await until(lambda: "pub" in a.registry().subscribers)
        there = registry.create("there", True)
        registry.subscribe(there, "t/#", 1)
        registry.subscribe(there, "$share/g/s", 1)
        await until(lambda: bool(a.registry().route(b"s").shared))
        found = await ask(a, "t/1", 2)
        assert nodes(found) == [("ok", "node b gets it at QoS 1 at most, for its subscribers")]
        assert found.verdict == "It goes to 1 target(s) on other nodes"
        assert found.arrives
        assert nodes(await ask(a, "s")) == [
            ("ok", "one member of $share/g/s gets it, among those on b")
        ]
        none = await ask(a, "u")
        assert (none.arrives, nodes(none)) == (False, [])
        elsewhere = await ask(a, "t", client_id="there")
        assert elsewhere.steps[0].reason == "node b has the client's session: ask there"
        await b.stop()
        await until(lambda: not clustering(a).node.up)
        assert [verdict for verdict, _ in nodes(await ask(a, "t/1", 1))] == ["ok"]
        lost = await ask(a, "t/1", 0)
        assert nodes(lost) == [
            ("note", "node b cannot be reached, and at QoS 0 nothing waits for it")
        ]
        assert not lost.arrives
