"""A publish on its way to another node."""

from typing import Annotated, Final

from msgspec import Meta

from vmq.clustering.message import Message
from vmq.mqtt.packets import ProtocolError
from vmq.mqtt.topics import decode_topic_name, split_shared

_QOS: Final = 3
_RETAIN: Final = 4


class Publish(Message, frozen=True, tag=1):
    """One application message for one node.

    With a `group`, the whole `$share/name/filter`, it is for one member of that; else for every subscriber there that
    is in no group.
    """

    topic: Annotated[bytes, Meta(min_length=1, max_length=65_535)]
    payload: bytes
    flags: Annotated[int, Meta(ge=0, le=_RETAIN | 2)]
    mountpoint: Annotated[str, Meta(max_length=255)] = ""
    group: Annotated[str, Meta(max_length=65_535)] = ""

    @property
    def qos(self) -> int:
        return self.flags & _QOS

    @property
    def retain(self) -> bool:
        return self.flags & _RETAIN != 0

    def check(self) -> None:
        """Refuses what no client could have published."""
        try:
            decode_topic_name(self.topic)
        except ProtocolError as error:
            raise ValueError(f"its topic is none: {error}") from None
        if self.qos == _QOS:
            raise ValueError("QoS 3")
        if self.group and not split_shared(self.group)[0]:
            raise ValueError("its group is none")


def flags_of(qos: int, retain: bool) -> int:
    """QoS and RETAIN in one number."""
    return qos | _RETAIN if retain else qos
