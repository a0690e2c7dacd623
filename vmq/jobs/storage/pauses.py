"""Which queues are paused, beside the log: an operator's word, which a restart does not end.

That one was resumed is kept, too: nodes that were away may take it for paused.
"""

import logging
from pathlib import Path
from typing import Final

import msgspec
from vmq_hooks.replacing import replace_file

from vmq.jobs.machine import JobMachine
from vmq.jobs.queues import Pause

log = logging.getLogger("vmq.jobs")

_FILE: Final = "pauses.json"
#: Nanoseconds for which it is kept that a queue was resumed: two weeks.
_RESUMED: Final = 14 * 86_400 * 10**9


class _Kept(msgspec.Struct, array_like=True):
    """A `Pause`; the file of an older version has less of it."""

    is_in: bool
    is_out: bool
    at: int = 0
    is_everywhere: bool = False


class JobPauses:
    """The file of one node.

    Args:
        folder: where it lies.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / _FILE

    def read(self) -> dict[bytes, Pause]:
        """What operators said of queues."""
        try:
            found = msgspec.json.decode(self.path.read_bytes(), type=dict[str, _Kept])
            return {
                name.encode("latin-1"): Pause(*msgspec.structs.astuple(each))
                for name, each in found.items()
            }
        except FileNotFoundError:
            return {}
        except (OSError, msgspec.MsgspecError, RecursionError, UnicodeEncodeError) as error:
            log.warning("no queue is paused: %s cannot be read: %s", self.path, error)
            return {}

    def take(self, machine: JobMachine, now: float) -> bytes | None:
        """What `write` is to keep; None: what is kept is true. From now on that counts as kept."""
        if not machine.has_new_pauses:
            return None
        machine.has_new_pauses = False
        since = machine.wall + int(now * 1e9) - _RESUMED
        machine.pauses = {
            name: said
            for name, said in machine.pauses.items()
            if said.is_in or said.is_out or (said.is_everywhere and said.at > since)
        }
        return msgspec.json.encode(
            {
                name.decode("latin-1"): _Kept(said.is_in, said.is_out, said.at, said.is_everywhere)
                for name, said in machine.pauses.items()
            }
        )

    def write(self, data: bytes | None) -> None:
        """Keeps what `take` gave, if anything; in a thread, since it is on the disk then.

        Raises:
            OSError: the disk.
        """
        if data is not None:
            replace_file(self.path, data)
