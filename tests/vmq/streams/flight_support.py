"""A catalog with its threads and an event loop of its own, for clients that block."""

import asyncio
import base64
import json
import os
import tempfile
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final, TypeVar

from pyarrow import flight

from vmq.config.streams import StreamOptions
from vmq.streams.catalog import Catalog
from vmq.streams.flight.front import Front, Orders
from vmq.streams.flight.service import MOST_CALLS, StreamServer
from vmq.streams.log.commits import Commits

#: How programs reach a server: at its own port, or by way of a front.
FACES: Final = ("server", "front")

T = TypeVar("T")


class Running:
    """A catalog in a loop in a thread, as a broker runs it."""

    def __init__(self, folder: Path, **declared: StreamOptions) -> None:
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self.thread.start()

        def make() -> Catalog:
            catalog = Catalog(folder, declared, Commits(self.loop))
            catalog.start()
            return catalog

        self.catalog = self.call(make)

    def call(self, function: Callable[[], T]) -> T:
        async def run() -> T:
            return function()

        return self.run(run())

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(30)

    def append(self, topic: str, *payloads: bytes, client_id: str = "c", at: int = 0) -> None:
        """Publishes, and waits until it is durable."""

        def append() -> None:
            for appender in self.catalog.appenders(topic):
                for payload in payloads:
                    when = at or time.time_ns() // 1000
                    appender.append(topic.encode(), payload, 1, False, client_id, when)

        self.call(append)
        self.run(self.catalog.commits.wait())

    def close(self) -> None:
        self.run(self.catalog.close())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()
        self.loop.close()


@contextmanager
def serving(
    face: str, running: Running, most_calls: int = MOST_CALLS, **more: Any
) -> Iterator[StreamServer | Front]:
    """What programs talk to; `most_calls` is its limit of reads."""
    if face == "server":
        with closing(StreamServer(running.catalog, most_calls=most_calls, **more)) as server:
            yield server
        return
    with tempfile.TemporaryDirectory() as name:
        folder = os.open(name, os.O_RDONLY)
        inner = f"/proc/self/fd/{folder}/flight.sock"
        server = StreamServer(running.catalog, socket=inner, **more)
        front = Front(Orders(inner, "127.0.0.1", 0), most_calls)
        try:
            yield front
        finally:
            server.stopping.set()
            front.close()
            server.close()
            os.close(folder)


def ticket(stream: str, **fields: Any) -> flight.Ticket:
    return flight.Ticket(json.dumps({"stream": stream, **fields}).encode())


def act(client: Any, kind: str, options: Any = None, **fields: Any) -> Any:
    """The answer of an action."""
    body = json.dumps(fields).encode()
    (result,) = client.do_action(flight.Action(kind, body), options)
    return json.loads(result.body.to_pybytes())


def basic(user: str, password: bytes) -> flight.FlightCallOptions:
    text = base64.b64encode(user.encode() + b":" + password)
    return flight.FlightCallOptions(headers=[(b"authorization", b"Basic " + text)])


def code_of(error: flight.FlightError) -> str:
    """What an error says to programs."""
    return str(json.loads(error.extra_info)["code"])
