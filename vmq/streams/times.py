"""Which offset of a partition a time leads to."""

from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from vmq.streams.log.columns import offsets_of
from vmq.streams.log.cursor import Cursor, PartitionLog
from vmq.streams.log.schema import STORED
from vmq.streams.log.segment import SegmentFlawError, read_span, walk

_TIMESTAMP: Final = STORED.get_field_index("timestamp")


def offset_at(partition: PartitionLog, time: int) -> int:
    """The first offset whose timestamp is `time` (microseconds) or later; the end if there is none.

    Raises:
        DamagedError: a batch is not what was written.
    """
    with partition.changed:
        sealed = [(each.base, each.time) for each in partition.sealed]
        if partition.archive is not None:
            sealed[:0] = [(each.base, each.time) for each in partition.archive.segments]
        bases = [each for each, newest in sealed if newest >= time]
        bases.append(partition.active.index.base)
        end = partition.end
    if partition.damage is not None:
        return end
    found = (_first_at(partition, base, time) for base in bases if base < end)
    return next((each for each in found if each is not None), end)


def _first_at(partition: PartitionLog, base: int, time: int) -> int | None:
    """That offset within the segment that begins at one; None: compaction has left no such row, or none has come yet.

    Raises:
        DamagedError: a batch is not what was written.
    """
    with Cursor(partition, base) as cursor:
        place = cursor.open()
        limit, _ = cursor.limits(place)
        with partition.changed:
            found = place.index.find_time(time)
        assert found is not None
        try:
            for position, frame in walk(place.fd, found[0], limit, found[1]):
                if frame.rows and frame.time >= time:
                    begin = place.fd, place.header, position, limit, frame.offset
                    rows = read_span(*begin, [_TIMESTAMP]).rows
                    times = rows.column(0).cast(pa.int64())
                    first = pc.index(pc.greater_equal(times, time), value=True).as_py()
                    return int(offsets_of(rows, frame.offset)[first].as_py())
        except SegmentFlawError as flaw:
            damage = flaw.damage(place.path)
            partition.note(damage)
            raise damage from None
    return None
