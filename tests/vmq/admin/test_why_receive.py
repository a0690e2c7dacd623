"""Why a client does not receive a message."""

from typing import Any

from msgspec.structs import replace
from vmq_hooks import Plugin, Refuse, hook

from tests.support.peer import Peer
from vmq.admin.why_receive import Receive, Receiving, explain
from vmq.broker import Broker
from vmq.config.options import Config, QueueOptions


async def ask(node: Broker, topic: str = "t/a", **more: Any) -> Receiving:
    return await explain(node, Receive(client_id="me", topic=topic, **more))


def reasons(found: Receiving, step: str) -> list[str]:
    return [each.reason for each in found.steps if each.step == step]


async def test_who_has_no_session_gets_nothing(node: Broker) -> None:
    found = await ask(node)
    assert not found.receives
    assert "a clean session ends with its connection" in found.verdict
    assert "durable session" in found.remedy
    Peer(node.registry("plant"), "me")
    assert "it has no session in this topic tree, but in: plant" in (await ask(node)).verdict


async def test_who_has_no_subscription_that_matches(node: Broker) -> None:
    me = Peer(node.registry(), "me")
    assert (await ask(node)).verdict == "It does not receive it: it has no subscription"
    me.subscribe(("t/b", 0), ("T/A", 0), ("#", 0))
    said = (await ask(node, "$SYS/x")).verdict
    assert "none of its 3 subscription(s) matches $SYS/x" in said
    assert "[MQTT-4.7.2-1]" in said
    me.connection.close("gone")
    Peer(node.registry(), "me", ("T/A", 0), ("x/+", 0))
    found = await ask(node)
    assert "T/A would, but for the case of letters or a / at the end" in found.verdict
    assert found.remedy == "a subscription to t/a"
    assert "it has T/A, x/+" in (await ask(node, "z")).verdict


async def test_what_becomes_of_it_in_the_queue(config: Config) -> None:
    queue = QueueOptions(max_inflight_messages=1, max_online_messages=1, max_offline_messages=1)
    async with Broker(replace(config, queue=queue)) as node:
        pub, me = Peer(node.registry(), "pub"), Peer(node.registry(), "me", clean=False)
        me.subscribe(("t/+", 1), ("t/a", 0))
        found = await ask(node, qos=1)
        assert found.verdict == "It receives it: sent"
        assert {each.outcome for each in found.recipients} == {"sent", "passed over"}
        for _ in range(3):
            pub.publish("t/a", qos=1)
        found = await ask(node, qos=1)
        assert not found.receives
        assert "the queue is full (queue.max_online_messages = 1)" in found.verdict
        assert reasons(found, "drops") == ["1 messages to it were dropped so far"]
        me.leave()
        assert "QoS 0 is kept for nobody" in (await ask(node, qos=0)).verdict


async def test_the_qos_that_it_has_subscribed_at(node: Broker) -> None:
    Peer(node.registry(), "me").subscribe(("t/a", 0))
    (said,) = reasons(await ask(node, qos=2), "qos")
    assert said.startswith("published at QoS 2, it goes to this client at QoS 0")
    assert said.endswith("nothing of it is kept while the client is away")


class Keeps(Plugin):
    """Lets nobody publish; takes reading away when told to."""

    may_read = True

    @hook
    def auth_on_publish(self) -> Any:
        return Refuse("nobody may")

    @hook
    def auth_on_subscribe(self, subscriptions: Any) -> Any:
        self.asked = subscriptions[0].topic_filter
        return True if self.may_read else Refuse("not any more")


async def test_rights_on_both_sides(config: Config) -> None:
    plugin = Keeps()
    async with Broker(config, plugins={"keeps": plugin}) as node:
        Peer(node.registry(), "pub")
        Peer(node.registry(), "me").subscribe(("t/a", 1))
        assert (await ask(node)).receives
        found = await ask(node, publisher="pub")
        assert "pub: keeps: nobody may: the connection is closed" in found.verdict
        plugin.may_read = False
        assert reasons(await ask(node), "rights") == [
            "keeps: not any more: t/a ends when it is asked anew"
        ]
        # What a plugin has put in place of another filter, it is asked about by that.
        node.registry().subscribe(node.registry().subscribers["me"], "t/a", 1, "a")
        await ask(node)
        assert plugin.asked == "a"


async def test_nothing_of_a_bridge_comes_back_to_it(node: Broker) -> None:
    Peer(node.registry(), "me", ("t/a", 1))
    node.registry().subscribers["me"].queue.bridge = True
    assert (await ask(node)).receives
    assert "it is a bridge" in (await ask(node, publisher="me")).verdict


async def test_one_member_of_a_group_gets_it(node: Broker) -> None:
    for name in ("me", "you"):
        Peer(node.registry(), name).subscribe(("$share/g/t/a", 1))
    found = await ask(node, qos=1)
    assert found.verdict == "It receives it: candidate"
    assert "one of 2 is chosen at random" in reasons(found, "queue")[0]
