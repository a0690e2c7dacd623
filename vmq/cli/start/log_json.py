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
    the whole text, beside the fields. Where several workers write one log, "worker" says whose it is.
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
        values = arguments if isinstance(arguments, tuple) else ()
        is_event = len(fields) == len(values) > 0 and "" not in fields
        entry["message"] = event if is_event else record.getMessage()
        for field, value in zip(fields, values, strict=False):
            if field:
                name = field + "_" if field in _TAKEN or field in self._who else field
                entry[name] = value if isinstance(value, int | float | dict) else str(value)
        if record.exc_info:
            entry["traceback"] = self.formatException(record.exc_info)
        text = json.dumps(entry, ensure_ascii=False, allow_nan=False, default=str)
        return _CONTROLS.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


@lru_cache(maxsize=1024)
def _parts(template: str) -> tuple[str, tuple[str, ...]]:
    """The text in front of a template's fields, and the name of each of its values; "" of one that is no field."""
    fields = {template.index("%", field.start()): field for field in _FIELD.finditer(template)}
    values = [each.start() for each in _DIRECTIVE.finditer(template)]
    # What stands behind the last field explains it to a reader, and says nothing of its own.
    begin = min((field.start() for field in fields.values()), default=len(template))
    names = tuple(fields[each][1] if each in fields else "" for each in values)
    return template[:begin].rstrip(" :,"), names
