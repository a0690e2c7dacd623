"""A message as the broker holds it, and one delivery of it to one subscriber."""

from mypy_extensions import i16, i32, i64, mypyc_attr

from vmq.mqtt.encoder import publish_head


# Holds bytes and numbers only: not being tracked keeps queues of many messages out of the garbage
# collector's way.
@mypyc_attr(acyclic=True)
class Message:
    """An application message. Its parts never change; many queues may hold the same object.

    `share` says that several stored queues may get it, so that it deserves a record of its own;
    `ref` is the number of that record (0: none).
    """

    def __init__(self, topic: bytes, payload: bytes, qos: int, retain: bool) -> None:
        self.topic = topic
        self.payload = payload
        self.ref: int = 0
        self.whole: bytes | None = None
        #: What `head` gave last.
        self.cut: bytes | None = None
        # Side by side, they share a word, with what comes first in a message that has a source.
        self.qos: i16 = qos
        self.retain = retain
        self.share = False

    def length(self) -> i64:
        """Bytes of its topic and its payload."""
        topic: i64 = len(self.topic)
        payload: i64 = len(self.payload)
        return topic + payload

    def frame(self) -> bytes:
        """The whole PUBLISH at QoS 0 with RETAIN 0, built once however many subscribers get it."""
        whole = self.whole
        if whole is None:
            topic = self.topic
            whole = publish_head(topic, len(self.payload), 0, False, False) + self.payload
            self.whole = whole
        return whole

    def head(self, qos: int) -> bytes:
        """The PUBLISH at QoS 1 or 2 up to its packet id, with RETAIN 0 and DUP 0; built once."""
        cut = self.cut
        if cut is None or cut[0] >> 1 & 3 != qos:
            cut = publish_head(self.topic, len(self.payload), qos, False, False)
            self.cut = cut
        return cut


@mypyc_attr(acyclic=True)
class Sourced(Message):
    """A message that is to be retained, with the client and the user who published it.

    `judged` is the generation of the hooks at which these might still publish it, until `judged_until` by the core's
    clock (-1: nobody was asked, or the verdict may not be kept).
    """

    def __init__(
        self, topic: bytes, payload: bytes, qos: int, retain: bool, client_id: str, user: str | None
    ) -> None:
        super().__init__(topic, payload, qos, retain)
        self.judged: i32 = -1
        self.client_id = client_id
        self.user = user
        self.judged_until: float = 0.0

    def is_of(self, other: Message) -> bool:
        """Whether another message has the same source."""
        return (
            isinstance(other, Sourced)
            and self.client_id == other.client_id
            and self.user == other.user
        )


NO_MESSAGE = Message(b"", b"", 0, False)


@mypyc_attr(acyclic=True)
class Delivery:
    """One message on its way to one subscriber.

    `qos` and `retain` are those of this delivery. `seq` is its place among those that wait in the store, `order`
    its place among those that are sent (0: it has none there), `packet_id` is 0 until it is sent, `turn` its place
    in the order of the inflight window. `released` means that PUBREC came and PUBREL was sent: the message itself
    is no longer needed then. `ref` is the number of the message's record, if its stored entry names one instead of
    holding the message. `key` is that of its stored entry, `weight` what it has on disk, in bytes: its entry, and
    the message's record. `since` is when it began to wait there, by `Core.waits_now` (0: it did not). `group` is the
    shared subscription that chose this subscriber ("" if none did). `sent_at` is kept only when `retry_interval` is
    on.
    """

    def __init__(self, message: Message, qos: int, retain: bool, group: str) -> None:
        self.message = message
        self.qos = qos
        self.group = group
        self.seq: int = 0
        self.order: int = 0
        self.ref: int = 0
        self.key = b""
        self.weight: int = 0
        self.since: int = 0
        self.packet_id: i64 = 0
        self.turn: i64 = 0
        self.sent_at: float = 0.0
        # Side by side, they share a word.
        self.retain = retain
        self.released = False

    def content(self) -> Message:
        """What is in it, for people."""
        return self.message


@mypyc_attr(acyclic=True)
class Transient(Delivery):
    """A delivery that is no session state: a job, a row of a stream.

    It leaves the window with the connection, and belongs to others then. `token` is whose job it is.
    """

    def __init__(self, message: Message, token: bytes) -> None:
        super().__init__(message, 1, False, "")
        self.token = token

    def length(self) -> i64:
        """The bytes that it counts in flight."""
        return self.message.length()

    def settle(self) -> bool:
        """The client has acknowledged it; False: the jobs are to be told."""
        return False
