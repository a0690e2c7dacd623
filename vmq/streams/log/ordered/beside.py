"""How many bytes lie beside sealed segments: the rows by topic, and the typed columns (`vmq.streams.column_writer`)."""

from collections.abc import Iterable
from pathlib import Path

from vmq.config.streams import StreamOptions
from vmq.streams.log import column_file
from vmq.streams.log.ordered import file as ordered_file
from vmq.streams.log.segment import Sealed


class BytesBeside:
    """Those of one partition. A file that lies there changes no more, so it is looked at once."""

    def __init__(self) -> None:
        self._known: dict[Path, int] = {}

    def sizes(self, sealed: Iterable[Sealed], options: StreamOptions) -> dict[Path, int]:
        """Bytes beside each of some segments, by the segment's path; those of which there are some."""
        found: dict[Path, int] = {}
        known: dict[Path, int] = {}
        for each in sealed:
            place = each.path, each.size, each.inode
            paths = [ordered_file.path_of(*place)] if options.topic_order else []
            if options.schema:
                paths.append(column_file.path_of(*place, options.schema))
            for path in paths:
                if size := self._known.get(path) or _size(path):
                    known[path] = size
                    found[each.path] = found.get(each.path, 0) + size
        self._known = known
        return found


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
