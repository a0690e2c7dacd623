"""The memory high-watermark: above it no new clients, and publishers are not read."""

import asyncio
import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

from vmq.core import Core
from vmq.process import resident_bytes

log = logging.getLogger("vmq.memory")

#: Seconds between two looks.
INTERVAL: Final = 1.0

#: The share of the limit below which the broker goes on, so that it does not flutter.
LOW_WATER: Final = 0.9


def machine_bytes() -> int:
    """The memory of the machine, or of the container if that has less."""
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    try:
        limit = Path("/sys/fs/cgroup/memory.max").read_text(encoding="ascii").strip()
    except OSError:
        return total
    return min(total, int(limit)) if limit.isdigit() else total


def default_limit() -> int:
    """Four fifths of the machine."""
    return machine_bytes() * 4 // 5


class MemoryWatch:
    """Compares the process with a limit in bytes (0: four fifths of the machine, -1: none)."""

    def __init__(self, core: Core, limit: int, measure: Callable[[], int] = resident_bytes) -> None:
        self.core = core
        self.measure = measure
        self.limit = 0
        self.set_limit(limit)

    def set_limit(self, limit: int) -> None:
        """Compares with another limit from the next look on."""
        self.limit = limit or default_limit()

    async def run(self) -> None:
        """Looks every second."""
        while True:
            self.look()
            await asyncio.sleep(INTERVAL)

    def look(self) -> None:
        """Raises or ends the alarm."""
        core = self.core
        if self.limit < 0 and not core.memory_is_high:
            return
        used = self.measure()
        if not core.memory_is_high and used > self.limit:
            core.memory_is_high = True
            log.error(
                "memory is high: %d of %d bytes (limits.max_memory); "
                "new clients are refused, publishers wait",
                used,
                self.limit,
            )
        elif core.memory_is_high and (self.limit < 0 or used < self.limit * LOW_WATER):
            core.memory_is_high = False
            core.resume_all(core.waiting_for_memory)
            log.warning("memory is back to %d of %d bytes", used, self.limit)
