"""Numbers of names, and who waits for them."""

from hypothesis import given
from hypothesis import strategies as st

from vmq.disk.durable import ALL, Confirmations, Durable, Need, is_far, unmet, with_need


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 5)), max_size=12), st.data())
def test_needs_are_unmet_until_each_name_has_come_to_its_highest_number(
    wanted: list[tuple[int, int]], data: st.DataObject
) -> None:
    names = [Durable(is_near=number == 0) for number in range(4)]
    needs: Need | None = None
    highest: dict[Durable, int] = {}
    for index, number in wanted:
        needs = with_need(needs, names[index], number)
        highest[names[index]] = max(number, highest.get(names[index], 0))
    for _ in range(25):
        open_names = {each for each, number in highest.items() if each.reached < number}
        first = unmet(needs)
        assert (first is None) == (not open_names)
        assert first is None or first.durable in open_names
        assert is_far(needs) == any(not each.is_near for each in open_names)
        chosen = data.draw(st.sampled_from(names))
        chosen.advance(chosen.reached + 1)


def test_a_name_never_goes_back() -> None:
    durable = Durable()
    durable.advance(5)
    durable.advance(3)
    assert durable.reached == 5


def test_confirmations_are_there_once_all_that_were_expected_are() -> None:
    wait = Confirmations()
    wait.expect()
    wait.expect()
    wait.confirm()
    assert wait.reached < ALL
    wait.confirm()
    assert wait.reached == ALL
