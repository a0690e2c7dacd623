"""The Parquet files of a table that Spark has committed, for readers without Spark.

A table's folder may hold files besides: of a batch that was not finished, or was done again after a failure.
Its log, `_spark_metadata`, names those that count.
"""

import json
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

LOG: Final = "_spark_metadata"
_COMPACTED: Final = ".compact"


def last_commit(table: Path) -> int:
    """A number that changes with each commit; 0 as long as there is no table."""
    try:
        return (table / LOG).stat().st_mtime_ns
    except FileNotFoundError:
        return 0


def committed_files(table: Path) -> list[Path]:
    """The files that count, in the order of their batches; none as long as there is no table."""
    try:
        entries = list((table / LOG).iterdir())
    except FileNotFoundError:
        return []
    numbers = {_batch(each.name): each for each in entries if _batch(each.name) is not None}
    compacted = [n for n, each in numbers.items() if each.suffix == _COMPACTED and n is not None]
    first = max(compacted, default=-1)
    found: dict[Path, None] = {}
    for number in sorted(n for n in numbers if n is not None and n >= first):
        # The first line is the version of the format.
        for line in numbers[number].read_text("utf-8").splitlines()[1:]:
            entry = json.loads(line)
            path = Path(unquote(urlsplit(entry["path"]).path))
            if entry["action"] == "add":
                found[path] = None
            else:
                found.pop(path, None)
    return list(found)


def _batch(name: str) -> int | None:
    """The batch of a file of the log; None: it is another file."""
    number = name.removesuffix(_COMPACTED)
    return int(number) if number.isdecimal() else None
