"""Opening a store: the checks, and what a broker reads from it at its start."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import plyvel

from vmq.message import Message
from vmq.store import FORMAT, Store, StoredSession, StoreError


def open_database(path: Path, write_buffer_size: int, cache_size: int) -> Any:
    """Opens or creates the database and checks that it is one of vmq's.

    Raises:
        StoreError: it is in use, damaged, or something else.
    """
    path.mkdir(parents=True, exist_ok=True)
    try:
        db = plyvel.DB(
            str(path),
            create_if_missing=True,
            paranoid_checks=True,
            write_buffer_size=write_buffer_size,
            lru_cache_size=cache_size,
        )
    except plyvel.CorruptionError as error:
        raise damaged(path, error) from None
    except plyvel.Error as error:
        text = str(error)
        if "lock" in text.lower():
            raise StoreError(f"{path} is in use by another process") from None
        if "No such file" in text or "missing" in text:
            raise damaged(path, error) from None
        raise StoreError(f"cannot open the store in {path}: {text}") from None
    try:
        check_format(db, path)
    except BaseException:
        db.close()
        raise
    return db


def damaged(path: Path, error: object) -> StoreError:
    """What a broker says of a store that it cannot read."""
    return StoreError(
        f"the store in {path} is damaged ({error}); "
        f"look at it with 'vmq store check', mend it with 'vmq store repair'"
    )


def check_format(db: Any, path: Path) -> None:
    """Writes the format record into an empty database, checks it in any other.

    Raises:
        StoreError: the database is no store of vmq, or of another version.
    """
    try:
        found = db.get(b"v", verify_checksums=True)
        if found == FORMAT:
            return
        if found is not None:
            raise StoreError(f"the store in {path} has format {found!r}; this vmq needs {FORMAT!r}")
        for _key in db.iterator(include_value=False, verify_checksums=True):
            raise damaged(path, "its format record is missing")
    except plyvel.Error as error:
        raise damaged(path, error) from None
    db.put(b"v", FORMAT)


def open_store(
    path: Path,
    durability: str,
    schedule: Callable[[], None],
    write_buffer_size: int = 16 * 1024 * 1024,
    cache_size: int = 16 * 1024 * 1024,
) -> Store:
    """Opens the store in a folder.

    Args:
        path: the folder; made if it does not exist.
        durability: "memory", "os" or "fsync".
        schedule: called when there is something to commit.
        write_buffer_size: LevelDB's, in bytes.
        cache_size: LevelDB's block cache, in bytes.

    Raises:
        StoreError: with a text for the operator.
    """
    db = open_database(path, write_buffer_size, cache_size)
    store = Store(db, durability, schedule)
    try:
        store.next_message = last_number(db, b"m") + 1
    except plyvel.Error as error:
        db.close()
        raise damaged(path, error) from None
    return store


def last_number(db: Any, kind: bytes) -> int:
    """The highest number behind a one-byte kind; 0 if there is none."""
    for key in db.iterator(prefix=kind, include_value=False, reverse=True):
        return int.from_bytes(key[1:9], "big")
    return 0


def stored_sessions(store: Store) -> list[StoredSession]:
    """Every durable session with its subscriptions and the ends of its queue, not its messages.

    Reads subscriptions in one sweep and two keys a session of its queue, so that a start takes the
    same time however many messages wait.
    """
    db = store.db
    sessions: dict[bytes, StoredSession] = {}
    for key, value in db.iterator(prefix=b"s", verify_checksums=True):
        number = value[:8]
        offline_at = int.from_bytes(value[8:16], "big")
        sessions[number] = StoredSession(key[1:].decode(), number, offline_at)
    highest = 0
    for number in ended_sessions(store):
        highest = max(highest, int.from_bytes(number, "big"))
    for number in sessions:
        highest = max(highest, int.from_bytes(number, "big"))
    store.next_session = highest + 1
    for key, value in db.iterator(prefix=b"u", verify_checksums=True):
        session = sessions.get(key[1:9])
        if session is not None:
            session.subscriptions.append((key[9:].decode(), value[0]))
    for session in sessions.values():
        read_ends(db, session)
    return list(sessions.values())


def read_ends(db: Any, session: StoredSession) -> None:
    """Finds the first and last entry of a session's queue and its next free place."""
    waiting = b"q" + session.number
    for key in db.iterator(prefix=waiting, include_value=False):
        session.first = int.from_bytes(key[9:], "big")
        break
    if session.first:
        for key in db.iterator(prefix=waiting, include_value=False, reverse=True):
            session.last = int.from_bytes(key[9:], "big")
            break
    session.next_seq = session.last + 1
    for key in db.iterator(prefix=b"i" + session.number, include_value=False, reverse=True):
        session.next_seq = max(session.next_seq, int.from_bytes(key[9:], "big") + 1)
        break


def ended_sessions(store: Store) -> list[bytes]:
    """Numbers of the sessions whose records are still to be deleted."""
    return [key[1:] for key in store.db.iterator(prefix=b"g", include_value=False)]


def stored_retained(store: Store) -> Iterator[Message]:
    """Every retained message."""
    for key, value in store.db.iterator(prefix=b"r", verify_checksums=True):
        yield Message(key[1:], value[1:], value[0], True)
