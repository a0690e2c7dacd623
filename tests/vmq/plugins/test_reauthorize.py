"""What a plugin no longer allows ends in a running broker."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from vmq_hooks import (
    Plugin,
    SubscriberId,
    Subscription,
    hook,
)

from tests.support.wire import (
    publish_packet,
    subscribe_packet,
)
from tests.vmq.plugins.doors import Doors
from tests.vmq.plugins.support import peer_of, serving


async def test_subscriptions_that_are_no_longer_allowed_end(tmp_path: Path) -> None:
    ended: list[Any] = []

    class Ends(Plugin):
        @hook
        def on_topic_unsubscribed(self, subscriber_id: Any, topic_filters: Any) -> None:
            ended.append((subscriber_id.client_id, topic_filters))

    allowed = {"a", "b"}

    def judge(_user: Any, _who: Any, wanted: list[Subscription]) -> Any:
        return [
            Subscription(each.topic_filter, each.qos if each.topic_filter in allowed else 128)
            for each in wanted
        ]

    plugins = {"doors": Doors(auth_on_subscribe=judge), "ends": Ends()}
    async with serving(tmp_path, plugins) as broker:
        handle = broker.plugins.loaded["doors"].handle
        assert handle is not None
        async with peer_of(broker) as live, peer_of(broker) as away:
            await live.connect("live")
            live.send(subscribe_packet(1, ("a", 0), ("b", 0)))
            await live.expect(b"\x90\x04\0\1\0\0")
            await away.connect("away", clean=False)
            away.send(subscribe_packet(1, ("b", 1)), b"\xe0\0")
            await away.expect(b"\x90\x03\0\1\1")
            await away.rest()
            allowed.discard("b")
            assert await handle.reauthorize(SubscriberId("live")) == 1
            assert ended == [("live", ["b"])]
            assert await handle.reauthorize() == 1
            assert ended == [("live", ["b"]), ("away", ["b"])]
            await broker.publish("b", b"no")
            await broker.publish("a", b"yes")
            await live.expect(publish_packet("a", b"yes"))
