"""What is known of a pipeline from outside: files in its folder, each replaced in one step.

FOLDER/pipelines/NAME/lock             held while its runner or its driver lives
FOLDER/pipelines/NAME/runner.json      what the runner says
FOLDER/pipelines/NAME/progress.json    what its driver says
FOLDER/pipelines/NAME/checkpoints/     Spark's, one folder a query
FOLDER/pipelines/NAME/tables/          what it writes, one folder a table
FOLDER/pipelines/NAME/scratch/         Spark's scratch space, emptied at each start

FOLDER is the plugin's in the broker's data directory. Only a pipeline's own processes write there.
"""

import re
from pathlib import Path
from typing import Final, Literal, TypeVar

import msgspec
from msgspec import Struct

from vmq_spark.errors import PipelineError
from vmq_spark.locks import is_locked

NAME: Final = re.compile(r"[A-Za-z0-9]+([_-][A-Za-z0-9]+)*\Z")
LONGEST_NAME: Final = 100
#: Bytes of a status file; ours are far smaller.
LARGEST_FILE: Final = 1 << 20
MOST_PIPELINES: Final = 1000

State = Literal["starting", "running", "waiting", "finished", "stopped", "failed"]
#: States that last when nobody holds the lock any more.
FINAL: Final = ("finished", "stopped", "failed")

F = TypeVar("F", bound=Struct)


class RunnerStatus(Struct):
    """What the runner says. Times are seconds since 1970."""

    state: State = "stopped"
    source: str = ""
    master: str = ""
    server: str = ""
    #: The runner's process, and that of the driver (0: there is none).
    pid: int = 0
    driver: int = 0
    since: float = 0.0
    #: How often the driver was started anew, and why it ended the last time that it failed.
    restarts: int = 0
    error: str = ""


class QueryProgress(Struct):
    """How far one query is."""

    #: When Spark said so, as it writes times.
    time: str = ""
    batch: int = -1
    #: Rows since the driver's start.
    rows: int = 0
    rows_per_second: float = 0.0
    batch_seconds: float = 0.0
    #: Rows (grouped, where the query groups) that came after the watermark and were left out.
    late: int = 0
    #: Stream -> partition -> messages at the broker that are still to be read; None: it reads no stream.
    lag: dict[str, dict[str, int]] | None = None

    @property
    def total_lag(self) -> int | None:
        """Messages to be read, of all partitions."""
        if self.lag is None:
            return None
        return sum(sum(partitions.values()) for partitions in self.lag.values())


class Progress(Struct):
    """What the driver says."""

    queries: dict[str, QueryProgress] = {}
    #: Why it ends.
    error: str = ""


class Status(Struct):
    """All of it. `is_running`: somebody holds the lock."""

    name: str
    is_running: bool
    runner: RunnerStatus
    progress: Progress

    @property
    def state(self) -> str:
        """The runner's word for it, unless it was killed before it could say another.

        A pipeline runs as soon as its first query does; a driver takes its time for that.
        """
        state = self.runner.state
        if not self.is_running and state not in FINAL:
            return "killed"
        return "starting" if state == "running" and not self.progress.queries else state


def is_name(text: str) -> bool:
    """Whether a pipeline, a query or a table may have this name."""
    return len(text) <= LONGEST_NAME and NAME.match(text) is not None


def checked_name(text: str) -> str:
    """The name of a pipeline. Raises PipelineError if none may have it."""
    if not is_name(text):
        raise PipelineError(
            f"a pipeline cannot be named {text!r}; accepted: letters, digits, _ and - between them (--name)"
        )
    return text


def pipelines_folder(folder: Path) -> Path:
    """Where the pipelines of a plugin's folder lie."""
    return folder / "pipelines"


def read_all(folder: Path) -> list[Status]:
    """The pipelines that were ever run from a plugin's folder."""
    try:
        paths = sorted(pipelines_folder(folder).iterdir())
    except FileNotFoundError:
        return []
    found = [each for each in paths if is_name(each.name) and each.is_dir()]
    return [read(each) for each in found[:MOST_PIPELINES]]


def read(folder: Path) -> Status:
    """One pipeline, by its own folder."""
    return Status(
        folder.name,
        is_locked(folder),
        _read(folder / "runner.json", RunnerStatus),
        _read(folder / "progress.json", Progress),
    )


def write(folder: Path, status: RunnerStatus | Progress) -> None:
    """Replaces the runner's, or the driver's, words."""
    name = "runner.json" if isinstance(status, RunnerStatus) else "progress.json"
    work = folder / (name + ".tmp")
    work.write_bytes(msgspec.json.encode(status))
    work.replace(folder / name)


def _read(path: Path, kind: type[F]) -> F:
    """A file that is missing, too large or damaged says nothing."""
    try:
        with path.open("rb") as file:
            return msgspec.json.decode(file.read(LARGEST_FILE), type=kind)
    except (OSError, ValueError):
        return kind()
