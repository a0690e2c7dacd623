"""What a store holds, as tests look at it."""

from typing import Any

from vmq.store.lines import is_end


def records_of(db: Any, prefix: bytes) -> list[tuple[bytes, bytes]]:
    """The committed records whose keys begin so, without the ends of lines."""
    return [(key, value) for key, value in db.iterator(prefix=prefix) if not is_end(key)]
