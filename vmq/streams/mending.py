"""Mending damaged partitions while no broker uses them: what can be kept is, and what was there is put aside first.

Of a last segment the rows before the damage stay, and the offsets behind them are given out again. In front of a
sealed segment nothing can stay: offsets have no gaps, and those behind it are what readers go on with.
"""

import os
import shutil
from pathlib import Path
from typing import Final

from vmq.config.streams import StreamOptions
from vmq.streams.damaged import open_whole
from vmq.streams.definition import lock_folder, read_definition
from vmq.streams.log.errors import DamagedError
from vmq.streams.log.partition import CHECKPOINT
from vmq.streams.log.segment import SUFFIX, index_path
from vmq.streams.parking import folders

#: Folders beside the segments, which hold what was there before.
ASIDE: Final = "damaged-{}"


def mend(folder: Path, names: list[str]) -> list[str]:
    """Mends the damaged partitions of some streams; returns what was done, a text for each.

    Args:
        folder: where the streams of a broker lie.
        names: the streams.

    Raises:
        StreamError: a broker uses the folder, or a definition cannot be used.
        OSError: the disk.
    """
    lock = lock_folder(folder)
    try:
        done = []
        for name in names:
            options, _ = read_definition(folder / name)
            for number in range(options.partitions):
                done += mend_partition(folder / name / str(number), name, number, options)
        return done
    finally:
        os.close(lock)


def mend_partition(folder: Path, name: str, number: int, options: StreamOptions) -> list[str]:
    """Brings a partition into a state in which it opens; one that does stays as it is."""
    done: list[str] = []
    for parked in folders(folder):
        done += mend_partition(parked, name, number, options)
    aside = free_name(folder)
    while True:
        try:
            open_whole(folder, name, number, options).close()
        except DamagedError as damage:
            what = give_up(folder, aside, damage)
            done.append(f"{damage}: {what}; what was there is kept in {aside}")
        else:
            return done


def give_up(folder: Path, aside: Path, damage: DamagedError) -> str:
    """Puts a damaged part aside; returns what is lost to the partition."""
    aside.mkdir(exist_ok=True)
    segments = sorted(folder.glob("*" + SUFFIX))
    base = int(damage.path.stem)
    is_gap = damage.offset < base and damage.path in segments
    if is_gap or damage.path in segments[:-1]:
        reached = [
            each for each in segments if each < damage.path or (each == damage.path and not is_gap)
        ]
        for each in reached:
            put_aside(each, aside)
        return f"the partition begins behind {reached[-1].name} now"
    if damage.path in segments:
        if damage.position:
            shutil.copy2(damage.path, aside)
            if damage.position < damage.path.stat().st_size:
                os.truncate(damage.path, damage.position)
        else:
            put_aside(damage.path, aside)
            segments.remove(damage.path)
    if segments:
        put_aside(folder / CHECKPOINT, aside)  # it tells of rows that are gone
    return f"the partition ends at offset {damage.offset} now"


def put_aside(path: Path, aside: Path) -> None:
    """Moves a file, and the index that belongs to it."""
    for each in {path, index_path(path)}:
        if each.exists():
            each.rename(aside / each.name)


def free_name(folder: Path) -> Path:
    """A folder that is not there yet."""
    number = 1
    while (folder / ASIDE.format(number)).exists():
        number += 1
    return folder / ASIDE.format(number)
