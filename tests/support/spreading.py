"""How the suite is spread over processes: a file's tests stay together, since they share brokers.

Spark's tests stay together, too, and those of the clients: they share a session, and programs, that take long to start.
Those of the simulator share nothing.

The last process takes the files whose tests only compute; the others take those that start programs, which wait more
than they compute. So the processors have work all the time, however many tests wait. Who is done helps the others, and
what takes longest is begun first: in the end nobody waits long for the last.
"""

from collections.abc import Collection
from typing import Final

#: Of Spark's tests those that start applications of their own instead of sharing the session.
APPLICATIONS: Final = ("tests/spark/test_demo.py", "tests/spark/test_exactly_once.py")
#: Folders whose tests share what they start.
TOGETHER: Final = ("tests/spark/", "tests/clients/")
#: Where tests start programs, in the order in which they are begun: not all of Spark's at the same time, and those of
#: clusters, which wait most of the time, before the others, which keep the processors busy to the end.
PROGRAMS: Final = (
    "tests/crash/",
    "tests/cluster_processes/",
    "tests/spark/",
    *APPLICATIONS,
    "tests/vmq/clustering/",
    "tests/vmq/jobs/sharing/",
    "tests/vmq/workers/",
    "tests/soak/",
    "tests/limits/",
    "tests/attacks/",
    "tests/listeners/",
    "tests/fuzz/",
    "tests/conformance/",
    "tests/clients/",
    "tests/vmq/cli/",
    "tests/page/",
    "tests/docs/",
    "tests/vmq/streams/",
)
#: Of what computes, what takes longest.
LONGEST: Final = ("tests/vmq/test_flows.py", "tests/simulator/")


def scope_of(test: str) -> str:
    """What is given to a process as a whole, and a test belongs to."""
    file = test.partition("::")[0]
    if file.startswith("tests/simulator/"):
        return test
    if file in APPLICATIONS:
        return file
    return next((each for each in TOGETHER if file.startswith(each)), file)


def next_of(scopes: Collection[str], *, programs: bool) -> str:
    """The scope to begin next, one with programs or one without, as long as there is any; otherwise in order."""
    wanted = [each for each in scopes if each.startswith(PROGRAMS) == programs]
    return min(wanted or scopes, key=_place_of)


def _place_of(scope: str) -> int:
    order = (*LONGEST, *PROGRAMS)
    found = [(len(each), at) for at, each in enumerate(order) if scope.startswith(each)]
    return max(found)[1] if found else len(order)
