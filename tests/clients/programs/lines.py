"""What the Python programs share: the lines of JSON, and a loop for asyncio libraries."""

import asyncio
import json
import sys
import threading
from base64 import b64decode, b64encode
from collections.abc import Iterator
from typing import Any, Protocol
from urllib.parse import urlsplit

Record = dict[str, Any]

_write_lock = threading.Lock()


def emit(record: Record) -> None:
    """Write one line; safe from any thread."""
    line = json.dumps(record)
    with _write_lock:
        sys.stdout.write(line + "\n")
        sys.stdout.flush()


def emit_message(
    client: str, topic: str, payload: bytes, qos: int, retain: bool, dup: bool | None
) -> None:
    """Report a message that the library handed to the application."""
    text = b64encode(payload).decode()
    emit(
        {
            "client": client,
            "event": "message",
            "topic": topic,
            "payload": text,
            "qos": qos,
            "retain": bool(retain),
            "dup": dup,
        }
    )


def emit_closed(client: str) -> None:
    """Report that the library saw its connection end."""
    emit({"client": client, "event": "closed"})


def calls() -> Iterator[Record]:
    """The orders, until standard input ends."""
    for line in sys.stdin:
        yield json.loads(line)


def payloads(call: Record) -> list[bytes]:
    return [b64decode(text) for text in call["payloads"]]


def address(call: Record) -> tuple[str, str, int, str]:
    """Scheme, host, port and path of the URL that an `open` carries."""
    parts = urlsplit(call["url"])
    assert parts.hostname is not None
    assert parts.port is not None
    return parts.scheme, parts.hostname, parts.port, parts.path


class AsyncClient(Protocol):
    """One client of an asyncio library, as the loop below drives it."""

    async def open(self, call: Record) -> Record: ...
    async def subscribe(self, call: Record) -> Record: ...
    async def unsubscribe(self, call: Record) -> Record: ...
    async def publish(self, call: Record) -> Record: ...
    async def close(self, call: Record) -> Record: ...


async def _answer(client: AsyncClient, call: Record) -> None:
    try:
        result = await getattr(client, call["op"])(call)
    except Exception as error:  # noqa: BLE001 - whatever the library raises is an answer
        emit({"call": call["call"], "error": repr(error)})
    else:
        emit({"call": call["call"], "result": result})


async def serve(make_client: type[Any]) -> None:
    """Obey the orders on standard input; `make_client(name)` builds the client an `open` names."""
    loop = asyncio.get_running_loop()
    incoming: asyncio.Queue[Record | None] = asyncio.Queue()

    def read() -> None:
        for call in calls():
            loop.call_soon_threadsafe(incoming.put_nowait, call)
        loop.call_soon_threadsafe(incoming.put_nowait, None)

    threading.Thread(target=read, daemon=True).start()
    clients: dict[str, AsyncClient] = {}
    tasks: set[asyncio.Task[None]] = set()
    while (call := await incoming.get()) is not None:
        name = call["client"]
        if call["op"] == "open":
            clients[name] = make_client(name)
        client = clients.pop(name) if call["op"] == "close" else clients[name]
        # A caller awaits the answer before it gives the same client another order.
        task = asyncio.create_task(_answer(client, call))
        tasks.add(task)
        task.add_done_callback(tasks.discard)
