"""The messages of a topic filter on their way through a mapping: called by every publish, as a stream is.

What a mapping sends on is part of the publish: its acknowledgement waits until that is as safe as a job is.
"""

from secrets import randbits

from vmq.config.mappings import MAPPED
from vmq.core.output import Output
from vmq.disk.durable import Durable
from vmq.jobs.mappings.mapping import MessageMapping, Seen
from vmq.jobs.mappings.sending import MappingSender, NotNowError
from vmq.mqtt.special import MAPPING_ROW

#: For a message that is not taken: it must not be acknowledged.
REFUSED = -1


class MappingTap:
    """Where publishes of matching topics come by.

    Args:
        mapping: the mapping.
        sender: adds and publishes what comes out.
        mountpoint: the topic tree.
    """

    def __init__(self, mapping: MessageMapping, sender: MappingSender, mountpoint: str) -> None:
        self.mapping = mapping
        self.sender = sender
        self.mountpoint = mountpoint
        self.name = MAPPED + mapping.name

    def append(
        self,
        topic: bytes,
        payload: bytes,
        qos: int,
        retain: bool,
        client_id: str,
        time: int,
        publisher: Output | None = None,
    ) -> int:
        """Maps one message; what an acknowledgement has to wait for, by `safe_of`; 0: nothing, or `REFUSED`."""
        seen = Seen(topic.decode(), payload, qos, retain, client_id, time / 1e6)
        try:
            return self.sender.send(self.mapping, seen, self.mountpoint, publisher)
        except NotNowError:
            return self.refuse(qos, 1)

    def append_run(
        self,
        topic: bytes,
        payloads: list[bytes],
        qos: int,
        retain: bool,
        client_id: str,
        time: int,
        publisher: Output | None = None,
    ) -> int:
        """Maps many messages of one client and topic."""
        for payload in payloads:
            self.append(topic, payload, qos, retain, client_id, time, publisher)
        return 0

    def has_room(self, _topic: bytes, _payload: bytes, _client_id: str) -> bool:
        """Whether a message can be sent on now."""
        return self.sender.has_room()

    def reserve(self, _topic: bytes, _payload: bytes, _client_id: str) -> tuple[str, int] | None:
        """A name and a number by which `Mappings.hand_in` maps the next message; None: `append` it, it is refused."""
        return (
            (MAPPING_ROW + self.mapping.name, randbits(62)) if self.has_room(b"", b"", "") else None
        )

    def safe_of(self, _topic: bytes, _client_id: str) -> Durable:
        """How far what it sent on is safe."""
        return self.sender.commit.stored

    def refuse(self, _qos: int, count: int) -> int:
        """Counts messages that are not taken."""
        self.mapping.failed += count
        return REFUSED
