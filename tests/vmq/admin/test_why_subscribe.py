"""What `why --subscribe` says, compared with what then happens."""

from typing import Any

import pytest
from msgspec.structs import replace
from vmq_hooks import Plugin, Refuse, Subscription, hook

from tests.support.peer import Peer
from vmq.admin.why_subscribe import Granting, Subscribe, explain
from vmq.broker import Broker
from vmq.config.options import Config, LimitOptions

FAILURE = "it is answered with failure (0x80)"


async def ask(node: Broker, topic_filter: str, **more: Any) -> Granting:
    return await explain(node, Subscribe(client_id="me", filter=topic_filter, **more))


class Reads(Plugin):
    """Refuses what begins with no."""

    @hook
    def auth_on_subscribe(self, subscriptions: list[Subscription]) -> Any:
        if subscriptions[0].topic_filter.startswith("no"):
            raise Refuse("not that")
        return True


@pytest.mark.parametrize(
    ("topic_filter", "said"),
    [
        ("a/+", ""),
        ("no/+", f"reads: not that: {FAILURE}"),
        ("a/b/c/d", f"limits.topic_max_depth is 3, and would be exceeded: {FAILURE}"),
        ("$share/g/a/b/c", ""),
        ("+/+", f"limits.topic_max_plus is 1, and would be exceeded: {FAILURE}"),
        (
            "x" * 1000,
            f"limits.max_subscription_bytes_per_client is 1000, and would be exceeded: {FAILURE}",
        ),
    ],
)
async def test_it_says_what_happens(config: Config, topic_filter: str, said: str) -> None:
    limits = LimitOptions(
        topic_max_depth=3, topic_max_plus=1, max_subscription_bytes_per_client=1000
    )
    async with Broker(replace(config, limits=limits), plugins={"reads": Reads()}) as node:
        me = Peer(node.registry(), "me")
        found = await ask(node, topic_filter, qos=1)
        assert node.registry().subscribers["me"].subscriptions == {}
        me.subscribe((topic_filter, 1))
        assert found.granted is (topic_filter in node.registry().subscribers["me"].subscriptions)
        assert found.granted is not bool(said)
        assert found.verdict == (f"It is not granted: {said}" if said else "It is granted at QoS 1")


async def test_the_limit_on_subscriptions(config: Config) -> None:
    limits = LimitOptions(max_subscriptions_per_client=1)
    async with Broker(replace(config, limits=limits)) as node:
        Peer(node.registry(), "me").subscribe(("a", 1))
        assert "limits.max_subscriptions_per_client is 1" in (await ask(node, "b")).verdict
        found = await ask(node, "a")
        assert found.granted
        assert "the client has it already, at QoS 1" in [each.reason for each in found.steps]


async def test_a_client_that_is_not_there(node: Broker) -> None:
    found = await ask(node, "a")
    assert found.verdict == "It is not granted: the client is not connected, and has no session"


@pytest.mark.parametrize("topic_filter", ["", "a/#/b", "a+", "$share/g", "x" * 70_000])
async def test_a_bad_filter(node: Broker, topic_filter: str) -> None:
    Peer(node.registry(), "me")
    found = await ask(node, topic_filter)
    assert not found.granted
    assert found.steps[1].step == "filter"


async def test_a_netsplit(node: Broker) -> None:
    Peer(node.registry(), "me")
    core = node.registry().core
    core.cluster_is_split = True
    assert (await ask(node, "a")).granted
    core.options.allow_subscribe_during_netsplit = False
    assert "allow_subscribe_during_netsplit is off" in (await ask(node, "a")).verdict
