"""What this node keeps of other hosts' members: the messages of commits that may be accepted and not published yet.

It lies beside what this node's own members have staged, in the same form; when the store that staged it is lost it goes
there, and is published from there.

    copies/QUERY/state.json
    copies/QUERY/BATCH-PART-ATTEMPT.arrow
"""

import os
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from vmq.streams.groups.copying import CopyPiece
from vmq.streams.groups.steps import StepNumber
from vmq.streams.log.checkpoint import sync_folder
from vmq.streams.staging.parts import MEMBERS, Staging
from vmq.streams.staging.state import (
    DECIDED,
    StagedState,
    StagedStep,
    StagingError,
    load_state,
    write_state,
)


class StepCopies:
    """The copies. Methods are called in threads, one at a time.

    Args:
        folder: where they lie; made when first needed.
        staging: where they go.
        most: bytes of all of them.
    """

    def __init__(self, folder: Path, staging: Staging, most: int) -> None:
        self.folder = folder
        self.staging = staging
        self.most = most

    def write(self, query: str, pieces: Sequence[CopyPiece]) -> None:
        """Keeps bytes of a step's files.

        Raises:
            StagingError: there is no room, or the disk.
        """
        folder = self.folder / query
        try:
            if not folder.is_dir():
                folder.mkdir(parents=True)
                sync_folder(self.folder)
            added = sum(len(each.data) for each in pieces)
            if added + self.size() > self.most:
                raise StagingError(f"more than {self.most} bytes of other nodes are kept")
            self.staging.room.check(self.folder, added)
            for each in pieces:
                fd = os.open(folder / each.name, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
                try:
                    os.pwrite(fd, each.data, each.offset)
                finally:
                    os.close(fd)
        except OSError as error:
            raise StagingError(f"cannot keep messages: {error.strerror or error}") from error

    def keep(self, query: str, sizes: Sequence[tuple[str, int]], state: bytes) -> StagedStep:
        """All of a step is there: keeps it for good.

        Raises:
            StagingError: it is not, or it is none; or the disk.
        """
        folder = self.folder / query
        try:
            asked = DECIDED.decode(state)
            if asked.step is None or asked.parts != [name for name, _ in sizes]:
                raise StagingError("it is no step")
            for name, size in sizes:
                with (folder / name).open("r+b") as file:
                    if os.fstat(file.fileno()).st_size != size:
                        raise StagingError(f"{name} is not whole")
                    try:
                        os.fsync(file.fileno())
                    except OSError:
                        # The next sync would say nothing of it: it is to be sent anew.
                        (folder / name).unlink()
                        raise
            write_state(folder, StagedState(-1, None, asked))
        except msgspec.MsgspecError as error:
            raise StagingError(f"it is no step: {error}") from None
        except OSError as error:
            raise StagingError(f"cannot keep messages: {error.strerror or error}") from error
        return asked.step

    def kept(self) -> Iterator[tuple[str, StagedStep]]:
        """Queries and their steps; what did not come whole goes.

        Raises:
            StagingError: the disk.
        """
        for folder in sorted(self.folder.glob(f"{MEMBERS}*")):
            asked = load_state(folder).asked
            if asked is None or asked.step is None:
                shutil.rmtree(folder, ignore_errors=True)
            else:
                yield folder.name, asked.step

    def drop(self, query: str, store: str, number: StepNumber) -> bool:
        """A step is needed no more; returns whether it was there."""
        folder = self.folder / query
        asked = load_state(folder).asked
        if asked is None or asked.step is None:
            shutil.rmtree(folder, ignore_errors=True)  # it never came whole
            return False
        if not asked.step.step.is_named(store, number):
            return False
        shutil.rmtree(folder, ignore_errors=True)
        return True

    def adopt(self, query: str, step: StagedStep) -> int:
        """A step is this node's from now on, under a name of its own; returns its batch.

        Raises:
            StagingError: the disk.
        """
        folder, staging = self.folder / query, self.staging
        state = load_state(folder)
        if state.asked is None:
            raise StagingError(f"{folder} has no step")
        state.asked.step = step
        size = sum(each.stat().st_size for each in folder.glob("*.arrow"))
        try:
            write_state(folder, state)
            staging.folder.mkdir(parents=True, exist_ok=True)
            folder.rename(staging.folder / query)
            sync_folder(staging.folder)
        except OSError as error:
            raise StagingError(f"cannot keep messages: {error.strerror or error}") from error
        with staging.lock:
            staging.size += size
        return state.asked.batch

    def size(self) -> int:
        """Bytes of all that is kept."""
        return sum(each.stat().st_size for each in self.folder.glob("*/*.arrow"))
