"""One bridge: a durable session with our broker, and connections to the far one that come back."""

import asyncio
import errno
import json
import random
import ssl
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager, contextmanager, suppress
from pathlib import Path

from vmq_hooks import BridgeSession, Broker, SubscriberId
from vmq_hooks.replacing import replace_file

from vmq_bridge.config import BridgeConfig
from vmq_bridge.earlier import Earlier
from vmq_bridge.relay import Counters, Relay
from vmq_bridge.remote import ConnectionRefused, Remote, tls_context
from vmq_bridge.topics import Topics


def local_client_id(name: str) -> str:
    """Whose session a bridge has with our broker."""
    return f"vmq-bridge-{name}"


class Bridge:
    """A bridge of the configuration.

    While the far broker is away nobody has the session with our broker open, so what comes for it
    waits on disk, within the limits of a queue whose client is away. Of the nodes of a cluster that all have the bridge
    one has the session and the connection; the others stand by.
    """

    def __init__(self, broker: Broker, name: str, config: BridgeConfig) -> None:
        self.name = name
        self.subscriber_id = SubscriberId(local_client_id(name), config.mountpoint)
        labels = {"bridge": name}
        self.counters = Counters(
            came=broker.counter("bridge_in", "Messages that the bridge brought.", labels),
            went=broker.counter("bridge_out", "Messages that the bridge took away.", labels),
            dropped=broker.counter(
                "bridge_dropped", "Messages that the bridge did not carry.", labels
            ),
            reconnects=broker.counter(
                "bridge_reconnects", "Connections of the bridge after the first.", labels
            ),
        )
        self._broker = broker
        self._config = config
        self._topics = Topics(config.topics)
        self._private = config.try_private
        self._client_id = config.client_id or f"{broker.node_name}-{name}"
        self._subscribed = Subscribed(broker.data_dir / f"{name}.json")
        self._earlier = Earlier() if config.assumes_session else None
        self._connections = 0
        self.is_connected = False
        #: The session was made, or it was tried.
        self._begun = asyncio.Event()
        self._has_session = False
        self._greeted = False
        self._told: set[str] = set()

    async def begin(self) -> None:
        """Checks the TLS files and makes the session with our broker, so that nothing is missed from now on.

        Raises:
            ValueError: a TLS file cannot be used, or our broker does not take a subscription.
        """
        with self._named():
            await self._tls()
        await self._broker.when_open(self._begin_session())

    @contextmanager
    def _named(self) -> Iterator[None]:
        """A mistake is told with the bridge's name."""
        try:
            yield
        except ValueError as error:
            raise ValueError(f"bridge {self.name}: {error}") from None

    async def _begin_session(self) -> None:
        try:
            # Else our broker has no place in its cluster yet, and serves nobody: `run` makes the session then.
            with suppress(ConnectionError), self._named():
                if not await self._elsewhere():
                    await self._make_session()
        finally:
            # Whatever it was: `run` would wait for ever.
            self._begun.set()

    async def _make_session(self) -> None:
        async with self._open_session() as local:
            await local.subscribe(self._topics.local_subscriptions())
        self._has_session = True

    async def _elsewhere(self) -> str:
        """The other node that has the session open."""
        return await self._broker.connected_elsewhere(self.subscriber_id)

    async def _stand_by(self) -> None:
        """Returns when no other node has the session open, and this one may."""
        found = ""
        while (node := await self._elsewhere()) or (found and not self._config.is_anyones):
            if node and node != found:
                found = node
                self._tell_who_has_it(node)
                # Whatever it subscribes to there is this node's to end, should its configuration change.
                await self._broker.run_in_thread(self._subscribed.add, self._wanted_there())
            await asyncio.sleep(min(self._config.reconnect_delay, 1.0) * random.uniform(0.5, 1.0))

    def _tell_who_has_it(self, node: str) -> None:
        log, about = self._broker.log, f"bridge {self.name}"
        if self._config.is_anyones:
            self._broker.set_problem(about, "")
            log.info("%s: node %s has it, and this one stands by", about, node)
            return
        problem = (
            f"node {node} has it too, and the far broker would take this node for another bridge; "
            "accepted: a client_id, the same on all nodes, so that one takes over from the other"
        )
        self._broker.set_problem(about, problem)
        log.error("%s: not started: %s", about, problem)

    async def run(self) -> None:
        """Connects, again and again."""
        config = self._config
        log = self._broker.log
        delay = config.reconnect_delay
        complaint = ""
        clock = asyncio.get_running_loop().time
        while True:
            await self._begun.wait()
            await self._stand_by()
            since = clock()
            before = self._connections
            try:
                await self._serve()
            except ConnectionRefused as error:
                problem = str(error)
                if error.code == 1 and config.try_private:
                    # Perhaps it takes us if it is not told that we are a bridge.
                    self._private = not self._private
            except (OSError, ValueError) as error:  # ValueError: a TLS file
                problem = str(error) or f"no answer within {config.connect_timeout:g} s"
                if config.assumes_session and _nobody_listened(error):
                    # The far broker was not running: one that keeps no sessions on disk has lost our subscriptions.
                    self._greeted = False
            except Exception as error:
                # A mistake of ours: the next message, or the next connection, may be without it.
                problem = f"{type(error).__name__}: {error}"
                log.error("bridge %s: a mistake in the bridge", self.name, exc_info=error)
            connected = self._connections != before
            if connected or problem != complaint:
                what = "connection lost" if connected else "no connection"
                log.warning("bridge %s: %s to %s: %s", self.name, what, config.url, problem)
            complaint = problem
            self.is_connected = False
            text = f"no connection to {config.url}: {problem}"
            self._broker.set_problem(f"bridge {self.name}", text)
            if connected and clock() - since > config.max_reconnect_delay:
                delay = config.reconnect_delay
            # Not all bridges of a site at the same moment.
            await asyncio.sleep(delay * random.uniform(0.5, 1.0))
            delay = min(delay * 2, config.max_reconnect_delay)

    async def _serve(self) -> None:
        """One connection, from its beginning to its end, which is an error."""
        config = self._config
        if not self._has_session:
            await self._make_session()
        tls = await self._tls()
        remote = await Remote.open(config, self._client_id, tls, bridge=self._private)
        try:
            async with self._open_session() as local:
                self._on_connected(remote)
                if not remote.session_present:
                    await local.forget()
                elif self._earlier is not None:
                    await self._earlier.begin(local)
                relay = Relay(
                    local,
                    remote,
                    self._topics,
                    window=config.max_inflight_messages,
                    limit=config.max_packet_size,
                    counters=self.counters,
                    on_drop=self._tell_of_drop,
                    earlier=self._earlier,
                )

                async def greet() -> None:
                    await local.subscribe(self._topics.local_subscriptions())
                    await self._subscribe(remote)

                await relay.run(greet)
        finally:
            await remote.close()

    def _open_session(self) -> AbstractAsyncContextManager[BridgeSession]:
        config = self._config
        return self._broker.bridge(
            self.subscriber_id.client_id,
            mountpoint=config.mountpoint,
            max_inflight_messages=config.max_inflight_messages,
            max_offline_messages=config.max_offline_messages,
        )

    async def _tls(self) -> ssl.SSLContext | None:
        return await self._broker.run_in_thread(tls_context, self._config, self._broker.config_dir)

    def _on_connected(self, remote: Remote) -> None:
        self._connections += 1
        self.is_connected = True
        self._broker.set_problem(f"bridge {self.name}", "")
        if self._connections > 1:
            self.counters.reconnects.add()
        if not remote.session_present:
            self._greeted = False
        self._broker.log.info(
            "bridge %s: connected to %s client=%s private=%d session_present=%s",
            self.name,
            self._config.url,
            self._client_id,
            self._private,
            "assumed" if self._config.assumes_session else int(remote.session_present),
        )

    async def _subscribe(self, remote: Remote) -> None:
        """Subscribes there, unless the far broker still knows: each time brings all retained messages."""
        if self._greeted:
            return
        filters = self._wanted_there()
        gone = [each for each in self._subscribed.load() if each not in filters]
        if gone and remote.session_present:
            await remote.unsubscribe(gone)
        # Kept before it is true: what was never subscribed to can be unsubscribed without harm.
        await self._broker.run_in_thread(self._subscribed.save, filters)
        if filters:
            await remote.subscribe(self._topics.remote_subscriptions())
        self._greeted = True

    def _wanted_there(self) -> list[str]:
        return [each.topic_filter for each in self._topics.remote_subscriptions()]

    def _tell_of_drop(self, topic: str, why: str) -> None:
        """One line for each reason, until the next start: a flood must not fill the log."""
        if why not in self._told and len(self._told) < 100:
            self._told.add(why)
            self._broker.log.warning(
                'bridge %s: not carried topic="%s": %s (further ones are only counted)',
                self.name,
                topic[:200],
                why,
            )


def _nobody_listened(error: Exception) -> bool:
    # Of a name with several addresses asyncio tells what each attempt raised in one text.
    return f"[Errno {errno.ECONNREFUSED}]" in str(error)


class Subscribed:
    """What a bridge has subscribed to at the far broker, as a file: a changed configuration ends the rest."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def load(self) -> list[str]:
        try:
            found = json.loads(self._path.read_text())
        except (OSError, ValueError):
            return []
        return [each for each in found if isinstance(each, str)] if isinstance(found, list) else []

    def add(self, filters: list[str]) -> None:
        """These too may be subscribed to."""
        before = self.load()
        self.save([*before, *(each for each in filters if each not in before)])

    def save(self, filters: list[str]) -> None:
        if filters != self.load():
            replace_file(self._path, json.dumps(filters).encode())
