"""What a plugin may ask of the broker: the handle that `Plugin.start` receives."""

import asyncio
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
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, NamedTuple, ParamSpec, Protocol, TypeVar

import msgspec

from vmq_hooks.types import Message, SubscriberId, Subscription

P = ParamSpec("P")
R = TypeVar("R")


class Counter(Protocol):
    """A figure that only grows; it appears in /metrics under the plugin's name."""

    def add(self, amount: int = 1) -> None: ...


class Metric(Protocol):
    """One of the broker's figures."""

    @property
    def name(self) -> str: ...
    @property
    def labels(self) -> Mapping[str, str]: ...
    @property
    def value(self) -> float: ...
    @property
    def help(self) -> str: ...


class BridgeMessage(msgspec.Struct, frozen=True):
    """A message for another broker. Its `retain` is the one that it was published with."""

    message: Message
    #: 0 at QoS 0. What is not acknowledged comes again under the same id, also after a restart of the broker.
    packet_id: int = 0
    #: It came before and was not acknowledged.
    again: bool = False
    #: `BridgeSession.received` is safe: PUBREL may go out under the id. The message itself is not here any more.
    released: bool = False


class BridgeSession(Protocol):
    """A session of a bridge with its own broker: messages go both ways, and none comes back.

    What QoS 2 has to remember of the exchanges with the far broker is kept by this session, under the packet ids
    that these have there: so none is repeated, not even after a restart of our broker. Of a message that goes
    there, `received` answers its PUBREC and `acknowledge` its PUBCOMP; of one that comes from there, `publish`
    precedes our PUBREC and `release` our PUBCOMP.
    """

    async def subscribe(self, subscriptions: Sequence[Subscription]) -> None:
        """Has the session subscribed to exactly this. What it was subscribed to before brings no retained messages."""

    async def publish(
        self,
        topic: str,
        payload: bytes,
        *,
        qos: int = 0,
        retain: bool = False,
        packet_id: int = 0,
    ) -> None:
        """As `Broker.publish`; the session's own subscriptions do not get the message.

        At QoS 2 it has the far broker's packet id. It is not published a second time until that is released.

        Raises:
            ValueError: the broker does not take such a message: its topic, its size, or QoS 2 without an id.
            ConnectionError: the session has ended.
        """

    async def release(self, packet_id: int) -> None:
        """The far broker has sent PUBREL for what `publish` took; the id may mean something new.

        Raises:
            ConnectionError: the session has ended.
        """

    async def remembered(self) -> list[int]:
        """The ids of what `publish` took at QoS 2 and nobody has released, that of before a restart included.

        Raises:
            ConnectionError: the session has ended.
        """

    async def forget(self) -> None:
        """The far broker does not know us any more: every id of what came from there may mean something new.

        Raises:
            ConnectionError: the session has ended.
        """

    async def receive(self) -> BridgeMessage:
        """The next message. As many come unacknowledged as the session has room in flight.

        Raises:
            ConnectionError: the session has ended.
        """

    def received(self, packet_id: int) -> None:
        """The far broker has a QoS 2 message. Once that is safe, its id comes again, `released`; the message never."""

    def acknowledge(self, packet_id: int) -> None:
        """The message is safe elsewhere, and will not come again.

        Of one at QoS 2 the id may, `released`, if the session ends before our broker has said the same.
        """


class Mistake(NamedTuple):
    """What keeps a plugin from starting.

    `option` is the dotted key within the plugin's section (`bridges.office.cafile`), "" the section as a whole; `what`
    says what is wrong, where and what is accepted.
    """

    option: str
    what: str


class Checking(Protocol):
    """The broker as a plugin sees it that is only checked: nothing has been started, and nothing may be."""

    @property
    def config_dir(self) -> Path:
        """Where relative paths in the plugin's configuration start: the configuration file's folder."""

    def declare_stream(self, name: str, options: Mapping[str, Any]) -> None:
        """Says that `start` will declare this stream.

        Raises:
            ValueError: `Broker.declare_stream` would refuse it.
        """


class Broker(Protocol):
    """The broker as a plugin sees it. To be used in the event loop only, but for `run_in_thread`'s work."""

    @property
    def node_name(self) -> str: ...

    @property
    def worker(self) -> int:
        """Which of the processes that are this broker together, from 1: a plugin runs in each of them.

        What only one of them may do is for the first.
        """

    @property
    def version(self) -> str: ...

    @property
    def log(self) -> logging.Logger:
        """A logger with the plugin's name."""

    @property
    def data_dir(self) -> Path:
        """A folder for this plugin alone; made when first asked for."""

    @property
    def config_dir(self) -> Path:
        """Where relative paths in the plugin's configuration start: the configuration file's folder."""

    async def publish(
        self,
        topic: str,
        payload: bytes,
        *,
        qos: int = 0,
        retain: bool = False,
        mountpoint: str = "",
    ) -> None:
        """Publishes a message; at QoS 1 and 2 it returns when the broker has it as safe as a client's.

        Auth hooks are not asked.
        """

    def subscribe(
        self,
        *topic_filters: str,
        qos: int = 0,
        mountpoint: str = "",
        client_id: str | None = None,
        clean_session: bool = True,
    ) -> AbstractAsyncContextManager[AsyncIterator[Message]]:
        """Subscribes for as long as the context lasts.

        With `clean_session=False` and a client id the session is durable, and a message counts as
        received when the next one is asked for; it waits until there are such sessions (`when_open`).
        """

    def bridge(
        self,
        client_id: str,
        *,
        mountpoint: str = "",
        max_inflight_messages: int | None = None,
        max_offline_messages: int | None = None,
    ) -> AbstractAsyncContextManager[BridgeSession]:
        """A durable session for a bridge to another broker; what comes while nobody has it open waits on disk.

        Opening it anew takes it over from whoever has it open. The limits are the broker's, unless given. It waits
        until there are durable sessions (`when_open`).
        """

    async def when_open(self, work: Coroutine[Any, Any, Any]) -> None:
        """Does work that needs durable sessions as soon as there are any: at once, or during the broker's start.

        In a cluster whose sessions are in slots there are none before the broker has its place in it, which is after
        all plugins have started. Then this returns, and the work is done before clients are let in; what it raises
        ends the broker's start.
        """

    async def disconnect(self, subscriber_id: SubscriberId, *, cleanup: bool = False) -> bool:
        """Ends a client's connection, with `cleanup` its session as well. False if there is none.

        With `cleanup` it waits until there are durable sessions (`when_open`); one in a slot ends wherever it is.
        """

    async def connected_elsewhere(self, subscriber_id: SubscriberId) -> str:
        """The other node of the cluster that has the client's connection and can be reached; "" if there is none.

        So far as this node has heard. It waits until there are durable sessions (`when_open`).
        """

    async def disconnect_users(self, usernames: Collection[str]) -> int:
        """Ends the connections of all clients that are here under one of these user names; returns how many.

        Their wills are not published; their durable sessions stay. The user name is the one that hooks see. In
        `start`, as the broker starts, it takes the wills that were left when that was killed: they are published later.

        Raises:
            TypeError: it is a text, and no collection of them.
        """

    async def drop_wills(self, usernames: Collection[str]) -> int:
        """Takes their wills from all clients that are here under one of these user names; returns how many.

        For users that are gone, and whose connections stay. In `start` as `disconnect_users`.

        Raises:
            TypeError: it is a text, and no collection of them.
        """

    async def reauthorize(self, subscriber_id: SubscriberId | None = None) -> int:
        """Asks auth_on_subscribe again about the live subscriptions of one client, or of all.

        Those that are no longer allowed end. Returns how many ended.
        """

    def forget_verdicts(self) -> None:
        """Verdicts that this plugin allowed to be kept hold no longer."""

    def on_reload(self, read: Callable[[], object]) -> None:
        """Has `read` called until the plugin stops whenever the operator has the configuration read anew (SIGHUP).

        It is a plain function or an `async def`, and what it raises is logged. What the plugin has read from files of
        its own it reads again then.
        """

    def set_problem(self, about: str, text: str) -> None:
        """What is wrong with something of the plugin's, until it is told otherwise; "" is nothing.

        Args:
            about: with what: a file's name, a server's. `/health` says it, with the plugin's name.
            text: for the operator, in `vmq plugin list`.
        """

    def metrics(self) -> Sequence[Metric]:
        """All figures of the broker at this moment, those of plugins included."""

    def counter(
        self, name: str, description: str, labels: Mapping[str, str] | None = None
    ) -> Counter:
        """A counter of the plugin's own, in /metrics as `vmq_plugin_NAME`; the same for the same labels.

        Of a plugin's counters with labels there are up to 1000: further ones count as one of their name,
        whose labels say "(others)". So they may come out of what clients send.

        Raises:
            ValueError: the name or a label cannot stand in a metric.
        """

    def gauge(
        self,
        name: str,
        description: str,
        read: Callable[[], Iterable[tuple[Mapping[str, str], float]]],
    ) -> None:
        """A gauge of the plugin's own, in /metrics as `vmq_plugin_NAME` until the plugin stops.

        `read` gives the labels and the value of each of its samples whenever somebody asks: at once,
        from what the plugin knows. What it raises is logged, and leaves the gauge out, as do labels that
        cannot stand in a metric, or more than 1000 samples.
        """

    async def declare_stream(self, name: str, options: Mapping[str, Any]) -> None:
        """Has the broker keep a stream, as if `[streams.NAME]` stood in its configuration.

        A stream that is there goes on, with these options if nobody has declared it since the
        broker's start. It is fed until the broker stops; one that nobody declares after the next
        start stays readable, and is fed no more.

        Raises:
            ValueError: an option is wrong, the name is unusable or taken by a stream of the
                configuration or a command, or the stream was declared otherwise since the start.
            RuntimeError: this broker can keep no streams.
            OSError: the disk.
        """

    def spawn(self, work: Coroutine[Any, Any, Any], name: str = "") -> "asyncio.Task[Any]":
        """Runs a coroutine until it ends or the plugin stops; an error of it is logged.

        Raises:
            TypeError: it is none: a function is to be called.
        """

    async def run_in_thread(
        self, function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs
    ) -> R:
        """Runs what blocks or computes for long (hashing, files) outside the event loop."""


def names_of(usernames: Collection[str]) -> frozenset[str]:
    """User names, each once.

    Raises:
        TypeError: it is a text, whose letters would be taken for names.
    """
    if isinstance(usernames, str):
        raise TypeError(f"{usernames!r} is one user name; accepted: a collection of them")
    return frozenset(usernames)
