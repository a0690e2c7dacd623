"""Which slots a heartbeat looks at."""

from vmq.clustering.slots.turns import LOOKED_AT_ONCE, Rounds

SLOTS = 1000


def test_a_heartbeat_looks_at_few_slots_and_at_each_in_time() -> None:
    rounds = Rounds(SLOTS)
    rounds.are_all_due = False
    seen: list[int] = []
    for _ in range(-(-SLOTS // LOOKED_AT_ONCE)):
        found = rounds.due(range(SLOTS))
        assert len(found) == LOOKED_AT_ONCE
        seen += found
    assert set(seen) == set(range(SLOTS))


def test_where_something_waits_each_heartbeat_looks() -> None:
    rounds = Rounds(SLOTS)
    rounds.are_all_due = False
    rounds.note(SLOTS - 1, True)
    assert SLOTS - 1 in rounds.due(range(SLOTS))
    rounds.note(SLOTS - 1, False)
    assert SLOTS - 1 not in rounds.due(range(SLOTS))


def test_when_something_is_new_all_are_looked_at() -> None:
    assert Rounds(SLOTS).due(range(SLOTS)) == list(range(SLOTS))
