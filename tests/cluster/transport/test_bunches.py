"""Who waits for the end of a turn: only where what is said lately came in bunches."""

from vmq_cluster.transport.bunches import CLOSE, SPARED, Bunches


def test_what_comes_by_itself_never_waits() -> None:
    bunches = Bunches()
    assert not any(bunches.wait(1 + 2 * at * CLOSE) for at in range(100))


def test_after_a_bunch_all_wait_until_enough_have_come_by_themselves() -> None:
    bunches = Bunches()
    assert [bunches.wait(1 + at * CLOSE / 2) for at in range(3)] == [False] * 3
    assert [bunches.wait(2 + at * CLOSE / 2) for at in range(3)] == [True] * 3
    assert [bunches.wait(3 + at) for at in range(SPARED + 1)] == [True] * SPARED + [False]
