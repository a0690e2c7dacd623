"""Names of topics here and there."""

from collections.abc import Sequence

from vmq_hooks import Subscription, matches

from vmq_bridge.config import TopicConfig


class Topics:
    """The rules of one bridge. For a topic the first rule of its direction counts whose filter matches."""

    def __init__(self, rules: Sequence[TopicConfig]) -> None:
        self._out = [each for each in rules if each.direction != "in"]
        self._in = [each for each in rules if each.direction != "out"]

    def local_subscriptions(self) -> list[Subscription]:
        """What is subscribed to here, to be sent there."""
        return _merged([Subscription(each.local_filter, each.qos) for each in self._out])

    def remote_subscriptions(self) -> list[Subscription]:
        """What is subscribed to there, to be published here."""
        return _merged([Subscription(each.remote_filter, each.qos) for each in self._in])

    def outgoing(self, topic: str) -> tuple[str, int] | None:
        """The name there of a topic here, and the highest QoS; None if no rule has it."""
        for each in self._out:
            if matches(each.local_filter, topic):
                return each.remote_prefix + topic[len(each.local_prefix) :], each.qos
        return None

    def incoming(self, topic: str) -> tuple[str, int] | None:
        """The name here of a topic there, and the highest QoS; None if no rule has it."""
        for each in self._in:
            if matches(each.remote_filter, topic):
                return each.local_prefix + topic[len(each.remote_prefix) :], each.qos
        return None


def _merged(wanted: Sequence[Subscription]) -> list[Subscription]:
    """One subscription a filter, with the highest QoS that a rule asks for."""
    highest: dict[str, int] = {}
    for each in wanted:
        highest[each.topic_filter] = max(each.qos, highest.get(each.topic_filter, 0))
    return [Subscription(topic_filter, qos) for topic_filter, qos in highest.items()]
