"""Which queries are remembered: a folder each, which says what their last batch was, so that it is published once."""

import re
import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from vmq.streams.staging.state import STATE, StagingError, load_state

#: Queries that are remembered, and seconds after which one that does nothing is forgotten for another one.
MOST_QUERIES: Final = 10_000
IDLE: Final = 7 * 86_400.0

#: Those that write one batch (Spark's `df.write`): who asks again whether it is published does so soon. They go after
#: `BATCH_IDLE`; where there are as many as may be, the oldest tenth goes, if it has done nothing for a while.
MOST_BATCHES: Final = 2000
BATCH_IDLE: Final = 86_400.0
_AT_REST: Final = 120.0
#: The name of such a query, behind the digest of its user's (`vmq.streams.flight.sink`).
_BATCH: Final = re.compile(r"[^.]+\.batch-")


def make_room(folder: Path, query: str, now: float) -> None:
    """Forgets queries where there are as many as there may be of the kind of a new one.

    Nobody decides about queries meanwhile.

    Args:
        folder: that of all queries.
        query: the name of the new one.
        now: seconds since 1970.

    Raises:
        StagingError: none of them can be forgotten.
    """
    is_batch = bool(_BATCH.match(query))
    most, idle = (MOST_BATCHES, _AT_REST) if is_batch else (MOST_QUERIES, IDLE)
    there = sorted(_queries(folder, is_batch=is_batch))
    if len(there) < most:
        return
    wanted = len(there) - most + 1 + most // 10
    forgotten = 0
    for since, path in there:
        if since > now - idle or forgotten == wanted:
            break
        forgotten += _forget(path)
    if len(there) - forgotten >= most:
        raise StagingError(
            f"there are {most} queries already; accepted: fewer. Delete the folders of those that "
            f"have ended from {folder}"
        )


def forget_batches(folder: Path, now: float) -> None:
    """Forgets queries that wrote one batch long ago; likewise."""
    for since, path in list(_queries(folder, is_batch=True)):
        if since <= now - BATCH_IDLE:
            _forget(path)


def _queries(folder: Path, *, is_batch: bool) -> Iterator[tuple[float, Path]]:
    """When each query of a kind had something new last, and its folder."""
    for path in folder.glob("*"):
        if bool(_BATCH.match(path.name)) is is_batch:
            with suppress(FileNotFoundError):
                yield path.stat().st_mtime, path


def _forget(folder: Path) -> bool:
    """Forgets a query, unless it has messages or the disk fails; whether it did."""
    with suppress(StagingError, OSError):
        if not load_state(folder).needed() and {each.name for each in folder.iterdir()} <= {STATE}:
            shutil.rmtree(folder)
            return True
    return False
