"""Opening the streams, for which a broker needs more libraries than for all else."""

from pathlib import Path
from typing import TYPE_CHECKING

from vmq.commits import Committer
from vmq.config import Config
from vmq.core import Core
from vmq.process import own_folder
from vmq.registry import Registry
from vmq.start_error import StartError

if TYPE_CHECKING:
    from vmq.streaming import Streaming


def streams_folder(config: Config) -> Path:
    """Where a broker keeps its streams."""
    return Path(config.broker.data_dir) / "streams"


def check_libraries() -> None:
    """Looks whether what streams need is installed.

    Raises:
        StartError: a library is missing.
    """
    try:
        import vmq.streaming  # noqa: F401
    except ImportError as error:
        text = f"streams need more libraries ({error}): pip install 'vmq[streams]'"
        raise StartError(text) from error


def open_streaming(
    core: Core, registry: Registry, config: Config, committer: Committer | None = None
) -> "Streaming":
    """Opens the streams of the configuration, and those that only lie in the data directory.

    Raises:
        StartError: a library is missing, or the folder cannot be used.
    """
    folder = streams_folder(config)
    check_libraries()
    from vmq.streaming import StreamError, Streaming

    try:
        own_folder(folder)
        return Streaming(core, registry, folder, config.streams, committer)
    except StreamError as error:
        raise StartError(str(error)) from error
    except OSError as error:
        raise StartError(f"cannot use the streams: {folder}: {error.strerror}") from error
