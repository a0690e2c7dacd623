"""QoS 2 over a session of which MQTT 3.1 does not say whether the far broker still has it."""

from hashlib import blake2b

from vmq_hooks import BridgeSession

from vmq_bridge.packets import Publish


class Earlier:
    """What our broker remembers from earlier connections: the packet ids of messages at QoS 2 from there.

    It takes a message under such an id for one that comes again. If the far broker has lost its session, the id may
    stand for another message by now, and that must not be lost.
    """

    def __init__(self) -> None:
        self._ids: set[int] = set()
        #: Of what came in this process, and was not released.
        self._digests: dict[int, bytes] = {}

    async def begin(self, local: BridgeSession) -> None:
        """A connection begins. Raises ConnectionError: our broker has ended the session."""
        self._ids = set(await local.remembered())
        self._digests = {each: self._digests[each] for each in self._ids & self._digests.keys()}

    async def admit(self, local: BridgeSession, found: Publish) -> None:
        """Has our broker forget an id that stands for another message than the one that it remembers.

        Raises:
            ConnectionError: our broker has ended the session.
        """
        digest = blake2b(found.topic.encode() + b"\0" + found.payload, digest_size=16).digest()
        if found.packet_id in self._ids:
            # DUP 0: the far broker has not sent this message before (3.1.1, section 3.3.1.1). DUP 1 says nothing of
            # whether it has come before, so its content must: mosquitto, too, goes by that.
            is_same = found.dup and self._digests.get(found.packet_id, digest) == digest
            if not is_same:
                await local.release(found.packet_id)
            self._ids.discard(found.packet_id)
        self._digests[found.packet_id] = digest

    def released(self, packet_id: int) -> None:
        """PUBREL came, and our broker has forgotten the id."""
        self._ids.discard(packet_id)
        self._digests.pop(packet_id, None)
