"""What subscribers lost by policy, by client and reason, until the log has told it."""

from typing import Final

#: Clients and reasons told apart between two tellings; what is beyond counts as one.
MOST: Final = 10_000


class ClientLosses:
    """What one client lost for one reason; an empty client id stands for all that are not told apart."""

    def __init__(self, mountpoint: str, client_id: str, reason: str) -> None:
        self.mountpoint = mountpoint
        self.client_id = client_id
        self.reason = reason
        self.messages: int = 0
        self.bytes: int = 0


class Losses:
    """What was lost since it was told last."""

    def __init__(self) -> None:
        self.by_key: dict[tuple[str, str, str], ClientLosses] = {}

    def add(self, mountpoint: str, client_id: str, reason: str, size: int) -> None:
        """A client lost a message with a payload of so many bytes."""
        key = (mountpoint, client_id, reason)
        lost = self.by_key.get(key)
        if lost is None:
            if len(self.by_key) >= MOST:
                key = ("", "", reason)
                lost = self.by_key.get(key)
            if lost is None:
                lost = ClientLosses(key[0], key[1], reason)
                self.by_key[key] = lost
        lost.messages += 1
        lost.bytes += size

    def take(self) -> list[ClientLosses]:
        """All of it, who lost most messages first; from here on it counts as told."""
        found = sorted(self.by_key.values(), key=lambda each: -each.messages)
        self.by_key.clear()
        return found
