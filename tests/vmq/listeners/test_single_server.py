"""uvloop's own server takes clients that come one by one, and only those."""

import asyncio
import errno
import logging
import os
import socket
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest
import uvloop

from tests.support.until import until
from tests.vmq.listeners.test_listener import TIMEOUT, listening
from tests.vmq.support import House
from vmq.config.options import Config, ListenerOptions
from vmq.listeners.acceptor import ALONE, Acceptor
from vmq.listeners.single_server import LOOK

DRIFT = 0.02


class Gate:
    """An acceptor that may use uvloop's server, and how clients came through it."""

    def __init__(self) -> None:
        self.house = House()
        self.stack = ExitStack()
        self.is_open = True
        self.error: Exception | None = None
        #: Those that came through the server, and those whose socket was seen.
        self.offered = 0
        self.arrived = 0
        self.came = asyncio.Event()
        self.sock = socket.create_server(("127.0.0.1", 0), backlog=1000)
        self.sock.setblocking(False)
        self.acceptor = Acceptor("a", self.sock, self.arrive, self.house.core, DRIFT)
        self.acceptor.use_server(1000, self.offer, lambda: self.is_open)

    def arrive(self, sock: Any, _address: Any) -> None:
        sock.close()
        self.arrived += 1
        self.came.set()

    def offer(self) -> asyncio.Protocol:
        self.offered += 1
        self.came.set()
        if self.error is not None:
            raise self.error
        return asyncio.Protocol()

    def serves(self) -> bool:
        """Whether uvloop's server takes clients now."""
        assert self.acceptor.server is not None
        return self.acceptor.server.server is not None

    def knock(self) -> None:
        self.stack.enter_context(socket.create_connection(self.sock.getsockname()))

    async def come(self, count: int) -> None:
        """So many clients, one by one."""
        for _ in range(count):
            seen = self.offered + self.arrived
            self.knock()
            await self.wait_all(seen + 1)

    async def wait_all(self, count: int) -> None:
        async with asyncio.timeout(TIMEOUT):
            while self.offered + self.arrived < count:
                self.came.clear()
                await self.came.wait()


@contextmanager
def a_gate() -> Iterator[Gate]:
    gate = Gate()
    with gate.stack:
        try:
            yield gate
        finally:  # else its server keeps the loop from ending
            gate.acceptor.close()


def under_uvloop(test: Callable[[], Awaitable[None]]) -> Callable[[], None]:
    def run() -> None:
        async def body() -> None:
            await test()

        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(body())

    run.__name__, run.__doc__ = test.__name__, test.__doc__
    return run


@under_uvloop
async def test_who_comes_alone_comes_through_the_server() -> None:
    with a_gate() as gate:
        await gate.come(3 * LOOK)
        assert (gate.offered, gate.arrived) == (3 * LOOK, 0)
        assert gate.serves()


@under_uvloop
async def test_a_crowd_is_taken_in_batches_and_afterwards_the_server_serves_again() -> None:
    with a_gate() as gate:
        for _ in range(200):
            gate.knock()
        await gate.wait_all(200)
        assert gate.offered <= 2 * LOOK
        assert not gate.serves()
        seen = gate.arrived
        async with asyncio.timeout(TIMEOUT):
            while not gate.serves():
                await gate.come(1)
        assert gate.arrived - seen > ALONE
        await gate.come(1)
        assert gate.serves()


@under_uvloop
async def test_a_loop_that_is_late_pauses_as_without_the_server() -> None:
    with a_gate() as gate:
        gate.house.core.loop_lag = 2 * DRIFT
        await gate.come(1)
        assert gate.offered == 1
        await until(lambda: not gate.serves())
        gate.knock()
        await gate.wait_all(2)
        assert gate.arrived == 1
        assert gate.house.core.counters.accept_paced >= 1


def test_without_a_file_for_the_next_client_it_gives_back(monkeypatch: pytest.MonkeyPatch) -> None:
    def none_left(_file: int) -> int:
        raise OSError(errno.EMFILE, "none")

    @under_uvloop
    async def come() -> None:
        with a_gate() as gate:
            with monkeypatch.context() as patch:
                patch.setattr(os, "dup", none_left)
                await gate.come(1)
                await until(lambda: not gate.serves())
                assert gate.acceptor.server is not None
                assert not gate.acceptor.server.start()
            await gate.come(1)
            assert (gate.offered, gate.arrived) == (1, 1)

    come()


@under_uvloop
async def test_with_few_files_left_it_takes_nobody_more() -> None:
    with a_gate() as gate:
        assert gate.acceptor.server is not None
        gate.acceptor.server.end = 0
        await gate.come(2 * ALONE)
        assert (gate.offered, gate.arrived) == (1, 2 * ALONE - 1)


@under_uvloop
async def test_who_may_not_come_in_unseen_is_seen() -> None:
    with a_gate() as gate:
        gate.is_open = False
        gate.acceptor.look_at_all()
        assert not gate.serves()
        await gate.come(100)
        assert (gate.offered, gate.arrived) == (0, 100)


def test_an_error_costs_one_client(caplog: pytest.LogCaptureFixture) -> None:
    @under_uvloop
    async def come() -> None:
        with a_gate() as gate:
            gate.error = RuntimeError("broken")
            await gate.come(1)
            gate.error = None
            await gate.come(1)
            assert gate.offered == 2

    with caplog.at_level(logging.ERROR, "vmq.listeners"):
        come()
    assert [each.getMessage() for each in caplog.records] == [
        "internal error: a client cannot be let in"
    ]


@under_uvloop
async def test_a_closed_one_takes_nobody_more() -> None:
    with a_gate() as gate:
        assert gate.serves()
        address = gate.sock.getsockname()
        gate.acceptor.close()
        assert not gate.serves()
        await asyncio.sleep(0)
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(address)


@under_uvloop
async def test_a_limit_of_connections_is_kept_and_their_addresses_are_seen() -> None:
    async with listening(max_connections=2) as opened:
        clients = [(await opened.session(name))[1] for name in ("a", "b")]
        assert [each.network for each in opened.made] == ["127.0.0.1"] * 2
        assert opened.house.core.networks == {"127.0.0.1": 2}
        for _ in range(3):
            assert await opened.turns_away()
        assert opened.listener.connections == 2
        # One more is allowed, and another limit holds at once.
        opened.listener.configure(limited(3))
        opened.house.core.options.max_connections_per_ip = 2
        assert await opened.turns_away()
        for each in clients:
            each.close()
        await until(lambda: opened.listener.connections == 0)
    assert opened.house.core.networks == {}


def limited(count: int) -> Config:
    options = ListenerOptions(url="tcp://127.0.0.1:0", max_connections=count)
    return Config(listeners={"a": options})
