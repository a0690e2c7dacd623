"""What clients of Redis may change of a broker at a listener with `admin = true`: CONFIG and SHUTDOWN."""

import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from vmq_hooks.replacing import replace_file

from vmq.jobs.options import whole
from vmq.jobs.queues import JobRefusedError

if TYPE_CHECKING:
    from vmq.config.options import Config

log = logging.getLogger("vmq.jobs")

_FILE: Final = "config.json"
#: The least memory that makes sense.
_LEAST_MEMORY: Final = 1 << 20
#: As Redis reads sizes: k is a thousand, kb 1,024.
_UNITS: Final = {
    b"kb": 1 << 10,
    b"mb": 1 << 20,
    b"gb": 1 << 30,
    b"k": 10**3,
    b"m": 10**6,
    b"g": 10**9,
}
_FSYNC: Final = {"off": b"no", "os": b"everysec", "fsync": b"always"}


class JobControl:
    """The options that have a counterpart in Redis and Disque.

    Args:
        folder: where CONFIG REWRITE keeps them.
        config: the configuration of now.
        changed: told when one was set.
    """

    def __init__(
        self, folder: Path, config: "Callable[[], Config]", changed: Callable[[], None]
    ) -> None:
        self.path = folder / _FILE
        self.config = config
        self.changed = changed
        #: Bytes of memory, instead of limits.max_job_memory; None: that holds.
        self.max_memory: int | None = None
        #: The other nodes (`vmq.jobs.nodes`); None: it is no node.
        self.nodes: Any = None
        #: Stops the broker; None: the program that embeds it does.
        self.stop: Callable[[], None] | None = None
        try:
            kept = json.loads(self.path.read_text())
            self.max_memory = whole(str(kept["maxmemory"]).encode(), "", _LEAST_MEMORY, 1 << 60)
        except FileNotFoundError:
            pass
        except (OSError, ValueError, KeyError, TypeError, JobRefusedError) as error:
            log.warning("%s is not used: %s", self.path, error)

    def memory(self) -> int:
        """Bytes that jobs may have in memory; 0 is any number."""
        return self.config().limits.max_job_memory if self.max_memory is None else self.max_memory

    def options(self, port: bytes, host: bytes) -> dict[bytes, bytes]:
        """What CONFIG GET tells."""
        wide = self.config().jobs.get("*")
        persistence = (wide.persistence if wide is not None else None) or "os"
        return {
            b"maxmemory": b"%d" % self.memory(),
            b"appendonly": b"no" if persistence == "off" else b"yes",
            b"appendfsync": _FSYNC[persistence],
            b"bind": host,
            b"port": port,
            b"dir": str(self.path.parent).encode(),
        }

    def set(self, name: bytes, value: bytes) -> None:
        """CONFIG SET.

        Raises:
            JobRefusedError: it cannot be set so.
        """
        if name.lower() != b"maxmemory":
            raise JobRefusedError("ERR only maxmemory is set here; the file of vmq has all options")
        wrong = f"ERR maxmemory is a number of bytes, as in 100mb, {_LEAST_MEMORY} at least"
        digits = value.lower()
        unit = next((each for each in _UNITS if digits.endswith(each)), b"")
        number = whole(digits.removesuffix(unit), wrong, 0, 1 << 60) * _UNITS.get(unit, 1)
        self.max_memory = whole(b"%d" % number, wrong, _LEAST_MEMORY, 1 << 60)
        log.warning("CONFIG SET maxmemory %d", self.max_memory)
        self.changed()

    def rewrite(self) -> None:
        """CONFIG REWRITE: what was set holds after a restart, too.

        Raises:
            JobRefusedError: the disk fails.
        """
        try:
            if self.max_memory is None:
                self.path.unlink(missing_ok=True)
                return
            replace_file(self.path, json.dumps({"maxmemory": self.max_memory}).encode())
        except OSError as error:
            raise JobRefusedError(f"ERR cannot be written: {error.strerror}") from None

    def shutdown(self) -> None:
        """SHUTDOWN.

        Raises:
            JobRefusedError: nobody here stops the broker.
        """
        if self.stop is None:
            raise JobRefusedError("ERR the program that embeds this broker stops it")
        log.warning("SHUTDOWN was asked for")
        self.stop()
