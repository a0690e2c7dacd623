"""Who waits for an owner before, and until when."""

from functools import partial

from vmq.clustering.takeover.claim_queue import PATIENCE, ClaimQueue

WHO = ("", "s")
S, T = b"session1", b"session2"


class Waiting:
    def __init__(self) -> None:
        self.patience = ClaimQueue()
        self.went: list[str] = []

    def wait(self, name: str, session: bytes = S, owner: str = "a", now: float = 0.0) -> bool:
        return self.patience.wait(WHO, session, owner, now, partial(self.went.append, name))


def test_all_go_on_in_their_order_when_the_owner_has_said_it() -> None:
    each = Waiting()
    assert each.wait("one")
    assert each.wait("two", now=1.0)
    each.patience.heard(WHO, "b")
    each.patience.heard(("", "other"), "a")
    each.patience.tick(PATIENCE - 0.1)
    assert each.went == []
    each.patience.heard(WHO, "a")
    assert each.went == ["one", "two"]
    each.patience.heard(WHO, "a")
    assert each.went == ["one", "two"]


def test_who_is_waited_for_in_vain_is_not_waited_for_again() -> None:
    each = Waiting()
    assert each.wait("one")
    each.patience.tick(PATIENCE)
    assert each.went == ["one"]
    assert not each.wait("two", now=PATIENCE)
    assert each.wait("three", T, now=PATIENCE)


def test_nobody_waits_for_a_node_that_cannot_be_reached() -> None:
    each = Waiting()
    assert each.wait("one")
    each.patience.peer_down("b")
    assert each.went == []
    each.patience.peer_down("a")
    assert each.went == ["one"]
    assert each.wait("two", now=1.0)


def test_a_session_that_came_since_has_a_line_of_its_own() -> None:
    each = Waiting()
    assert each.wait("one")
    assert each.wait("two", T, "b")
    assert each.went == ["one"]
    each.patience.heard(WHO, "b")
    assert each.went == ["one", "two"]
