"""The broker as one plugin sees it: `vmq_hooks.Broker`, made for each plugin."""

import asyncio
import inspect
import logging
import os
import threading
from collections.abc import (
    AsyncIterator,
    Callable,
    Collection,
    Coroutine,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import AbstractAsyncContextManager, suppress
from contextvars import copy_context
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple, ParamSpec, Protocol, TypeVar

from vmq_hooks import BridgeSession, Message, SubscriberId
from vmq_hooks import Metric as SeenMetric
from vmq_hooks.broker import names_of
from vmq_hooks.labels import MAX_SAMPLES, OTHERS, Labels, check_labels, check_name

from vmq.plugins.steps import ends_task
from vmq.version import __version__

#: Seconds that what a plugin does has to end.
STOP_TIMEOUT: Final = 10.0
#: Seconds that its threads have, which nobody can end.
THREAD_REST: Final = 2.0
#: Threads that one plugin may have at a time.
AT_ONCE: Final = min(32, (os.cpu_count() or 1) + 4)

P = ParamSpec("P")
R = TypeVar("R")


class Host(Protocol):
    """What the handles need of the broker; `vmq.broker.Broker` has it."""

    @property
    def node_name(self) -> str: ...

    @property
    def worker(self) -> int: ...

    @property
    def data_dir(self) -> Path: ...

    @property
    def is_open(self) -> bool: ...

    def before_clients(self, work: "asyncio.Task[Any]") -> None: ...

    async def publish(
        self, topic: str, payload: bytes, qos: int = 0, retain: bool = False, mountpoint: str = ""
    ) -> None: ...

    def subscribe_for_plugin(
        self, filters: Sequence[str], qos: int, mountpoint: str, client_id: str | None, clean: bool
    ) -> AbstractAsyncContextManager[AsyncIterator[Message]]: ...

    def bridge(
        self,
        client_id: str,
        mountpoint: str,
        max_inflight_messages: int | None,
        max_offline_messages: int | None,
    ) -> AbstractAsyncContextManager[BridgeSession]: ...

    async def disconnect(self, subscriber_id: SubscriberId, cleanup: bool) -> bool: ...

    async def connected_elsewhere(self, subscriber_id: SubscriberId) -> str: ...

    async def disconnect_users(self, usernames: Collection[str]) -> int: ...

    async def drop_wills(self, usernames: Collection[str]) -> int: ...

    async def reauthorize(self, subscriber_id: SubscriberId | None) -> int: ...

    async def declare_stream(self, name: str, options: Mapping[str, Any]) -> None: ...

    def figures(self) -> "list[Figure]": ...


class Figure(NamedTuple):
    """One figure of the broker."""

    name: str
    labels: Mapping[str, str]
    value: float
    help: str


class PluginCounter:
    """A counter of a plugin; it outlives reloads."""

    __slots__ = ("help", "labels", "name", "value")

    def __init__(self, name: str, description: str, labels: Labels = ()) -> None:
        self.name = name
        self.help = description
        self.labels = labels
        self.value = 0

    def add(self, amount: int = 1) -> None:
        if amount < 0:
            raise ValueError(f"counter {self.name}: {amount} is negative; a counter only grows")
        self.value += amount


class PluginCounters:
    """All counters of one plugin, by name and labels."""

    def __init__(self) -> None:
        self._made: dict[str, dict[Labels, PluginCounter]] = {}
        self._labelled = 0

    def get(self, name: str, description: str, labels: Mapping[str, str] | None) -> PluginCounter:
        """The counter, made when first asked for. Raises ValueError as `vmq_hooks.Broker.counter` says."""
        check_name(name, "a counter")
        key = check_labels(labels)
        family = self._made.setdefault(name, {})
        found = family.get(key)
        if found is not None:
            return found
        if key:
            self._labelled += 1
            if self._labelled > MAX_SAMPLES:
                self._labelled = MAX_SAMPLES
                key = tuple((label, OTHERS) for label, _ in key)
        return family.setdefault(key, PluginCounter(name, description, key))

    def __iter__(self) -> Iterator[PluginCounter]:
        for family in self._made.values():
            yield from family.values()


class PluginThreads:
    """Threads for what blocks in a plugin: of its own, as those of the event loop's executor write the broker's store.

    One that never ends keeps nobody but the plugin's next calls, and not the process.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._free = asyncio.Semaphore(AT_ONCE)
        self._running: set[asyncio.Future[tuple[Any, BaseException | None]]] = set()

    async def run(self, function: Callable[[], R]) -> R:
        """What the function gives, or raises."""
        await self._free.acquire()
        loop = asyncio.get_running_loop()
        arrived: asyncio.Future[tuple[Any, BaseException | None]] = loop.create_future()
        context = copy_context()

        def end(outcome: tuple[Any, BaseException | None]) -> None:
            self._free.release()
            self._running.discard(arrived)
            arrived.set_result(outcome)

        def work() -> None:
            try:
                outcome: tuple[Any, BaseException | None] = (context.run(function), None)
            except BaseException as error:  # noqa: BLE001 - handed to whoever waits for it
                outcome = (None, error)
            with suppress(RuntimeError):  # the event loop has ended
                loop.call_soon_threadsafe(end, outcome)

        self._running.add(arrived)
        try:
            threading.Thread(target=work, name=f"vmq-plugin-{self._name}", daemon=True).start()
        except RuntimeError as error:  # the system gives no more
            end((None, error))
        found, raised = await asyncio.shield(arrived)
        if raised is not None:
            raise raised
        result: R = found
        return result

    async def finish(self) -> bool:
        """Waits a little while for what runs; returns whether all has ended."""
        if not self._running:
            return True
        _, left = await asyncio.wait(set(self._running), timeout=THREAD_REST)
        return not left


class PluginGauge(NamedTuple):
    """A gauge of a plugin; it ends with the plugin."""

    plugin: str
    help: str
    read: Callable[[], Iterable[tuple[Mapping[str, str], float]]]


class Handle:
    """The handle of one plugin, from its start to its stop."""

    def __init__(
        self,
        name: str,
        host: Host,
        config_dir: Path,
        counters: PluginCounters,
        forget: Callable[[], None],
    ) -> None:
        self._name = name
        self._host = host
        self._counters = counters
        self._forget = forget
        self._tasks: set[asyncio.Task[Any]] = set()
        self._threads = PluginThreads(name)
        self._readers: list[Callable[[], object]] = []
        self.gauges: dict[str, PluginGauge] = {}
        #: What is wrong, by what it is about.
        self.problems: dict[str, str] = {}
        self._log = logging.getLogger(f"vmq.plugins.{name}")
        self._config_dir = config_dir

    @property
    def node_name(self) -> str:
        return self._host.node_name

    @property
    def worker(self) -> int:
        return self._host.worker

    @property
    def version(self) -> str:
        return __version__

    @property
    def log(self) -> logging.Logger:
        return self._log

    @property
    def data_dir(self) -> Path:
        folder = self._host.data_dir / "plugins" / self._name
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return folder

    @property
    def config_dir(self) -> Path:
        return self._config_dir

    async def publish(
        self,
        topic: str,
        payload: bytes,
        *,
        qos: int = 0,
        retain: bool = False,
        mountpoint: str = "",
    ) -> None:
        await self._host.publish(topic, payload, qos, retain, mountpoint)

    def subscribe(
        self,
        *topic_filters: str,
        qos: int = 0,
        mountpoint: str = "",
        client_id: str | None = None,
        clean_session: bool = True,
    ) -> AbstractAsyncContextManager[AsyncIterator[Message]]:
        return self._host.subscribe_for_plugin(
            topic_filters, qos, mountpoint, client_id, clean_session
        )

    def bridge(
        self,
        client_id: str,
        *,
        mountpoint: str = "",
        max_inflight_messages: int | None = None,
        max_offline_messages: int | None = None,
    ) -> AbstractAsyncContextManager[BridgeSession]:
        return self._host.bridge(client_id, mountpoint, max_inflight_messages, max_offline_messages)

    async def when_open(self, work: Coroutine[Any, Any, Any]) -> None:
        if self._host.is_open:
            await work
        else:
            self._host.before_clients(self.spawn(work))

    async def disconnect(self, subscriber_id: SubscriberId, *, cleanup: bool = False) -> bool:
        return await self._host.disconnect(subscriber_id, cleanup)

    async def connected_elsewhere(self, subscriber_id: SubscriberId) -> str:
        return await self._host.connected_elsewhere(subscriber_id)

    async def disconnect_users(self, usernames: Collection[str]) -> int:
        return await self._host.disconnect_users(names_of(usernames))

    async def drop_wills(self, usernames: Collection[str]) -> int:
        return await self._host.drop_wills(names_of(usernames))

    async def reauthorize(self, subscriber_id: SubscriberId | None = None) -> int:
        return await self._host.reauthorize(subscriber_id)

    def forget_verdicts(self) -> None:
        self._forget()

    def on_reload(self, read: Callable[[], object]) -> None:
        self._readers.append(read)

    async def reread(self) -> None:
        """Has the plugin read its files again; what fails is logged."""
        for read in self._readers:
            try:
                found = read()
                if inspect.isawaitable(found):
                    await found
            except BaseException as error:
                if ends_task(error):
                    raise
                self._log.error("files of plugin %s are not read anew", self._name, exc_info=error)

    def set_problem(self, about: str, text: str) -> None:
        self.problems.pop(about, None)
        if text:
            self.problems[about] = text

    def metrics(self) -> Sequence[SeenMetric]:
        return self._host.figures()

    def counter(
        self, name: str, description: str, labels: Mapping[str, str] | None = None
    ) -> PluginCounter:
        return self._counters.get(name, description, labels)

    def gauge(
        self,
        name: str,
        description: str,
        read: Callable[[], Iterable[tuple[Mapping[str, str], float]]],
    ) -> None:
        check_name(name, "a gauge")
        self.gauges[name] = PluginGauge(self._name, description, read)

    async def declare_stream(self, name: str, options: Mapping[str, Any]) -> None:
        await self._host.declare_stream(name, options)

    def spawn(self, work: Coroutine[Any, Any, Any], name: str = "") -> "asyncio.Task[Any]":
        if not asyncio.iscoroutine(work):
            raise TypeError(f"{work!r} is no coroutine; accepted: what an async def returns")
        name = name or f"plugin {self._name}"
        task = asyncio.get_running_loop().create_task(_contained(work), name=name)
        self._tasks.add(task)
        task.add_done_callback(self._on_done)
        task.add_done_callback(lambda _: work.close())  # cancelled before it began
        return task

    def _on_done(self, task: "asyncio.Task[Any]") -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            what = task.get_name()
            self._log.error("a task of plugin %s failed: %s", self._name, what, exc_info=error)

    async def run_in_thread(
        self, function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs
    ) -> R:
        return await self._threads.run(partial(function, *args, **kwargs))

    async def close(self) -> None:
        """Cancels the spawned work and waits for its end, and threads', not for that of what does not end."""
        tasks = self._tasks - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        if tasks:
            _, left = await asyncio.wait(tasks, timeout=STOP_TIMEOUT)
            for each in left:
                what = each.get_name()
                self._log.error("a task of plugin %s does not end: %s", self._name, what)
        if not await self._threads.finish():
            self._log.error("a thread of plugin %s does not end", self._name)


async def _contained(work: Coroutine[Any, Any, Any]) -> Any:
    """A task that wants to end the program ends itself: such an error would end the event loop."""
    try:
        return await work
    except (SystemExit, KeyboardInterrupt) as error:
        raise RuntimeError(f"{type(error).__name__}: {error}") from error
