"""Numbers that name nodes, slots and messages."""

from collections import Counter

import pytest

from vmq.clustering.slots import words

LAST = words.incarnation_of((1 << words.STORE_BITS) - 1, (1 << words.BOOT_BITS) - 1)


def test_an_incarnation_names_its_store_and_rises_with_its_lives() -> None:
    assert words.store_of(words.incarnation_of(7, 3)) == 7
    assert words.incarnation_of(7, 3) < words.incarnation_of(7, 4) < words.incarnation_of(8, 1)


def test_clients_spread_over_the_slots() -> None:
    found = Counter(words.slot_of(f"client-{number}", 16) for number in range(1600))
    assert set(found) == set(range(16))
    assert max(found.values()) < 150


def test_the_digest_parts_topic_and_payload() -> None:
    assert words.digest_of(b"a", b"b") == words.digest_of(b"a", b"b")
    assert words.digest_of(b"a", b"b") != words.digest_of(b"ab", b"") != words.digest_of(b"a", b"c")


def test_what_is_handed_on_meets_no_other_message() -> None:
    """Of three slots each hands on to the next: whatever path a message took, its dot there is its own."""
    seen: set[tuple[int, int]] = set()
    for first in range(3):
        dot = LAST, 5
        for step in range(6):
            dot = words.handed_on((first + step) % 3, dot)
            assert dot not in seen
            seen.add(dot)


def test_what_is_handed_on_has_a_dot_that_fits() -> None:
    dot = words.handed_on(words.ROWS - 1, (LAST, 1))
    assert dot[0] < 1 << 63
    assert words.store_of(dot[0]) == words.store_of(LAST)
    for _ in range(1000):
        dot = words.handed_on(0, dot)
    assert dot[1] < 1 << 62


def test_both_forks_of_a_slot_hand_on_the_same_message() -> None:
    assert words.handed_on(3, (LAST, 5)) == words.handed_on(3, (LAST, 5))


def test_up_to_an_epoch_all_lineages_are_included() -> None:
    included = {words.NO_LINEAGE: 4, (5, 20): 7}
    assert words.includes(included, (4, 99), 1000)
    assert words.includes(included, (5, 20), 7)
    assert not words.includes(included, (5, 20), 8)
    assert not words.includes(included, (5, 21), 1)
    assert not words.includes(included, (0, 20), 1)


@pytest.mark.parametrize(
    ("scoped", "parts"),
    [
        ("c", ("", "c")),
        ("", ("", "")),
        ("\0west\0c", ("\0west\0", "c")),
        ("\0west\0", ("\0west\0", "")),
        ("\0own", ("", "\0own")),
        ("\0west\0\0own", ("\0west\0", "\0own")),
    ],
)
def test_a_scope_parts_from_what_is_behind_it(scoped: str, parts: tuple[str, str]) -> None:
    assert words.split_scope(scoped) == parts
