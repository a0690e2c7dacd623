"""Publishes on their way to another node."""

from typing import Annotated, Final

from msgspec import Meta

from vmq.clustering.messages.base import NodeMessage
from vmq.mqtt.packets import ProtocolError
from vmq.mqtt.runs import is_run
from vmq.mqtt.topics import decode_topic_name, split_shared

#: In the flags.
QOS: Final = 3
RETAIN: Final = 4

#: Topics that were checked, so many and so long at most: to look one up costs less than to check it again.
_MOST_KEPT: Final = 4096
_LONGEST_KEPT: Final = 256
_topics: Final[set[bytes]] = set()

#: After so many nodes without a member there is none to be found.
MAX_HOPS: Final = 8

Topic = Annotated[bytes, Meta(min_length=1, max_length=65_535)]
Mountpoint = Annotated[str, Meta(max_length=255)]


class RemotePublish(NodeMessage, frozen=True, tag=1, gc=False):
    """One application message for one node.

    With a `group`, the whole `$share/name/filter`, it is for one member of that; else for every subscriber there that
    is in no group.
    """

    topic: Topic
    payload: bytes
    flags: Annotated[int, Meta(ge=0, le=RETAIN | 2)]
    mountpoint: Mountpoint = ""
    group: Annotated[str, Meta(max_length=65_535)] = ""
    #: How many nodes had no member of the group any more when it came to them.
    hops: Annotated[int, Meta(ge=0, le=MAX_HOPS)] = 0

    @property
    def qos(self) -> int:
        return self.flags & QOS

    @property
    def retain(self) -> bool:
        return self.flags & RETAIN != 0

    def check(self) -> None:
        """Refuses what no client could have published."""
        if self.topic not in _topics:
            check_topic(self.topic)
        if self.flags & QOS == QOS:
            raise ValueError("QoS 3")
        if self.group and not split_shared(self.group)[0]:
            raise ValueError("its group is none")


class RemotePublishRun(NodeMessage, frozen=True, tag=2, gc=False):
    """Publishes at QoS 0 without RETAIN on one topic: so many packets, just as the publisher sent them."""

    topic: Topic
    frames: bytes
    count: Annotated[int, Meta(ge=1)]
    mountpoint: Mountpoint = ""

    def check(self) -> None:
        """Refuses what no client could have published, or not in one run."""
        topic = self.topic
        if topic not in _topics:
            check_topic(topic)
        if not is_run(self.frames, topic, self.count):
            raise ValueError("its packets are no run of so many")


def flags_of(qos: int, retain: bool) -> int:
    """QoS and RETAIN in one number."""
    return qos | RETAIN if retain else qos


def check_topic(topic: bytes) -> None:
    """Refuses what is no topic of a message, as `NodeMessage.check` does."""
    if topic in _topics:
        return
    try:
        decode_topic_name(topic)
    except ProtocolError as error:
        raise ValueError(f"its topic is none: {error}") from None
    if len(topic) <= _LONGEST_KEPT:
        if len(_topics) >= _MOST_KEPT:
            _topics.clear()
        _topics.add(topic)
