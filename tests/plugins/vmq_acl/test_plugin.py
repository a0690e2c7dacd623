"""The plugin's verdicts, and its taking up of new rules."""

# ruff: noqa: ASYNC240 - files of a test's own folder block nobody

import asyncio
from pathlib import Path

import pytest
from vmq_acl import AclConfig, AclPlugin
from vmq_hooks import Accept, Message, Next, Refuse, SubscriberId, Subscription
from vmq_hooks.testing import FakeBroker

LAMP = SubscriberId("lamp")
RULES = """\
topic read news
user bob
topic read a/#
topic write w
topic deny a/secret
pattern write of/%c
"""


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    path = tmp_path / "acl"
    path.write_text(RULES)
    return path


async def started(broker: FakeBroker, config: AclConfig | None = None) -> AclPlugin:
    plugin = AclPlugin()
    plugin.start(broker, config or AclConfig())
    return plugin


@pytest.mark.usefixtures("rules")
class TestVerdicts:
    async def test_publishing(self, tmp_path: Path) -> None:
        async with FakeBroker(tmp_path) as broker:
            plugin = await started(broker)
            granted = plugin.auth_on_publish("bob", LAMP, Message("w", b""))
            denied = plugin.auth_on_publish("bob", LAMP, Message("a/secret", b""))
            unknown = plugin.auth_on_publish("bob", LAMP, Message("a/b", b""))
            own = plugin.auth_on_publish(None, LAMP, Message("of/lamp", b""))
        assert isinstance(granted, Accept)
        assert isinstance(denied, Refuse)
        assert denied.reason == "denied by a rule"
        assert isinstance(unknown, Next)
        assert isinstance(own, Accept)
        for verdict in (granted, denied, unknown):
            assert verdict.cache is not None
            assert verdict.cache.by == {"username", "client_id", "topic"}

    async def test_subscribing_to_what_is_all_alike(self, tmp_path: Path) -> None:
        async with FakeBroker(tmp_path) as broker:
            plugin = await started(broker)

            def ask(*filters: str) -> object:
                return plugin.auth_on_subscribe(
                    "bob", LAMP, [Subscription(each, 1) for each in filters]
                )

            granted = ask("a/b", "$share/g/a/c/#")
            assert isinstance(granted, Accept)
            assert granted.subscriptions is None
            assert isinstance(ask("a/secret", "a/#"), Refuse)
            assert isinstance(ask("news", "b"), Next)

    async def test_of_several_filters_each_gets_what_it_may(self, tmp_path: Path) -> None:
        asked = [Subscription("a/b", 1), Subscription("a/#", 2), Subscription("b", 0)]
        async with FakeBroker(tmp_path) as broker:
            verdict = (await started(broker)).auth_on_subscribe("bob", LAMP, asked)
        assert isinstance(verdict, Accept)
        assert verdict.subscriptions == [
            Subscription("a/b", 1),
            Subscription("a/#", 128),
            Subscription("b", 128),
        ]
        # One verdict for all of them says nothing about the single filter.
        assert verdict.cache is None

    async def test_the_general_section_may_be_everybodys(self, tmp_path: Path) -> None:
        async with FakeBroker(tmp_path) as broker:
            plugin = await started(broker, AclConfig(general="everybody"))
            assert isinstance(plugin.auth_on_subscribe("bob", LAMP, [Subscription("news")]), Accept)


class TestTheFile:
    async def test_rules_count_at_once_for_what_is_subscribed(self, rules: Path) -> None:
        asked: asyncio.Queue[int] = asyncio.Queue()

        class Broker(FakeBroker):
            async def reauthorize(self, subscriber_id: SubscriberId | None = None) -> int:
                # Verdicts are forgotten first, or it would be answered from memory.
                asked.put_nowait(self.forgotten)
                return await super().reauthorize(subscriber_id)

        async with Broker(rules.parent) as broker, asyncio.timeout(10):
            plugin = await started(broker, AclConfig(reload_interval=0.01))
            assert await asked.get() == 1  # of durable sessions, for instance
            rules.write_text("user bob\ntopic write z\n")
            assert await asked.get() == 2
            assert broker.reauthorized == [None, None]
            assert isinstance(plugin.auth_on_publish("bob", LAMP, Message("z", b"")), Accept)
            assert isinstance(plugin.auth_on_publish("bob", LAMP, Message("w", b"")), Next)
