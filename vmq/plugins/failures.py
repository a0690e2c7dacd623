"""Who came with a wrong password lately: a user from an address, and an address.

A right password is never refused for it. A pair's next password is looked at later; an address comes after others
where clients wait. Both tables are bounded and forget.
"""

from hashlib import blake2b
from typing import Final, Generic, TypeVar

#: Wrong passwords of a pair that cost nothing: people mistype.
FREE: Final = 3
#: Seconds that the next one costs; each further one twice as much.
FIRST_DELAY: Final = 0.5
#: Seconds without a wrong password after which a pair, or an address, is as good as new.
FORGET: Final = 300.0
#: Pairs, and addresses, that are remembered.
REMEMBER: Final = 100_000

Key = TypeVar("Key", bytes, str)


class FailureCount:
    """How often, and when last."""

    __slots__ = ("at", "count")

    def __init__(self) -> None:
        self.count = 0
        self.at = 0.0


class FailureTable(Generic[Key]):
    """Failures by key; the older half is forgotten when there are too many."""

    def __init__(self, remember: int) -> None:
        self._half = max(1, remember // 2)
        self._young: dict[Key, FailureCount] = {}
        self._old: dict[Key, FailureCount] = {}

    def __len__(self) -> int:
        return len(self._young) + len(self._old)

    def find(self, key: Key, now: float) -> FailureCount | None:
        """What is remembered of a key."""
        found = self._young.get(key) or self._old.get(key)
        return None if found is None or now - found.at > FORGET else found

    def count(self, key: Key, now: float) -> None:
        """One more."""
        found = self.find(key, now) or FailureCount()
        found.count += 1
        found.at = now
        self._old.pop(key, None)
        if key not in self._young and len(self._young) >= self._half:
            self._old = self._young
            self._young = {}
        self._young[key] = found

    def forget(self, key: Key) -> None:
        """All is forgiven."""
        self._young.pop(key, None)
        self._old.pop(key, None)


class Failures:
    """Wrong passwords of the last minutes."""

    def __init__(self, remember: int = REMEMBER) -> None:
        self.pairs: FailureTable[bytes] = FailureTable(remember)
        self.networks: FailureTable[str] = FailureTable(remember)

    def delay(self, network: str, user: str | None, longest: float, now: float) -> float:
        """Seconds until a password of this user from this network is to be looked at."""
        if not self.pairs:
            return 0.0
        failed = self.pairs.find(_pair(network, user), now)
        if failed is None or failed.count < FREE:
            return 0.0
        delay = min(longest, FIRST_DELAY * 2.0 ** min(failed.count - FREE, 30))
        return max(0.0, failed.at + delay - now)

    def of(self, network: str, now: float) -> int:
        """Wrong passwords from a network."""
        failed = self.networks.find(network, now)
        return 0 if failed is None else failed.count

    def wrong(self, network: str, user: str | None, now: float) -> None:
        """A wrong password, or a user that there is not."""
        self.networks.count(network, now)
        self.pairs.count(_pair(network, user), now)

    def given_up(self, network: str, user: str | None, now: float) -> None:
        """Who went away before the verdict may have learnt something from its delay."""
        self.pairs.count(_pair(network, user), now)

    def right(self, network: str, user: str | None) -> None:
        """A right password."""
        self.pairs.forget(_pair(network, user))


def _pair(network: str, user: str | None) -> bytes:
    """A user name may be 64 KiB long; what stands for it is not."""
    return blake2b(f"{network}\0{user or ''}".encode(), digest_size=16).digest()
