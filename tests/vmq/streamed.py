"""Brokers with streams, and what is in them."""

import asyncio
import errno
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.vmq.streams.support import Row, options, read_all
from vmq.broker import Broker
from vmq.config.options import Config, ListenerOptions
from vmq.streams.serving.service import Streaming

TIMEOUT = 30.0


def config_in(folder: Path, *urls: str, **streams: Any) -> Config:
    """A broker's configuration: streams by name, each given by its filters, or by options."""
    listeners = {
        f"l{number}": ListenerOptions(url=url)
        for number, url in enumerate(urls or ("tcp://127.0.0.1:0",))
    }
    return Config(
        broker=msgspec.structs.replace(Config().broker, data_dir=str(folder / "data")),
        listeners=listeners,
        streams={
            name: options(filters=[each]) if isinstance(each, str) else each
            for name, each in streams.items()
        },
    )


def streams_of(broker: Broker) -> Streaming:
    assert broker.streaming is not None
    return broker.streaming


async def rows_of(broker: Broker, name: str) -> list[Row]:
    """What a stream has, partition by partition, once all that came before is in it."""
    streaming = streams_of(broker)
    async with asyncio.timeout(TIMEOUT):
        await streaming.commits.wait()
    stream = streaming.catalog.get(name)
    return [each for partition in stream.partitions for each in read_all(partition)]


async def payloads_of(broker: Broker, name: str) -> list[bytes]:
    return [each["payload"] for each in await rows_of(broker, name)]


def fill_disk(broker: Broker, patch: pytest.MonkeyPatch) -> None:
    """The streams of a broker cannot write until the patch is undone."""
    writer = streams_of(broker).commits.writer
    writer.retry_after = 0.01

    def full(_commit: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    patch.setattr(writer, "attempt", full)
