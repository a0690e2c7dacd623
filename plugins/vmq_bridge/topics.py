"""Names of topics here and there."""

import re
from collections.abc import Sequence
from typing import Final

from vmq_hooks import Subscription, matches

from vmq_bridge.config import TopicConfig

#: Bytes of the longest topic name [MQTT-4.7.3-3].
_LONGEST: Final = 65_535
_NO_CHARACTERS: Final = "".join(
    chr(plane << 16 | last) for plane in range(17) for last in (0xFFFE, 0xFFFF)
)
#: Control characters, and what Unicode says is no character (section 1.5.3).
_DISCOURAGED: Final = re.compile(rf"[\x01-\x1f\x7f-\x9f\ufdd0-\ufdef{_NO_CHARACTERS}]")


class NotCarriedError(ValueError):
    """A message whose topic has no name on the other side; the text says why."""


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

    def outgoing(self, topic: str) -> tuple[str, int]:
        """The name there of a topic here, and the highest QoS.

        Raises:
            NotCarriedError: no rule has it, or the name would be none.
        """
        for each in self._out:
            if matches(each.local_filter, topic):
                name = _renamed(topic, each.local_prefix, each.remote_prefix)
                if _DISCOURAGED.search(name):
                    # A broker may close the connection for it, and mosquitto does: again and again.
                    raise NotCarriedError("its topic has a control character (section 1.5.3)")
                return name, each.qos
        raise NotCarriedError("no rule has this topic")

    def incoming(self, topic: str) -> tuple[str, int]:
        """The name here of a topic there, and the highest QoS.

        Raises:
            NotCarriedError: no rule has it, or the name would be none.
        """
        for each in self._in:
            if matches(each.remote_filter, topic):
                return _renamed(topic, each.remote_prefix, each.local_prefix), each.qos
        raise NotCarriedError("no rule has this topic")


def _renamed(topic: str, old: str, new: str) -> str:
    """The topic with one prefix in the place of the other. Raises NotCarriedError."""
    if len(topic) < len(old):
        # `a/#` matches `a` too (section 4.7.1.2): the parent of all that begins with the prefix.
        name = new.removesuffix("/")
    else:
        name = new + topic[len(old) :]
    if not name:
        raise NotCarriedError("on the other side its topic would be empty [MQTT-4.7.3-1]")
    if len(name.encode()) > _LONGEST:
        raise NotCarriedError(
            f"on the other side its topic would have more than {_LONGEST} bytes [MQTT-4.7.3-3]"
        )
    return name


def _merged(wanted: Sequence[Subscription]) -> list[Subscription]:
    """One subscription a filter, with the highest QoS that a rule asks for."""
    highest: dict[str, int] = {}
    for each in wanted:
        highest[each.topic_filter] = max(each.qos, highest.get(each.topic_filter, 0))
    return [Subscription(topic_filter, qos) for topic_filter, qos in highest.items()]
