"""Which queues are paused, beside the log: an operator's word, which a restart does not end."""

import json
import logging
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import msgspec
from vmq_hooks.replacing import replace_file

from vmq.jobs.queue import JobQueue

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

    def write(self, queues: Iterable[JobQueue]) -> None:
        """Keeps it.

        Raises:
            OSError: the disk.
        """
        paused = {
            each.name.decode("latin-1"): (each.paused_in, each.paused_out)
            for each in queues
            if each.paused_in or each.paused_out
        }
        replace_file(self.path, json.dumps(paused).encode())
