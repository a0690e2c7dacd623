"""Opening a store: the checks, and what a broker reads from it at its start."""

import fcntl
import os
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any, Final

import plyvel

from vmq.mqtt.message import Message
from vmq.store.damage import Damage, load
from vmq.store.entries import StoredSession, decode_retained, split_scope, waiting_key
from vmq.store.files import StoreFlawError, check_whole, is_manifest, is_table
from vmq.store.lines import check_end, is_end, line_ends, places, scan
from vmq.store.sent import Run, runs_of
from vmq.store.store import CLOCK_SET, FORMAT, FORMAT_1, Store, StoreError

#: Sessions whose lines are ended in one write.
ENDED_AT_ONCE: Final = 1000


#: Writes after which the move of entries at the start is committed.
MOVED_AT_ONCE: Final = 10_000

#: Bytes of a table of LevelDB's: its default, and the least that it takes for it.
LARGEST_TABLE: Final = 2 * 1024 * 1024
SMALLEST_TABLE: Final = 1024 * 1024

#: Each start of a damaged store leaves out so many numbers.
SKIPPED: Final = 1_000_000


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
        check_format(db, path, noted_damage(path))
    except BaseException:
        db.close()
        raise
    return db


def noted_damage(path: Path) -> Damage:
    """What is noted of a store's damage.

    Raises:
        StoreDamagedError: the note cannot be read.
    """
    try:
        return load(path)
    except StoreFlawError as flaw:
        raise StoreDamagedError(path, str(flaw)) from None


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
            # A merge takes as much room as a dozen tables, until it is done.
            max_file_size=min(max(write_buffer_size, SMALLEST_TABLE), LARGEST_TABLE),
            lru_cache_size=cache_size,
        )
    except plyvel.CorruptionError as error:
        raise StoreDamagedError(path, text_of(error)) from None
    except plyvel.Error as error:
        text = text_of(error)
        if text.startswith("IO error: lock "):
            raise in_use(path) from None
        if "No such file" in text:
            raise StoreDamagedError(path, text) from None
        raise StoreError(f"cannot open the store in {path}: {text}") from None


def check_files(path: Path, create: bool) -> None:
    """Refuses to open what is not whole: LevelDB would delete the files that it does not miss.

    Raises:
        StoreError: a file is missing, or is not what was written.
    """
    if not path.is_dir() or not any(is_of_leveldb(each.name) for each in path.iterdir()):
        if repair_folder(path).exists():
            raise StoreError(f"a repair of {path} was interrupted: run 'vmq store repair' again")
        if not create:
            raise StoreError(f"there is no store in {path}")
        return
    try:
        check_whole(path)
    except StoreFlawError as flaw:
        # Its files change under whoever looks while somebody writes.
        if is_locked(path):
            raise in_use(path) from None
        raise StoreDamagedError(path, str(flaw)) from None


def is_of_leveldb(name: str) -> bool:
    """Whether a database has files of such names."""
    return name == "CURRENT" or name.endswith(".log") or is_manifest(name) or is_table(name)


def is_locked(path: Path) -> bool:
    """Whether a process has the database open, this one included."""
    lock = path / "LOCK"
    # A process that closes a file gives up all of its locks on it, by whichever descriptor it has them.
    if is_open_here(lock):
        return True
    try:
        with lock.open("r+b") as file:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except OSError:
        return True
    return False


def is_open_here(path: Path) -> bool:
    """Whether this process has a file open."""
    for each in Path("/dev/fd").iterdir():
        try:
            if os.path.samestat(os.fstat(int(each.name)), path.stat()):
                return True
        except OSError:
            pass  # it is closed by now, or there is no such file
    return False


def in_use(path: Path) -> StoreError:
    """The refusal of a database that another process has open."""
    return StoreError(f"{path} is in use by another process")


def repair_folder(path: Path) -> Path:
    """Where a repair of the store in a folder puts the new one together."""
    return path.with_name(path.name + ".repairing")


def text_of(error: BaseException) -> str:
    """What an error says; LevelDB's say it in bytes."""
    args = error.args
    if len(args) == 1 and isinstance(args[0], bytes):
        return args[0].decode(errors="replace")
    return str(error)


def check_format(db: Any, path: Path, damage: Damage) -> None:
    """Writes the format record into an empty database, checks it in any other; one of version 1 becomes one of today.

    Raises:
        StoreError: the database is no store of vmq, or of another version.
    """
    try:
        found = db.get(b"v", verify_checksums=True)
        if found == FORMAT:
            return
        if found == FORMAT_1:
            end_all_lines(db)
        elif found is not None:
            raise other_format(path, found)
        elif not damage.covers(b"v"):
            check_empty(db, path)
    except plyvel.Error as error:
        raise StoreDamagedError(path, text_of(error)) from None
    db.put(b"v", FORMAT)


def check_empty(db: Any, path: Path) -> None:
    """Refuses a database without a format record that has others.

    Raises:
        StoreError: it is another program's, or damaged.
    """
    for _key in db.iterator(include_value=False, verify_checksums=True):
        raise no_format(path)
    check_end(db, b"")


def end_all_lines(db: Any) -> None:
    """Puts an end behind each line of a store of version 1; what is there of an attempt that died does no harm."""
    for kind, number in ((b"s", None), (b"k", slice(1, 9)), (b"g", slice(1, 9))):
        numbers = scan(db, kind)
        while batch := [
            key[number] if number else value[:8] for key, value in islice(numbers, ENDED_AT_ONCE)
        ]:
            with db.write_batch() as writes:
                for session in batch:
                    for key in line_ends(session):
                        writes.put(key, b"")


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
    damage = noted_damage(path)
    if damage.lost:
        store.damage = damage
    try:
        move_all_sent(db)
        store.next_message = last_number(db, b"m") + 1 + skipped(damage)
        load_sizes(store)
        clock = db.get(CLOCK_SET) or b""
        store.clock_set = int.from_bytes(clock[:8], "big", signed=True)
        store.clock_noted = int.from_bytes(clock[8:], "big")
    except plyvel.Error as error:
        db.close()
        raise StoreDamagedError(path, text_of(error)) from None
    return store


def move_all_sent(db: Any) -> None:
    """Moves what was sent and has its entry where it waited, of clients who were there when the broker was killed."""
    notes = scan(db, b"j")
    note = next(notes, None)
    if note is None:
        return
    store = Store(db, "os", lambda: None)
    load_sizes(store)
    while note is not None:
        key, raw = note
        session = key[1:]
        for run in runs_of(raw):
            first, last = run.place, run.place + run.count - 1
            part = {"start": waiting_key(session, first), "stop": waiting_key(session, last)}
            for entry in list(db.iterator(**part, include_stop=True, verify_checksums=True)):
                move_sent(store, run, *entry)
        store.delete(key)
        note = next(notes, None)
        if note is None or store.gathered > MOVED_AT_ONCE:
            store.begin_commit()
            store.write()
            store.end_commit()


def move_sent(store: Store, run: Run, key: bytes, raw: bytes) -> None:
    """Moves one such entry; one whose message cannot be read stays."""
    try:
        delivery = store.read_entry(raw)
    except StoreError:
        return
    if delivery is not None:
        place = int.from_bytes(key[9:], "big")
        delivery.key = key
        delivery.packet_id = run.packet_id_of(place)
        delivery.order = run.order_of(place)
        store.put_inflight(key[1:9], delivery)


def skipped(damage: Damage | None) -> int:
    """Numbers that are not given out: what is lost may have had them."""
    return SKIPPED if damage is not None and damage.lost else 0


def last_number(db: Any, kind: bytes) -> int:
    """The highest number behind a one-byte kind; 0 if there is none."""
    for key, _ in scan(db, kind, reverse=True):
        return int.from_bytes(key[1:9], "big")
    return 0


def load_sizes(store: Store) -> None:
    """What the messages of sessions have on disk; counted, where a repair or an older broker has noted nothing."""
    sizes = store.sizes
    is_noted = False
    for key, value in scan(store.db, b"b"):
        size = int.from_bytes(value, "big")
        if len(key) == 1:
            is_noted = True
            sizes.total = sizes.noted_total = size
        else:
            sizes.known(key[1:], size)
    if is_noted:
        return
    for kind in (b"q", b"i"):
        for key, raw in scan(store.db, kind):
            if not is_end(key):
                store.count_raw(key[1:9], raw, True)
    for _, raw in scan(store.db, b"m"):
        sizes.total += len(raw)


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
        owner = value[17:].decode() if value[16:17] else None
        sessions[number] = StoredSession(mountpoint, client_id.decode(), number, offline_at, owner)
    highest = 0
    for number in ended_sessions(store):
        highest = max(highest, int.from_bytes(number, "big"))
    for number in sessions:
        highest = max(highest, int.from_bytes(number, "big"))
    # Nothing that a damaged store may hold of forgotten sessions falls to a new one.
    for kind in (b"q", b"i", b"u", b"x", b"h", b"k"):
        highest = max(highest, last_number(db, kind))
    store.next_session = highest + 1 + skipped(store.damage)
    for key, value in scan(db, b"u"):
        session = sessions.get(key[1:9])
        if session is not None and not is_end(key):
            topic_filter = key[9:].decode()
            session.subscriptions.append((topic_filter, value[0]))
            if value[1:]:
                session.asked[topic_filter] = value[1:].decode()
    for session in sessions.values():
        read_ends(db, session)
    return list(sessions.values())


def read_ends(db: Any, session: StoredSession) -> None:
    """Finds the first and last entry of a session's queue, and the ends of what it sent."""
    session.first, session.last = places(db, b"q" + session.number)
    session.first_order, session.last_order = places(db, b"i" + session.number)


def ended_sessions(store: Store) -> list[bytes]:
    """Numbers of the sessions whose records are still to be deleted."""
    return [key[1:] for key, _ in scan(store.db, b"g")]


def stored_retained(store: Store) -> Iterator[tuple[str, Message]]:
    """Every retained message with its mountpoint."""
    for key, value in scan(store.db, b"r"):
        mountpoint, topic = split_scope(key[1:])
        yield mountpoint, decode_retained(topic, value)
