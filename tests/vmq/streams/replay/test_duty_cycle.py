"""Replays give way to others, for a bounded part of the time, and none of them starves."""

import asyncio
import math
from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.until import until
from tests.vmq.sockets import peer_of
from tests.vmq.streams.replay.test_packets import broker_with
from tests.vmq.streams.replay.test_port import fill, payload_of, readers, reading
from vmq.streams.replay.duty_cycle import GROWING, MOST, QUIET, Backlogs, DutyCycle, LiveTraffic
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
        self.backlogs = Backlogs()
        self.duty = DutyCycle(self.live, self.backlogs, share, longest)
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


@settings(deadline=None)
@given(st.floats(0.01, 0.05), st.floats(0.1, 0.8), SHARES)
def test_who_can_keep_up_with_half_of_the_time_does(
    piece: float, appended: float, share: float
) -> None:
    """`appended` is what comes in a second, as a part of what goes out in half of one."""
    world = World(share)
    world.messages += 1
    began, lag, before, looked = world.now, 30 * MOST * appended, math.inf, world.now
    bound = lag + 20 * MOST * appended
    is_hasty = False
    while lag > 0 and world.now < began + 100:
        passed = world.now
        world.rest()
        world.now += piece
        world.messages += 1
        world.duty.spend(piece)
        lag += (world.now - passed) * MOST * appended - piece
        if world.now >= looked + GROWING:
            is_hasty = is_hasty or lag > before
            if is_hasty:
                world.backlogs.tell(world.now, grows=lag > before)
            before, looked = lag, world.now
        assert lag <= bound


def test_when_no_backlog_is_told_of_any_more_rests_are_as_they_were() -> None:
    backlogs = Backlogs()
    backlogs.tell(0.0, grows=True)
    backlogs.tell(0.5, grows=True)  # another one, in the same second
    assert backlogs.factor(0.5) == 2.0
    for now in range(1, 20):
        backlogs.tell(now, grows=True)
    highest = backlogs.factor(20.0)
    for now in range(20, 60):
        backlogs.tell(now, grows=False)
        assert backlogs.factor(now) == highest
    assert backlogs.factor(68.0) == highest
    assert backlogs.factor(70.0) == 1.0


class RestingLoop:
    """An event loop that notes how long it is told to wait."""

    def __init__(self) -> None:
        self.rests: list[float] = []
        self._loop = asyncio.get_running_loop()

    def call_later(self, delay: float, call: Callable[[], None]) -> asyncio.TimerHandle:
        self.rests.append(delay)
        return self._loop.call_later(delay, call)


@pytest.mark.parametrize(
    ("qos", "topic"), [(0, "$replay/earliest/s/#"), (1, "$share/g/$stream/s;from=earliest/s/#")]
)
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


async def test_a_replay_that_falls_behind_because_it_rests_rests_less(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One whose client does not read does not count: longer turns would not help it."""
    many = 20_000
    async with (
        broker_with(tmp_path, many, 100) as broker,
        peer_of(broker) as peer,
        peer_of(broker) as slow,
    ):
        ports = readers(broker)
        ports.duty.live.count = count().__next__
        told: list[bool] = []
        monkeypatch.setattr(ports.duty.backlogs, "tell", lambda _now, grows: told.append(grows))
        await reading(slow, "$replay/earliest;prefetch=1/s/#", client_id="slow")
        await reading(peer, "$replay/earliest/s/#", qos=0)
        late, replay = (ports.by_number[each] for each in sorted(ports.by_number))
        await until(lambda: late.sender.waiting and replay.is_due and ports.rest is not None)
        for each, lag in ((late, -1.0), (replay, -1.0), (replay, math.inf)):
            each.has_rested = False
            each.lag, each.lag_at = lag, -math.inf
            each.measure_lag()
        assert told == [True, False]
        for number in range(many):
            assert int(await payload_of(peer)) == number
        await until(lambda: not replay.is_behind)
        replay.lag_at = -math.inf
        replay.measure_lag()
        assert not replay.is_hasty
