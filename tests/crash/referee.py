"""Judges a history: nothing acknowledged lost, nothing twice at QoS 2, order kept.

Two facts of MQTT 3.1.1 make repetitions at QoS 1 lawful, and only these:

- The broker may send a message again on a later connection of the subscriber, with DUP
  [MQTT-3.3.1-1].
- A publisher that got no PUBACK, or no PUBREC before the broker was killed, sends again, and the
  broker may take that for another message: what goes to a client that is there at QoS 1 does not
  wait for the disk. It reaches the subscriber without DUP, which is not handed on [MQTT-3.3.1-3].
  So a message comes without DUP at most as often as its publisher transmitted it.
"""

from collections import Counter
from collections.abc import Iterator

from tests.crash.history import Delivery, History, Message, Subscription

Stream = tuple[str, str, int]


def judge(history: History) -> list[str]:
    """All that is wrong with the run, in words; an empty list is an acquittal."""
    verdicts = list(history.objections)
    for subscriber, subscription in history.subscriptions.items():
        deliveries = history.deliveries[subscriber]
        for found in (
            (f"lost {message}" for message in missing(history, subscriber)),
            _strangers(history, subscription, deliveries),
            _repetitions(history, deliveries),
            _disorder(deliveries),
            _disorder_in_connections(history, deliveries),
        ):
            verdicts += [f"{subscriber}: {text}" for text in found]
    return verdicts


def missing(history: History, subscriber: str) -> Iterator[Message]:
    """The acknowledged messages that a subscriber has not got (yet)."""
    wants = history.subscriptions[subscriber].wants
    got = history.got[subscriber]
    for message in history.acknowledged:
        if message not in got and wants(message.topic):
            yield message


def _strangers(
    history: History, subscription: Subscription, deliveries: list[Delivery]
) -> Iterator[str]:
    for delivery in deliveries:
        message = delivery.message
        if not history.transmissions[message] or not subscription.wants(message.topic):
            yield f"got {message}, which was not meant for it"
        if delivery.qos != min(message.qos, subscription.qos):
            yield f"got {message} at QoS {delivery.qos}, subscribed at {subscription.qos}"


def _repetitions(history: History, deliveries: list[Delivery]) -> Iterator[str]:
    times = Counter((delivery.message, delivery.qos) for delivery in deliveries)
    fresh = Counter(delivery.message for delivery in deliveries if not delivery.dup)
    for (message, qos), count in times.items():
        if qos == 2 and count > 1:
            yield f"got {message} {count} times at QoS 2"
        lawful = history.transmissions[message]
        if qos == 1 and fresh[message] > lawful:
            yield f"got {message} {fresh[message]} times without DUP, transmitted {lawful} times"


def _disorder(deliveries: list[Delivery]) -> Iterator[str]:
    """First deliveries of a stream ascend."""
    last: dict[Stream, int] = {}
    seen: set[Message] = set()
    for delivery in deliveries:
        message = delivery.message
        if message in seen:
            continue
        seen.add(message)
        before = last.get(message.stream, -1)
        if message.number < before:
            yield f"got {message} for the first time after #{before}"
        last[message.stream] = max(before, message.number)


def _disorder_in_connections(history: History, deliveries: list[Delivery]) -> Iterator[str]:
    """On one connection a stream ascends, save for what its publisher transmitted again at QoS 1.

    What is redelivered comes in its original order and before what is new [MQTT-4.6.0-6].
    """
    last: dict[tuple[int, Stream], int] = {}
    for delivery in deliveries:
        message = delivery.message
        key = (delivery.connection, message.stream)
        before = last.get(key, -1)
        repeated = message.qos == 1 and history.transmissions[message] > 1
        if message.number <= before and not repeated:
            yield f"got {message} after #{before} on connection {delivery.connection}"
        last[key] = max(before, message.number)
