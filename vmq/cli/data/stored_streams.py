"""The streams in a data folder, for commands that look into its files, whether a broker runs there or not."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vmq.cli.admin.client import AdminClient
from vmq.cli.terminal import settings
from vmq.cli.terminal.console import CliError
from vmq.cli.terminal.rows import clean

if TYPE_CHECKING:
    from vmq.config.options import Config


@contextmanager
def stored_streams(config: Path | None, data_dir: str | None) -> Iterator[Path]:
    """The folder of streams; what goes wrong with it becomes an error of the command line."""
    with all_stored_streams(config, data_dir) as folders:
        yield folders[0]


@contextmanager
def all_stored_streams(config: Path | None, data_dir: str | None) -> Iterator[list[Path]]:
    """The folders of streams of all workers that have used the data folder; its own comes first."""
    folder = _data_folder(config, data_dir)
    try:
        from vmq.streams.log.errors import StreamError
        from vmq.streams.stored import find_folder
    except ImportError as problem:
        raise CliError(
            f"streams need more libraries ({problem}): pip install 'vmq[streams]'"
        ) from None
    try:
        others = [each / "streams" for each in _workers(folder)]
        yield [find_folder(folder), *(each for each in others if each.is_dir())]
    except (StreamError, OSError) as problem:
        raise CliError(clean(str(problem))) from None


def elsewhere(config: Path | None, data_dir: str | None, name: str) -> dict[int, str]:
    """The partitions of a stream that no process on a data folder has, by the node that does, or leads it.

    Nothing where no broker runs there, or one that is in no cluster: who owns what only nodes know.
    """
    folder = _data_folder(config, data_dir)
    owners: dict[int, str] = {}
    here: set[int] = set()
    for each in _workers(folder) or [folder]:
        broker = AdminClient(None, str(each))
        if not broker.finds_broker():
            continue
        rows: list[dict[str, Any]] = broker.get("/stream", name=name)["partitions"]
        for row in rows:
            names = (row["owner"], row["leader"], *row["replicas"])
            owners[row["partition"]] = next(filter(None, names), "")
        here |= {row["partition"] for row in rows if row["segments"] is not None}
    return {number: owners[number] for number in sorted(owners.keys() - here)}


def where(name: str, found: dict[int, str]) -> str:
    """Which partitions of a stream are on which nodes, for people."""
    nodes = sorted(set(found.values()))
    return "; ".join(
        f"partition {', '.join(str(number) for number in found if found[number] == node)} of stream "
        f"{name!r} is on node {node!r}"
        for node in nodes
    )


def configured(config: Path | None, data_dir: str | None) -> "Config":
    """The configuration that a command is given."""
    overrides = {} if data_dir is None else {"broker.data_dir": data_dir}
    return settings.load(config, overrides).config


def _data_folder(config: Path | None, data_dir: str | None) -> Path:
    return Path(configured(config, data_dir).broker.data_dir)


def _workers(folder: Path) -> list[Path]:
    """The folders of the workers that a data folder is of; none where there is one process."""
    return sorted(each for each in folder.glob("workers/*") if each.name.isdecimal())
