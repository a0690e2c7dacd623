"""Which queues are paused, beside the log: an operator's word, which a restart does not end."""

import json
import logging
from pathlib import Path
from typing import Final

import msgspec
from vmq_hooks.replacing import replace_file

from vmq.jobs.machine import JobMachine

log = logging.getLogger("vmq.jobs")

_FILE: Final = "pauses.json"


class JobPauses:
    """The file of one node.

    Args:
        folder: where it lies.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / _FILE

    def read(self) -> dict[bytes, tuple[bool, bool]]:
        """What each paused queue refuses: jobs that are added, workers."""
        try:
            found = msgspec.json.decode(self.path.read_bytes(), type=dict[str, tuple[bool, bool]])
            return {name.encode("latin-1"): each for name, each in found.items()}
        except FileNotFoundError:
            return {}
        except (OSError, msgspec.MsgspecError, RecursionError, UnicodeEncodeError) as error:
            log.warning("no queue is paused: %s cannot be read: %s", self.path, error)
            return {}

    def take(self, machine: JobMachine) -> bytes | None:
        """What `write` is to keep; None: what is kept is true. From now on that counts as kept."""
        if not machine.has_new_pauses:
            return None
        machine.has_new_pauses = False
        paused = {
            each.name.decode("latin-1"): (each.paused_in, each.paused_out)
            for each in machine.queues.values()
            if each.paused_in or each.paused_out
        }
        return json.dumps(paused).encode()

    def write(self, data: bytes | None) -> None:
        """Keeps what `take` gave, if anything; in a thread, since it is on the disk then.

        Raises:
            OSError: the disk.
        """
        if data is not None:
            replace_file(self.path, data)
