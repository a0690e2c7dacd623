"""The transport of a connection without a socket."""

from collections.abc import Callable
from typing import Any


class MemoryTransport:
    """Stands for an asyncio transport; keeps what is written."""

    def __init__(self, peer: object = ("192.0.2.1", 4711)) -> None:
        self.peer = peer
        self.written = bytearray()
        self.writes = 0
        self.closed = False
        self.aborted = False
        self.reading = True
        self.buffered = 0
        self.high_water: int | None = None
        self.on_close: Callable[[], None] = lambda: None

    def write(self, data: bytes) -> None:
        assert not self.closed, f"written after close: {data!r}"
        assert data, "an empty write"
        self.written += data
        self.writes += 1

    def close(self) -> None:
        self.closed = True
        self.on_close()

    def abort(self) -> None:
        self.aborted = True
        self.close()

    def pause_reading(self) -> None:
        assert self.reading, "paused twice"
        self.reading = False

    def resume_reading(self) -> None:
        assert not self.reading, "resumed twice"
        self.reading = True

    def is_reading(self) -> bool:
        return self.reading

    def get_write_buffer_size(self) -> int:
        return self.buffered

    def set_write_buffer_limits(self, high: int) -> None:
        self.high_water = high

    def get_extra_info(self, name: str) -> Any:
        return self.peer if name == "peername" else None
