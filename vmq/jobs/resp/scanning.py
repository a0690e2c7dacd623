"""QSCAN and JSCAN: queues and jobs, some at a time.

A cursor is the place in the order of making, so an iteration needs nothing of the broker and sees once what is there
from its beginning to its end. A call looks at a bounded number; it may give fewer than COUNT, or none, and a cursor.
With BUSYLOOP that is long enough that each is the last command of its pass.
"""

from typing import Final

from vmq.jobs.options import syntax_error, whole
from vmq.jobs.queue import STATE_NAMES, JobQueue
from vmq.jobs.resp.connection import RespConnection
from vmq.jobs.resp.replies import array, bulk, strings
from vmq.jobs.resp.shown import shown

#: What one call looks at; with BUSYLOOP, and gives with whole jobs.
_STEP: Final = 1000
_BUSY: Final = 10_000
_MOST_SHOWN: Final = 100
_DEFAULT: Final = 100
_MOST: Final = 1 << 62


class _Scan:
    """The options of a scan."""

    def __init__(self, argv: list[bytes]) -> None:
        self.cursor = 0
        self.count = _DEFAULT
        self.step = _STEP
        self.minlen = 0
        self.maxlen = _MOST
        self.queue = b""
        self.states: set[bytes] = set()
        self.shows_all = False
        at = 1
        if len(argv) > 1 and argv[1].isdigit():
            self.cursor = whole(argv[1], "ERR invalid cursor", 0, _MOST)
            at = 2
        while at < len(argv):
            at = self.take(argv, at)

    def take(self, argv: list[bytes], at: int) -> int:
        name = argv[at].upper()
        if name == b"BUSYLOOP":
            self.step = self.count = _BUSY
            return at + 1
        if at + 1 >= len(argv):
            raise syntax_error(argv[at])
        value = argv[at + 1]
        if name == b"COUNT":
            count = min(whole(value, "ERR COUNT must be a number > 0", 1, _MOST), _STEP)
            self.count = max(self.count, count) if self.step == _BUSY else count
        elif name == b"MINLEN":
            self.minlen = whole(value, "ERR MINLEN must be a number", 0, _MOST)
        elif name == b"MAXLEN":
            self.maxlen = whole(value, "ERR MAXLEN must be a number", 0, _MOST)
        elif name == b"IMPORTRATE":
            if whole(value, "ERR IMPORTRATE must be a number", 0, _MOST) > 0:
                self.maxlen = -1  # nothing is imported: there is one node
        elif name == b"QUEUE":
            self.queue = value
        elif name == b"STATE" and value.decode("latin-1") in STATE_NAMES:
            self.states.add(value)
        elif name == b"REPLY" and value.lower() in {b"all", b"id"}:
            self.shows_all = value.lower() == b"all"
        else:
            raise syntax_error(argv[at])
        return at + 2

    def has(self, queue: JobQueue) -> bool:
        return self.minlen <= queue.depth <= self.maxlen


def qscan(connection: RespConnection, argv: list[bytes]) -> bytes:
    """QSCAN [cursor] [COUNT n] [BUSYLOOP] [MINLEN n] [MAXLEN n] [IMPORTRATE n]: the names of queues."""
    scan = _Scan(argv)
    if not connection.may_inspect(argv):
        return b""
    connection.end_pass()
    prefix = connection.door.prefix
    seen = connection.machine.queues_after(scan.cursor, scan.step)
    names: list[bytes] = []
    cursor = 0
    for queue in seen:
        cursor = queue.number
        if queue.name.startswith(prefix) and scan.has(queue):
            names.append(queue.name[len(prefix) :])
            if len(names) >= scan.count:
                break
    is_last = not connection.machine.queues_after(cursor, 1) if cursor else True
    return array([bulk(b"0" if is_last else b"%d" % cursor), strings(names)])


def jscan(connection: RespConnection, argv: list[bytes]) -> bytes:
    """JSCAN [cursor] [COUNT n] [BUSYLOOP] [QUEUE name] [STATE state ...] [REPLY all|id]: jobs."""
    scan = _Scan(argv)
    if not connection.may_inspect(argv):
        return b""
    connection.end_pass()
    prefix = connection.door.prefix
    if scan.shows_all:
        scan.count = min(scan.count, _MOST_SHOWN)
    found: list[bytes] = []
    cursor = 0
    for job in connection.machine.jobs_after(scan.cursor, scan.step):
        cursor = job.created
        name = job.queue.name
        if not name.startswith(prefix) or (scan.queue and name != prefix + scan.queue):
            continue
        if scan.states and STATE_NAMES[job.state].encode() not in scan.states:
            continue
        found.append(shown(connection, job) if scan.shows_all else bulk(job.id))
        if len(found) >= scan.count:
            break
    is_last = not connection.machine.jobs_after(cursor, 1) if cursor else True
    return array([bulk(b"0" if is_last else b"%d" % cursor), array(found)])
