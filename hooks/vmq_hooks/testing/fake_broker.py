"""A stand-in for the broker's handle, for tests of a plugin by itself.

    async with FakeBroker(tmp_path) as broker:
        plugin = MyPlugin()
        plugin.start(broker, MyPlugin.Config(topic="a"))
        ...
        assert broker.published == [Published("a", b"1")]

It remembers what the plugin asked for. Messages that the plugin publishes reach its own
subscriptions; `deliver` brings those of others.
"""

import asyncio
import inspect
import logging
from collections.abc import (
    AsyncIterator,
    Callable,
    Collection,
    Coroutine,
    Iterable,
    Mapping,
    Sequence,
)
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple, ParamSpec, Self, TypeVar

from vmq_hooks.answers import check_filter
from vmq_hooks.broker import Metric, names_of
from vmq_hooks.labels import check_labels, check_name, shown
from vmq_hooks.testing.fake_bridge import FakeBridge
from vmq_hooks.types import Message, SubscriberId, matches

P = ParamSpec("P")
R = TypeVar("R")


class Published(NamedTuple):
    """What a plugin published."""

    topic: str
    payload: bytes
    qos: int = 0
    retain: bool = False
    mountpoint: str = ""


class Disconnected(NamedTuple):
    """A client that a plugin disconnected."""

    subscriber_id: SubscriberId
    cleanup: bool


class Figure(NamedTuple):
    """A metric with a fixed value."""

    name: str
    value: float
    labels: Mapping[str, str] = {}
    help: str = ""


class FakeCounter:
    """A counter that a test can read."""

    def __init__(
        self, name: str, description: str, labels: Mapping[str, str] | None = None
    ) -> None:
        self.name = name
        self.help = description
        self.labels: Mapping[str, str] = dict(labels or {})
        self.value: float = 0

    def add(self, amount: int = 1) -> None:
        if amount < 0:
            raise ValueError(f"counter {self.name}: {amount} is negative; a counter only grows")
        self.value += amount


class _Subscription(NamedTuple):
    filters: tuple[str, ...]
    mountpoint: str
    messages: "asyncio.Queue[Message]"


class FakeBroker:
    """The broker as `Plugin.start` receives it, without a broker.

    Args:
        folder: a folder for the test; data_dir is made in it, config_dir is the folder itself.
        node_name, version, worker: what the plugin shall see.
    """

    def __init__(
        self, folder: Path, *, node_name: str = "node1", version: str = "0.0.test", worker: int = 1
    ) -> None:
        self.node_name = node_name
        self.worker = worker
        self.version = version
        self.log = logging.getLogger("vmq.plugins.test")
        self.config_dir = folder
        #: What the plugin published, in order.
        self.published: list[Published] = []
        self.disconnected: list[Disconnected] = []
        #: The users whose connections were ended, call by call.
        self.disconnected_users: list[frozenset[str]] = []
        #: The users whose wills were taken, call by call.
        self.dropped_wills: list[frozenset[str]] = []
        #: Clients that were asked to be reauthorised; None stands for all.
        self.reauthorized: list[SubscriberId | None] = []
        #: How often verdicts were forgotten.
        self.forgotten = 0
        #: What `metrics` gives besides the plugin's own counters. A test may fill it.
        self.figures: list[Metric] = []
        #: By name; those with labels as `NAME{LABEL="VALUE"}`, the labels in alphabetical order.
        self.counters: dict[str, FakeCounter] = {}
        #: What the plugin's gauges are read by.
        self.gauges: dict[str, Callable[[], Iterable[tuple[Mapping[str, str], float]]]] = {}
        #: The streams that the plugin declared, and their options.
        self.streams: dict[str, Mapping[str, Any]] = {}
        #: Client ids that `disconnect` finds; None: it finds everyone.
        self.connected: set[SubscriberId] | None = None
        #: Which other node has a client's connection.
        self.elsewhere: dict[SubscriberId, str] = {}
        #: Raised by the next calls of `publish`, as a full or stopping broker would.
        self.publish_error: Exception | None = None
        #: What the plugin says is wrong, by what it is about.
        self.problems: dict[str, str] = {}
        #: What spawned work raised.
        self.errors: list[BaseException] = []
        #: The sessions of bridges; a test gives them messages by `deliver`.
        self.bridges: dict[SubscriberId, FakeBridge] = {}
        self._readers: list[Callable[[], object]] = []
        self._subscriptions: list[_Subscription] = []
        self._subscribed = asyncio.Event()
        self._tasks: set[asyncio.Task[Any]] = set()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Cancels the spawned work, as the broker does when a plugin stops.

        Raises:
            BaseExceptionGroup: spawned work had failed, and the test has not emptied `errors`.
        """
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self.errors:
            raise BaseExceptionGroup("work spawned by the plugin failed", self.errors)

    # What a plugin may ask

    @property
    def data_dir(self) -> Path:
        folder = self.config_dir / "data"
        folder.mkdir(exist_ok=True)
        return folder

    async def publish(
        self,
        topic: str,
        payload: bytes,
        *,
        qos: int = 0,
        retain: bool = False,
        mountpoint: str = "",
    ) -> None:
        if self.publish_error is not None:
            raise self.publish_error
        if not topic or "+" in topic or "#" in topic or "\0" in topic:
            raise ValueError(f"{topic!r} is no topic name")
        if qos not in (0, 1, 2):
            raise ValueError(f"QoS {qos}; accepted: 0, 1, 2")
        if not isinstance(payload, bytes):
            raise TypeError(f"payload {payload!r}; accepted: bytes")
        self.published.append(Published(topic, payload, qos, retain, mountpoint))
        self.deliver(Message(topic, payload, qos), mountpoint)

    def deliver(self, message: Message, mountpoint: str = "") -> int:
        """Gives a message to the plugin's matching subscriptions; returns how many there are."""
        count = 0
        for each in self._subscriptions:
            if each.mountpoint == mountpoint and any(
                matches(topic_filter, message.topic) for topic_filter in each.filters
            ):
                each.messages.put_nowait(message)
                count += 1
        return count

    async def wait_subscribed(self) -> None:
        """Waits until the plugin has a subscription."""
        await self._subscribed.wait()

    @asynccontextmanager
    async def subscribe(
        self,
        *topic_filters: str,
        qos: int = 0,
        mountpoint: str = "",
        client_id: str | None = None,
        clean_session: bool = True,
    ) -> AsyncIterator[AsyncIterator[Message]]:
        if not topic_filters:
            raise ValueError("no topic filter")
        for each in topic_filters:
            check_filter(each)
        if qos not in (0, 1, 2):
            raise ValueError(f"QoS {qos}; accepted: 0, 1, 2")
        if not clean_session and not client_id:
            raise ValueError("a durable session needs a client id")
        subscription = _Subscription(topic_filters, mountpoint, asyncio.Queue())
        self._subscriptions.append(subscription)
        self._subscribed.set()
        try:
            yield _messages(subscription.messages)
        finally:
            self._subscriptions.remove(subscription)
            if not self._subscriptions:
                self._subscribed.clear()

    @asynccontextmanager
    async def bridge(
        self,
        client_id: str,
        *,
        mountpoint: str = "",
        max_inflight_messages: int | None = None,
        max_offline_messages: int | None = None,
    ) -> AsyncIterator[FakeBridge]:
        key = SubscriberId(client_id, mountpoint)
        session = self.bridges.get(key)
        if session is None:

            async def publish(topic: str, payload: bytes, qos: int, retain: bool) -> None:
                await self.publish(topic, payload, qos=qos, retain=retain, mountpoint=mountpoint)

            session = self.bridges[key] = FakeBridge(publish)
        session.open()
        try:
            yield session
        finally:
            session.is_open = False

    async def when_open(self, work: Coroutine[Any, Any, Any]) -> None:
        """There are durable sessions from the beginning."""
        await work

    async def disconnect(self, subscriber_id: SubscriberId, *, cleanup: bool = False) -> bool:
        self.disconnected.append(Disconnected(subscriber_id, cleanup))
        return self.connected is None or subscriber_id in self.connected

    async def connected_elsewhere(self, subscriber_id: SubscriberId) -> str:
        return self.elsewhere.get(subscriber_id, "")

    async def disconnect_users(self, usernames: Collection[str]) -> int:
        self.disconnected_users.append(names_of(usernames))
        return 0

    async def drop_wills(self, usernames: Collection[str]) -> int:
        self.dropped_wills.append(names_of(usernames))
        return 0

    async def reauthorize(self, subscriber_id: SubscriberId | None = None) -> int:
        self.reauthorized.append(subscriber_id)
        return 0

    def on_reload(self, read: Callable[[], object]) -> None:
        self._readers.append(read)

    async def reload(self) -> None:
        """Has the plugin read its files again, as SIGHUP does."""
        for read in self._readers:
            found = read()
            if inspect.isawaitable(found):
                await found

    def forget_verdicts(self) -> None:
        self.forgotten += 1

    def set_problem(self, about: str, text: str) -> None:
        self.problems.pop(about, None)
        if text:
            self.problems[about] = text

    def metrics(self) -> Sequence[Metric]:
        return [*self.figures, *self.counters.values()]

    def counter(
        self, name: str, description: str, labels: Mapping[str, str] | None = None
    ) -> FakeCounter:
        check_name(name, "a counter")
        key = shown(name, check_labels(labels))
        return self.counters.setdefault(key, FakeCounter(name, description, labels))

    def gauge(
        self,
        name: str,
        description: str,
        read: Callable[[], Iterable[tuple[Mapping[str, str], float]]],
    ) -> None:
        check_name(name, "a gauge")
        self.gauges[name] = read

    async def declare_stream(self, name: str, options: Mapping[str, Any]) -> None:
        self.streams[name] = options

    def spawn(self, work: Coroutine[Any, Any, Any], name: str = "") -> "asyncio.Task[Any]":
        task = asyncio.get_running_loop().create_task(work, name=name or None)
        self._tasks.add(task)
        task.add_done_callback(self._on_done)
        return task

    def _on_done(self, task: "asyncio.Task[Any]") -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self.errors.append(error)

    async def run_in_thread(
        self, function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs
    ) -> R:
        return await asyncio.to_thread(function, *args, **kwargs)


async def _messages(queue: "asyncio.Queue[Message]") -> AsyncIterator[Message]:
    while True:
        yield await queue.get()
