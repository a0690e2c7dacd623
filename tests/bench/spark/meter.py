"""The CPU of a tree of processes, of those too that end meanwhile."""

from __future__ import annotations

import threading

import psutil

#: Seconds between two looks. What a process spends after the last one, and before it ends, is not seen.
EVERY = 0.5


class Meter:
    """Counts what all that this process starts, and their children, spend; use it in a `with`.

    Spark's daemons let their workers go unheeded, so no parent's account has what those have spent.
    """

    def __init__(self) -> None:
        self.me = psutil.Process()
        self.spent: dict[psutil.Process, float] = {}
        self.lock = threading.Lock()
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self.watch)

    def __enter__(self) -> Meter:
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.ended.set()
        self.thread.join()

    def watch(self) -> None:
        """Looks until the end."""
        while not self.ended.wait(EVERY):
            self.core_seconds()

    def core_seconds(self) -> float:
        with self.lock:
            for process in self.me.children(recursive=True):
                try:
                    times = process.cpu_times()
                except psutil.NoSuchProcess:
                    continue
                self.spent[process] = times.user + times.system
            return sum(self.spent.values())
