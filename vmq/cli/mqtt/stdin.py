"""Standard input for a program that runs an event loop."""

import asyncio
import os
import threading
from collections.abc import AsyncIterator
from typing import Final

_CHUNK: Final = 65536
# Chunks read ahead of the consumer.
_AHEAD: Final = 4


async def lines(descriptor: int = 0) -> AsyncIterator[bytes]:
    """The lines as they come, without their line feeds; a last line need not have one.

    Works for files, pipes and terminals alike (an event loop waits for the latter two only), which takes a thread. The
    thread reads the bare descriptor: blocked in `sys.stdin`, it would hold a lock that the interpreter wants at exit.
    """
    loop = asyncio.get_running_loop()
    chunks: asyncio.Queue[bytes] = asyncio.Queue(_AHEAD)

    def read() -> None:
        chunk = b"-"
        while chunk:
            try:
                chunk = os.read(descriptor, _CHUNK)
            except OSError:
                chunk = b""
            try:
                asyncio.run_coroutine_threadsafe(chunks.put(chunk), loop).result()
            except RuntimeError:
                return  # the loop is closed: nobody wants lines any more

    threading.Thread(target=read, name="stdin", daemon=True).start()
    pending: list[bytes] = []
    while chunk := await chunks.get():
        *complete, rest = chunk.split(b"\n")
        for line in complete:
            yield b"".join((*pending, line))
            pending.clear()
        if rest:
            pending.append(rest)
    if pending:
        yield b"".join(pending)
