"""The broker's log: one line an event, as text or JSON, on stderr or in a file."""

import logging
import os
import re
import sys
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Final, TextIO

from vmq.cli.start.log_flood import FloodFilter
from vmq.cli.start.log_json import JsonFormatter
from vmq.cli.terminal.console import has_colour

_COLOURS: Final = {"debug": "2", "warning": "33", "error": "31", "critical": "31"}
# Line ends and other controls, C1 and the Unicode separators included. Client ids and topics come from strangers: none
# of them may begin a line of its own, or move the cursor of whoever reads the log.
_CONTROLS: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
# A directive of a template, and what stands before it: `=`, or a quotation mark that opens, if its value is a field's.
_DIRECTIVE: Final = re.compile(r'(=|(?:^|[=\s(])")?%[^%]')
# What would end a value that stands without quotation marks.
_ENDS: Final = re.compile(r'[\s"]')


class LineFormatter(logging.Formatter):
    """`2026-03-01T12:00:00.123Z info message`; a traceback, where there is one, follows below, indented.

    Where several workers write one log, `worker=N` before the message says whose it is.
    """

    def __init__(self, *, coloured: bool = False, worker: int = 0) -> None:
        super().__init__()
        self._coloured = coloured
        self._who = f"worker={worker} " if worker else ""

    def format(self, record: logging.LogRecord) -> str:
        """The line of one event."""
        when = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        level = record.levelname.lower()
        if self._coloured and level in _COLOURS:
            level = f"\x1b[{_COLOURS[level]}m{level}\x1b[0m"
        message = _CONTROLS.sub(_escaped, _text(record))
        line = f"{when.removesuffix('+00:00')}Z {level} {self._who}{message}"
        if record.exc_info:
            # A message of an exception may quote what a client sent, line ends and all.
            for each in self.formatException(record.exc_info).split("\n"):
                line += "\n  " + _CONTROLS.sub(_escaped, each)
        return line


def _text(record: logging.LogRecord) -> str:
    """The text of an event, in which no value that a stranger chose looks like fields behind its own."""
    template, values = str(record.msg), record.args
    marks = _marks(template)
    if not values or not isinstance(values, tuple) or len(values) != len(marks):
        return record.getMessage()
    return template % tuple(map(_enclosed, values, marks))


@lru_cache(maxsize=1024)
def _marks(template: str) -> tuple[str, ...]:
    return tuple(each[1] or "" for each in _DIRECTIVE.finditer(template))


def _enclosed(value: object, mark: str) -> object:
    if not mark or isinstance(value, int | float | dict):
        return value
    text = str(value)
    if mark == "=" and not _ENDS.search(text):
        return text
    text = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{text}"' if mark == "=" else text


def _escaped(match: re.Match[str]) -> str:
    return match.group().encode("unicode_escape").decode()


class LogFile(logging.StreamHandler[TextIO]):
    """A log file that can be opened anew under its name, after something else has moved it away.

    Raises:
        OSError: the file cannot be opened.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        super().__init__(self.opened(path))

    def opened(self, path: Path) -> TextIO:
        """The file, open."""
        # What clients send may hold what is no text.
        return path.open("a", encoding="utf-8", errors="backslashreplace")

    def reopen(self) -> None:
        """Goes on in a file of the same name, made if it is gone: whoever could read the old one can read it.

        Raises:
            OSError: it cannot be opened; the log goes on where it was.
        """
        is_new = not self.path.exists()
        fresh = self.opened(self.path)
        if is_new:
            os.fchmod(fresh.fileno(), os.fstat(self.stream.fileno()).st_mode & 0o777)
        old = self.setStream(fresh)
        if old is not None:
            old.close()

    def close(self) -> None:
        """Writes and closes the file."""
        super().close()
        self.stream.close()


class AuditFile(LogFile):
    """The file of the audit log: for its owner alone, and not lost in silence."""

    def opened(self, path: Path) -> TextIO:
        """The file, open."""
        return open(path, "a", encoding="utf-8", errors="backslashreplace", opener=_private)

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - the name of the base class
        """An event could not be written: the log says so."""
        text = 'the audit log cannot be written file="%s" reason="%s"'
        logging.getLogger("vmq.cli").error(text, self.path, sys.exc_info()[1])


def _private(path: str, flags: int) -> int:
    number = os.open(path, flags, 0o600)
    os.fchmod(number, 0o600)
    return number


class BrokerLog:
    """The log as it is set up: what may be done to it while the broker runs."""

    def __init__(
        self,
        handler: "logging.StreamHandler[TextIO]",
        flood_limit: int,
        worker: int = 0,
        audit: AuditFile | None = None,
    ) -> None:
        self._handler = handler
        self._worker = worker
        #: What is written to, each with its own count of events of a kind.
        self._handlers = [each for each in (handler, audit) if each is not None]
        self._floods = [FloodFilter(flood_limit) for _ in self._handlers]
        for each, flood in zip(self._handlers, self._floods, strict=True):
            each.addFilter(flood)

    def set_level(self, level: str) -> None:
        """Log from `level` up, from now on."""
        logging.getLogger("vmq").setLevel(level.upper())

    def set_format(self, form: str) -> None:
        """Write "text" or "json" from now on."""
        self._handler.setFormatter(_formatter(form, self._handler, self._worker))

    def set_flood_limit(self, limit: int) -> None:
        """Write so many events of one kind in ten seconds from now on; 0 = all."""
        for flood in self._floods:
            flood.limit = limit

    def reopen(self) -> None:
        """Open the log's files anew, if there are some.

        Raises:
            OSError: one cannot be opened; it goes on in the old one, and so do those behind it.
        """
        for handler in self._handlers:
            if isinstance(handler, LogFile):
                handler.reopen()

    def sum_up(self, *, everything: bool = False) -> None:
        """Say how many events were held back; about once a second, and at the end."""
        for handler, flood in zip(self._handlers, self._floods, strict=True):
            for record in flood.summaries(everything=everything):
                handler.handle(record)


def _formatter(
    form: str, handler: "logging.StreamHandler[TextIO]", worker: int
) -> logging.Formatter:
    if form == "json":
        return JsonFormatter(worker)
    coloured = not isinstance(handler, LogFile) and has_colour(sys.stderr)
    return LineFormatter(coloured=coloured, worker=worker)


def configure(
    level: str,
    form: str = "text",
    file: Path | None = None,
    flood_limit: int = 0,
    worker: int = 0,
    audit_file: Path | None = None,
) -> BrokerLog:
    """Send what loggers under "vmq" say, from `level` up, to stderr or a file; of libraries only warnings.

    Args:
        level: debug, info, warning or error.
        form: "text" or "json".
        file: where to write; None = stderr.
        flood_limit: events of one kind in ten seconds, above which they are only counted; 0 = no limit.
        worker: which of several processes that write the same log; 0 = there is one.
        audit_file: where to write the audit log; None = it is part of the log.

    Raises:
        OSError: a file cannot be opened.
    """
    handler = logging.StreamHandler(sys.stderr) if file is None else LogFile(file)
    handler.setFormatter(_formatter(form, handler, worker))
    # A log that cannot be written must not take down what it reports on.
    logging.raiseExceptions = False
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    audit = _configured_audit(audit_file, worker)
    log = BrokerLog(handler, flood_limit, worker, audit)
    log.set_level(level)
    return log


def _configured_audit(file: Path | None, worker: int) -> AuditFile | None:
    """Send what `vmq.runtime.audit` says to a file of its own, if there is one to be, whatever the level of the log."""
    if file is not None:
        return audit_into(file, worker)
    logger = logging.getLogger("vmq.audit")
    logger.setLevel(logging.INFO)
    logger.propagate = True
    logger.handlers.clear()
    return None


def audit_into(file: Path, worker: int = 0) -> AuditFile:
    """Has a file of its own take what `vmq.runtime.audit` says from now on.

    Raises:
        OSError: it cannot be opened.
    """
    audit = AuditFile(file)
    audit.setFormatter(JsonFormatter(worker))
    logger = logging.getLogger("vmq.audit")
    logger.setLevel(logging.INFO)
    logger.propagate = False
    logger.handlers[:] = [audit]
    return audit
