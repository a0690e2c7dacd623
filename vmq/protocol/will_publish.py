"""The will of a client that is gone: whether it may still be published is asked when it is due (section 3.1.2.5).

The client was asked about it at CONNECT; since then its rights may have been taken.
"""

import logging
from typing import Final

from vmq_hooks.modifiers import PublishModifiers
from vmq_hooks.verdicts import Refuse

from vmq.core.hook_sites import Answer, Pending
from vmq.core.registry import Registry
from vmq.core.stream_feed import feed_streams
from vmq.mqtt.message import Message
from vmq.mqtt.special import is_served
from vmq.protocol.changes import changed_message, seen_message
from vmq.protocol.publish import Publisher
from vmq.protocol.refusals import tell_of_split, tell_of_will
from vmq.store.store import StoreError

log = logging.getLogger("vmq.session")

#: Seconds that the verdict may take; without one the will is not published.
DEADLINE: Final = 1.0


def publish_will(client: Publisher, will: Message) -> None:
    """Publishes a client's will, if plugins allow it now."""
    hook = client.hooks.auth_on_publish
    if hook is None:
        publish(client, client.registry, will)
        return
    seen = seen_message(will.topic.decode(), will.payload, will.qos, will.retain)
    answer = client.ask("auth_on_publish", hook, client.username, client.subscriber_id(), seen)
    if isinstance(answer, Pending):
        AwaitedWill(client, will, answer)
    else:
        settle(client, will, answer)


class AwaitedWill:
    """A will whose verdict is still to come."""

    def __init__(self, client: Publisher, will: Message, pending: Pending) -> None:
        self.client = client
        self.will = will
        self.pending: Pending | None = pending
        core = client.core
        core.awaited_wills += 1
        pending.then = self.on_verdict
        if core.call_later is not None:
            core.call_later(DEADLINE, self.give_up)

    def on_verdict(self, answer: Answer) -> None:
        core = self.client.core
        self.pending = None
        core.awaited_wills -= 1
        try:
            settle(self.client, self.will, answer)
        except Exception:
            log.exception("internal error at the will of client=%s", self.client.client_id)
        core.outbox.flush()

    def give_up(self) -> None:
        pending = self.pending
        if pending is not None:
            pending.then = None
            pending.cancel()
            self.on_verdict(Refuse(f"no verdict within {DEADLINE:g} s"))


def settle(client: Publisher, will: Message, answer: Answer) -> None:
    """Goes by the verdict."""
    registry = client.registry
    if isinstance(answer, Refuse):
        client.core.counters.mqtt_publish_auth_error += 1
        tell_of_will(registry, client.client_id, client.username, will.topic.decode(), answer)
        return
    if isinstance(answer, PublishModifiers):
        will = changed_message(will, answer)
        if answer.mountpoint is not None:
            registry = client.core.registries.find(answer.mountpoint) or registry
    publish(client, registry, will)


def publish(client: Publisher, registry: Registry, will: Message) -> None:
    """Publishes it, unless it had to join more than the store can ever take."""
    core = client.core
    topic = will.topic.decode()
    if is_served(topic):
        core.service_of(topic).publish_will(client, registry, topic, will)
        return
    route = registry.route(will.topic)
    if client.is_cut_off(client.options.allow_publish_during_netsplit):
        core.counters.mqtt_publish_error += 1
        tell_of_split(registry, client.client_id, "will lost", "topic", route.text)
        return
    store = core.store
    if store is not None and store.gathered > 2 * core.options.max_uncommitted_writes:
        if will.retain or route.is_stored():
            core.counters.mqtt_publish_error += 1
            log.warning("will of client=%s is lost: the store cannot write", client.client_id)
            return
    if route.taps:
        try:
            feed_streams(core, route, will, client, None)
        except StoreError as error:
            # Nobody sends a will again: the others shall have it at least.
            log.warning("will of client=%s is not in its stream: %s", client.client_id, error)
    registry.publish(route, will, client)
