"""Accepting in batches: how many a pass takes, and when it pauses."""

import asyncio
import errno
import logging
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest
import uvloop

from tests.support.until import until
from tests.vmq.support import House
from vmq.listeners.acceptor import LARGEST_BATCH, SILENCE, Accepted, Acceptor, Told

TIMEOUT = 30.0
DRIFT = 0.02


class PoorSocket(socket.socket):
    """A listening socket of a process that now and then may open no more files."""

    errors: list[int]
    looks = 0

    def _accept(self) -> tuple[int, Any]:
        self.looks += 1
        if self.errors:
            raise OSError(self.errors.pop(), "want")
        found: tuple[int, Any] = super()._accept()  # type: ignore[misc]
        return found


class Door:
    """An acceptor, who came through it, and what each of them cost."""

    def __init__(self, *errors: int) -> None:
        self.house = House()
        self.sock = PoorSocket()
        self.sock.errors = list(errors)
        self.sock.bind(("127.0.0.1", 0))
        self.sock.listen(1000)
        self.sock.setblocking(False)
        #: Seconds that the clock goes on with each arrival.
        self.cost = 0.0
        self.arrived: list[socket.SocketType] = []
        self.all_in = asyncio.Event()
        self.wanted = 0
        self.acceptor = Acceptor("a", self.sock, self.arrive, self.house.core, DRIFT)

    def arrive(self, sock: socket.SocketType, address: Any) -> None:
        assert address == sock.getpeername()
        self.arrived.append(sock)
        self.house.clock.advance(self.cost)
        if len(self.arrived) == self.wanted:
            self.all_in.set()

    def knock(self, count: int) -> None:
        for _ in range(count):
            self.stack.enter_context(socket.create_connection(self.sock.getsockname()))

    async def wait_all(self, count: int) -> None:
        self.wanted = count
        self.all_in.clear()
        async with asyncio.timeout(TIMEOUT):
            if len(self.arrived) < count:
                await self.all_in.wait()

    async def let_in(self, count: int) -> None:
        """So many more come, and are waited for."""
        self.knock(count)
        await self.wait_all(len(self.arrived) + count)

    @property
    def paced(self) -> int:
        return self.house.core.counters.accept_paced

    stack: ExitStack


@contextmanager
def a_door(*errors: int) -> Iterator[Door]:
    door = Door(*errors)
    with ExitStack() as door.stack:
        yield door
        door.acceptor.close()
        for sock in door.arrived:
            sock.close()


async def test_a_pass_takes_no_more_than_a_batch() -> None:
    with a_door() as door:
        door.knock(3 * LARGEST_BATCH)
        seen: list[int] = []
        async with asyncio.timeout(TIMEOUT):
            while len(door.arrived) < 3 * LARGEST_BATCH:
                await asyncio.sleep(0)
                seen.append(len(door.arrived))
        assert max(after - before for before, after in zip([0, *seen], seen, strict=False)) == 64
        assert door.paced == 0


async def test_who_comes_alone_is_not_looked_behind() -> None:
    with a_door() as door:
        for _ in range(40):
            await door.let_in(1)
        assert door.sock.looks <= 40 * 5 / 4 + 1
        assert door.acceptor.expected <= 2


async def test_a_descriptor_is_closed_by_who_has_it() -> None:
    ours, other = socket.socketpair()
    with other:
        accepted = Accepted(socket.AF_UNIX, ours.detach())
        file = accepted.fileno()
        os.fstat(file)
        accepted.close()
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(file)
        accepted.close()
        handed_over = Accepted(socket.AF_UNIX, other.fileno())
        handed_over.hand_over()
        handed_over.close()
        os.fstat(other.fileno())


@pytest.mark.parametrize("factory", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_either_event_loop_takes_what_is_accepted(
    factory: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    async def come_and_go() -> None:
        gone = asyncio.Event()

        class Echo(asyncio.Protocol):
            def connection_made(self, transport: Any) -> None:
                self.transport = transport

            def data_received(self, data: bytes) -> None:
                self.transport.write(data)

            def connection_lost(self, _error: Exception | None) -> None:
                gone.set()

        making: list[Any] = []

        def arrive(sock: Any, _address: Any) -> None:
            sock.begin()
            loop = asyncio.get_running_loop()
            making.append(loop.create_task(loop.connect_accepted_socket(Echo, sock)))
            making[-1].add_done_callback(lambda _task: sock.hand_over())

        house = House()
        with socket.socket() as sock:
            sock.bind(("127.0.0.1", 0))
            sock.listen(1)
            sock.setblocking(False)
            acceptor = Acceptor("a", sock, arrive, house.core, DRIFT)
            async with asyncio.timeout(TIMEOUT):
                reader, writer = await asyncio.open_connection(*sock.getsockname())
                writer.write(b"there and back")
                assert await reader.readexactly(14) == b"there and back"
                writer.close()
                await writer.wait_closed()
                await gone.wait()
            acceptor.close()

    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(come_and_go())


async def test_a_pass_that_is_too_long_halves_the_batch_until_it_is_not() -> None:
    with a_door() as door:
        door.cost = DRIFT / 10
        await door.let_in(200)
        # 16 are too many; 8 are not, and one more is tried after each.
        assert door.paced >= 3
        assert 5 <= door.acceptor.batch <= 12


async def test_the_batch_grows_back_when_there_is_time() -> None:
    with a_door() as door:
        door.acceptor.batch = LARGEST_BATCH - 2
        await door.let_in(5 * LARGEST_BATCH)
        assert door.acceptor.batch == LARGEST_BATCH


async def test_a_loop_that_stays_late_lets_somebody_in_after_each_pause(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with a_door() as door, caplog.at_level(logging.WARNING, "vmq.listeners"):
        door.house.core.loop_lag = DRIFT * 1.01
        door.acceptor.batch = 1
        door.cost = DRIFT * 2
        await door.let_in(3)
        assert door.paced >= 3
    told = [each for each in caplog.records if "accepting slower listener=a" in each.getMessage()]
    assert len(told) == 1, "once in a while is enough"


async def test_a_loop_that_is_just_not_late_is_not_paced() -> None:
    with a_door() as door:
        door.house.core.loop_lag = DRIFT
        door.cost = DRIFT / LARGEST_BATCH * 0.999
        await door.let_in(2 * LARGEST_BATCH)
        assert door.paced == 0


@pytest.mark.parametrize("want", [errno.EMFILE, errno.ENOMEM])
async def test_without_files_it_waits_and_goes_on(
    want: int, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    with a_door(want, want) as door, caplog.at_level(logging.WARNING, "vmq.listeners"):
        await door.let_in(2)
        assert door.acceptor.has_wanted()
        door.house.clock.advance(SILENCE + 1)
        assert not door.acceptor.has_wanted()
        await door.let_in(2)
        assert door.house.core.counters.accept_failed == 2
    assert caplog.messages == ["cannot accept listener=a: want", "accepting again listener=a"]


async def test_clients_leave_the_last_files_to_the_broker(caplog: pytest.LogCaptureFixture) -> None:
    with a_door() as door:
        door.knock(8)
        os.close(first := os.dup(0))
        door.acceptor.end = first + 3
        await until(lambda: door.house.core.counters.accept_failed)
        *others, last = [each.fileno() for each in door.arrived]  # others may be open between them
        assert max(others, default=first) < first + 2 <= last
        assert caplog.messages == ["cannot accept listener=a: Too many open files"]
        door.acceptor.end = first + 100
        await door.wait_all(8)


def test_of_what_goes_on_the_log_hears_more_and_more_rarely() -> None:
    told = Told()
    hears = [second for second in range(4000) if told.is_due(float(second))]
    assert hears == [0, 10, 30, 70, 150, 310, 630, 1230, 1830, 2430, 3030, 3630]
    assert [second for second in range(6000, 6030) if told.is_due(float(second))] == [6000, 6010]


async def test_a_client_that_went_meanwhile_hinders_nobody() -> None:
    with a_door(errno.ECONNABORTED) as door:
        await door.let_in(1)
        assert door.house.core.counters.accept_failed == 0


async def test_a_closed_one_accepts_nobody_more() -> None:
    with a_door() as door:
        door.house.core.loop_lag = 1.0
        door.knock(1)
        door.acceptor.on_ready()
        assert door.paced == 1
        door.acceptor.close()
        assert door.acceptor.resuming is not None
        assert door.acceptor.resuming.cancelled()
        assert door.arrived == []
