"""What the process is tuned by before it serves."""

import asyncio
import gc
import socket
from weakref import WeakValueDictionary

import pytest
import uvloop

from vmq.cli.start.foreground import untrack_transports


async def kept_of_a_connection() -> int:
    """How many transports uvloop keeps of a connection to itself, over which something comes."""
    loop = asyncio.get_running_loop()
    here, there = socket.socketpair()
    for each in (here, there):
        each.setblocking(False)
    reader, writer = await asyncio.open_connection(sock=here)
    _, other = await asyncio.open_connection(sock=there)
    other.write(b"there")
    assert await reader.readexactly(5) == b"there"
    kept = [len(each) for each in gc.get_referents(loop) if isinstance(each, WeakValueDictionary)]
    for stream in (writer, other):
        stream.close()
        await stream.wait_closed()
    return sum(kept)


@pytest.mark.parametrize("are_tracked", [True, False])
def test_uvloop_keeps_no_transports(are_tracked: bool) -> None:
    async def come() -> int:
        if not are_tracked:
            untrack_transports()
        return await kept_of_a_connection()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        assert runner.run(come()) == (2 if are_tracked else 0)
