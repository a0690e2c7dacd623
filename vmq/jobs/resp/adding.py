"""The arguments of ADDJOB: `queue body ms-timeout [option ...]`."""

from vmq.jobs.options import AddOptions, check_queue, syntax_error, whole
from vmq.jobs.queues import JobRefusedError


def read_add(argv: list[bytes]) -> AddOptions:
    """Reads an ADDJOB.

    Raises:
        JobRefusedError: it is wrong.
    """
    count = len(argv)
    if count < 4:
        raise JobRefusedError("ERR wrong number of arguments for 'addjob' command")
    queue = argv[1]
    check_queue(queue)
    options = AddOptions(queue)
    options.timeout = whole(argv[3], "ERR timeout is not an integer or out of range", 0)
    if count > 4:
        read_options(options, argv, 4)
    return options


def read_options(options: AddOptions, argv: list[bytes], at: int) -> int:
    """Reads the options from a place on; returns where JOBS ends them, or the end."""
    count = len(argv)
    while at < count:
        name = argv[at].upper()
        if name == b"ASYNC":
            options.is_async = True
            at += 1
            continue
        if name == b"JOBS":
            break
        if at + 1 >= count or not options.set(name, argv[at + 1]):
            raise syntax_error(argv[at])
        at += 2
    options.check()
    return at
