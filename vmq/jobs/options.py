"""How a job is to be added, and what of that can be wrong, over RESP and MQTT alike."""

from collections.abc import Mapping
from typing import Final

from vmq.jobs.queue import DEAD
from vmq.jobs.queues import JobRefusedError
from vmq.jobs.stock import LONGEST, ONE_HOST

_LONGEST_NAME: Final = 512
#: Some 68 years: a log has it with a sign.
_LONGEST_RETRY: Final = 0x7FFF_FFFF
_DOLLAR: Final = 36
#: Why nobody adds to or takes from some queues.
OURS: Final = "ERR queues whose names begin with $ are the broker's own"
_LONGEST_KEY: Final = 512


def syntax_error(word: bytes) -> JobRefusedError:
    """That a command has a word which does not belong there, or lacks what is to follow it."""
    shown = word[:_LONGEST_NAME].decode("utf-8", "backslashreplace")
    return JobRefusedError(f"ERR syntax error at {shown!r}")


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
        self.replicate: int = -1
        #: Nobody waits until it is on its hosts; milliseconds that somebody waits, 0: as long as is usual.
        self.is_async = False
        self.timeout: int = 0

    def set(self, name: bytes, value: bytes) -> bool:
        """Reads one option, named as RESP does; False if there is none of this name.

        Raises:
            JobRefusedError: its value is wrong.
        """
        if name == b"TTL":
            self.ttl = whole(value, "ERR TTL must be a number > 0", 1)
        elif name == b"RETRY":
            self.retry = whole(
                value,
                f"ERR RETRY time must be a number from 0 to {_LONGEST_RETRY}",
                0,
                _LONGEST_RETRY,
            )
        elif name == b"DELAY":
            self.delay = whole(value, "ERR DELAY time must be a non negative number", 0)
        elif name == b"MAXLEN":
            self.maxlen = whole(value, "ERR MAXLEN must be a positive number", 1)
        elif name == b"PRIORITY":
            self.priority = whole(value, "ERR PRIORITY must be between 0 and 9", 0, 9)
        elif name == b"REPLICATE":
            self.replicate = whole(value, "ERR REPLICATE must be between 1 and 65535", 1, 65_535)
        elif name == b"KEY":
            if not is_key(value):
                raise JobRefusedError("ERR a KEY has 1 to 512 bytes, and does not begin with NUL")
            self.key = value
        else:
            return False
        return True

    def check(self) -> None:
        """Looks at what was set together.

        Raises:
            JobRefusedError: what is delivered at most once is to be on several hosts.
        """
        if self.replicate > 1 and self.retry == 0:
            raise JobRefusedError(ONE_HOST)


def options_from(queue: str, told: Mapping[str, str]) -> AddOptions:
    """The options of a topic.

    Raises:
        JobRefusedError: one is wrong or not known.
    """
    found = AddOptions(queue.encode())
    check_queue(found.queue)
    for name, value in told.items():
        if not name.islower() or not found.set(name.upper().encode(), value.encode()):
            raise JobRefusedError("ERR not an option of adding: " + name[:80])
    found.check()
    return found


def check_queue(name: bytes) -> None:
    """Refuses what cannot be added to.

    Raises:
        JobRefusedError: it is no name, or that of dead letters.
    """
    check_name(name)
    if name.endswith(DEAD):
        raise JobRefusedError("ERR jobs get into a queue of dead letters by failing only")


def check_name(name: bytes) -> None:
    """Refuses what is no queue of clients.

    Raises:
        JobRefusedError: it is no name, or that of the broker's own.
    """
    if not name or len(name) > _LONGEST_NAME or 0 in name:  # b"\0" in name: five times as dear
        raise JobRefusedError("ERR the name of a queue has 1 to 512 bytes, none of them NUL")
    if name[0] == _DOLLAR:
        raise JobRefusedError(OURS)


def is_key(text: bytes) -> bool:
    """Whether this may be a KEY; those that begin with NUL are the broker's own."""
    return 0 < len(text) <= _LONGEST_KEY and text[:1] != b"\0"


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
