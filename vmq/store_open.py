"""Opening a store: the checks, and what a broker reads from it at its start."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import plyvel

from vmq.message import Message
from vmq.store import (
    FORMAT,
    Store,
    StoredSession,
    StoreError,
    check_end,
    scan,
    split_scope,
)


class StoreDamagedError(StoreError):
    """The database is there and cannot be read; `reason` is the text without advice."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(
            f"the store in {path} is damaged ({reason}); "
            f"look at it with 'vmq store check', mend it with 'vmq store repair'"
        )
        self.reason = reason


def open_database(path: Path, write_buffer_size: int, cache_size: int) -> Any:
    """Opens or creates the database and checks that it is one of vmq's.

    Raises:
        StoreError: it is in use, damaged, or something else.
    """
    db = open_leveldb(path, True, write_buffer_size, cache_size)
    try:
        check_format(db, path)
    except BaseException:
        db.close()
        raise
    return db


def open_leveldb(
    path: Path,
    create: bool,
    write_buffer_size: int = 4 * 1024 * 1024,
    cache_size: int = 8 * 1024 * 1024,
) -> Any:
    """Opens a folder as a LevelDB database, whoever it belongs to.

    Raises:
        StoreError: it is in use, damaged, or (unless `create`) not there.
    """
    check_files(path, create)
    if create:
        path.mkdir(parents=True, exist_ok=True)
    try:
        return plyvel.DB(
            str(path),
            create_if_missing=create,
            paranoid_checks=True,
            write_buffer_size=write_buffer_size,
            lru_cache_size=cache_size,
        )
    except plyvel.CorruptionError as error:
        raise StoreDamagedError(path, text_of(error)) from None
    except plyvel.Error as error:
        text = text_of(error)
        if text.startswith("IO error: lock "):
            raise StoreError(f"{path} is in use by another process") from None
        if "No such file" in text:
            raise StoreDamagedError(path, text) from None
        raise StoreError(f"cannot open the store in {path}: {text}") from None


def check_files(path: Path, create: bool) -> None:
    """Refuses to open what LevelDB would take for an empty database, and empty.

    Without the file CURRENT it starts anew and deletes every table that it finds; that the log is
    missing, which holds the latest writes, it does not notice.

    Raises:
        StoreError: a file is missing.
    """
    names = [each.name for each in path.iterdir()] if path.is_dir() else []
    if "CURRENT" in names:
        # Only a process that died while it made the database leaves it without a log.
        newborn = (path / "CURRENT").read_bytes() == b"MANIFEST-000001\n"
        if not newborn and not any(name.endswith(".log") for name in names):
            raise StoreDamagedError(path, "its log file is missing")
    elif any(name.endswith((".ldb", ".sst", ".log")) for name in names):
        raise StoreDamagedError(path, "its file CURRENT is missing")
    elif repair_folder(path).exists():
        raise StoreError(f"a repair of {path} was interrupted: run 'vmq store repair' again")
    elif not create:
        raise StoreError(f"there is no store in {path}")


def repair_folder(path: Path) -> Path:
    """Where a repair of the store in a folder puts the new one together."""
    return path.with_name(path.name + ".repairing")


def text_of(error: BaseException) -> str:
    """What an error says; LevelDB's say it in bytes."""
    args = error.args
    if len(args) == 1 and isinstance(args[0], bytes):
        return args[0].decode(errors="replace")
    return str(error)


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
            raise other_format(path, found)
        for _key in db.iterator(include_value=False, verify_checksums=True):
            raise no_format(path)
        check_end(db, b"")
    except plyvel.Error as error:
        raise StoreDamagedError(path, text_of(error)) from None
    db.put(b"v", FORMAT)


def other_format(path: Path, found: bytes) -> StoreError:
    """The refusal of a store that another version of vmq wrote, or of something else."""
    return StoreError(
        f"the store in {path} has format {found.decode(errors='replace')!r}; "
        f"this version of vmq reads {FORMAT.decode()!r}"
    )


def no_format(path: Path) -> StoreError:
    """The refusal of a database that does not say whose it is."""
    return StoreError(
        f"the database in {path} has no format record of vmq: it is another program's, "
        f"or damaged (then 'vmq store repair' mends it)"
    )


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
        raise StoreDamagedError(path, text_of(error)) from None
    return store


def last_number(db: Any, kind: bytes) -> int:
    """The highest number behind a one-byte kind; 0 if there is none."""
    for key, _ in scan(db, kind, reverse=True):
        return int.from_bytes(key[1:9], "big")
    return 0


def stored_sessions(store: Store) -> list[StoredSession]:
    """Every durable session with its subscriptions and the ends of its queue, not its messages.

    Reads subscriptions in one sweep and two keys a session of its queue, so that a start takes the
    same time however many messages wait.
    """
    db = store.db
    sessions: dict[bytes, StoredSession] = {}
    for key, value in scan(db, b"s"):
        number = value[:8]
        offline_at = int.from_bytes(value[8:16], "big")
        mountpoint, client_id = split_scope(key[1:])
        sessions[number] = StoredSession(mountpoint, client_id.decode(), number, offline_at)
    highest = 0
    for number in ended_sessions(store):
        highest = max(highest, int.from_bytes(number, "big"))
    for number in sessions:
        highest = max(highest, int.from_bytes(number, "big"))
    # Nothing that a damaged store may hold of forgotten sessions falls to a new one.
    for kind in (b"q", b"i", b"u", b"x", b"h", b"k"):
        highest = max(highest, last_number(db, kind))
    store.next_session = highest + 1
    for key, value in scan(db, b"u"):
        session = sessions.get(key[1:9])
        if session is not None:
            session.subscriptions.append((key[9:].decode(), value[0]))
    for session in sessions.values():
        read_ends(db, session)
    return list(sessions.values())


def read_ends(db: Any, session: StoredSession) -> None:
    """Finds the first and last entry of a session's queue, and the last that it sent."""
    waiting = b"q" + session.number
    session.first = end_of(db, waiting, False)
    if session.first:
        session.last = end_of(db, waiting, True)
    session.last_order = end_of(db, b"i" + session.number, True)


def end_of(db: Any, line: bytes, backwards: bool) -> int:
    """The first or the last place of one session's line of entries; 0 if it is empty."""
    for key, _ in scan(db, line, backwards):
        return int.from_bytes(key[9:], "big")
    return 0


def ended_sessions(store: Store) -> list[bytes]:
    """Numbers of the sessions whose records are still to be deleted."""
    return [key[1:] for key, _ in scan(store.db, b"g")]


def stored_retained(store: Store) -> Iterator[tuple[str, Message]]:
    """Every retained message with its mountpoint."""
    for key, value in scan(store.db, b"r"):
        mountpoint, topic = split_scope(key[1:])
        yield mountpoint, Message(topic, value[1:], value[0], True)
