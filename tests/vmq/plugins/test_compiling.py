"""Whom a broker asks, in which order, and whom it need not ask again."""

import asyncio
from pathlib import Path
from typing import Any

from vmq_hooks import Accept, Cache, Plugin, Refuse, hook

from tests.support import wire as mqtt
from tests.support.present import present
from tests.vmq.plugins.doors import Doors
from tests.vmq.plugins.support import TIMEOUT, options, serving
from tests.vmq.sockets import login, session_of
from vmq.config.options import ListenerOptions


async def test_plugins_are_asked_by_priority_and_mix(tmp_path: Path) -> None:
    asked: list[str] = []

    class Named(Plugin):
        def __init__(self, name: str, answer: Any) -> None:
            self.name, self.answer = name, answer

        @hook
        def auth_on_publish(self) -> Any:
            asked.append(self.name)
            return self.answer

    class NamedLater(Named):
        @hook
        async def auth_on_publish(self) -> Any:
            return super().auth_on_publish()

    plugins = {
        "last": Named("last", Refuse("never reached")),
        "third": Named("third", True),
        "second": NamedLater("second", None),
        "first": Named("first", None),
    }
    sections = {
        "last": options(priority=9),
        "third": options(priority=5),
        "second": options(priority=-1),
        "first": options(priority=-2),
    }
    async with serving(tmp_path, plugins, sections) as broker, session_of(broker, "c") as peer:
        peer.send(mqtt.publish_packet("a", b"x"), mqtt.PINGREQ_BYTES)
        await peer.expect(mqtt.PINGRESP_BYTES)
        assert [each.name for each in broker.plugins.in_order()] == [
            *("first", "second", "third", "last")
        ]
    assert asked == ["first", "second", "third"]


async def test_a_listener_chooses_its_plugins(tmp_path: Path) -> None:
    plugins = {"strict": Doors(auth_on_register=Refuse("no")), "kind": Doors()}
    listeners = {
        "all": ListenerOptions(url="tcp://127.0.0.1:0"),
        "kind": ListenerOptions(url="tcp://127.0.0.1:0", auth_plugins=["kind"]),
    }
    sections = {"strict": options(), "kind": options()}
    async with serving(tmp_path, plugins, sections, False, listeners) as broker:
        assert [await login(broker, listener=each) for each in (0, 1)] == [5, 0]
        # Whoever was chosen and does not run cannot say yes.
        await broker.plugins.disable("kind")
        assert await login(broker, listener=1) == 5


async def test_a_kept_verdict_is_not_asked_for_again_until_it_is_forgotten(tmp_path: Path) -> None:
    plugin = Doors(auth_on_publish=Accept(cache=Cache(60, frozenset({"topic"}))))
    async with serving(tmp_path, {"once": plugin}) as broker, broker.subscribe("#") as messages:

        async def publish(client_id: str, *topics: str) -> int:
            plugin.calls.clear()
            async with session_of(broker, client_id) as peer:
                peer.send(*(mqtt.publish_packet(topic, b"x") for topic in topics))
                async with asyncio.timeout(TIMEOUT):
                    for topic in topics:
                        assert (await anext(messages)).topic == topic
            return len(plugin.calls)

        assert await publish("c", "a", "a", "b", "a") == 2
        assert await publish("d", "a", "b") == 0
        present(broker.plugins.loaded["once"].handle).forget_verdicts()
        assert await publish("c", "a", "a") == 1
        await broker.plugins.disable("once")
        assert await publish("c", "a") == 0


async def test_a_live_session_forgets_too(tmp_path: Path) -> None:
    """When it is told to, and when there is another plugin."""
    plugin = Doors(auth_on_publish=Accept(cache=Cache(60)))
    async with serving(tmp_path, {"doors": plugin}) as broker, session_of(broker, "c") as peer:
        for asked in (1, 2):
            for _ in range(3):
                peer.send(mqtt.publish_packet("a", b"x"), mqtt.PINGREQ_BYTES)
                await peer.expect(mqtt.PINGRESP_BYTES)
            assert len(plugin.calls) == asked
            if asked == 1:
                broker.plugins.forget_verdicts()
        strict = Doors(auth_on_publish=Refuse("no"))
        await broker.plugins.add("strict", strict, options(priority=-1))
        peer.send(mqtt.publish_packet("a", b"x"))
        assert await peer.rest() == b""
