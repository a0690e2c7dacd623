"""However `vmq pub` and `vmq sub` end, what was to be sent has been sent by then, and the socket is closed."""

import asyncio
import contextlib
import gc
import re
import ssl
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from tests.support.wire import DISCONNECT, PUBLISH, ConnectionEnded, Packet, Wire
from tests.vmq.cli.fake_broker import FakeBroker
from tests.vmq.cli.program import Finished, here
from vmq.cli.mqtt import client, transport
from vmq.cli.mqtt.client import CommandClient
from vmq.cli.mqtt.options import ConnectionOptions
from vmq.cli.mqtt.target import BrokerTarget, Scheme
from vmq.cli.mqtt.transport import waiting_in
from vmq.testing.authority import Authority

SCHEMES = ("mqtt", "mqtts", "ws", "wss")


@dataclass(frozen=True)
class Stage:
    """A broker that lets no connection end, and how to reach it."""

    broker: FakeBroker
    url: str
    pool: ThreadPoolExecutor

    def pub(self, serve: Callable[[FakeBroker], None], *words: str) -> Finished:
        return self.run("pub", serve, "-m", "x", *words)

    def run(self, command: str, serve: Callable[[FakeBroker], None], *words: str) -> Finished:
        """Run a command while `serve` plays the broker."""
        serving = self.pool.submit(serve, self.broker)
        more = ("--insecure",) if self.url.startswith(("mqtts", "wss")) else ()
        with no_leak():
            done = here(command, "-L", self.url, "-t", "t", *more, *words)
        serving.result()
        return done


@contextmanager
def no_leak() -> Iterator[None]:
    """No transport or socket is left to the garbage collector."""
    gc.collect()
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always", ResourceWarning)
        yield
        gc.collect()
    assert [str(each.message) for each in told] == []


@pytest.fixture(scope="module")
def server_context(tmp_path_factory: pytest.TempPathFactory) -> ssl.SSLContext:
    issued = Authority(tmp_path_factory.mktemp("tls")).issue("localhost", ["localhost"])
    return issued.load_into(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER))


@pytest.fixture(params=SCHEMES)
def stage(
    request: pytest.FixtureRequest, server_context: ssl.SSLContext, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Stage]:
    set_close_timeout(monkeypatch, 0.1)
    scheme: str = request.param
    context = server_context if scheme in ("mqtts", "wss") else None
    with (
        ThreadPoolExecutor(1) as pool,
        FakeBroker(context, is_websocket=scheme.startswith("ws")) as broker,
    ):
        yield Stage(broker, f"{scheme}://127.0.0.1:{broker.port}", pool)


def set_close_timeout(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    for module in (client, transport):
        monkeypatch.setattr(module, "CLOSE_TIMEOUT", seconds)


def take_one(broker: FakeBroker) -> None:
    wire, _ = broker.accept_client()
    wire.expect_publish("t", b"x")
    wire.expect(DISCONNECT)


def refuse(broker: FakeBroker) -> None:
    broker.accept_client(code=5)


def say_nothing(broker: FakeBroker) -> None:
    broker.accept().recv_packet()


def test_a_publisher_leaves_a_server_that_does_not_close(stage: Stage) -> None:
    assert stage.pub(take_one) == (0, b"", "")


def test_whoever_is_refused_leaves_a_server_that_does_not_close(stage: Stage) -> None:
    done = stage.pub(refuse)
    done.tells(1, "not authorized")


def test_a_timeout_leaves_no_connection_open(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "CONNECT_TIMEOUT", 1.0)
    done = stage.pub(say_nothing)
    done.tells(1, "no answer")


def test_an_end_while_it_connects_leaves_no_connection_open(stage: Stage) -> None:
    assert stage.run("sub", say_nothing, "-W", "1").code == 27


def test_a_subscriber_leaves_a_server_that_does_not_close(stage: Stage) -> None:
    def serve(broker: FakeBroker) -> None:
        broker.accept_subscriber()

    assert stage.run("sub", serve, "-E").code == 0


def test_what_nobody_takes_is_no_success(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """At QoS 0 the system takes what it has room for; the rest waits here, for a server that does not read."""
    send = CommandClient.send

    async def send_more(self: CommandClient, *given: Any, **more: Any) -> None:
        while not waiting_in(transport_of(self)):
            await send(self, "t", bytes(1 << 14), 0, retain=False)

    monkeypatch.setattr(CommandClient, "send", send_more)

    def take_nothing(broker: FakeBroker) -> None:
        broker.accept_client()

    done = stage.pub(take_nothing)
    assert (done.code, done.out) == (1, b"")
    assert re.fullmatch(
        rf"vmq: error: {stage.url}\S* does not take what is sent to it: \d+ bytes are given up\n",
        done.err,
    )


def test_what_goes_with_the_connection_is_unsent(monkeypatch: pytest.MonkeyPatch) -> None:
    set_close_timeout(monkeypatch, 60.0)
    with ThreadPoolExecutor(1) as pool, FakeBroker() as broker:
        target = BrokerTarget("mqtt", "127.0.0.1", int(broker.port), "/mqtt")
        accepting = pool.submit(broker.accept_client)

        async def lose() -> int:
            sender = CommandClient(ConnectionOptions(target, "me"))
            closing, _ = await close_with_a_rest(sender, accepting)
            accepting.result()[0].stream.close()  # with bytes that were not read, which is a reset
            await closing
            return sender.unsent

        assert asyncio.run(lose()) > 0


@pytest.mark.parametrize("scheme", ["mqtt", "ws"])
def test_what_the_system_has_not_taken_yet_is_sent_before_the_end(
    scheme: Scheme, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_close_timeout(monkeypatch, 60.0)
    with ThreadPoolExecutor(1) as pool, FakeBroker(is_websocket=scheme == "ws") as broker:
        target = BrokerTarget(scheme, "127.0.0.1", int(broker.port), "/mqtt")
        accepting = pool.submit(broker.accept_client)
        sent, reading = asyncio.run(publish(ConnectionOptions(target, "me"), accepting, pool))
        assert reading.result() == sent


async def publish(
    connection: ConnectionOptions, accepting: Future[tuple[Wire, Packet]], pool: ThreadPoolExecutor
) -> tuple[int, Future[int]]:
    """Sends until the system takes no more, and leaves the rest to `close`; what comes is counted then."""
    sender = CommandClient(connection)
    closing, sent = await close_with_a_rest(sender, accepting)
    wire, _ = accepting.result()
    reading = pool.submit(count_messages, wire)
    await closing
    assert sender.unsent == 0
    return sent, reading


async def close_with_a_rest(
    sender: CommandClient, accepting: Future[tuple[Wire, Packet]]
) -> tuple[asyncio.Task[None], int]:
    """Sends until the system takes no more, and has `close` begin; how many messages there were."""
    await sender.open()
    await asyncio.to_thread(accepting.result)
    sent = 0
    while not transport_of(sender).get_write_buffer_size():
        await sender.send("t", bytes(1 << 14), 0, retain=False)
        sent += 1
    closing = asyncio.create_task(sender.close())
    await asyncio.wait({closing}, timeout=0.1)
    assert not closing.done(), "nobody has read what is unsent"
    return closing, sent


def transport_of(sender: CommandClient) -> asyncio.WriteTransport:
    writer = sender._handler.writer
    stream = writer._protocol if hasattr(writer, "_protocol") else writer._writer
    found: asyncio.WriteTransport = stream.transport
    return found


def count_messages(wire: Wire) -> int:
    """The messages until the client says DISCONNECT, or has gone without a word."""
    found = 0
    with contextlib.suppress(ConnectionEnded):
        while wire.recv_packet().type == PUBLISH:
            found += 1
    wire.close()
    return found
