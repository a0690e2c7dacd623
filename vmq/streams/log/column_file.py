"""The columns of a sealed segment, beside it: all but payload and headers, with the typed ones, as Parquet.

Rows are ordered by topic, so that a query for some devices skips most row groups by their statistics: in the order in
which they came, each group has every device. The segment stays the truth: the file can be made anew at any time, and
its name says of what it was made. One that cannot be read, or fails its checksums, is as good as none.
"""

import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from vmq.config.columns import read_columns
from vmq.streams.log.columns import Projection
from vmq.streams.log.copying import spans_of
from vmq.streams.log.segment import Header, Sealed
from vmq.streams.log.typed import Unfit

SUFFIX: Final = ".columns.parquet"
#: Those of all streams that are in it.
PLAIN: Final = ("offset", "timestamp", "topic", "key", "client_id", "qos", "retain")
#: Rows of a group: what a query reads or skips at once.
_GROUP: Final = 65_536
_META: Final = b"vmq.columns"


class ColumnCounts(msgspec.Struct, frozen=True):
    """What the payloads of some rows did not give: by column, and rows that are no JSON."""

    rows: int = 0
    invalid: int = 0
    columns: dict[str, Unfit] = {}


#: Made once, when nobody else does: two threads at once that have msgspec learn a form crash.
_COUNTS: Final = msgspec.json.Decoder(ColumnCounts)


def path_of(segment: Path, size: int, inode: int, schema: Mapping[str, str]) -> Path:
    """Where the columns of a segment lie, as a schema has them: of that file, as another may take its place."""
    digest = zlib.crc32(msgspec.json.encode(dict(schema)))
    return segment.with_name(f"{segment.stem}.{size:x}-{inode:x}-{digest:08x}{SUFFIX}")


def make(header: Header, sealed: Sealed, schema: Mapping[str, str], target: Path) -> ColumnCounts:
    """Writes the columns of a segment.

    Raises:
        DamagedError: the segment is not what was written.
        OSError: the disk.
    """
    import pyarrow.parquet as pq  # loaded by who has such streams

    typed = read_columns(schema)
    projection = Projection([*PLAIN, *(each.name for each in typed)], None, typed)
    found = [
        projection.apply(span.rows, "", 0, span.offset)[0] for span in spans_of(header, [sealed])
    ]
    table = pa.Table.from_batches(found, schema=projection.schema)
    table = table.sort_by([("topic", "ascending"), ("offset", "ascending")])
    extraction = projection.typed
    counts = ColumnCounts(
        table.num_rows,
        0 if extraction is None else extraction.invalid,
        {} if extraction is None else extraction.counts,
    )
    work = target.with_name(target.name + ".tmp")
    try:
        kept = table.replace_schema_metadata({_META: msgspec.json.encode(counts)})
        pq.write_table(
            kept, work, row_group_size=_GROUP, compression="lz4", write_page_checksum=True
        )
        work.replace(target)
    except BaseException:
        work.unlink(missing_ok=True)
        raise
    return counts


def counts_of(path: Path) -> ColumnCounts | None:
    """What a file says of the rows that it was made of; None: it cannot be read."""
    import pyarrow.parquet as pq

    try:
        metadata = pq.read_schema(path).metadata or {}
        return _COUNTS.decode(metadata[_META])
    except (OSError, pa.ArrowException, KeyError, msgspec.MsgspecError):
        return None


class ColumnFile:
    """Such a file, open: it may be deleted meanwhile.

    Raises:
        OSError: there is none.
        ArrowException: it cannot be read.
    """

    def __init__(self, path: Path) -> None:
        import pyarrow.dataset as ds
        import pyarrow.parquet as pq

        self._file = pa.PythonFile(path.open("rb"), mode="r")
        options = ds.ParquetFragmentScanOptions(page_checksum_verification=True)
        texts = [each.name for each in pq.read_schema(path) if each.type == pa.string()]
        form = ds.ParquetFileFormat(
            read_options=ds.ParquetReadOptions(dictionary_columns=texts),
            default_fragment_scan_options=options,
        )
        self._fragment = form.make_fragment(self._file)
        self._schema = self._fragment.physical_schema

    def batches(
        self, columns: Sequence[str], condition: Any, span: tuple[int, int] | None
    ) -> Iterator[pa.RecordBatch]:
        """Some columns of the rows that a condition keeps, ordered by topic; texts as dictionaries.

        `span`: from one offset up to another only.

        Raises:
            ArrowException: the file is damaged.
            OSError: likewise, or the disk.
        """
        wanted = condition
        if span is not None:  # offsets are the column that takes the most
            inside = (pc.field("offset") >= span[0]) & (pc.field("offset") < span[1])
            wanted = inside if condition is None else inside & condition
        yield from self._fragment.to_batches(
            schema=self._schema, columns=list(columns), filter=wanted, use_threads=False
        )

    def close(self) -> None:
        """Lets go of the file."""
        self._file.close()
