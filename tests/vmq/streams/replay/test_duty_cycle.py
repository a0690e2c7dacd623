"""Replays give way to others, for a bounded part of the time, and none of them starves."""

import asyncio
from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.until import until
from tests.vmq.sockets import peer_of
from tests.vmq.streams.replay.test_packets import broker_with
from tests.vmq.streams.replay.test_port import fill, payload_of, readers, reading
from vmq.streams.replay.duty_cycle import QUIET, DutyCycle, LiveTraffic
from vmq.streams.replay.port import RESTS

#: How much later work is begun than it might, whether others had a message meanwhile, and how long it takes: no piece
#: takes so long that what was seen before it is forgotten.
STEPS = st.lists(
    st.tuples(
        st.one_of(st.just(0.0), st.floats(0, 0.3)),
        st.booleans(),
        st.one_of(st.floats(0, 0.0002), st.floats(0, 0.15)),
    ),
    max_size=40,
)
SHARES = st.sampled_from([1 / 100, 1 / 8, 1.0])
LONGEST = 0.1


class World:
    """Time, messages of others, and a duty cycle."""

    def __init__(self, share: float = 0.1, longest: float = LONGEST) -> None:
        self.now = 100.0
        self.messages = 7
        self.live = LiveTraffic(lambda: self.messages)
        self.duty = DutyCycle(self.live, share, longest)
        self.live.is_on(self.now)

    def rest(self) -> float:
        """Waits until work may go on; how long that was."""
        began = self.now
        while wait := self.duty.wait(self.now):
            assert 0 < wait <= QUIET
            self.now += max(wait, 1e-9)  # a clock goes on, too, where it is asked at once
            self.messages += 1
        return self.now - began


def test_nobody_is_given_way_to_who_is_not_there() -> None:
    world = World()
    assert not world.live.is_on(world.now)
    for _ in range(3):
        assert world.duty.wait(world.now) == 0.0
        world.now += 0.05
        world.duty.spend(0.05)
    world.messages += 1
    assert world.duty.wait(world.now) == QUIET  # for the work that was under way
    world.now += QUIET / 2
    assert world.live.is_on(world.now)
    world.now += QUIET / 2
    assert world.duty.wait(world.now) == 0.0


def test_a_message_that_may_be_long_ago_is_no_traffic() -> None:
    world = World()
    assert not LiveTraffic(lambda: 1000).is_on(0.0)
    for pause, is_on in ((0.15, True), (10.0, False), (0.15, True)):
        world.now += pause
        world.messages += 1
        assert world.live.is_on(world.now) == is_on


@given(STEPS, SHARES)
def test_its_share_of_time_is_bounded(steps: list[tuple[float, bool, float]], share: float) -> None:
    """While others have messages all the while: over any time, but for one piece of work, and for pieces so long that
    the longest rest is shorter than they ask for."""
    world = World(share)
    world.messages += 1
    began, worked, last = world.now, 0.0, 0.0
    for later, _, seconds in steps:
        world.messages += 1
        assert world.rest() <= LONGEST * 1.01
        world.now += later
        world.messages += 1
        assert world.duty.wait(world.now) == 0.0
        passed = world.now - began
        assert worked - last <= share * passed * 1.001 + 1e-9
        assert worked <= share * passed * 1.001 + 1e-9
        world.now += seconds
        last = min(seconds, LONGEST * share)  # as far as it has to be made good
        worked += last
        world.duty.spend(seconds)


@given(STEPS, SHARES)
def test_no_rest_is_longer_than_the_longest_and_alone_there_is_none(
    steps: list[tuple[float, bool, float]], share: float
) -> None:
    world = World(share)
    heard = float("-inf")
    for later, has_message, seconds in steps:
        world.now += later
        if has_message:
            world.messages += 1
            heard = world.now
        wait = world.duty.wait(world.now)
        if world.now >= heard + QUIET:
            assert wait == 0.0
        assert wait <= min(LONGEST, QUIET) + 1e-9
        if not wait:
            world.now += seconds
            world.duty.spend(seconds)
    world.messages += 1
    assert world.rest() <= LONGEST * 1.01


class RestingLoop:
    """An event loop that notes how long it is told to wait."""

    def __init__(self) -> None:
        self.rests: list[float] = []
        self._loop = asyncio.get_running_loop()

    def call_later(self, delay: float, call: Callable[[], None]) -> asyncio.TimerHandle:
        self.rests.append(delay)
        return self._loop.call_later(delay, call)


@pytest.mark.parametrize("topic", ["$replay/earliest/s/#", "$share/g/$stream/s;from=earliest/s/#"])
@pytest.mark.parametrize("qos", [0, 1])
async def test_history_rests_while_others_have_messages_and_what_is_new_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, qos: int, topic: str
) -> None:
    many = 20_000
    async with broker_with(tmp_path, many, 100) as broker, peer_of(broker) as peer:
        ports, loop = readers(broker), RestingLoop()
        ports.duty.live.count = count().__next__
        monkeypatch.setattr(ports, "loop", loop)
        await reading(peer, topic, qos=qos)
        for number in range(many):
            assert int(await payload_of(peer)) == number
        assert loop.rests
        assert all(0 < each <= RESTS[0] for each in loop.rests)
        (replay,) = ports.by_number.values()
        await until(lambda: not replay.is_behind and not ports.ready)
        loop.rests.clear()
        await fill(broker, "s/1", "s/2")
        assert [await payload_of(peer) for _ in range(2)] == ["s/1", "s/2"]
        assert not loop.rests


async def test_who_has_caught_up_does_not_wait_for_one_that_rests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (
        broker_with(tmp_path, 20_000, 100) as broker,
        peer_of(broker) as late,
        peer_of(broker) as prompt,
    ):
        ports = readers(broker)
        ports.duty.live.count = count().__next__
        await reading(prompt, "$replay/latest/s/new", client_id="prompt")
        await reading(late, "$replay/earliest/s/x", client_id="late", qos=0)
        assert await payload_of(late) == "0" * 100
        (behind,) = (each for each in ports.by_number.values() if each.queue.client_id == "late")
        # From now on it rests for good.
        monkeypatch.setattr(ports.duty, "wait", lambda _now: 60.0)
        await until(lambda: behind.is_behind and ports.rest is not None)
        await fill(broker, "s/new")
        assert await payload_of(prompt) == "s/new"
        assert list(ports.ready) == [behind]
        await until(lambda: ports.rest is not None)
