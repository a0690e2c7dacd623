"""States that parted become one, whichever comes first and however often."""

from itertools import permutations
from random import Random
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.vmq.clustering.slots.states import (
    ORIGIN,
    attach,
    begun,
    finish,
    merged,
    message,
    parted,
    queue,
    subscribe,
    take,
    waiting,
)
from vmq.clustering.slots.merge import merge
from vmq.clustering.slots.queued import StoredMessage
from vmq.clustering.slots.records import all_records, load_state, take_changes
from vmq.clustering.slots.register import SentMessage
from vmq.clustering.slots.state import SlotState
from vmq.clustering.slots.words import NO_LINEAGE, includes


def what_counts(state: SlotState) -> Any:
    """All but the order in which it came about."""
    return (
        state.context,
        {client: set(dots) for client, dots in state.queues.items()},
        {
            client: (each.age(), each.subscriptions, sorted(each.window), each.missed, each.ahead)
            for client, each in state.registers.items()
        },
    )


def test_what_one_side_has_finished_is_finished() -> None:
    one, other = parted(1, 2, 3)
    finish(one, "c", 1)
    finish(other, "c", 2)
    take(other, 4)
    assert waiting(one, other) == [3, 4]


def test_what_a_merge_brings_for_another_client_was_not_there_for_that_before() -> None:
    one, other = parted(1)
    third = begun(1, 7)
    subscribe(third, "d")
    take(third, 1)
    merge(one, third)
    one.close()
    for found in (merged(one, other), merged(other, one)):
        assert queue(found, "c") == queue(found, "d") == [1]


@pytest.mark.parametrize("under", [0, 9])
def test_an_id_that_a_client_may_hold_of_one_side_is_finished_by_the_other(under: int) -> None:
    """Its PUBREC was on the way: PUBREL is nothing to who does not hold it, and what it lacks comes in its turn."""
    one, other = parted(1)
    attach(other, "c", 8)
    one.send("c", 7, SentMessage((ORIGIN, 1), False, 2))
    one.send("c", 8, SentMessage((ORIGIN, 2), False, 1))  # nothing to a client that sees it no more
    if under:
        other.send("c", under, SentMessage((ORIGIN, 1), False, 2))
    for found in (merged(one, other), merged(other, one)):
        window = {packet: each.is_received for packet, each in found.registers["c"].window.items()}
        assert window == ({7: True, under: False} if under else {7: True})
        assert found.unfinished == [("c", 7)]
        assert queue(found, "c") == [1]


def test_what_a_client_has_finished_that_a_part_of_a_copy_had_for_it_does_not_come_back() -> None:
    """Nobody who knew the client had seen that for it; but it was in its queue."""
    one, former = parted()
    take(former, 1)
    part = begun(0, 9)
    part.see((ORIGIN, 1))
    part.put("c", (ORIGIN, 1), 2, message(7))
    part.close()
    found = merged(begun(3, 7, one), part)
    assert queue(found, "c") == [1]
    finish(found, "c", 1)
    assert waiting(found, former) == []


def test_a_session_that_ended_takes_its_queue_along() -> None:
    one = begun(1, 5)
    attach(one, "c", 3)
    subscribe(one, "c")
    take(one, 1)
    other = begun(2, 6, one)
    take(one, 2)
    attach(other, "c", 4)
    other.end_session("c", 0)
    assert waiting(one, other) == []


def test_what_was_lost_but_for_its_subscriptions_still_gets_messages() -> None:
    """Of an unfinished copy only messages and subscriptions count: no register says when the session began."""
    one, other = begun(1, 5), SlotState()
    other.register("c").subscriptions["#"] = 7, 1
    other.register("c").born["#"] = (((1, 5), 3, False, 0),)
    merge(one, other)
    assert one.registers["c"].wants("t") == 1


@given(st.integers(0, 1 << 32))
def test_merging_is_commutative_and_idempotent(seed: int) -> None:
    one, other, _ = forks(Random(seed), set())
    assert what_counts(merged(one, other)) == what_counts(merged(other, one))
    assert what_counts(merged(merged(one, other), other)) == what_counts(merged(one, other))


@given(st.integers(0, 1 << 32))
def test_forks_that_know_the_same_clients_become_the_same_by_any_path(seed: int) -> None:
    one, other, third = forks(Random(seed), set(), subscribes=False)
    left = merged(merged(one, other), third)
    right = merged(one, merged(other, third))
    assert what_counts(left) == what_counts(right)


@given(st.integers(0, 1 << 32))
def test_by_no_path_anything_is_lost_that_nobody_has_finished(seed: int) -> None:
    finished: set[tuple[str, int]] = set()
    states = forks(Random(seed), finished)
    wanted = {
        (client, number)
        for state in states
        for client in state.queues
        for number in queue(state, client)
    }
    for one, other, third in permutations(states):
        for found in (merged(merged(one, other), third), merged(one, merged(other, third))):
            for client, number in wanted - finished:
                assert number in queue(found, client)


@given(st.integers(0, 1 << 32))
def test_records_are_the_state_and_changes_lead_to_them(seed: int) -> None:
    random = Random(seed)
    one, other, _ = forks(random, set())
    for client, register in other.registers.items():
        if register.granted() and random.random() < 0.5:
            other.subscribe(client, "#", -1, 0)
            other.close()
    if random.random() < 0.5:
        other.forget_forks()
    records = all_records(one)
    assert all_records(load_state(records)) == records
    take_changes(one)
    merge(one, other)
    one.close()
    for key, value in take_changes(one):
        if value is None:
            records.pop(key, None)
        else:
            records[key] = value
    # A message that is done stays in its record while another one there is not.
    assert said(all_records(load_state(records))) == said(all_records(one))


def said(records: dict[bytes, bytes]) -> dict[bytes, Any]:
    """What records say: in which order messages stand in theirs means nothing, queues are in that of stamps."""
    return {
        key: sorted(msgspec.msgpack.decode(value)) if key[:1] == b"m" else value
        for key, value in records.items()
    }


def forks(
    random: Random, finished: set[tuple[str, int]], subscribes: bool = True
) -> list[SlotState]:
    """Three states from one beginning, each with a life of its own; notes what clients have finished."""
    first = begun(1, 5)
    grow(random, first, 5, finished, True)
    states = [begun(2 + at, 6 + at, first) for at in range(3)]
    for state in states:
        grow(random, state, random.randrange(8), finished, subscribes)
    return states


def grow(
    random: Random, state: SlotState, steps: int, finished: set[tuple[str, int]], subscribes: bool
) -> None:
    for _ in range(steps):
        client = random.choice("abc")
        kind = random.randrange(4)
        if kind == 0 and subscribes:
            subscribe(state, client)
        elif kind == 1:
            take(state, random.randint(1, 6))
        elif queue(state, client):
            number = random.choice(queue(state, client))
            finish(state, client, number)
            finished.add((client, number))


@given(st.integers(0, 1 << 32))
def test_who_wants_a_topic_is_asked_once_until_something_changes(seed: int) -> None:
    random = Random(seed)
    state, other = begun(1, 5), begun(2, 6)
    for _ in range(12):
        client, kind = random.choice("abc"), random.randrange(6)
        register = state.register(client)
        if not register.session:
            state.begin_session(client, 0)
        elif kind == 0:
            state.end_session(client, 0)
        elif kind == 1 and not register.session:
            state.forget(client)
        elif kind == 2:
            subscribe(other, client)
            merge(state, other)
        else:
            state.subscribe(client, random.choice(("#", "t", "u")), random.randint(-1, 2), 0)
        for topic in ("t", "u"):
            asked = {each: found.wants(topic) for each, found in state.registers.items()}
            wanted = {each: qos for each, qos in asked.items() if qos > 0}
            assert dict(state.wanted(topic)) == wanted
            assert state.wanted(topic) is state.wanted(topic)


def test_when_everybody_has_handed_in_earlier_lineages_are_one_number() -> None:
    state, _ = parted()
    for epoch in range(2, 50):
        state.begin((epoch, 5))
        state.forget_forks()
        state.close()
    assert len(state.included) == 2
    assert includes(state.included, (17, 5), 1000)
    assert not includes(state.included, (50, 6), 1)
    old, _ = parted()
    take(state, 1)
    finish(state, "c", 1)
    merge(state, old)
    assert queue(state, "c") == []
    assert state.included[NO_LINEAGE] == 48


def test_who_knew_a_client_does_so_however_it_says_it() -> None:
    """One side says of each lineage what it has, the other only that it has all up to an epoch."""
    one, other = parted(1)
    finish(other, "c", 1)
    one.begin((3, 5))
    one.forget_forks()
    assert waiting(one, other) == []


def test_who_never_knew_a_client_does_not_because_it_subscribed_long_ago() -> None:
    one = begun(1, 5)
    other = begun(2, 6, one)
    subscribe(one, "c")
    one.begin((3, 5))
    one.forget_forks()
    take(one, 1)
    take(other, 1)
    assert waiting(one, other) == [1]


def shared(state: SlotState, *members: str) -> tuple[int, int]:
    """Two members of a share group, and a message that waits for the first."""
    for client in members:
        subscribe(state, client)
    dot = ORIGIN, 1
    state.see(dot)
    state.put(members[0], dot, 2, StoredMessage(state.stamp(0), b"t", b"1", 2, "$share/g/t"))
    state.close()
    return dot


def holders(state: SlotState) -> list[str]:
    return [client for client, dots in state.queues.items() if dots]


def moved_in_one_fork() -> tuple[SlotState, SlotState, tuple[int, int]]:
    """An earlier owner gives a message of g to h; a later one has it for g."""
    one = begun(1, 5)
    dot = shared(one, "g", "h")
    other = begun(2, 6, one)
    one.move("g", dot, "h", 2)
    one.close()
    return one, other, dot


def test_a_member_that_one_fork_knew_to_be_gone_gets_nothing_of_the_other() -> None:
    one, other, dot = moved_in_one_fork()
    for found in (merged(one, other), merged(other, one)):
        assert holders(found) == ["h"]
        assert found.messages[dot].moves == 1
        assert load_state(all_records(found)).messages[dot].moves == 1
    finish(one, "h", 1)
    for found in (merged(one, other), merged(other, one)):
        assert holders(found) == []


def test_what_a_member_had_of_an_owner_that_was_ahead_is_for_no_member_again() -> None:
    """It says so when it comes to the next owner, which has not seen the message."""
    one = begun(1, 5)
    subscribe(one, "g")
    ahead = begun(2, 6, one)
    dot = shared(one, "g")
    one.close()
    ahead.done("g", dot)
    ahead.close()
    for found in (merged(ahead, one), merged(one, ahead)):
        assert holders(found) == []


def test_a_member_that_has_come_to_a_later_owner_keeps_what_an_earlier_one_took_from_it() -> None:
    one, other, _ = moved_in_one_fork()
    register = other.registers["g"]
    register.lineage, register.attached_at = other.lineage, other.stamp(0)
    other.touch("g")
    other.close()
    for found in (merged(one, other), merged(other, one)):
        assert holders(found) == ["g"]
