"""The plugin: asks the endpoints of a hook, one after the other."""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import aiohttp
from vmq_hooks import (
    Broker,
    Checking,
    LazyMessage,
    Message,
    Mistake,
    Next,
    Peer,
    Plugin,
    Refuse,
    SubscriberId,
    Subscription,
    hook,
)
from vmq_hooks.answers import Verdict
from vmq_hooks.tls import TlsFileError
from vmq_hooks.turns import Turns as FairTurns
from vmq_hooks.turns import TurnsClosedError

from vmq_webhooks import requests
from vmq_webhooks.answers import EndpointError, cache_of, read, read_topics
from vmq_webhooks.config import WebhooksConfig
from vmq_webhooks.endpoint import Endpoint, Turns, tls_context
from vmq_webhooks.requests import Body


class WebhooksPlugin(Plugin):
    """Asks web servers.

    The hooks that only inform are called in the background: the broker keeps each client's in order,
    bounds what waits, and counts what it has to leave out.
    """

    Config = WebhooksConfig

    def __init__(self) -> None:
        self._endpoints: dict[str, list[Endpoint]] = {}
        self._session: aiohttp.ClientSession | None = None
        self._timeout = 0.0
        self._turns = FairTurns(1)

    def check(self, broker: Checking, config: WebhooksConfig) -> Iterator[Mistake]:
        for name, each in config.endpoints.items():
            try:
                tls_context(each, broker.config_dir)
            except TlsFileError as error:
                yield Mistake(f"endpoints.{name}.{error.option}", error.what)

    async def start(self, broker: Broker, config: WebhooksConfig) -> None:
        contexts = {
            name: await broker.run_in_thread(tls_context, each, broker.config_dir)
            for name, each in config.endpoints.items()
        }
        self._session = session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                limit=config.pool_max_connections, keepalive_timeout=config.pool_timeout
            ),
            cookie_jar=aiohttp.DummyCookieJar(),
        )
        self._timeout = config.timeout
        self._turns = FairTurns(config.pool_max_connections)
        endpoints = [
            Endpoint(broker, name, each, contexts[name], session, config.timeout)
            for name, each in config.endpoints.items()
        ]
        for endpoint in endpoints:
            for served in endpoint.config.hooks:
                self._endpoints.setdefault(served, []).append(endpoint)
        broker.on_reload(lambda: _read_certificates(broker, endpoints))
        broker.gauge(
            "webhook_breaker_open",
            "1 while the endpoint is not asked because it has failed too often.",
            lambda: [({"endpoint": each.name}, float(each.is_open)) for each in endpoints],
        )

    def serves(self, hook: str) -> bool:
        return hook in self._endpoints

    async def stop(self) -> None:
        self._turns.close()
        if self._session is not None:
            await self._session.close()

    # Verdicts

    @hook
    async def auth_on_register(
        self,
        peer: Peer,
        subscriber_id: SubscriberId,
        username: str | None,
        password: bytes | None,
        clean_session: bool,
    ) -> Verdict:
        try:
            secret = None if password is None else password.decode()
        except UnicodeDecodeError:
            # JSON cannot carry it, and what could stand for it might stand for another one as well.
            return Refuse("the password is not UTF-8", bad_credentials=True)
        body = {
            **requests.connection(peer, username, subscriber_id),
            "password": secret,
            "clean_session": clean_session,
        }
        # A fleet that is back at once waits here, not in the pool, where its wait would count as the server's.
        try:
            async with self._turns.turn(peer.network, after_others=peer.failures > 0):
                return await self._verdict("auth_on_register", body)
        except TurnsClosedError:
            return Refuse("vmq_webhooks was reloaded", unavailable=True)

    @hook
    async def auth_on_publish(
        self, username: str | None, subscriber_id: SubscriberId, message: Message
    ) -> Verdict:
        body = requests.user(username, subscriber_id)
        return await self._verdict("auth_on_publish", body, message=message)

    @hook
    async def auth_on_subscribe(
        self,
        username: str | None,
        subscriber_id: SubscriberId,
        subscriptions: Sequence[Subscription],
    ) -> Verdict:
        body = {**requests.user(username, subscriber_id), **requests.topics(subscriptions)}
        return await self._verdict("auth_on_subscribe", body, asked=subscriptions)

    async def _verdict(
        self,
        name: str,
        body: Body,
        *,
        message: Message | None = None,
        asked: Sequence[Subscription] = (),
    ) -> Verdict:
        """The first endpoint decides that does not say next. One that fails has refused.

        A verdict holds no longer than what the endpoints before said.
        """
        longest = float("inf")
        verdict: Verdict = Next()
        turns = Turns()
        try:
            async with asyncio.timeout(self._timeout):
                for endpoint in turns.over(self._endpoints[name]):
                    reply = await endpoint.ask(name, _with(body, message, endpoint))
                    seen = message is not None and not endpoint.config.no_payload
                    cache = None if seen else cache_of(name, reply.cache_control, longest)
                    longest = 0.0 if cache is None else cache.seconds
                    verdict = read(name, reply.body, cache, asked)
                    endpoint.succeeded()
                    if not isinstance(verdict, Next):
                        break
        except (EndpointError, TimeoutError) as error:
            endpoint = turns.blame(error)
            endpoint.failed(name, error)
            return Refuse(f"endpoint {endpoint.name} failed", unavailable=True)
        return verdict

    @hook
    async def on_unsubscribe(
        self, username: str | None, subscriber_id: SubscriberId, topic_filters: Sequence[str]
    ) -> list[str] | None:
        body = {**requests.user(username, subscriber_id), "topics": list(topic_filters)}
        turns = Turns()
        try:
            async with asyncio.timeout(self._timeout):
                for endpoint in turns.over(self._endpoints["on_unsubscribe"]):
                    found = read_topics((await endpoint.ask("on_unsubscribe", body)).body)
                    endpoint.succeeded()
                    if found is not None:
                        return found
        except (EndpointError, TimeoutError) as error:
            turns.blame(error).failed("on_unsubscribe", error)
        return None

    # For information

    async def _tell(self, name: str, body: Body, message: Message | None = None) -> None:
        async def tell(endpoint: Endpoint) -> None:
            try:
                await endpoint.ask(name, _with(body, message, endpoint))
            except EndpointError as error:
                endpoint.failed(name, error)
            else:
                endpoint.succeeded()

        await asyncio.gather(*[tell(each) for each in self._endpoints[name]])

    @hook
    async def on_register(
        self, peer: Peer, subscriber_id: SubscriberId, username: str | None
    ) -> None:
        await self._tell("on_register", requests.connection(peer, username, subscriber_id))

    @hook
    async def on_publish(
        self, username: str | None, subscriber_id: SubscriberId, message: Message
    ) -> None:
        await self._tell("on_publish", requests.user(username, subscriber_id), message)

    @hook
    async def on_subscribe(
        self,
        username: str | None,
        subscriber_id: SubscriberId,
        subscriptions: Sequence[Subscription],
    ) -> None:
        body = {**requests.user(username, subscriber_id), **requests.topics(subscriptions)}
        await self._tell("on_subscribe", body)

    @hook
    async def on_topic_unsubscribed(
        self, subscriber_id: SubscriberId, topic_filters: Sequence[str]
    ) -> None:
        body = {**requests.client(subscriber_id), "topics": list(topic_filters)}
        await self._tell("on_topic_unsubscribed", body)

    @hook
    async def on_offline_message(self, subscriber_id: SubscriberId, message: Message) -> None:
        await self._tell("on_offline_message", requests.client(subscriber_id), message)

    @hook
    async def on_message_drop(
        self, subscriber_id: SubscriberId, message: LazyMessage, reason: str
    ) -> None:
        body = {**requests.client(subscriber_id), "reason": reason}
        await self._tell("on_message_drop", body, message())

    @hook
    async def on_client_wakeup(self, subscriber_id: SubscriberId) -> None:
        await self._tell("on_client_wakeup", requests.client(subscriber_id))

    @hook
    async def on_client_offline(self, subscriber_id: SubscriberId) -> None:
        await self._tell("on_client_offline", requests.client(subscriber_id))

    @hook
    async def on_client_gone(self, subscriber_id: SubscriberId) -> None:
        await self._tell("on_client_gone", requests.client(subscriber_id))

    @hook
    async def on_session_expired(self, subscriber_id: SubscriberId) -> None:
        await self._tell("on_session_expired", requests.client(subscriber_id))

    @hook
    async def on_config_change(self, changed: Mapping[str, Any]) -> None:
        await self._tell("on_config_change", {"changed": dict(changed)})


def _with(body: Body, message: Message | None, endpoint: Endpoint) -> Body:
    """The body with the message, as far as the endpoint shall see it."""
    if message is None:
        return body
    return {**body, **requests.message(message, with_payload=not endpoint.config.no_payload)}


async def _read_certificates(broker: Broker, endpoints: Sequence[Endpoint]) -> None:
    """Has each endpoint go by its files as they are now; one whose files cannot be used keeps what it has."""
    for each in endpoints:
        try:
            each.use(await broker.run_in_thread(tls_context, each.config, broker.config_dir))
        except ValueError as error:
            broker.log.error(
                "endpoint %s: %s; what was read before stays in force", each.name, error
            )
