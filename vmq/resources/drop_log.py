"""Tells in the log what subscribers lost by policy: once a minute, by client and reason."""

import logging
from typing import Final

from vmq.core.context import Core
from vmq.core.losses import ClientLosses
from vmq.core.waiting import MEMORY_FULL, STORE_FULL
from vmq_cluster.ticks import sleep_to_tick

log = logging.getLogger("vmq.queue")

#: Seconds from one telling to the next, at least, and from a loss to the first.
EVERY: Final = 60.0
LOOK: Final = 1.0

#: Lines of one telling; the rest is summed up in one more.
LINES: Final = 20

#: Why room was wanted, and what gives it.
FOR_ROOM: Final = (STORE_FULL, MEMORY_FULL)
ADVICE: Final = (
    "; so that old messages and forgotten sessions take no room from what is wanted, set queue.max_age and "
    "session.persistent_client_expiration"
)


class DropLog:
    """Writes them. The first line of what the broker had no room for says what helps."""

    def __init__(self, core: Core) -> None:
        self.core = core
        self.told_at = -EVERY
        self.has_advised = False

    async def run(self) -> None:
        """Tells until cancelled: a first loss at once, further ones a minute later."""
        while True:
            await sleep_to_tick(LOOK)
            self.look()

    def look(self) -> None:
        """Tells if there is something, and the last time is long enough ago."""
        if self.core.losses.by_key and self.core.clock() - self.told_at >= EVERY:
            self.tell()

    def tell(self) -> None:
        """Tells what there is."""
        lost = self.core.losses.take()
        if not lost:
            return
        self.told_at = self.core.clock()
        for each in lost[:LINES]:
            self.tell_of(each)
        rest = lost[LINES:]
        if rest:
            log.warning(
                "dropped clients=%d more messages=%d bytes=%d",
                len(rest),
                sum(each.messages for each in rest),
                sum(each.bytes for each in rest),
            )

    def tell_of(self, lost: ClientLosses) -> None:
        """One line."""
        name = lost.client_id or "(others)"
        where = f" mountpoint={lost.mountpoint}" if lost.mountpoint else ""
        advice = ADVICE if lost.reason in FOR_ROOM and not self.has_advised else ""
        self.has_advised = self.has_advised or bool(advice)
        log.warning(
            "dropped client=%s%s reason=%s messages=%d bytes=%d%s",
            name,
            where,
            lost.reason,
            lost.messages,
            lost.bytes,
            advice,
        )
