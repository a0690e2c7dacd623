"""The broker's log: one line an event on stderr."""

import logging
import re
import sys
from datetime import UTC, datetime
from typing import Final

from vmq.cli.console import has_colour

_COLOURS: Final = {"debug": "2", "warning": "33", "error": "31", "critical": "31"}
# Line ends and other controls, C1 and the Unicode separators included. Client ids and topics come from strangers: none
# of them may begin a line of its own, or move the cursor of whoever reads the log.
_CONTROLS: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")


class LineFormatter(logging.Formatter):
    """`2026-03-01T12:00:00.123Z info message`; a traceback, where there is one, follows below."""

    def __init__(self, *, coloured: bool = False) -> None:
        super().__init__()
        self._coloured = coloured

    def format(self, record: logging.LogRecord) -> str:
        """The line of one event."""
        when = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        level = record.levelname.lower()
        if self._coloured and level in _COLOURS:
            level = f"\x1b[{_COLOURS[level]}m{level}\x1b[0m"
        message = _CONTROLS.sub(_escaped, record.getMessage())
        line = f"{when.removesuffix('+00:00')}Z {level} {message}"
        if record.exc_info:
            line += "\n" + self.formatException(record.exc_info)
        return line


def _escaped(match: re.Match[str]) -> str:
    return match.group().encode("unicode_escape").decode()


def configure(level: str) -> None:
    """Send what loggers under "vmq" say, from `level` up, to stderr; of libraries only warnings."""
    # A log that cannot be written must not take down what it reports on.
    logging.raiseExceptions = False
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(LineFormatter(coloured=has_colour(sys.stderr)))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    logging.getLogger("vmq").setLevel(level.upper())
