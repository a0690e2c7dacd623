"""Opening the streams, for which a broker needs more libraries than for all else."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from vmq.config.options import Config
from vmq.core.context import Core
from vmq.core.registry import Registry
from vmq.persistence.group_commit import Committer
from vmq.runtime.errors import StartError
from vmq.runtime.process import own_folder

if TYPE_CHECKING:
    from vmq.mqtt.special import GroupTopic
    from vmq.streams.serving.following import RowMapper
    from vmq.streams.serving.service import Streaming


def streams_folder(config: Config) -> Path:
    """Where a broker keeps its streams."""
    return Path(config.broker.data_dir) / "streams"


def check_libraries() -> None:
    """Looks whether what streams need is installed.

    Raises:
        StartError: a library is missing.
    """
    try:
        import vmq.streams.serving.service  # noqa: F401
    except ImportError as error:
        text = f"streams need more libraries ({error}): pip install 'vmq[streams]'"
        raise StartError(text) from error


async def load_libraries() -> None:
    """Imports in a thread what streams need: half a second of CPU, for which `open_streaming` would hold the loop.

    Raises:
        StartError: a library is missing.
    """
    await asyncio.to_thread(check_libraries)


def open_streaming(
    core: Core, registry: Registry, config: Config, committer: Committer | None = None
) -> "Streaming":
    """Opens the streams of the configuration, and those that only lie in the data directory.

    Raises:
        StartError: a library is missing, or the folder cannot be used.
    """
    folder = streams_folder(config)
    check_libraries()
    from vmq.streams.serving.service import StreamError, Streaming

    try:
        own_folder(folder)
        numbers = config.broker.stream_scrub_rate, config.limits.max_partitions
        found = Streaming(core, registry, folder, config.streams, *numbers, committer)
        found.sql.memory = config.limits.max_query_memory
        found.sql.seconds = config.limits.max_query_seconds
        return found
    except StreamError as error:
        raise StartError(str(error)) from error
    except OSError as error:
        raise StartError(f"cannot use the streams: {folder}: {error.strerror}") from error


async def follow_stream(
    streams: "Callable[[], Streaming]", topic: "GroupTopic", mapper: "RowMapper"
) -> None:
    """Has a mapping read a stream, which may be the first use of streams at all."""
    try:
        follower = streams().follower
    except StartError as error:
        mapper.cannot(str(error))
    else:
        await follower.follow(topic, mapper)
