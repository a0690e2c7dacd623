"""The watch over connections. The clock stands still; wakes take the place of waiting."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support import wire as mqtt
from tests.support.until import turns
from tests.vmq.protocol.test_session import OtherNode
from tests.vmq.support import Client, House
from vmq.core.ports import NOBODY
from vmq.runtime.deadlines import CLOSE_TIMEOUT, FARTHEST, STEP, Deadlines, SessionWatch

LONG = 3600.0
#: Seconds to wait for what must happen.
TIMEOUT = 30.0


async def end_of(client: Client) -> None:
    """Waits until the broker has closed a client's transport."""
    closed = asyncio.Event()
    client.transport.on_close = closed.set
    if not client.is_closed():
        async with asyncio.timeout(TIMEOUT):
            await closed.wait()


@asynccontextmanager
async def watched(client: Client, connect_timeout: float = LONG) -> AsyncIterator[SessionWatch]:
    loop = asyncio.get_running_loop()
    deadlines = Deadlines(client.connection.core.clock, loop.call_later, loop.call_soon)
    watch = SessionWatch(client.connection, deadlines, connect_timeout)
    try:
        yield watch
    finally:
        watch.cancel()
        deadlines.close()


async def woken_after(house: House, watch: SessionWatch, seconds: float) -> None:
    house.clock.advance(seconds)
    watch.wake()
    await turns()


async def test_a_connection_without_connect_is_closed(
    house: House, caplog: pytest.LogCaptureFixture
) -> None:
    client = Client(house)
    with caplog.at_level(logging.INFO, "vmq.session"):
        async with watched(client, 5.0) as watch:
            await woken_after(house, watch, 4.9)
            assert not client.is_closed()
            await woken_after(house, watch, 0.1)
            assert client.is_closed()
    assert "no CONNECT within mqtt_connect_timeout" in caplog.text


async def test_the_timeout_ends_with_connect(house: House) -> None:
    client = Client(house)
    async with watched(client, 5.0) as watch:
        client.connect("c", keep_alive=0)
        await turns()
        await woken_after(house, watch, LONG)
        client.ping()


async def test_a_client_is_not_blamed_for_the_session_that_it_waits_for(house: House) -> None:
    other = OtherNode(house)
    client = Client(house)
    async with watched(client, 0.05) as watch:
        client.send(mqtt.connect_packet("c", keep_alive=10))
        await woken_after(house, watch, LONG)
        assert not client.is_closed()
        other.finish()
        await turns()
        client.expect(b"\x20\x02\x00\x00")
        # From now on it has to show that it lives.
        await woken_after(house, watch, 14.9)
        assert not client.is_closed()
        await woken_after(house, watch, 0.1)
        watch.wake()
        await end_of(client)


async def test_the_next_look_is_when_one_and_a_half_keep_alives_are_over(house: House) -> None:
    client = house.client("c", keep_alive=10)
    async with watched(client) as watch:
        assert watch.watch() == 15.0
        house.clock.advance(6)
        assert watch.watch() == 9.0
        client.send(mqtt.PINGREQ_BYTES)
        assert watch.watch() == 15.0


async def test_silence_ends_the_connection_as_a_failure_would(
    house: House, caplog: pytest.LogCaptureFixture
) -> None:
    watcher = house.subscriber("w", ("will", 0))
    client = house.client("c", keep_alive=10, will=mqtt.Will("will", b"gone"))
    async with watched(client) as watch:
        await woken_after(house, watch, 14.9)
        assert not client.is_closed()
        house.clock.advance(0.1)
        with caplog.at_level(logging.INFO, "vmq.session"):
            watch.wake()
            await turns()
            house.clock.advance(0.1)
            await end_of(client)
    assert watcher.payloads() == [b"gone"]
    assert "keep alive expired [MQTT-3.1.2-24]" in caplog.text


async def test_bytes_that_wait_unread_when_the_keep_alive_is_over_are_a_sign_of_life(
    house: House,
) -> None:
    client = house.client("c", keep_alive=10)
    async with watched(client) as watch:
        house.clock.advance(15)
        soon = watch.watch()
        assert soon is not None
        assert 0 < soon < 1, "the loop may have been late: one more look"
        assert not client.is_closed()
        client.send(mqtt.PINGREQ_BYTES)
        assert watch.watch() == 15.0
        house.clock.advance(15)
        watch.watch()
        watch.watch()
        assert client.is_closed()


async def test_a_retry_is_due_after_its_interval(house: House) -> None:
    house.options.retry_interval = 20.0
    client = house.subscriber("c", ("a", 1), keep_alive=60)
    house.publish("a", b"x", 1)
    assert not client.take_one(mqtt.PUBLISH).dup
    async with watched(client) as watch:
        assert watch.watch() == 20.0
        client.expect()
        await woken_after(house, watch, 20)
        assert client.take_one(mqtt.PUBLISH).dup
        house.clock.advance(60)
        assert watch.watch() == 10.0, "the keep alive comes first"


async def test_a_close_that_hangs_is_cut_short(house: House, client: Client) -> None:
    async with watched(client) as watch:
        client.send(b"\xff\x00")
        assert client.is_closed()
        await turns()
        await woken_after(house, watch, CLOSE_TIMEOUT * 0.99)
        assert not client.transport.aborted
        await woken_after(house, watch, CLOSE_TIMEOUT * 0.02)
        assert client.transport.aborted


async def test_a_cancelled_watch_is_told_nothing_more(house: House) -> None:
    client = house.client("c", keep_alive=10)
    async with watched(client) as watch:
        watch.wake()
        watch.cancel()
        assert client.connection.watch is NOBODY
        house.clock.advance(LONG)
        await turns()
        assert not client.is_closed()


class Looker(SessionWatch):
    """A watch that only notes when it looks, and looks again after a while."""

    def __init__(self, deadlines: Deadlines, house: House, again: float | None = None) -> None:
        super().__init__(Client(house).connection, deadlines, LONG)
        deadlines.clear(self)
        self.again = again
        self.looks: list[float] = []

    def due(self) -> float | None:
        self.looks.append(self.deadlines.clock())
        return self.again


class Timer:
    def __init__(self, at: float, call: Callable[[], None]) -> None:
        self.at = at
        self.call = call
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class Loop:
    """An event loop whose time is the house's clock: timers and calls are made by `run`."""

    def __init__(self, house: House) -> None:
        self.house = house
        self.timers: list[Timer] = []
        self.calls: list[Callable[[], None]] = []
        self.deadlines = Deadlines(house.core.clock, self.call_later, self.calls.append)

    def call_later(self, seconds: float, call: Callable[[], None]) -> Timer:
        timer = Timer(self.house.core.clock() + seconds, call)
        self.timers.append(timer)
        return timer

    def run(self, seconds: float) -> None:
        """Goes on in steps of a fortieth of a second."""
        for _ in range(round(seconds * 40)):
            self.house.clock.advance(0.025)
            for call in self.calls[:]:
                self.calls.remove(call)
                call()
            for timer in self.timers[:]:
                if timer.at <= self.house.core.clock():
                    self.timers.remove(timer)
                    if not timer.cancelled:
                        timer.call()


@given(wanted=st.lists(st.tuples(st.floats(0, 3), st.floats(0, 3), st.booleans()), max_size=20))
def test_everybody_looks_in_time_and_once(wanted: list[tuple[float, float, bool]]) -> None:
    """Of two times that are set, the earlier counts; who was cleared does not look."""
    house = House()
    loop = Loop(house)
    began = house.core.clock()
    lookers = []
    for first, second, cleared in wanted:
        looker = Looker(loop.deadlines, house)
        loop.deadlines.set(looker, first)
        loop.deadlines.set(looker, second)
        if cleared:
            loop.deadlines.clear(looker)
        lookers.append((looker, began + min(first, second), cleared))
    loop.run(4)
    for looker, due, cleared in lookers:
        if cleared:
            assert looker.looks == []
        else:
            [seen] = looker.looks
            assert due - 1e-6 <= seen <= due + STEP + 0.05
    assert not any(loop.deadlines.steps.values())


def test_a_loop_that_was_late_reads_before_it_ends_anybody(house: House) -> None:
    loop = Loop(house)
    quick, silent = Client(house), Client(house)
    for each in (quick, silent):
        SessionWatch(each.connection, loop.deadlines, 5.0)
    house.clock.advance(60)  # the machine stood still
    loop.run(0.025)
    assert not quick.is_closed()
    quick.connect("c", keep_alive=0)
    loop.run(1)
    quick.ping()
    assert silent.is_closed()


def test_what_is_far_away_takes_no_more_steps_than_what_is_near(house: House) -> None:
    loop = Loop(house)
    lookers = [Looker(loop.deadlines, house, again=LONG) for _ in range(3000)]
    for number, looker in enumerate(lookers):
        loop.deadlines.set(looker, float(number * 30))
    assert len(loop.deadlines.steps) <= FARTHEST / STEP + 2
    loop.run(FARTHEST + 1)
    assert all(looker.looks for looker in lookers)


def test_one_that_fails_does_not_keep_the_others_from_looking(
    house: House, caplog: pytest.LogCaptureFixture
) -> None:
    loop = Loop(house)
    broken, good = Looker(loop.deadlines, house), Looker(loop.deadlines, house)
    del broken.looks
    loop.deadlines.set(broken, 1.0)
    loop.deadlines.set(good, 1.0)
    loop.run(2)
    assert len(good.looks) == 1
    assert "cannot watch a connection" in caplog.text


def test_one_that_is_over_does_not_look_even_if_it_is_due_in_the_same_step(house: House) -> None:
    loop = Loop(house)

    class Killer(Looker):
        def due(self) -> float | None:
            for looker in lookers:
                if looker is not self:
                    looker.cancel()
            return super().due()

    lookers: list[Looker] = [Killer(loop.deadlines, house), Killer(loop.deadlines, house)]
    for looker in lookers:
        loop.deadlines.set(looker, 1.0)
    loop.run(2)
    assert sorted(len(looker.looks) for looker in lookers) == [0, 1]
