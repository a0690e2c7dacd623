"""What nodes have, counted; whether all changes are told is shown in `test_directory`."""

from vmq.clustering.directory.records import Record
from vmq.clustering.directory.tally import Census


def counts(census: Census, node: str) -> tuple[int, int, int]:
    tally = census.of(node)
    return tally.clean, tally.durable, tally.subscriptions


def test_sessions_and_subscriptions_are_counted_for_the_node_that_has_them() -> None:
    census = Census()
    one = Record("a", 1, False, {"t": 1, "u": 0})
    census.change(None, one, is_session=True)
    census.change(None, one.like({"v": 1}), is_session=False)
    census.change(None, Record("b", 1, True, {}), is_session=True)
    assert counts(census, "a") == (0, 1, 3)
    assert counts(census, "b") == (1, 0, 0)
    census.change(one, Record("b", 2, False, {"t": 1}), is_session=True)
    census.change(one.like({"v": 1}), None, is_session=False)
    assert counts(census, "a") == (0, 0, 0)
    assert counts(census, "b") == (1, 1, 1)
    assert counts(census, "nobody") == (0, 0, 0)
