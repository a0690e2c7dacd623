"""How the suite is spread over processes: a file's tests stay together, since they share brokers.

All of Spark's tests stay together, too: they share a session that takes long to start.
"""

from __future__ import annotations

from xdist.scheduler import LoadScopeScheduling


class ByFile(LoadScopeScheduling):  # type: ignore[misc]  # xdist has no types
    """A file is what a process is given at a time."""

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        return "spark" if "tests/spark/" in file else file
