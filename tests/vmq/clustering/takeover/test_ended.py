"""For how long a session that is over is known to be."""

from tests.vmq.clustering.world_node import WHO
from vmq.clustering.takeover.ended import LATE_MARKS, EndedTakeovers


def test_a_session_that_is_over_is_known_for_a_while() -> None:
    over = EndedTakeovers()
    assert not over.has(WHO, 5)
    over.ended(WHO, 5, 0.0)
    over.ended(("", "other"), 3, 1.0)
    over.ended(WHO, 7, 2.0)  # it was there again
    assert [since for since in range(10) if over.has(WHO, since)] == list(range(8))
    over.tick(LATE_MARKS + 1.0)
    assert over.has(WHO, 7)
    assert not over.has(("", "other"), 3)
    over.tick(LATE_MARKS + 2.0)
    assert not over.has(WHO, 5)
