"""What may wait for a client and be under way to it, and how it is sent: as configured, or as a plugin has decided."""

from copy import copy
from typing import Final

from vmq.clustering.messages.fronts import SessionLimits

#: Sets of limits that are remembered.
_MOST: Final = 4096
_NAMES: Final = ("window", "online", "offline", "newest_first", "upgrades")


class QueueLimits:
    """The limits of one client's queue; -1 is no limit."""

    def __init__(self, window: int = 20) -> None:
        #: Messages under way to it, and bytes of them but for one message.
        self.window = window
        self.window_bytes = -1
        #: Messages while it is connected, and while it is not; bytes of them.
        self.online = -1
        self.offline = -1
        self.bytes = -1
        #: The oldest goes where there is no room, not the newest.
        self.drops_oldest = False
        #: A full queue of a connected client takes what comes, and its publisher waits for room.
        self.pauses = False
        #: What came last is sent first.
        self.newest_first = False
        #: It gets messages at the QoS granted, those of a lower one too.
        self.upgrades = False
        #: Of the members of a share group those are chosen first that are connected where a message was published.
        self.prefers_near = False
        #: Milliseconds that a message waits, and that a session is without a connection; 0 is for ever.
        self.age = 0
        self.expiry = 0

    def qos(self, granted: int, published: int) -> int:
        """At which a client gets a message."""
        return granted if self.upgrades else min(granted, published)


class Limits:
    """The limits of all clients: those of the broker, and what differs for some sessions."""

    def __init__(self, window: int = 20) -> None:
        self.all = QueueLimits(window)
        self._own: dict[SessionLimits, QueueLimits] = {}

    def set(self, limits: QueueLimits) -> None:
        """Those of the broker are others."""
        self.all = limits
        self._own.clear()

    def of(self, own: SessionLimits | None) -> QueueLimits:
        """The limits of a session for which a plugin has decided this."""
        if own is None:
            return self.all
        found = self._own.get(own)
        if found is None:
            if len(self._own) >= _MOST:
                self._own.clear()
            found = self._own[own] = copy(self.all)
            for name in _NAMES:
                value = getattr(own, name)
                if value is not None:
                    setattr(found, name, value)
        return found
