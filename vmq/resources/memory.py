"""The memory high-watermark: above it no new clients, publishers are not read, and the largest packets under way go."""

import logging
import os
from collections.abc import Callable, Iterable
from operator import itemgetter
from typing import Final

from vmq.core.context import NO_LIMIT, Core
from vmq.core.ports import MemoryPort
from vmq.protocol.connection import LARGE_CUT, Connection
from vmq.resources.cgroups import memory_limit
from vmq.runtime.process import give_back_memory, resident_bytes
from vmq_cluster.ticks import sleep_to_tick

log = logging.getLogger("vmq.memory")

#: Seconds between two looks.
INTERVAL: Final = 1.0

#: Looks until the machine's limits are read anew: those of a running container can be changed.
LOOKS_A_LIMIT: Final = 60

#: The share of the limit from which on each few MiB that come are followed by a look.
NEAR: Final = 0.7

#: The share of the limit below which the broker goes on, so that it does not flutter.
LOW_WATER: Final = 0.9

#: The share above which connections are ended at once; below it, those that were paused have one interval.
HARD_WATER: Final = 1.1

#: Bytes that may come before the next look even where no room is left: a look costs as much as a read.
LEAST_ROOM: Final = 4 * 1024 * 1024


def machine_bytes() -> int:
    """The memory of the machine, or what its container or systemd unit leaves the process if that is less."""
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    limit = memory_limit()
    return total if limit is None else min(total, limit)


def default_limit() -> int:
    """Four fifths of the machine."""
    return machine_bytes() * 4 // 5


class MemoryWatch(MemoryPort):
    """Compares the process with its part of a limit in bytes (0: four fifths of the machine, -1: none).

    Args:
        core: told whether memory is high.
        limit: the option.
        connections: those that may have to wait or to go.
        measure: resident bytes.
        sharers: the brokers that have the limit together now, this one included.
    """

    def __init__(
        self,
        core: Core,
        limit: int,
        connections: Callable[[], Iterable[Connection]] = tuple,
        measure: Callable[[], int] = resident_bytes,
        sharers: Callable[[], int] = lambda: 1,
    ) -> None:
        super().__init__()
        self.core = core
        self.measure = measure
        self.connections = connections
        self.sharers = sharers
        self.option = 0
        self.limit = 0
        #: How many brokers have the limit together, as far as is known.
        self.parts = 1
        #: When the alarm was raised, or connections were ended last.
        self.acted = 0.0
        self.set_limit(limit)
        core.memory = self
        #: Called at each look that finds more than `NEAR`: who can let go of something does so before the limit.
        self.near: Callable[[], object] = lambda: None
        #: Called at each look while the alarm lasts: who keeps something for others than `connections` lets go of it.
        self.high: Callable[[], object] = lambda: None

    def set_limit(self, limit: int) -> None:
        """Compares with another limit from the next look on."""
        machine = machine_bytes()
        if limit > machine:
            text = "limits.max_memory = %d is above the %d bytes of the machine or container: it protects nothing"
            log.warning(text, limit, machine)
        self.option = limit
        self.read_limit()

    def read_limit(self) -> None:
        """Finds this broker's part, of what is left where the option leaves it to the machine."""
        self.parts = self.sharers()
        self.limit = self.option
        if self.option >= 0:
            self.limit = max(1, (self.option or default_limit()) // self.parts)
        self.core.memory_limit = max(0, self.limit)
        self.core.memory_room = 0

    async def run(self) -> None:
        """Looks every second."""
        while True:
            for _ in range(LOOKS_A_LIMIT):
                self.look()
                await sleep_to_tick(INTERVAL)
            self.read_limit()

    def look(self) -> None:
        """Raises or ends the alarm, and makes room while it lasts."""
        core = self.core
        core.memory_grown = 0
        if self.sharers() != self.parts:
            self.read_limit()
        if self.limit < 0 and not core.memory_is_high:
            core.memory_room = NO_LIMIT
            return
        used = self.measure()
        if used > self.limit >= 0:
            give_back_memory()  # what was freed counts as resident until then
            used = self.measure()
        if core.memory_is_high:
            if self.limit < 0 or used < self.limit * LOW_WATER:
                self.end(used)
            else:
                self.make_room(used)
        elif used > self.limit:
            self.begin(used)
        if core.memory_is_high:
            self.high()
        if used > self.limit * NEAR:
            self.near()
        core.memory_room = max(int(self.limit * NEAR) - used, LEAST_ROOM)

    def begin(self, used: int) -> None:
        """Raises the alarm."""
        core = self.core
        core.memory_is_high = True
        self.acted = core.clock()
        log.error(
            "memory is high: %d of %d bytes (limits.max_memory); new clients are refused, and publishers wait, as do "
            "those of whose packets much is kept",
            used,
            self.limit,
        )
        for connection in self.connections():
            connection.hold_for_memory()
        core.outbox.flush()

    def end(self, used: int) -> None:
        """Ends the alarm."""
        self.core.end_memory_alarm()
        log.warning("memory is back to %d of %d bytes", used, self.limit)

    def make_room(self, used: int) -> None:
        """Ends the connections of which most is kept, if their waiting alone has not helped."""
        now = self.core.clock()
        if now - self.acted < INTERVAL and used < self.limit * HARD_WATER:
            return
        self.acted = now
        excess = used - int(self.limit * LOW_WATER)
        found = [(each.kept_bytes(), each) for each in self.connections() if not each.closing]
        helps = sum(size for size, _ in found) >= excess
        for size, connection in sorted(found, key=itemgetter(0), reverse=True):
            # Where all of them together are not what fills the memory, nobody goes for a few bytes.
            if excess <= 0 or not size or (size <= LARGE_CUT and not helps):
                break
            excess -= size
            self.core.counters.memory_ended += 1
            connection.close(
                f"memory is above max_memory, and {size} bytes of a packet that it sends are kept, more than of others"
            )
        self.core.outbox.flush()
        give_back_memory()
