"""When groups are looked at: soon where something happened, seldom where nothing does."""

from hypothesis import given, settings
from hypothesis import strategies as st

from vmq.clustering.raft.groups.upkeep import LOOK, ROUND, TICK, LookTimes

NAMES = st.sampled_from("abc")
STEPS = st.lists(st.tuples(NAMES, st.integers(0, 20)) | st.integers(0, 20), max_size=40)


@settings(max_examples=50, deadline=None)
@given(STEPS)
def test_each_is_looked_at_once_at_the_earliest_time_that_was_said(
    steps: list[tuple[str, int] | int],
) -> None:
    looks, wanted = LookTimes(), dict[str, int]()
    for step in steps:
        if isinstance(step, int):
            due = {name for name, at in wanted.items() if at <= step}
            found = list(looks.due(step))
            assert sorted(found) == sorted(due)
            wanted = {name: at for name, at in wanted.items() if name not in due}
        else:
            name, at = step
            looks.set(name, at)
            wanted[name] = min(at, wanted.get(name, at))


def test_a_thread_with_nothing_to_do_sleeps_until_the_next_look() -> None:
    looks = LookTimes()
    assert looks.pause(0.0, is_busy=False) == LOOK
    looks.set("a", 3.0)
    assert looks.pause(0.0, is_busy=False) == 3.0
    assert looks.pause(2.99, is_busy=False) == ROUND
    assert looks.pause(0.0, is_busy=True) == TICK
    looks.set("a", 100.0)
    assert looks.pause(0.0, is_busy=False) == 3.0, "earlier is decided already"


def test_who_is_due_may_be_set_anew_while_others_are_asked_for() -> None:
    looks = LookTimes()
    for name in "ab":
        looks.set(name, 1.0)
    found = []
    for name in looks.due(1.0):
        found.append(name)
        looks.set(name, 2.0)
    assert found == ["a", "b"]
    assert list(looks.due(2.0)) == ["a", "b"]
