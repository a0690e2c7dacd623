"""The thread that tidies streams: retention, merging, and bringing to disk what durability "os" left to the kernel."""

import logging
import threading
from collections.abc import Callable, Iterable
from typing import Final

from vmq.streams.log.errors import DamagedError, StreamError
from vmq.streams.log.merging import join, merge
from vmq.streams.log.partition import Partition

log = logging.getLogger("vmq.streams")

#: Seconds between two rounds; a sealed segment or a full disk begins one at once.
EVERY: Final = 30.0


class Janitor:
    """Tidies the partitions that there are, round after round."""

    def __init__(self, partitions: Callable[[], Iterable[Partition]]) -> None:
        self.partitions = partitions
        self.wanted = threading.Event()
        self.stopping = False
        self.thread = threading.Thread(target=self.run, name="vmq-streams-tidy", daemon=True)

    def start(self) -> None:
        """Starts the thread."""
        self.thread.start()

    def stop(self) -> None:
        """Ends the thread after the segment that it is at."""
        self.stopping = True
        self.wanted.set()
        if self.thread.ident is not None:
            self.thread.join()

    def run(self) -> None:
        """The thread."""
        while not self.stopping:
            self.wanted.wait(EVERY)
            self.wanted.clear()
            self.tidy()

    def tidy(self) -> None:
        """One round."""
        for partition in list(self.partitions()):
            try:
                for each in partition.retain():
                    log.info("deleted %s by the retention", each.path)
                partition.sync_behind()
                while partition.unmerged and not (self.stopping or partition.gone):
                    merge(partition, partition.unmerged.pop())
                if not (self.stopping or partition.gone or partition.is_replica):
                    join(partition)
            except DamagedError as damage:
                partition.note(damage)
            except (OSError, StreamError) as error:
                # The segment stays as it is, and is taken up again after the next start.
                log.error("cannot tidy %s: %s", partition.folder, error)
