"""How the suite is spread over processes: a file's tests stay together, since they share brokers.

Spark's tests stay together, too: they share a session that takes long to start.

One process takes the files whose tests start programs, which is where the time goes, the longest first; the others take
the rest, which only computes. So clusters of brokers do not compete with each other for the processors, and waiting for
them costs nothing. Who is done with its own helps the others: what is left by then is short.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController

#: Where tests start programs, in the order in which they are begun.
PROGRAMS: Final = (
    "tests/spark",
    "tests/cluster_processes",
    "tests/vmq/workers",
    "tests/crash",
    "tests/soak",
    "tests/limits",
    "tests/listeners",
    "tests/fuzz",
    "tests/vmq/cli",
    "tests/clients",
    "tests/conformance",
)


def place_of(scope: str) -> int:
    """The place of a scope among those with programs, which is beyond them for the others."""
    folders = [place for place, each in enumerate(PROGRAMS) if scope.startswith(each)]
    return folders[0] if folders else len(PROGRAMS)


def next_of(scopes: Collection[str], *, programs: bool) -> str:
    """What is begun next, of scopes that are otherwise in order: one with programs or one without, if there is any."""
    wanted = [each for each in scopes if (place_of(each) < len(PROGRAMS)) == programs]
    return min(wanted or scopes, key=place_of)


class ByFile(LoadScopeScheduling):  # type: ignore[misc]  # xdist has no types
    """A file is what a process is given at a time."""

    def _split_scope(self, nodeid: str) -> str:
        file = str(nodeid.partition("::")[0])
        shares_session = file.startswith("tests/spark/") and not file.endswith(OWN_SESSION)
        return "tests/spark" if shares_session else file

    def _assign_work_unit(self, node: WorkerController) -> None:
        scope = next_of(self.workqueue, programs=node is self.nodes[0])
        self.workqueue.move_to_end(scope, last=False)
        super()._assign_work_unit(node)


#: Of Spark's tests those that start applications instead of sharing the session.
OWN_SESSION: Final = ("test_demo.py", "test_exactly_once.py")
