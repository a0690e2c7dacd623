"""What plugins, counters and the log are told of messages and sessions in slots of this node.

Who owns a slot tells what its queues lose and keep; the node of a client's connection tells what it has acknowledged.
"""

import logging
from functools import partial
from typing import Final

from vmq_hooks.types import Message as SeenMessage
from vmq_hooks.types import SubscriberId

from vmq.clustering.slots.effects import Effects
from vmq.clustering.slots.queued import StoredMessage
from vmq.clustering.slots.subscribers import EXPIRED
from vmq.clustering.slots.words import ONLY, split_scope
from vmq.core.context import Core

log = logging.getLogger("vmq.cluster")


class SlotNews:
    """What became of messages and sessions in the slots of one node.

    Args:
        core: the broker's.
    """

    def __init__(self, core: Core) -> None:
        self._core: Final = core

    def tell(self, effects: Effects) -> None:
        """Tells what has happened in a turn."""
        core, hooks = self._core, self._core.hooks
        dropped, effects.dropped = effects.dropped, []
        for client_id, reason, message, qos in dropped:
            core.counters.queue_message_drop += 1
            core.counters.queue_message_expired += reason == EXPIRED
            who = _who(client_id)
            core.losses.add(who.mountpoint, who.client_id, reason, len(message.payload))
            load = partial(_seen, message, qos)
            core.tell("on_message_drop", hooks.on_message_drop, who, load, reason)
        kept, effects.kept = effects.kept, []
        for client_id, message, qos in kept:
            seen = _seen(message, qos)
            core.tell("on_offline_message", hooks.on_offline_message, _who(client_id), seen)
        expired, effects.expired = effects.expired, []
        for client_id in expired:
            core.counters.client_expired += 1
            core.tell("on_session_expired", hooks.on_session_expired, _who(client_id))
        unread, effects.unread = effects.unread, []
        for client_id, reason in unread:
            _, name = split_scope(client_id)
            if reason:
                text = "what waits for client=%s cannot be read, and is tried again: %s"
                log.error(text, name, reason)
            else:
                log.warning("what waits for client=%s can be read again", name)


def _who(client_id: str) -> SubscriberId:
    scope, client_id = split_scope(client_id)
    return SubscriberId(client_id, scope[1:-1])


def _seen(message: StoredMessage, qos: int) -> SeenMessage:
    is_retained = message.retain and message.group.startswith(ONLY)
    return SeenMessage(message.topic.decode(), message.payload, qos, is_retained)
