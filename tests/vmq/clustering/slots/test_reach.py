"""Who is in reach."""

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from vmq.clustering.messages.slots import Beat
from vmq.clustering.slots.reach import Reach
from vmq.clustering.slots.words import incarnation_of

INTERVAL, TIMEOUT = 100, 1000


def reach_of(*stores: int) -> Reach:
    reach = Reach(1, "here", TIMEOUT, INTERVAL)
    reach.set_members({1: "here", **{store: f"host-{store}" for store in stores}})
    reach.tick(0)
    return reach


def beat(reach: Reach, store: int, *hears: int, boot: int = 1) -> None:
    reach.on_beat(store, Beat(incarnation_of(store, boot), list(hears)))


def pass_time(reach: Reach, begin: int, milliseconds: int) -> int:
    for now in range(begin + INTERVAL, begin + milliseconds + 1, INTERVAL):
        reach.tick(now)
    return begin + milliseconds


def test_in_reach_is_who_is_heard_and_hears() -> None:
    reach = reach_of(2)
    beat(reach, 2)
    assert (reach.heard(), reach.up()) == ([2], [])
    beat(reach, 2, 1)
    assert reach.up() == [2]


def test_who_is_silent_is_gone_after_the_detectors_time() -> None:
    reach = reach_of(2)
    beat(reach, 2, 1)
    now = pass_time(reach, 0, TIMEOUT)
    assert reach.is_up(2)
    now = pass_time(reach, now, INTERVAL)
    assert not reach.is_up(2)
    assert reach.is_gone(2)
    beat(reach, 2, 1)
    assert reach.is_up(2)
    assert not reach.is_gone(2)


def test_whose_process_has_ended_is_gone_at_once() -> None:
    reach = reach_of(2)
    beat(reach, 2, 1)
    reach.on_break(2, is_dead=True)
    assert reach.is_gone(2)
    assert reach.heard() == []


def test_a_link_that_breaks_alone_makes_nobody_gone() -> None:
    reach = reach_of(2)
    beat(reach, 2, 1)
    reach.on_link(2, 7)
    reach.on_break(2, is_dead=False)
    assert reach.is_up(2)
    assert reach.link(2) == 0


def test_a_node_that_was_held_up_has_missed_nothing() -> None:
    reach = reach_of(2)
    beat(reach, 2, 1)
    reach.tick(100 * TIMEOUT)
    assert reach.is_up(2)


def test_others_may_have_missed_a_node_held_up_nearly_as_long_as_it_may_be_silent() -> None:
    reach = reach_of(2)
    now = pass_time(reach, 0, TIMEOUT)
    for hold, holds in ((TIMEOUT - 2 * INTERVAL, 0), (TIMEOUT - INTERVAL, 1), (INTERVAL, 1)):
        now += hold
        reach.tick(now)
        assert reach.holds == holds


def test_a_clock_that_is_set_back_makes_nobody_gone() -> None:
    reach = reach_of(2)
    beat(reach, 2, 1)
    reach.tick(-100 * TIMEOUT)
    assert reach.is_up(2)


def test_who_is_back_is_caught_up_with_when_all_whom_it_hears_are_in_reach() -> None:
    reach = reach_of(2, 3)
    beat(reach, 2, 1, 3)
    assert not reach.is_caught_up(2)
    beat(reach, 3, 1, 2)
    assert reach.is_caught_up(2)
    assert reach.is_caught_up(3)
    now = pass_time(reach, 0, TIMEOUT)
    beat(reach, 2, 1, 3)  # for as long as it is in reach, whoever goes
    pass_time(reach, now, INTERVAL)
    assert reach.up() == [2]
    assert reach.is_caught_up(2)


def test_whom_a_peer_hears_is_missed_for_the_detectors_time_at_each_return_of_that_peer() -> None:
    reach = reach_of(2, 3)
    now = 0
    for boot in (1, 2):
        begin = now
        while now < begin + TIMEOUT:
            beat(reach, 2, 1, 3, boot=boot)
            assert not reach.is_caught_up(2)
            now = pass_time(reach, now, INTERVAL)
        now = pass_time(reach, now, INTERVAL)
        assert reach.is_caught_up(2)
    now = pass_time(reach, now, 2 * TIMEOUT)
    assert not reach.is_caught_up(2)
    beat(reach, 2, 1, 3, boot=2)
    assert not reach.is_caught_up(2)


def test_what_an_earlier_life_said_comes_too_late() -> None:
    reach = reach_of(2)
    beat(reach, 2, 1, boot=2)
    beat(reach, 2, boot=1)
    assert reach.is_up(2)
    assert reach.incarnation(2) == incarnation_of(2, 2)


def test_until_it_is_known_of_everybody_nothing_is_settled() -> None:
    reach = reach_of(2, 3)
    beat(reach, 2, 1)
    assert not reach.is_settled()
    pass_time(reach, 0, TIMEOUT + INTERVAL)
    beat(reach, 2, 1)
    assert reach.is_settled()


def test_who_is_no_member_any_more_is_gone() -> None:
    reach = reach_of(2)
    beat(reach, 2, 1)
    reach.set_members({1: "here"})
    assert reach.is_gone(2)
    assert reach.up() == []
    assert reach.incarnation(2) == 0


def test_others_may_hear_whom_this_node_does_not() -> None:
    reach = reach_of(2, 3)
    beat(reach, 2, 1, 3)
    assert reach.is_heard_by_another(3)
    assert not reach.is_heard_by_another(2)


@given(st.integers(0, 1 << 32))
def test_answers_are_those_of_now_whenever_they_were_asked_for(seed: int) -> None:
    random = Random(seed)
    reach, now = reach_of(2, 3), 0
    for _ in range(30):
        store = random.choice((2, 3))
        match random.randrange(6):
            case 0:
                hears, is_leaving = random.choice(([], [1])), random.random() < 0.3
                reach.on_beat(store, Beat(incarnation_of(store, 1), hears, is_leaving))
            case 1:
                reach.on_message(store)
            case 2:
                reach.on_link(store, 7)
            case 3:
                reach.on_break(store, random.random() < 0.5)
            case 4:
                hosts = {each: random.choice(("here", "there")) for each in (2, 3)}
                reach.set_members(dict(random.sample(sorted(hosts.items()), random.randint(1, 2))))
            case _:
                now = pass_time(reach, now, random.choice((INTERVAL, 2 * TIMEOUT)))
        peers = reach.peers
        assert reach.up() == [each for each in peers if reach.is_up(each)]
        assert reach.is_settled() == all(reach.is_up(each) or reach.is_gone(each) for each in peers)
        assert reach.fit() == [
            each
            for each in reach.up()
            if not peers[each].is_leaving and reach.host_of(each) != "here"
        ]


def wider_after(milliseconds: int, *hears: int, is_dead: bool = False) -> list[int]:
    """Who reaches more than this node, which does not hear 2 any more; 3 hears these besides it, 4 it alone."""
    reach = reach_of(2, 3, 4)
    for store in (2, 3, 4):
        beat(reach, store, 1, 2, 3, 4)
    if is_dead:
        reach.on_break(2, is_dead=True)
    for now in range(INTERVAL, milliseconds + 1, INTERVAL):
        beat(reach, 3, 1, *hears)
        beat(reach, 4, 1, 3)
        reach.tick(now)
    return reach.wider()


def test_who_reaches_everybody_that_this_node_does_and_one_that_it_misses() -> None:
    long = TIMEOUT + 5 * INTERVAL
    assert wider_after(2 * long, 2, 4) == [3]
    assert wider_after(2 * long, 4) == [], "nobody hears 2"
    assert wider_after(2 * long, 2) == [], "it does not hear 4, which this node does"
    assert wider_after(long - INTERVAL, 2, 4) == [], "3 may not have said yet that 2 is gone"
    assert wider_after(2 * long, 2, 4, is_dead=True) == []


def test_it_is_whole_when_everybody_hears_everybody() -> None:
    reach = reach_of(2, 3)
    beat(reach, 2, 1, 3)
    beat(reach, 3, 1)
    assert not reach.is_whole()
    beat(reach, 3, 1, 2)
    assert reach.is_whole()
    reach.on_beat(2, Beat(incarnation_of(2, 1), [1, 3], True))
    assert not reach.is_whole()
