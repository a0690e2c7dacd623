"""One endpoint: asked by HTTP POST, within limits of time and size."""

import asyncio
import ssl
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import aiohttp
import msgspec
from vmq_hooks import Broker
from vmq_hooks.breaker import Breaker, State
from vmq_hooks.tls import client_context

from vmq_webhooks.answers import EndpointError
from vmq_webhooks.config import EndpointConfig

#: Bytes of an answer; more is no answer.
LARGEST_ANSWER: Final = 1 << 20
#: Seconds between two lines on one endpoint's failures: of one that answers in between, and at most.
_QUIET: Final = 10.0
_LONGEST_QUIET: Final = 600.0


class Reply(NamedTuple):
    """What an endpoint answered with status 200."""

    body: bytes
    cache_control: str


def tls_context(config: EndpointConfig, folder: Path) -> ssl.SSLContext | None:
    """What the server's certificate is checked with; None without TLS. Reads files.

    Raises:
        TlsFileError: a file cannot be used.
    """
    if not config.secure:
        return None
    files = (config.cafile, config.certfile, config.keyfile)
    return client_context(*(None if each is None else folder / each for each in files))


class NotAskedError(EndpointError):
    """The endpoint's breaker is open."""


class Endpoint:
    """A server that answers hooks. Its failures end requests to it for a while, and to no other.

    Args:
        broker: for the log and the counters.
        name: in the configuration.
        config: the endpoint's.
        tls: what its certificate is checked with.
        session: the pool of connections.
        timeout: seconds for an answer, the wait for a connection included.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        broker: Broker,
        name: str,
        config: EndpointConfig,
        tls: ssl.SSLContext | None,
        session: aiohttp.ClientSession,
        timeout: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.name = name
        self.config = config
        self._log = broker.log
        self.use(tls)
        self._session = session
        self._timeout = aiohttp.ClientTimeout(total=timeout)
        labels = {"endpoint": name}
        self._requests = broker.counter("webhook_requests", "Requests to the endpoint.", labels)
        self._errors = broker.counter(
            "webhook_errors", "Requests to the endpoint without a proper answer.", labels
        )
        self._skipped = broker.counter(
            "webhook_skipped", "Requests not made because the endpoint's breaker was open.", labels
        )
        self._clock = clock
        self._breaker = Breaker(config.breaker_failures, config.breaker_seconds, clock)
        #: The log has heard that it fails, and not yet that it answers again.
        self._is_told = False
        self._quiet = _QUIET
        self._quiet_until = 0.0
        self._unsaid = 0

    def use(self, tls: ssl.SSLContext | None) -> None:
        """Goes by this from now on when connections to the endpoint are made."""
        self._tls: ssl.SSLContext | bool = True if tls is None else tls

    @property
    def is_open(self) -> bool:
        """Whether it is not asked for now, or asked once to see."""
        return self._breaker.state is not State.CLOSED

    async def ask(self, hook: str, body: dict[str, Any]) -> Reply:
        """Posts a hook's arguments. The caller tells `succeeded` or `failed`, whatever comes of it.

        Raises:
            NotAskedError: it has failed too often lately.
            EndpointError: no answer came.
        """
        if self._breaker.failures and not self._breaker.allows():
            raise NotAskedError("it fails and is not asked for now")
        try:
            async with asyncio.timeout(self._timeout.total):
                try:
                    return await self._post(hook, body)
                except aiohttp.ServerDisconnectedError:
                    # Most likely the server had just closed a connection of the pool.
                    return await self._post(hook, body)
        except TimeoutError:
            raise EndpointError(f"no answer within {self._timeout.total:g} s") from None
        except (aiohttp.ClientError, OSError) as error:
            raise EndpointError(str(error) or type(error).__name__) from None

    async def _post(self, hook: str, body: dict[str, Any]) -> Reply:
        self._requests.add()
        headers = {
            **self.config.headers,
            "content-type": "application/json",
            "vernemq-hook": hook,
        }
        async with self._session.post(
            self.config.url,
            data=msgspec.json.encode(body),
            headers=headers,
            ssl=self._tls,
            timeout=self._timeout,
            allow_redirects=False,
        ) as response:
            if response.status != 200:
                raise EndpointError(f"status {response.status}; accepted: 200")
            found = bytearray()
            async for chunk in response.content.iter_chunked(1 << 16):
                found += chunk
                if len(found) > LARGEST_ANSWER:
                    raise EndpointError(f"an answer of more than {LARGEST_ANSWER} bytes")
            return Reply(bytes(found), response.headers.get("cache-control", ""))

    def succeeded(self) -> None:
        """The answer was a proper one."""
        failures = self._breaker.failures
        if not failures:
            return
        self._breaker.on_success()
        self._quiet = _QUIET
        if self._is_told:
            self._is_told = False
            self._log.warning("endpoint %s answers again failures=%d", self.name, failures)

    def failed(self, hook: str, error: EndpointError | TimeoutError) -> None:
        """Counts a failure, and tells of it; the longer it fails, the more rarely."""
        if isinstance(error, NotAskedError):
            self._skipped.add()
            return
        self._errors.add()
        self._tell(hook, error)
        was_closed = self._breaker.state is State.CLOSED
        if self._breaker.on_failure() and was_closed:
            self._is_told = True
            self._log.error(
                "endpoint %s is asked once in %g s until it answers: failures=%d",
                self.name,
                self.config.breaker_seconds,
                self._breaker.failures,
            )

    def _tell(self, hook: str, error: EndpointError | TimeoutError) -> None:
        now = self._clock()
        if now < self._quiet_until:
            self._unsaid += 1
            return
        self._log.error(
            "endpoint %s failed hook=%s: %s more=%d",
            self.name,
            hook,
            str(error) or "no verdict in time",
            self._unsaid,
        )
        self._quiet_until, self._unsaid = now + self._quiet, 0
        self._quiet = min(2 * self._quiet, _LONGEST_QUIET)
        self._is_told = True


class Turns:
    """Which endpoints one call has asked, one after the other, and how much of its time each took."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._began: list[tuple[Endpoint, float]] = []

    def over(self, endpoints: Sequence[Endpoint]) -> Iterator[Endpoint]:
        """The endpoints, each as its turn comes."""
        for endpoint in endpoints:
            self._began.append((endpoint, self._clock()))
            yield endpoint

    def blame(self, error: Exception) -> Endpoint:
        """Whose failure it is: that of whose turn it was, or, when time ran out, of who took most of it."""
        if not isinstance(error, TimeoutError):
            return self._began[-1][0]
        ends = [*(began for _, began in self._began[1:]), self._clock()]
        took = [end - began for (_, began), end in zip(self._began, ends, strict=True)]
        return self._began[took.index(max(took))][0]
