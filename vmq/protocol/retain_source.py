"""Whether who published a retained message may still publish it: asked when a new subscription is to get it.

Mosquitto's `check_retain_source`. A verdict that may be kept is kept with the message, until the rules change or it
ends: so a subscription over many messages asks about each once.
"""

from typing import Final

from vmq_hooks.types import Message as SeenMessage
from vmq_hooks.types import SubscriberId
from vmq_hooks.verdicts import Refuse

from vmq.core.hook_sites import AcceptedUntil, Answer, Hooks, Pending
from vmq.core.registry import Registry
from vmq.core.retained_burst import allowance_for
from vmq.core.subscriber import Subscriber
from vmq.mqtt.message import Message, Sourced

#: Messages that are looked at in one go, and asked about at a time where verdicts come later.
STEP: Final = 256
AT_ONCE: Final = 16


def send_retained(
    registry: Registry,
    hooks: Hooks,
    subscriber: Subscriber,
    topic_filter: str,
    found: list[Message],
    qos: int,
    first: bool,
) -> None:
    """As `Registry.send_retained`, without those whose source may not publish them any more.

    By which listener a message came is not kept: `hooks` are those of the subscriber's.
    """
    is_on = registry.core.options.check_retain_source
    if found and is_on and hooks.auth_on_publish is not None:
        Check(registry, hooks, subscriber, topic_filter, found, qos, first).go_on()
    else:
        registry.send_retained(subscriber, topic_filter, found, qos, first)


class Check:
    """The retained messages of one new subscription, on their way past the plugins."""

    def __init__(
        self,
        registry: Registry,
        hooks: Hooks,
        subscriber: Subscriber,
        topic_filter: str,
        found: list[Message],
        qos: int,
        first: bool,
    ) -> None:
        self.first = first
        self.registry = registry
        self.hooks = hooks
        self.subscriber = subscriber
        self.topic_filter = topic_filter
        self.qos = qos
        self.found = found
        self.output = subscriber.output
        #: The subscription that they are for, and whose SUBSCRIBE asked for them.
        self.subscription = subscriber.find(topic_filter)
        self.renewed = 0 if self.subscription is None else self.subscription.renewed
        self.allowed: list[Message] = []
        #: How many of them were looked at, and about how many the verdict is awaited.
        self.place: int = 0
        self.awaited: int = 0
        self.is_late = False
        self.is_done = False

    def go_on(self) -> None:
        """Looks at the next of them; with the last one sends what may be sent."""
        core = self.registry.core
        if self.is_late and not self.is_wanted():
            self.place = len(self.found)
        end = self.place + STEP
        while self.place < len(self.found) and self.awaited < AT_ONCE:
            if self.place >= end and core.call_later is not None:
                self.be_late()
                core.call_later(0.0, self.go_on)
                return
            message = self.found[self.place]
            self.place += 1
            if isinstance(message, Sourced):
                self.ask(message)
            else:
                self.allowed.append(message)
        if self.place >= len(self.found) and self.awaited == 0 and not self.is_done:
            self.is_done = True
            if self.is_late:
                self.subscriber.judged_messages -= len(self.found)
            self.send()

    def be_late(self) -> None:
        """The answer comes in a later pass: what an earlier subscription left goes now.

        As many messages may be on their way past the plugins to one subscriber as may wait unread for it.
        """
        if self.is_late:
            return
        self.is_late = True
        registry, subscriber = self.registry, self.subscriber
        registry.send_retained(subscriber, self.topic_filter, [], self.qos, self.first)
        subscriber.judged_messages += len(self.found)
        output = self.output
        if output is not None and subscriber.judged_messages > allowance_for(
            registry.retained.count
        ):
            registry.core.counters.retain_bursts_refused += 1
            output.close("too many retained messages await verdicts for its subscriptions")

    def is_wanted(self) -> bool:
        """Whether connection and subscription are those that they were: a later SUBSCRIBE brings its own."""
        present = self.subscriber.find(self.topic_filter)
        return (
            self.subscriber.output is self.output
            and present is not None
            and present is self.subscription
            and present.renewed == self.renewed
        )

    def ask(self, message: Sourced) -> None:
        core = self.registry.core
        hooks = self.hooks
        hook = hooks.auth_on_publish
        generation = hooks.generation
        if hook is None or (message.judged == generation and core.clock() < message.judged_until):
            self.allowed.append(message)
            return
        who = SubscriberId(message.client_id, self.registry.mountpoint)
        seen = SeenMessage(message.topic.decode(), message.payload, message.qos, True)
        try:
            answer = hook(message.user, who, seen)
        except Exception as error:  # noqa: BLE001 - contained, whatever it is
            core.hook_failed("auth_on_publish", error)
            return
        if isinstance(answer, Pending):
            self.be_late()
            self.awaited += 1
            answer.then = lambda later: self.on_verdict(message, generation, later)
        else:
            self.take(message, generation, answer)

    def on_verdict(self, message: Sourced, generation: int, answer: Answer) -> None:
        self.awaited -= 1
        self.take(message, generation, answer)
        self.go_on()

    def take(self, message: Sourced, generation: int, answer: Answer) -> None:
        """Changes that a plugin wants were made when the message was published."""
        if isinstance(answer, Refuse):
            self.registry.core.counters.retain_withheld += 1
            return
        if isinstance(answer, AcceptedUntil):
            message.judged = generation
            message.judged_until = answer.until
        self.allowed.append(message)

    def send(self) -> None:
        registry = self.registry
        subscriber = self.subscriber
        if not self.is_late:
            registry.send_retained(
                subscriber, self.topic_filter, self.allowed, self.qos, self.first
            )
            return
        if not self.is_wanted():
            return
        retained = registry.retained
        found = [each for each in self.allowed if retained.get(each.topic.decode()) is each]
        registry.send_retained(subscriber, self.topic_filter, found, self.qos, False)
        registry.core.outbox.flush()
