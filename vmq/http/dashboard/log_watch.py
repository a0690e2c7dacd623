"""The last warnings of the broker's log, and who is refused, as the page shows them."""

import logging
from collections import deque
from typing import Final

from msgspec import Struct

from vmq.runtime.frequent import Frequent

#: Warnings that are kept, and characters of each.
KEPT: Final = 50
SHOWN: Final = 400
#: How the line of a refused login begins (`vmq.protocol.refusals`), and where it names user and peer, from the end.
_REFUSED: Final = "login refused "
_USER: Final = -5
_PEER: Final = -4


class WarningRow(Struct, frozen=True):
    """One line of the log."""

    time: float
    level: str
    text: str


class LogWatch(logging.Handler):
    """Keeps what the loggers under "vmq" warn of, and counts refused logins by user and address."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self._rows: deque[WarningRow] = deque(maxlen=KEPT)
        #: How many there were since they were taken.
        self._count = 0
        self.refused = Frequent()

    def start(self) -> None:
        """Listens from now on."""
        logging.getLogger("vmq").addHandler(self)

    def stop(self) -> None:
        """Listens no more."""
        logging.getLogger("vmq").removeHandler(self)

    def take(self) -> tuple[list[WarningRow], int]:
        """The last warnings since they were taken before, and how many there were."""
        found, self._rows = list(self._rows), deque(maxlen=KEPT)
        count, self._count = self._count, 0
        return found, count

    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno < logging.WARNING:
            if isinstance(record.msg, str) and record.msg.startswith(_REFUSED):
                self._note_refused(record)
            return
        self._count += 1
        text = record.getMessage()[:SHOWN]
        self._rows.append(WarningRow(record.created, record.levelname.lower(), text))

    def _note_refused(self, record: logging.LogRecord) -> None:
        if isinstance(record.args, tuple) and len(record.args) >= -_USER:
            user, peer = record.args[_USER], record.args[_PEER]
            host = str(peer).rpartition(":")[0] or str(peer)
            self.refused.count(f"{user or 'no user'} from {host}"[:SHOWN])
