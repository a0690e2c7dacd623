"""The broker's log as JSON: one object a line, with the fields that the text shows as key=value."""

import json
import logging
import re
from datetime import UTC, datetime
from functools import lru_cache
from typing import Final

# A template's fields, as in 'closed client=%s peer=%s reason="%s"', and every directive that it has.
_FIELD: Final = re.compile(r'\b([a-z_]+)=("?)%[0-9.]*[a-z]\2')
_DIRECTIVE: Final = re.compile(r"%[^%]")
# What JSON allows in a string, and a terminal or another reader of lines takes for more than text.
_CONTROLS: Final = re.compile(r"[\x7f-\x9f\u2028\u2029]")
_TAKEN: Final = frozenset({"time", "level", "logger", "message", "traceback"})


class JsonFormatter(logging.Formatter):
    """`{"time": ..., "level": ..., "logger": ..., "message": "closed", "client": ..., ...}`.

    `message` is the text in front of the fields; where a text has values that are no fields, it is
    the whole text. Where several workers write one log, "worker" says whose it is.
    """

    def __init__(self, worker: int = 0) -> None:
        super().__init__()
        self._who: dict[str, object] = {"worker": worker} if worker else {}

    def format(self, record: logging.LogRecord) -> str:
        """The line of one event."""
        when = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        entry: dict[str, object] = {
            "time": when.removesuffix("+00:00") + "Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            **self._who,
        }
        event, fields = _parts(str(record.msg))
        arguments = record.args
        if isinstance(arguments, tuple) and len(fields) == len(arguments) > 0:
            entry["message"] = event
            for field, value in zip(fields, arguments, strict=True):
                name = field + "_" if field in _TAKEN or field in self._who else field
                entry[name] = value if isinstance(value, int | float | dict) else str(value)
        else:
            entry["message"] = record.getMessage()
        if record.exc_info:
            entry["traceback"] = self.formatException(record.exc_info)
        text = json.dumps(entry, ensure_ascii=False, allow_nan=False, default=str)
        return _CONTROLS.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


@lru_cache(maxsize=1024)
def _parts(template: str) -> tuple[str, tuple[str, ...]]:
    """The text in front of a template's fields, and their names; none if it has other values too."""
    fields = list(_FIELD.finditer(template))
    if not fields or len(fields) != len(_DIRECTIVE.findall(template)):
        return template, ()
    # What stands behind the last field explains it to a reader, and says nothing of its own.
    return template[: fields[0].start()].rstrip(" :,"), tuple(field[1] for field in fields)
