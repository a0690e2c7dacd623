"""Messages for other nodes that none of them will get: counted, and told to plugins."""

from functools import partial
from typing import Final

from vmq_hooks.types import DropReason, SubscriberId
from vmq_hooks.types import Message as SeenMessage

from vmq.clustering.messages.codec import AnyMessage
from vmq.clustering.messages.publishes import RemotePublish
from vmq.core.context import Core

# The reasons of on_message_drop.
BUFFER_FULL: Final = "cluster_buffer_full"
NODE_REMOVED: Final = "cluster_node_removed"


class Dropped:
    """What was dropped since the start."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self.messages = 0
        self.bytes = 0

    def add(self, peer: str, messages: list[AnyMessage], size: int, reason: DropReason) -> None:
        """Some messages for a peer, and their bytes."""
        self.messages += len(messages)
        self.bytes += size
        hook = self._core.hooks.on_message_drop
        if hook is None:
            return
        for each in messages:
            if not isinstance(each, RemotePublish):
                continue
            # The subscriber is the node: who of its clients misses the message only that one knows.
            subscriber = SubscriberId(client_id=peer, mountpoint=each.mountpoint)
            self._core.tell("on_message_drop", hook, subscriber, partial(_seen, each), reason)


def _seen(message: RemotePublish) -> SeenMessage:
    return SeenMessage(message.topic.decode(), message.payload, message.qos, message.retain)
