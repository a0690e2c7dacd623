"""The subscriptions of a session in pieces: bounded, few of them touched, and together what they should be."""

from hypothesis import given
from hypothesis import strategies as st

from vmq.clustering.directory.pieces import PIECE, Pieces

NAMES = [f"{share}t/{number}" for number in range(3 * PIECE) for share in ("", "$share/g/")]
CHANGES = st.dictionaries(st.sampled_from(NAMES), st.none() | st.integers(0, 2), max_size=70)


@given(st.lists(CHANGES, max_size=8))
def test_pieces_are_together_what_a_dict_would_be(acts: list[dict[str, int | None]]) -> None:
    pieces = Pieces({})
    expected: dict[str, int] = {}
    for changes in acts:
        before = {number: dict(each) for number, each in pieces.pieces.items()}
        touched = pieces.apply(changes)
        for name, qos in changes.items():
            if qos is None:
                expected.pop(name, None)
            else:
                expected[name] = qos
        found = [each for piece in pieces.pieces.values() for each in piece.items()]
        assert len(found) == len(expected)
        assert dict(found) == expected
        assert pieces.shared == sum(1 for name in expected if name.startswith("$share"))
        assert all(len(each) <= PIECE for each in pieces.pieces.values())
        assert all(each for number, each in pieces.pieces.items() if number)
        changed = {
            number
            for number in before.keys() | pieces.pieces.keys()
            if before.get(number, {}) != pieces.pieces.get(number, {})
        }
        assert changed <= touched.keys()
        assert all(before.get(number, {}) == each for number, each in touched.items())
        # Whoever comes later knows the same.
        again = Pieces(pieces.pieces)
        assert again.pieces == pieces.pieces
        assert set(again.names) == set(expected)
        assert again.shared == pieces.shared


def test_many_at_once_touch_few_pieces() -> None:
    pieces = Pieces({})
    assert set(pieces.apply(dict.fromkeys(map(str, range(5 * PIECE)), 1))) == set(range(5))
    assert set(pieces.apply({"new": 1})) == {5}
    assert set(pieces.apply({"0": None, "1": None})) == {0}
    assert set(pieces.apply({"newer": 1})) <= {0, 5}


def test_what_is_in_two_pieces_stays_in_the_first() -> None:
    pieces = Pieces({0: {"a": 1}, 3: {"a": 2, "b": 0}, 7: {"b": 1}})
    assert pieces.pieces == {0: {"a": 1}, 3: {"b": 0}, 7: {}}
    assert list(pieces.apply({"b": 2})) == [3]
