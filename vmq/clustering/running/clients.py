"""The ports of the core by which clients of this node reach the slots that their sessions are in.

Each port stands in front of the one that was there, which goes on to serve what is no business of slots.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from vmq.clustering.running.limits import limits_of
from vmq.clustering.slots.words import digest_of
from vmq.core.context import CoreOptions
from vmq.core.hook_sites import Answer, Pending
from vmq.core.output import Output
from vmq.core.ports import Claims, FrontPort, Peers, Propagation, SessionListener
from vmq.core.registry import Registry
from vmq.core.source import Source
from vmq.core.subscriber import Subscriber
from vmq.mqtt.message import Message

if TYPE_CHECKING:
    from vmq.clustering.running.fronts import SlotFronts


class SlotClaims(Claims):
    """Clients who come."""

    def __init__(self, fronts: "SlotFronts", before: Claims) -> None:
        super().__init__()
        self._fronts = fronts
        self.before = before

    def claim(
        self,
        registry: Registry,
        client_id: str,
        clean: bool,
        user: str = "",
        options: CoreOptions | None = None,
    ) -> Pending | None:
        return self._fronts.connect(
            registry,
            client_id,
            clean,
            user,
            limits_of(options),
            lambda: self.before.claim(registry, client_id, True, user),
        )

    def end_session(self, registry: Registry, client_id: str) -> None:
        self._fronts.end(registry.scope + client_id)

    def elsewhere(self, mountpoint: str, client_id: str) -> str:
        return self.before.elsewhere(mountpoint, client_id)


class SlotSubscriptions(Propagation):
    """Clients who subscribe."""

    def __init__(self, fronts: "SlotFronts", before: Propagation) -> None:
        super().__init__()
        self._fronts = fronts
        self.before = before

    def wait(
        self, registry: Registry, subscriber: Subscriber, filters: list[str]
    ) -> Pending | None:
        before = self.before.wait(registry, subscriber, filters)
        if self._fronts.has(subscriber):
            # What it is to get at QoS 0 comes to its node, whose routes the one before waits for.
            return both(self._fronts.subscribe(subscriber, filters), before)
        return before


def both(one: Pending | None, other: Pending | None) -> Pending | None:
    """What is there when both are; None is there already."""
    if one is None or other is None:
        return one or other
    awaited = [one, other]

    def cancel() -> None:
        for each in awaited:
            each.then = None
            each.cancel()

    joined = Pending(cancel)

    def is_there(which: Pending) -> Callable[[Answer], None]:
        def then(answer: Answer) -> None:
            awaited.remove(which)
            if not awaited:
                joined.finish(answer)

        return then

    for each in (one, other):
        each.then = is_there(each)
    return joined


class SlotSessions(SessionListener):
    """What becomes of the sessions of this node's registry."""

    def __init__(self, fronts: "SlotFronts", before: SessionListener) -> None:
        super().__init__()
        self._fronts = fronts
        self.before = before

    def on_subscriber(
        self, event: int, registry: Registry, subscriber: Any, topic_filter: str
    ) -> None:
        self._fronts.on_subscriber(event, registry, subscriber, topic_filter)
        self.before.on_subscriber(event, registry, subscriber, topic_filter)


class SlotPeers(Peers):
    """Who has what this node sent."""

    def __init__(self, fronts: "SlotFronts", before: Peers) -> None:
        super().__init__()
        self._fronts = fronts
        self.before = before

    def wait_for_all(self, output: Output) -> None:
        self.before.wait_for_all(output)
        self._fronts.wait_for_all(output)


class SlotPackets(FrontPort):
    """What clients say. Not `SlotFronts` itself: a compiled class has no base of another extension module."""

    def __init__(self, fronts: "SlotFronts") -> None:
        super().__init__()
        self._fronts = fronts

    def keep(self, number: int, message: Message, qos: int, retain: bool) -> None:
        self._fronts.keep(number, message, qos, retain)

    def is_unreleased(self, number: int, packet_id: int) -> bool:
        return self._fronts.is_unreleased(number, packet_id)

    def digest(self, message: Message) -> bytes:
        return digest_of(message.topic, message.payload)

    def receive(self, message: Message, source: Source) -> None:
        self._fronts.offer([], message, source)

    def on_acknowledged(self, number: int, kind: int, packet_id: int) -> None:
        self._fronts.on_acknowledged(number, kind, packet_id)

    def on_pubacks(self, number: int, run: bytes) -> None:
        self._fronts.on_pubacks(number, run)

    def on_pubrels(self, number: int, run: bytes, output: Output) -> None:
        self._fronts.on_pubrels(number, run, output)

    def on_online(self, number: int) -> None:
        self._fronts.on_online(number)

    def on_offline(self, number: int) -> None:
        self._fronts.on_offline(number)
