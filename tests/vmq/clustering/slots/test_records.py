"""Records of a slot's state: what is side by side in one, and when it goes."""

from vmq.clustering.slots.merge import merge
from vmq.clustering.slots.queued import PLACES, RUN, RUN_BYTES, StoredMessage
from vmq.clustering.slots.records import all_records, load_state, salvage, take_changes
from vmq.clustering.slots.state import SlotState
from vmq.clustering.slots.words import NO_LINEAGE, UNCLAIMED

ORIGIN = 5 << 24 | 1


def state(*clients: str) -> SlotState:
    found = SlotState()
    found.begin((1, ORIGIN))
    for client in clients or ("c",):
        found.register(client).session = found.stamp(0)
    take_changes(found)
    return found


def take(found: SlotState, place: int, *clients: str, size: int = 1) -> None:
    """The slot takes a message, for these clients."""
    dot = ORIGIN, place
    found.see(dot)
    message = StoredMessage(found.stamp(0), b"t", b"x" * size, 1, "")
    for client in clients or ("c",):
        found.put(client, dot, 1, message)


def changed(found: SlotState, kind: bytes) -> list[tuple[bytes, bool]]:
    """The records of a kind that changed, and whether they are there."""
    return [(key, value is not None) for key, value in take_changes(found) if key[:1] == kind]


def test_messages_of_one_commit_share_a_record_that_goes_with_the_last_of_them() -> None:
    there = state()
    for place in range(1, 4):
        take(there, place)
    ((key, is_there),) = changed(there, b"m")
    assert is_there
    there.done("c", (ORIGIN, 1))
    there.done("c", (ORIGIN, 3))
    assert changed(there, b"m") == []
    there.done("c", (ORIGIN, 2))
    assert changed(there, b"m") == [(key, False)]


def test_a_record_of_messages_is_bounded_in_number_and_bytes() -> None:
    there = state()
    for place in range(1, RUN + 2):
        take(there, place)
    assert len(changed(there, b"m")) == 2
    for place in range(1000, 1003):
        take(there, place, size=RUN_BYTES)
    assert len(changed(there, b"m")) == 3


def test_what_comes_and_goes_between_two_commits_is_in_no_record() -> None:
    there = state()
    take(there, 1)
    there.done("c", (ORIGIN, 1))
    assert changed(there, b"m") == []
    take(there, 2)
    there.done("c", (ORIGIN, 2))
    assert changed(there, b"q") == []


def test_places_of_a_queue_that_are_near_are_one_record() -> None:
    there = state("c", "d")
    for place in (PLACES, PLACES + 1, 2 * PLACES - 1):
        take(there, place, "c", "d")
    assert len(changed(there, b"q")) == 2
    assert load_state(all_records(there)).queues == there.queues
    take(there, 2 * PLACES)
    assert len(changed(there, b"q")) == 1


def test_of_a_message_in_two_records_the_later_one_counts() -> None:
    there = state()
    for place in (1, 2):
        take(there, place)
    records = {key: value for key, value in take_changes(there) if value is not None}
    there.place((ORIGIN, 1), 99, 1)
    records.update({key: value for key, value in take_changes(there) if value is not None})
    found = load_state(records | {b"h": all_records(there)[b"h"]})
    assert (found.messages[ORIGIN, 1].stamp, found.messages[ORIGIN, 1].moves) == (99, 1)
    found.done("c", (ORIGIN, 1))
    found.done("c", (ORIGIN, 2))
    assert [is_there for _, is_there in changed(found, b"m")] == [False, False]


def test_a_record_of_which_nothing_is_left_goes_when_it_is_read() -> None:
    there = state()
    take(there, 1)
    records = {key: value for key, value in take_changes(there) if key[:1] != b"q" and value}
    found = load_state(records | {b"h": all_records(there)[b"h"]})
    assert found.messages == {}
    assert [is_there for _, is_there in changed(found, b"m")] == [False]


def test_what_an_owner_lacked_an_unfinished_copy_of_it_lacks() -> None:
    """What it kept for clients whom it did not know is still for those who are known later."""
    there = state()
    there.lacks = (3, 7)
    there.see((ORIGIN, 1))
    there.put(UNCLAIMED, (ORIGIN, 1), 1, StoredMessage(there.stamp(0), b"t", b"x", 1, ""))
    there.close()
    found = SlotState()
    merge(found, salvage(all_records(there)))
    assert found.lacks == (3, 7)
    assert found.has(UNCLAIMED, (ORIGIN, 1))


def test_the_next_owner_knows_whether_the_connection_that_a_client_has_began_its_session() -> None:
    """The answer may be lost in which the client is told [MQTT-3.2.2-2]."""
    there = SlotState()
    there.register("c").connect(1, 7, has_forks=False)
    there.begin_session("c", 0)
    assert load_state(all_records(there)).registers["c"].is_first
    there.register("c").connect(2, 8, has_forks=False)
    assert not load_state(all_records(there)).registers["c"].is_first


def test_what_a_client_had_asked_for_comes_with_the_filter_that_a_plugin_made_of_it() -> None:
    """Of two forks that of the later request counts."""
    one = state("c")
    one.subscribe("c", "made/t", 1, 0, has_forks=False, asked="t")
    one.subscribe("c", "plain", 1, 0)
    other = load_state(all_records(one))
    assert other.registers["c"].asked == {"made/t": "t"}
    assert [*other.registers["c"].since] == ["plain"]
    other.begin((2, ORIGIN + 1))
    other.subscribe("c", "made/t", 1, 9, asked="u")
    for here, there in ((one, other), (other, one)):
        found = load_state(all_records(here))
        merge(found, load_state(all_records(there)), NO_LINEAGE)
        assert found.registers["c"].asked == {"made/t": "u"}
    other.subscribe("c", "made/t", -1, 10)
    assert other.registers["c"].asked == {}
