"""A broker in the test's process, in a thread of its own, that can fail as real ones do."""

import asyncio
import contextlib
import shutil
import ssl
import tempfile
from collections.abc import Coroutine, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, TypeVar
from urllib.parse import urlsplit

import msgspec
import uvloop
from vmq_hooks.testing import LoopThread

from vmq.broker import Broker
from vmq.config.embedding import Keywords
from vmq.testing.authority import Authority
from vmq.testing.closing import Closing
from vmq.testing.ports import lasting_port

T = TypeVar("T")

#: How often the files of a store are copied anew, where LevelDB has changed them meanwhile.
_COPIES: Final = 20


class BrokerThread(Closing):
    """A broker that a test starts, uses and breaks; a context manager, also for `async with`.

    It lives in a thread of its own: plain tests and coroutines use it alike, with any client.

    Args:
        tls: have the listener speak TLS, with a certificate of `authority` for localhost and 127.0.0.1.
        folder: where its data and certificates go; a new folder, which goes with it, if it is left out.
        options: as of `vmq.Broker`: `users`, `acl`, `plugins`, `listen`, any section.
    """

    def __init__(self, *, tls: bool = False, folder: Path | None = None, **options: Any) -> None:
        self._own = folder is None
        self.folder = folder or Path(tempfile.mkdtemp(prefix="vmq-test-"))
        #: Who signed the certificate; of `tls` only.
        self.authority: Authority | None = None
        keywords = dict(options)
        keywords.setdefault("data_dir", self.folder / "data")
        if tls:
            keywords.update(self._certified())
        elif "listen" not in keywords and "listeners" not in keywords:
            keywords["listen"] = f"tcp://127.0.0.1:{lasting_port()}"
        base = keywords.pop("config", None)
        stated = Keywords.of(keywords)
        self._config, self._made = stated.over(base), stated.made()
        self._thread: LoopThread | None = None
        self._broker: Broker | None = None

    # Life

    def __enter__(self) -> Self:
        return self.start()

    async def __aenter__(self) -> Self:
        return await asyncio.to_thread(self.start)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await asyncio.to_thread(self.close)

    def start(self) -> Self:
        """Starts it; returns when clients are let in.

        Raises:
            StartError: it cannot start.
        """
        assert self._thread is None, "it is started already"
        self._thread = LoopThread("vmq.testing broker", uvloop.new_event_loop)
        try:
            self._thread.run(self._open())
        except BaseException:
            self.close()
            raise
        return self

    def stop(self) -> None:
        """Stops it in good order; its data stay until `close`."""
        thread = self._running()
        thread.run(self._stop())

    def close(self) -> None:
        """Stops it, and removes its data."""
        thread, self._thread = self._thread, None
        try:
            if thread is not None:
                try:
                    thread.run(self._stop())
                finally:
                    thread.close()
        finally:
            if self._own:
                shutil.rmtree(self.folder, ignore_errors=True)

    def restart(self) -> None:
        """Stops it in good order, if it runs, and starts it again with its data, at its addresses."""
        self._running().run(self._again())

    # Faults

    def crash(self) -> None:
        """Ends it as SIGKILL would, and starts it again at its addresses, with what its files had at that moment.

        Connections break without another byte, and nothing more is written; the start publishes the clients' wills.
        """
        self._running().run(self._crash())

    @contextlib.contextmanager
    def stall(self) -> Iterator[None]:
        """It does nothing for as long as the block runs: no answer, no accept, no keep-alive."""
        with self._running().held():
            yield

    def drop(self, client_id: str | None = None) -> int:
        """Breaks the connections of a client, or of all, as a network does; returns how many there were."""

        async def drop() -> int:
            connections = [
                each
                for each in self.broker.connections or ()
                if client_id in (None, each.session.client_id)
            ]
            for each in connections:
                each.abort()
            return len(connections)

        return self.run(drop())

    # What is in it

    @property
    def broker(self) -> Broker:
        """The broker itself. It belongs to its own loop: ask it by `run`."""
        assert self._broker is not None, "the broker is not started"
        return self._broker

    @property
    def addresses(self) -> list[str]:
        """The URLs of its listeners."""
        return self.broker.addresses

    @property
    def url(self) -> str:
        """The URL of its first listener, as clients write it."""
        return _for_clients(self.addresses[0])

    @property
    def host(self) -> str:
        """The host of its first listener."""
        return urlsplit(self.addresses[0]).hostname or ""

    @property
    def port(self) -> int:
        """The port of its first listener."""
        return urlsplit(self.addresses[0]).port or 0

    @property
    def context(self) -> ssl.SSLContext | None:
        """What a client needs to trust it; None without TLS."""
        return None if self.authority is None else self.authority.client_context()

    # Use

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of a coroutine in the broker's loop."""
        return self._running().run(work)

    async def reach(self, work: Coroutine[Any, Any, T]) -> T:
        """Like `run`, for tests that are coroutines: their own loop goes on meanwhile."""
        return await self._running().reach(work)

    def publish(
        self, topic: str, payload: bytes | str = b"", qos: int = 0, retain: bool = False
    ) -> None:
        """Publishes from inside the broker."""
        data = payload.encode() if isinstance(payload, str) else payload
        self.run(self.broker.publish(topic, data, qos, retain))

    # Inside

    def _running(self) -> LoopThread:
        assert self._thread is not None, "the broker is not started"
        return self._thread

    def _certified(self) -> dict[str, Any]:
        self.authority = authority = Authority(self.folder / "certificates")
        issued = authority.issue("localhost", ("localhost", "127.0.0.1"))
        listener = {
            "url": f"tls://127.0.0.1:{lasting_port()}",
            "certfile": issued.certfile,
            "keyfile": issued.keyfile,
        }
        return {"listeners": {"tls": listener}}

    async def _open(self) -> None:
        broker = Broker(self._config, plugins=self._made)
        await broker.start()
        self._broker = broker
        # Whoever comes again finds it where it was, at ports that the system chose, too.
        found = {
            name: msgspec.structs.replace(self._config.listeners[name], url=listener.url)
            for name, listener in broker.listeners.items()
        }
        listeners = {**self._config.listeners, **found}
        self._config = msgspec.structs.replace(self._config, listeners=listeners)

    async def _stop(self) -> None:
        broker, self._broker = self._broker, None
        if broker is not None:
            await broker.stop()

    async def _again(self) -> None:
        await self._stop()
        await self._open()

    async def _crash(self) -> None:
        data = Path(self._config.broker.data_dir)
        saved = data.with_name(f"{data.name}.crashed")
        # From here to the first await nothing else runs in the loop: what the files hold now is what is left.
        _copy(data, saved)
        for each in self.broker.connections or ():
            each.abort()
        await self._stop()
        shutil.rmtree(data)
        saved.rename(data)
        await self._open()


def _for_clients(url: str) -> str:
    scheme, _, rest = url.partition("://")
    return {"tcp": "mqtt", "tls": "mqtts"}.get(scheme, scheme) + "://" + rest


def _copy(source: Path, target: Path) -> None:
    """Copies a folder as it is at one moment; a thread of LevelDB may be at work in it."""
    for _ in range(_COPIES):
        shutil.rmtree(target, ignore_errors=True)
        before = _state(source)
        with contextlib.suppress(FileNotFoundError, shutil.Error):
            shutil.copytree(source, target)
            if _state(source) == before:
                return
    raise RuntimeError(f"{source} changes all the time")


def _state(folder: Path) -> dict[str, tuple[int, int]]:
    found = {}
    for path in folder.rglob("*"):
        with contextlib.suppress(FileNotFoundError):
            status = path.stat()
            found[str(path)] = (status.st_size, status.st_mtime_ns)
    return found
