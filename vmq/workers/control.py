"""What the supervisor and a worker say to each other, over a pair of sockets that nobody else has.

The worker is told its configuration (`BeginWorker`, later `Follow`) and tells how it fares. Each end notices by the end
of the stream that the other one is gone: a worker without its supervisor stops.
"""

import asyncio
import socket
from collections.abc import Mapping
from typing import Final

import msgspec
from msgspec import Struct

from vmq.config.options import Config, value_of
from vmq.config.overrides import LiveConfig, Override
from vmq.http.dashboard.reading import Reading
from vmq.runtime.share import Share

#: Bytes of the longest message: a configuration.
_LONGEST: Final = 64 << 20
#: Bytes that wait for the other end, above which it is behind.
_BEHIND: Final = 1 << 20
_LENGTH: Final = 4


class WorkerSettings(Struct, frozen=True):
    """A configuration in force, as it travels: as read, with what was set live, and when each of that was set."""

    base: Config
    config: Config
    since: dict[str, float]

    @classmethod
    def of(cls, live: LiveConfig) -> "WorkerSettings":
        """The settings that give this configuration."""
        since = {key: each.since for key, each in live.overrides.items()}
        return cls(live.base, live.config, since)

    @property
    def live(self) -> LiveConfig:
        """The configuration itself."""
        overrides: Mapping[str, Override] = {
            key: Override(value_of(self.config, key), since) for key, since in self.since.items()
        }
        return LiveConfig(self.base, self.config, overrides)


class BeginWorker(Struct, frozen=True, tag=True):
    """To a worker, first of all: what it is."""

    settings: WorkerSettings
    share: Share


class Follow(Struct, frozen=True, tag=True):
    """To a worker that runs: the configuration. `Followed` answers."""

    settings: WorkerSettings
    #: It was read anew, changed or not: so are the files that it names.
    is_read: bool = False


class Watch(Struct, frozen=True, tag=True):
    """To a worker: whether anybody looks at its figures; while somebody does, it looks who is worst, too."""

    is_watched: bool


class Rotate(Struct, frozen=True, tag=True):
    """To a worker: open the log file anew, which something else has moved away."""


class WorkerReady(Struct, frozen=True, tag=True):
    """From a worker: its listeners accept; and why it serves no clients, if so."""

    shut: str = ""


class WorkerFailed(Struct, frozen=True, tag=True):
    """From a worker: it cannot start, and why; it ends."""

    reason: str


class Followed(Struct, frozen=True, tag=True):
    """From a worker: the configuration is in force; with a refusal nothing of it is, or plugins stay as they were."""

    refusal: str = ""


class DoorCount(Struct, frozen=True, array_like=True):
    """Connections that were handed over from one listener: how many the worker took so far, and how many are open."""

    taken: int
    connections: int


class Alive(Struct, frozen=True, tag=True):
    """From a worker, about once a second: its event loop runs, and these are its figures."""

    reading: Reading | None = None
    doors: dict[str, DoorCount] = {}
    #: Why it serves no clients; "": it does.
    shut: str = ""


Message = BeginWorker | Follow | Watch | Rotate | WorkerReady | WorkerFailed | Followed | Alive

_decoder: Final[msgspec.msgpack.Decoder[Message]] = msgspec.msgpack.Decoder(Message)
_encoder: Final = msgspec.msgpack.Encoder()


class Channel:
    """One end of the pair."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def over(cls, sock: socket.socket) -> "Channel":
        """The channel over a connected socket, which it owns from now on."""
        return cls(*await asyncio.open_connection(sock=sock))

    def send(self, message: Message) -> None:
        """Sends; nothing happens if the other end is gone."""
        data = _encoder.encode(message)
        self._writer.write(len(data).to_bytes(_LENGTH, "big") + data)

    @property
    def is_behind(self) -> bool:
        """Whether the other end does not read what it is sent."""
        return self._writer.transport.get_write_buffer_size() > _BEHIND

    async def receive(self) -> Message | None:
        """The next message; None: the other end is gone, or talks nonsense."""
        try:
            length = int.from_bytes(await self._reader.readexactly(_LENGTH), "big")
            if length > _LONGEST:
                return None
            return _decoder.decode(await self._reader.readexactly(length))
        except (asyncio.IncompleteReadError, OSError, msgspec.DecodeError):
            return None

    async def close(self) -> None:
        """Ends this end."""
        self._writer.close()
        try:
            await self._writer.wait_closed()
        except OSError:
            pass  # the other end went first
