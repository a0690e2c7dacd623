"""Checking and repairing a store, while no broker uses it.

A store is damaged in two ways. LevelDB may find a file missing or a checksum wrong: then it refuses
to open, or to read some block. Or every record is readable and some do not fit together, because a
repair had to leave others out (see `vmq.store_walk`). `check` looks for both and changes nothing
that means anything (LevelDB moves its log into a table whenever it is opened). `repair` mends both:
it builds a new store beside the old one, keeps the old one under another name, and only then puts
the new one in its place.
"""

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import plyvel

from vmq.store import StoreError
from vmq.store_open import StoreDamagedError, open_leveldb, repair_folder, text_of
from vmq.store_walk import Progress, Report, Walk

__all__ = ["Report", "check", "repair"]


def check(path: Path) -> Report:
    """Reads every record of a store and reports what it holds and what is wrong with it.

    Args:
        path: the broker's data folder, or the folder of the store itself.

    Raises:
        StoreError: there is no store, it is in use, or it is not of this version of vmq.
    """
    return examine(find_store(path)).report


def repair(path: Path, progress: Progress | None = None) -> Report:
    """Mends a store; what cannot be read is lost. The old store is kept beside the new one.

    Args:
        path: the broker's data folder, or the folder of the store itself.
        progress: called now and then with the records done and their total number.

    Raises:
        StoreError: there is no store, it is in use, it is not of this version of vmq, or it cannot
            be mended. The store is as it was then.
    """
    folder = find_store(path, finish_repair=True)
    found = examine(folder)
    if found.report.ok:
        found.report.notes.append("nothing to mend")
        return found.report
    work = repair_folder(folder)
    with locked(folder):
        shutil.rmtree(work, ignore_errors=True)
        try:
            copy_database(folder, work)
            notes = [] if found.readable else mend_files(work)
            notes += mend_records(work, progress)
            report = examine(work).report
        except BaseException:
            shutil.rmtree(work, ignore_errors=True)
            raise
        aside = free_name(folder)
        folder.rename(aside)
        work.rename(folder)
    report.notes = [f"the store as it was is kept in {aside}", *notes]
    return report


# Folders and files


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
    if folder.is_dir():
        return folder
    if path.is_dir() and any(is_of_leveldb(each.name) for each in path.iterdir()):
        return path
    raise StoreError(f"there is no store in {path}")


def is_of_leveldb(name: str) -> bool:
    """Whether a database has files of such names."""
    return name == "CURRENT" or name.startswith("MANIFEST-") or is_table(name)


def is_table(name: str) -> bool:
    """Whether a file is one of LevelDB's tables."""
    return name.endswith((".ldb", ".sst"))


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
            raise StoreError(f"{folder} is in use by another process") from None
        yield


def copy_database(source: Path, target: Path) -> None:
    """Copies a database. Tables are linked where that is possible: they never change."""
    target.mkdir(parents=True)
    for each in sorted(source.iterdir()):
        if not each.is_file() or each.name == "LOCK":
            continue
        copy = target / each.name
        if is_table(each.name):
            try:
                os.link(each, copy)
                continue
            except OSError:
                pass  # a file system without links
        shutil.copy2(each, copy)


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
        StoreError: LevelDB gave up.
    """
    lost: list[str] = []
    try:
        for log in sorted(folder.glob("[0-9]*.log")):
            lost += log_to_table(folder, log)
        plyvel.repair_db(str(folder), paranoid_checks=True)
    except plyvel.Error as error:
        raise StoreError(f"the store cannot be mended: {text_of(error)}") from None
    lost += lost_of_tables(folder)
    shutil.rmtree(folder / "lost", ignore_errors=True)
    return lost


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
    with closing(open_leveldb(folder, create=False)) as db:
        walk = Walk(db, folder, mend=True)
        try:
            if progress is not None:
                walk.total = sum(1 for _ in db.iterator(include_value=False))
                walk.progress = progress
            walk.run()
        except plyvel.Error as error:
            raise StoreError(f"the store cannot be mended: {text_of(error)}") from None
    if not walk.readable:
        raise StoreError(f"the store cannot be mended: {walk.report.problems[0]}")
    return ["mended: " + problem for problem in walk.report.problems]


class Examined:
    """A report, and whether LevelDB could read everything."""

    def __init__(self, report: Report, readable: bool) -> None:
        self.report = report
        self.readable = readable


def examine(folder: Path) -> Examined:
    """Checks a store, given its folder."""
    try:
        db = open_leveldb(folder, create=False)
    except StoreDamagedError as error:
        report = Report()
        report.problems.append(f"the database cannot be opened: {error.reason}")
        return Examined(report, False)
    with closing(db):
        walk = Walk(db, folder, mend=False)
        walk.run()
        return Examined(walk.report, walk.readable)
