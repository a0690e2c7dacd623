"""The arguments of GETJOB: `[NOHANG] [TIMEOUT ms] [COUNT n] [WITHCOUNTERS] FROM queue ...`."""

from typing import Final

from vmq.jobs.machine import JobMachine
from vmq.jobs.options import check_name, syntax_error, whole
from vmq.jobs.queue import JobQueue
from vmq.jobs.queues import JobRefusedError

#: Jobs of one GETJOB.
MOST_JOBS: Final = 1000


class GetOptions:
    """What is asked for."""

    def __init__(self) -> None:
        self.queues: list[JobQueue] = []
        self.nohang = False
        #: In milliseconds; 0 is for ever.
        self.timeout: int = 0
        self.count: int = 1
        self.with_counters = False


def read_get(
    argv: list[bytes], machine: JobMachine, prefix: bytes, now: float, user: str = ""
) -> GetOptions:
    """Reads a GETJOB of a user's client.

    Raises:
        JobRefusedError: it is wrong.
    """
    options = GetOptions()
    count = len(argv)
    at = 1
    while at < count:
        name = argv[at]
        if name == b"FROM":
            break
        name = name.upper()
        if name == b"FROM":
            break
        if name == b"NOHANG":
            options.nohang = True
        elif name == b"WITHCOUNTERS":
            options.with_counters = True
        elif name == b"TIMEOUT" and at + 1 < count:
            at += 1
            options.timeout = whole(argv[at], "ERR timeout is not an integer or out of range", 0)
        elif name == b"COUNT" and at + 1 < count:
            at += 1
            options.count = min(whole(argv[at], "ERR COUNT must be a number > 0", 1), MOST_JOBS)
        else:
            raise syntax_error(argv[at])
        at += 1
    if at + 1 >= count:
        raise JobRefusedError("ERR syntax error: GETJOB ends with FROM queue ...")
    names = argv[at + 1 :]
    if len(names) > 1:
        names = list(dict.fromkeys(names))
    for name in names:
        check_name(name)
        queue = machine.queue(prefix + name if prefix else name, now, user)
        if queue.rules.groups:
            machine.check_taken(queue.name)
        options.queues.append(queue)
    return options
