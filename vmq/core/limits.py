"""Limits on what one client may do: rates, and clients that come and go too often."""


class RateLimit:
    """A token bucket that may go into debt.

    What a read brought is always handled whole; the debt says for how long reading then pauses.
    """

    def __init__(self, rate: float, now: float) -> None:
        """`rate` is a second's worth; a client that was silent may spend that at once."""
        self.rate = rate
        self.tokens = rate
        self.updated = now

    def spend(self, amount: float, now: float) -> float:
        """Takes `amount` and returns the seconds until there is something again (0: go on)."""
        tokens = self.tokens + (now - self.updated) * self.rate
        self.updated = now
        tokens = min(tokens, self.rate)
        tokens -= amount
        self.tokens = tokens
        return 0.0 if tokens >= 0 else -tokens / self.rate


class Visits:
    """How often a client id connected in the present window, and until when it is banned."""

    def __init__(self, since: float) -> None:
        self.since = since
        self.count: int = 0
        self.banned_until: float = 0.0


class Flapping:
    """Bans clients that connect more than `limit` times within `window` seconds for `ban` seconds.

    Remembers a bounded number of them: the oldest half is forgotten when there are too many.
    """

    def __init__(self, limit: int, window: float, ban: float, remember: int = 100_000) -> None:
        self.limit = limit
        self.window = window
        self.ban = ban
        self.half = max(1, remember // 2)
        self.young: dict[str, Visits] = {}
        self.old: dict[str, Visits] = {}

    def is_banned(self, client_id: str, now: float) -> bool:
        """Counts a connect; whether it is refused."""
        if self.limit <= 0:
            return False
        visits = self.young.get(client_id)
        if visits is None:
            visits = self.old.get(client_id)
            if visits is None:
                visits = Visits(now)
            if len(self.young) >= self.half:
                self.old = self.young
                self.young = {}
            self.young[client_id] = visits
        if now < visits.banned_until:
            return True
        if now - visits.since > self.window:
            visits.since = now
            visits.count = 0
        visits.count += 1
        if visits.count > self.limit:
            visits.banned_until = now + self.ban
            visits.since = now + self.ban
            visits.count = 0
            return True
        return False
