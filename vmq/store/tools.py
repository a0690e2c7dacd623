"""Checking and repairing a store, while no broker uses it.

A store is damaged in two ways. Files may be missing, or not what LevelDB wrote: then it refuses
to open, or to read some block. Or every record is readable and some do not fit together, because a
repair had to leave others out (see `vmq.store.walk`). `check` and `repair` look for both in a copy of the store, for
LevelDB changes files whenever it opens a database. `repair` mends the copy, keeps the old store under another name, and
only then puts the copy in its place.
"""

import fcntl
import shutil
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import plyvel

from vmq.store.copying import check_room, copy_database
from vmq.store.damage import forget, load
from vmq.store.files import LOG_END, StoreFlawError, is_table
from vmq.store.flaws import show
from vmq.store.opening import (
    StoreDamagedError,
    in_use,
    is_of_leveldb,
    open_leveldb,
    repair_folder,
    text_of,
)
from vmq.store.orphans import FILE as ORPHANS
from vmq.store.orphans import Orphans
from vmq.store.store import StoreError
from vmq.store.walk import StoreReport, Walk

__all__ = ["Progress", "StoreReport", "check", "repair"]

#: Called now and then with what is done ("copying", "mending"), how much of it is done, and how much there is.
Progress = Callable[[str, int, int], None]


def check(path: Path, progress: Progress | None = None) -> StoreReport:
    """Reads every record of a store and reports what it holds and what is wrong with it.

    Where that cannot be read whole, the counts are those of what a repair would save.

    Args:
        path: the broker's data folder, or the folder of the store itself.
        progress: told how far it is.

    Raises:
        StoreError: there is no store, it is in use, it is not of this version of vmq, or there is no room for a copy.
    """
    folder = find_store(path)
    work = folder.with_name(folder.name + ".checking")
    with locked(folder), copied(folder, work, progress):
        found = examine(work)
        if not found.readable:
            report = mend(work, found, progress)
            report.problems = found.report.problems
            report.notes = ["counted is what 'vmq store repair' saves", *report.notes]
            return report
        return found.report


def repair(path: Path, progress: Progress | None = None) -> StoreReport:
    """Mends a store; what cannot be read is lost. The old store is kept beside the new one.

    Args:
        path: the broker's data folder, or the folder of the store itself.
        progress: told how far it is.

    Raises:
        StoreError: there is no store, it is in use, it is not of this version of vmq, there is no room for a copy, or
            it cannot be mended. The store is as it was then.
    """
    folder = find_store(path, finish_repair=True)
    work = repair_folder(folder)
    with locked(folder), copied(folder, work, progress):
        found = examine(work)
        if found.report.ok:
            found.report.notes.append("nothing to mend")
            return found.report
        report = mend(work, found, progress)
        aside = free_name(folder)
        folder.rename(aside)
        work.rename(folder)
        report.notes.insert(0, f"the store as it was is kept in {aside}")
        if (folder / ORPHANS).exists():
            (folder / ORPHANS).rename(aside / ORPHANS)
            report.notes.insert(
                1, f"messages of clients that nothing names any more are kept in {aside / ORPHANS}"
            )
    return report


def mend(work: Path, found: "Examined", progress: Progress | None) -> StoreReport:
    """Mends a copy; the report tells what is in it then, its notes what was done.

    Raises:
        StoreError: it cannot be mended.
    """
    # The mended copy begins its numbers anew, so that one of its logs may have the noted name.
    (work / LOG_END).unlink(missing_ok=True)
    try:
        notes = [
            f"lost of table {each.table}: {show(each.first.removesuffix(bytes(1)))} to {show(each.last)}"
            for each in load(work).lost
        ]
    except StoreFlawError as flaw:
        notes = [str(flaw)]
    notes += [] if found.readable else mend_files(work)
    notes += mend_records(work, progress)
    forget(work)
    report = examine(work).report
    report.notes = notes
    return report


# Folders and files


@contextmanager
def copied(folder: Path, work: Path, progress: Progress | None) -> Iterator[None]:
    """Copies a store; what is left of the copy goes at the end.

    Raises:
        StoreError: there is no room for it.
    """
    shutil.rmtree(work, ignore_errors=True)
    try:
        if progress is None:
            copy_database(folder, work)
        else:
            copy_database(folder, work, lambda done, total: progress("copying", done, total))
        yield
    finally:
        shutil.rmtree(work, ignore_errors=True)


def find_store(path: Path, finish_repair: bool = False) -> Path:
    """The store's folder, given the data folder or that itself.

    Raises:
        StoreError: there is none.
    """
    folder = path / "store"
    if repair_folder(folder).exists() and not folder.exists():
        # A repair ended between its last two steps: the new store is complete.
        if not finish_repair:
            raise StoreError(f"a repair of {folder} was interrupted: run 'vmq store repair' again")
        repair_folder(folder).rename(folder)
    for each in (folder, path):
        if each.is_dir() and any(is_of_leveldb(file.name) for file in each.iterdir()):
            return each
    raise StoreError(f"there is no store in {path}")


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Holds LevelDB's lock without LevelDB, so that no broker opens the store meanwhile.

    Nothing may open the file LOCK in this process until the end: closing it would end the lock.

    Raises:
        StoreError: another process has it.
    """
    with (folder / "LOCK").open("ab") as file:
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise in_use(folder) from None
        yield


def free_name(folder: Path) -> Path:
    """A name for the damaged store, beside the new one."""
    number = 1
    while True:
        name = folder.with_name(f"{folder.name}.damaged-{number}")
        if not name.exists():
            return name
        number += 1


# LevelDB's own damage


def mend_files(folder: Path) -> list[str]:
    """Makes the database one that opens, and whose every block is readable.

    LevelDB's repair reads tables with their checksums, but logs without: a flipped bit would come
    back as a valid topic. So the logs are made tables first, by the reader that recovers them when
    a database is opened, which leaves out what it cannot trust.

    Returns:
        What was lost.

    Raises:
        StoreError: LevelDB gave up, or there is no room.
    """
    lost: list[str] = []
    # All is written once more before what it was written from goes.
    check_room(folder, sum(each.stat().st_size for each in folder.iterdir()), "the repair")
    try:
        for log in sorted(folder.glob("[0-9]*.log")):
            lost += log_to_table(folder, log)
        plyvel.repair_db(str(folder), paranoid_checks=True)
        lost += lost_of_tables(folder)
        settle(folder)
    except plyvel.Error as error:
        raise StoreError(f"the store cannot be mended: {text_of(error)}") from None
    shutil.rmtree(folder / "lost", ignore_errors=True)
    return lost


def settle(folder: Path) -> None:
    """Makes tables of one level of those that a repair has put on the first, where the newest file is believed.

    A table may be newer than one whose records are: what it was made of may be older.
    """
    with closing(open_leveldb(folder, create=False)) as db:
        db.compact_range()


def log_to_table(folder: Path, log: Path) -> list[str]:
    """Replaces a log by a table of what can be read of it; returns what was lost.

    Each log becomes a database of its own, with a single table: nothing is compacted there, which
    would forget the deletions of records in other tables.
    """
    scratch = folder / "log"
    scratch.mkdir()
    log.rename(scratch / log.name)
    # As large as it may be: one log, one table.
    plyvel.DB(str(scratch), create_if_missing=True, write_buffer_size=1 << 30).close()
    for table in scratch.iterdir():
        if is_table(table.name):
            numbers = [int(each.stem) for each in folder.iterdir() if each.stem.isdigit()]
            table.rename(folder / f"{max(numbers, default=0) + 1:06}.ldb")
    lost = []
    for line in read_log_of_leveldb(scratch):
        if "dropping" in line:
            lost.append("lost of " + line.rpartition("/")[2])
    shutil.rmtree(scratch)
    return lost


def lost_of_tables(folder: Path) -> list[str]:
    """What LevelDB's repair wrote of tables that it could not read whole."""
    lost = []
    for line in read_log_of_leveldb(folder):
        _, is_table_line, rest = line.partition("Table #")
        if is_table_line and ("Corruption" in rest or "IO error" in rest):
            lost.append("lost of table " + rest)
    return lost


def read_log_of_leveldb(folder: Path) -> list[str]:
    """The lines that LevelDB wrote for its operator, when it last had this folder open."""
    return (folder / "LOG").read_text(errors="replace").splitlines()


def mend_records(folder: Path, progress: Progress | None) -> list[str]:
    """Makes the records of a readable database fit together; returns what was changed.

    Raises:
        StoreError: it is not vmq's after all, or cannot be read or written.
    """
    with closing(open_leveldb(folder, create=False)) as db, Orphans(folder, db) as orphans:
        walk = Walk(db, folder, mend=True)
        walk.orphan = orphans.save
        try:
            if progress is not None:
                walk.total = sum(1 for _ in db.iterator(include_value=False))
                walk.progress = lambda done, total: progress("mending", done, total)
            walk.run()
        except plyvel.Error as error:
            raise StoreError(f"the store cannot be mended: {text_of(error)}") from None
    if not walk.readable:
        raise StoreError(f"the store cannot be mended: {walk.report.problems[0]}")
    return ["mended: " + problem for problem in walk.report.problems]


class Examined:
    """A report, and whether LevelDB could read everything."""

    def __init__(self, report: StoreReport, readable: bool) -> None:
        self.report = report
        self.readable = readable


def examine(folder: Path) -> Examined:
    """Checks a store, given its folder."""
    try:
        db = open_leveldb(folder, create=False)
    except StoreDamagedError as error:
        report = StoreReport()
        report.problems.append(f"the database cannot be opened: {error.reason}")
        return Examined(report, False)
    with closing(db):
        walk = Walk(db, folder, mend=False)
        walk.run()
        try:
            lost = load(folder).lost
        except StoreFlawError as flaw:
            lost = []
            walk.report.problems.append(str(flaw))
        if lost:
            tables = ", ".join(dict.fromkeys(each.table for each in lost))
            walk.report.problems.append(
                f"{len(lost)} blocks of {tables} could not be read; what needs them is refused until a repair"
            )
        return Examined(walk.report, walk.readable)
