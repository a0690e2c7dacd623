"""A message that is published later, as it is kept in the body of a job."""

from contextlib import suppress
from typing import Final

import msgspec

from vmq.mqtt.message import Message, Sourced

#: The queue in which delayed messages wait, one a mountpoint.
QUEUE: Final = "$delayed"
_VERSION: Final = 1


class _DelayedRecord(msgspec.Struct, array_like=True, frozen=True):
    version: int
    topic: str
    payload: bytes
    qos: int
    retain: bool
    client_id: str
    user: str | None
    is_ours: bool = False


class Kept:
    """A message with who published it, who is asked about again when it is due; `is_ours`: the broker did."""

    def __init__(
        self,
        topic: str,
        message: Message,
        client_id: str,
        user: str | None,
        is_ours: bool = False,
    ) -> None:
        self.topic = topic
        self.payload = message.payload
        self.qos = message.qos
        self.retain = message.retain
        self.client_id = client_id
        self.user = user
        self.is_ours = is_ours

    def encode(self) -> bytes:
        """The body of the job."""
        return msgspec.msgpack.encode(
            _DelayedRecord(
                *(_VERSION, self.topic, self.payload, self.qos, self.retain),
                *(self.client_id, self.user, self.is_ours),
            )
        )

    def message(self) -> Message:
        """As it is published."""
        topic = self.topic.encode()
        if self.retain:
            return Sourced(topic, self.payload, self.qos, True, self.client_id, self.user)
        return Message(topic, self.payload, self.qos, False)


def decode(body: bytes) -> Kept:
    """A message from the body of its job.

    Raises:
        ValueError: it is none.
    """
    try:
        found = msgspec.msgpack.decode(body, type=_DelayedRecord)
    except msgspec.DecodeError as error:
        raise ValueError(f"no delayed message: {error}") from None
    if found.version != _VERSION:
        raise ValueError(f"a delayed message of version {found.version}")
    message = Message(b"", found.payload, found.qos, found.retain)
    return Kept(found.topic, message, found.client_id, found.user, found.is_ours)


def content_of(queue: str, body: bytes) -> tuple[str, bytes]:
    """What people see of a job: the topic and the payload of a delayed message, of another no topic and its body."""
    if queue.removesuffix("!dead") == QUEUE:
        with suppress(ValueError):
            kept = decode(body)
            return kept.topic, kept.payload
    return "", body
