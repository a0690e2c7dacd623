"""The arguments of ADDJOB: `queue body ms-timeout [option ...]`."""

from typing import Final

from vmq.jobs.machine import LONGEST
from vmq.jobs.queue import DEAD
from vmq.jobs.queues import JobRefusedError

_LONGEST_NAME: Final = 512
_LONGEST_KEY: Final = 512


class AddOptions:
    """How a job is to be added; -1 stands for what its queue's rules say."""

    def __init__(self, queue: bytes) -> None:
        self.queue = queue
        self.ttl: int = -1
        self.retry: int = -1
        self.delay: int = 0
        self.priority: int = -1
        self.maxlen: int = -1
        self.key: bytes = b""


def read_add(argv: list[bytes]) -> AddOptions:
    """Reads an ADDJOB.

    Raises:
        JobRefusedError: it is wrong, or asks for more hosts than there are.
    """
    count = len(argv)
    if count < 4:
        raise JobRefusedError("ERR wrong number of arguments for 'addjob' command")
    queue = argv[1]
    check_queue(queue)
    whole(argv[3], "ERR timeout is not an integer or out of range", 0)
    options = AddOptions(queue)
    if count > 4:
        read_options(options, argv, 4)
    return options


def read_options(options: AddOptions, argv: list[bytes], at: int) -> int:
    """Reads the options from a place on; returns where JOBS ends them, or the end."""
    count = len(argv)
    replicate = -1
    while at < count:
        name = argv[at].upper()
        if name == b"ASYNC":
            at += 1  # alone, nothing is waited for
            continue
        if name == b"JOBS":
            break
        if at + 1 >= count:
            raise JobRefusedError("ERR syntax error")
        value = argv[at + 1]
        if name == b"REPLICATE":
            replicate = whole(value, "ERR REPLICATE must be between 1 and 65535", 1, 65_535)
        elif name == b"TTL":
            options.ttl = whole(value, "ERR TTL must be a number > 0", 1)
        elif name == b"RETRY":
            options.retry = whole(value, "ERR RETRY time must be a non negative number", 0)
        elif name == b"DELAY":
            options.delay = whole(value, "ERR DELAY time must be a non negative number", 0)
        elif name == b"MAXLEN":
            options.maxlen = whole(value, "ERR MAXLEN must be a positive number", 1)
        elif name == b"PRIORITY":
            options.priority = whole(value, "ERR PRIORITY must be between 0 and 9", 0, 9)
        elif name == b"KEY" and 0 < len(value) <= _LONGEST_KEY:
            options.key = value
        else:
            raise JobRefusedError("ERR syntax error")
        at += 2
    if replicate > 1:
        if options.retry == 0:
            raise JobRefusedError(
                "ERR With RETRY set to 0 please explicitly set REPLICATE to 1 (at-most-once delivery)"
            )
        raise JobRefusedError(
            "NOREPL Not enough reachable nodes for the requested replication level"
        )
    return at


def check_queue(name: bytes) -> None:
    """Refuses what cannot be added to.

    Raises:
        JobRefusedError: it is no name, or that of dead letters.
    """
    if not name or len(name) > _LONGEST_NAME or b"\0" in name:
        raise JobRefusedError("ERR the name of a queue has 1 to 512 bytes, none of them NUL")
    if name.endswith(DEAD):
        raise JobRefusedError("ERR jobs get into a queue of dead letters by failing only")


def whole(text: bytes, wrong: str, least: int, most: int = LONGEST) -> int:
    """A number of a command.

    Raises:
        JobRefusedError: `wrong`, if it is none, or out of bounds.
    """
    if len(text) == 1 and 48 <= text[0] <= 57:
        value = text[0] - 48
    elif len(text) > 19 or not text.removeprefix(b"-").isdigit():
        raise JobRefusedError(wrong)
    else:
        value = int(text)
    if value < least or value > most:
        raise JobRefusedError(wrong)
    return value
