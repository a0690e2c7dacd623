"""Subscriptions of states that parted: which are there when they become one, and from where on they count."""

import pytest

from tests.vmq.clustering.slots import states
from vmq.clustering.slots.records import all_records, load_state, take_changes
from vmq.clustering.slots.register import ENDED, request_of
from vmq.clustering.slots.state import SlotState


def test_what_a_client_ended_before_it_asked_anew_stays_ended_where_it_is_read_late() -> None:
    one = states.begun(1, 5)
    states.attach(one, "c", 55)
    other = states.begun(2, 6, one)
    for packet in (2, 4):
        other.subscribe("c", "t", 2, 0, request_of(55, packet))
        other.close()
        if packet == 4:
            other = load_state(all_records(other))
        other.subscribe("c", "t", -1, 0)
        other.close()
    one.subscribe("c", "t", 2, 0, request_of(55, 2))
    one.close()
    assert states.granted(one, other) == {}


def test_an_ended_subscription_does_not_come_back() -> None:
    one, other = states.parted()
    one.subscribe("c", "#", -1, 0)
    one.close()
    assert states.granted(one, other) == {}


@pytest.mark.parametrize("is_forgotten", [False, True])
def test_a_forgotten_end_is_known_of_what_its_side_includes(is_forgotten: bool) -> None:
    """All had handed in what they have when it ended; then one began another lineage with a copy from before."""
    one, other = states.parted()
    one.subscribe("c", "#", -1, 0)
    one.forget_forks()
    if is_forgotten:
        one.end_session("c", 0)
        one.forget("c")
    one.close()
    assert states.granted(one, other) == {}


def test_of_what_a_client_has_ended_so_much_is_remembered_while_there_may_be_forks() -> None:
    state = states.begun(1, 5)
    states.attach(state, "c", 55)
    for number in range(ENDED + 1):
        for qos in (1, -1):
            state.subscribe("c", str(number), qos, 0)
    ends = {key: value for key, value in take_changes(state) if key[:1] == b"u"}
    assert [key for key, value in ends.items() if value is None] == [b"uc\x000"]
    assert len(state.registers["c"].subscriptions) == ENDED


def test_who_asks_again_for_what_an_older_copy_has_still_keeps_it() -> None:
    one, other = states.parted()
    one.subscribe("c", "#", -1, 1_000_000)
    one.close()
    states.take(one, 1)
    other.subscribe("c", "#", 1, 0)
    other.close()
    states.take(other, 1)
    assert states.granted(one, other) == {"#": 1}
    assert states.waiting(one, other) == [1]


@pytest.mark.parametrize("packet", [7, 8])
@pytest.mark.parametrize("is_over", [False, True])
def test_what_a_client_has_of_a_later_owner_it_gets_no_more(packet: int, is_over: bool) -> None:
    """The earlier owner has the request, or another, and a message that the client has had meanwhile."""
    one = states.begun(1, 5)
    states.attach(one, "c", 3)
    other = states.begun(2, 6, one)
    for state, number in ((other, 7), (one, packet)):
        state.registers["c"].lineage, state.registers["c"].attached_at = state.lineage, 1
        state.subscribe("c", "#", 2, 0, request_of(3, number))
        state.close()
        states.take(state, 1)
    states.finish(other, "c", 1)
    if is_over:
        states.attach(other, "c", 4)
        other.subscribe("c", "#", -1, 0)
        other.close()
    assert states.waiting(one, other) == []
    assert states.granted(one, other) == ({} if is_over else {"#": 2})


@pytest.mark.parametrize(("life", "left"), [(1, [1, 2]), (2, [1, 2, 3])])
def test_what_came_before_its_client_asked_was_not_seen_for_it(life: int, left: list[int]) -> None:
    """Once it knows a later life of the origin's store, it may have seen before all of an earlier one."""
    one = states.begun(1, 5)
    states.attach(one, "c", 3)
    other = states.begun(2, 6, one)
    states.subscribe(one, "c")
    for state in (one, other):
        states.take(state, 1)
    other.see((states.ORIGIN - 1 + life, 2))
    other = load_state(all_records(other))
    states.subscribe(other, "c")
    other = load_state(all_records(other))
    for number in (2, 3):
        states.take(one, number)
        states.take(other, number)
    states.finish(other, "c", 3)
    assert states.waiting(one, other) == left


def test_what_a_client_had_by_a_part_of_a_copy_does_not_come_back_with_the_whole() -> None:
    """The owner had seen it before the client asked there, too; so had a third one."""
    former = states.begun(1, 5)
    states.attach(former, "c", 3)
    state, third = states.begun(2, 6, former), states.begun(3, 7, former)
    states.subscribe(former, "c")
    for each in (former, state, third):
        states.take(each, 1)
    for each in (state, third):
        states.subscribe(each, "c")
    part = states.begun(0, 9)
    part.see((states.ORIGIN, 1))
    part.put("c", (states.ORIGIN, 1), 2, states.message(7))
    register = part.register("c")
    register.subscriptions = dict(former.registers["c"].subscriptions)
    register.born = dict(former.registers["c"].born)
    part.close()
    state = states.merged(state, part)
    assert states.queue(state, "c") == [1]
    states.finish(state, "c", 1)
    for found in (state, states.merged(state, third), states.merged(third, state)):
        assert states.waiting(found, former) == []


def test_what_had_been_seen_is_not_kept_when_nobody_has_a_fork() -> None:
    state = states.begun(1, 5)
    register = state.register("c")
    register.session = state.stamp(0)
    states.take(state, 1)
    state.subscribe("c", "#", 2, 0, has_forks=False)
    assert register.since == {}
    state.subscribe("c", "t", 2, 0)
    assert register.since["t"].runs == {states.ORIGIN: [1, 2]}
    state.close()
    take_changes(state)
    state.forget_forks()
    assert register.since == {}
    assert [key for key, _ in take_changes(state)] == [b"uc\0t"]


@pytest.mark.parametrize(("life", "is_clean"), [(5, False), (5, True), (4, False)])
def test_what_a_dead_owner_wrote_is_older_than_what_follows(life: int, is_clean: bool) -> None:
    one = states.begun(1, 5)
    other = states.begun(2, 6, one)
    states.attach(one, "c", 3)
    one.subscribe("c", "#", 2, 0, request_of(3, 1))
    states.take(one, 1)
    states.attach(other, "c", 4, life)
    other.subscribe("c", "#", 1, 0, request_of(4, 1))
    if is_clean:
        other.end_session("c", 9)
    else:
        other.subscribe("c", "#", -1, 0)
    other.close()
    assert states.granted(one, other) == ({} if life == 5 else {"#": 2})
    assert states.waiting(one, other) == ([] if is_clean else [1])


def crossed(is_clean: bool) -> list[SlotState]:
    """A client ends a subscription on one side of a split, whose clock is ahead, and subscribes on the other."""
    one = states.begun(1, 5)
    states.attach(one, "c", 3)
    one.subscribe("c", "#", 2, 0, request_of(3, 1))
    one.close()
    later = states.begun(2, 6, one)
    states.attach(later, "c", 4)
    if is_clean:
        later.end_session("c", 1_000_000)
    else:
        later.subscribe("c", "#", -1, 1_000_000)
    later.close()
    states.attach(one, "c", 5)
    one.subscribe("c", "#", 1, 0, request_of(5, 1))
    states.take(one, 1)
    return [states.merged(one, later), states.merged(later, one)]


@pytest.mark.parametrize("is_clean", [False, True])
def test_who_crosses_a_split_and_subscribes_there_has_that_when_it_is_over(is_clean: bool) -> None:
    for found in crossed(is_clean):
        assert found.registers["c"].granted() == {"#": 1}
        assert found.registers["c"].session
        assert states.queue(found, "c") == [1]


def test_an_ended_session_ends_what_its_connection_asked_for_and_an_owner_reads_late() -> None:
    """The next session knows nothing of that filter."""
    one = states.begun(1, 5)
    states.attach(one, "c", 3)
    later = states.begun(2, 6, one)
    states.attach(later, "c", 4)
    later.end_session("c", 0)
    states.attach(later, "c", 5)
    one.subscribe("c", "#", 2, 0, request_of(3, 1))
    one.close()
    assert states.granted(one, later) == {}
    one = load_state(all_records(one))
    states.attach(one, "c", 6)  # it has crossed to the other side
    one.subscribe("c", "#", 2, 0, request_of(6, 1))
    one.close()
    assert states.granted(one, later) == {"#": 2}
