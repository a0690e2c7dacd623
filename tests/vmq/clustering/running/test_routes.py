"""What the nodes say of routes, while slots go from one to another and back."""

from typing import Any

from vmq.clustering.origin.routes import SlotRoutes
from vmq.clustering.running.routes import ClusterRoutes, key_of
from vmq.core.hook_sites import Pending

SLOT, FILTER, ME, OTHER = 3, "t/+", 1, 2


class Metadata:
    """The metadata of one node, and a barrier that opens when the test says so."""

    def __init__(self) -> None:
        self.there = {key_of(SLOT, store, FILTER): b"1" for store in (ME, OTHER)}
        self.waiting: list[Pending] = []

    def items(self, _prefix: str) -> list[tuple[bytes, bytes]]:
        return list(self.there.items())

    def watch_steps(self, _prefix: str, _watcher: object) -> None:
        pass

    def get(self, _prefix: str, key: bytes) -> bytes | None:
        return self.there.get(key)

    def put(self, _prefix: str, key: bytes, value: bytes) -> None:
        self.there[key] = value

    def delete(self, _prefix: str, key: bytes) -> None:
        del self.there[key]

    def wait(self, *_: object, **__: object) -> Pending:
        self.waiting.append(Pending(lambda: None))
        return self.waiting[-1]

    def open(self) -> None:
        for each in self.waiting:
            assert each.then is not None
            each.then(None)


def lent(metadata: Any, epoch: int = 0) -> ClusterRoutes:
    """This node is about to take back what it said of a slot that another owns."""
    routes = ClusterRoutes(metadata, ME, SlotRoutes(), lambda _: None)
    routes.lend(SLOT, OTHER, epoch, metadata)
    return routes


def test_what_a_node_said_of_a_slot_that_went_is_taken_back_when_all_have_heard() -> None:
    metadata = Metadata()
    lent(metadata)
    assert len(metadata.there) == 2
    metadata.open()
    assert metadata.there.keys() == {key_of(SLOT, OTHER, FILTER)}


def test_what_a_node_said_of_a_slot_that_is_its_own_again_stays() -> None:
    """The other one takes back what it said, too: else nobody would say it for a moment."""
    metadata: Any = Metadata()
    lent(metadata).own(SLOT, 1, {FILTER}, False, {ME, OTHER}, None)
    metadata.open()
    assert key_of(SLOT, ME, FILTER) in metadata.there


def test_what_another_said_before_it_owned_the_slot_does_not_count() -> None:
    """It may be about to take that back, as this node had the slot meanwhile."""
    metadata: Any = Metadata()
    metadata.there[key_of(SLOT, OTHER, FILTER)] = b"1\4"
    lent(metadata, 5)
    assert metadata.waiting == []
    lent(metadata, 4)
    metadata.open()
    assert metadata.there.keys() == {key_of(SLOT, OTHER, FILTER)}


def test_who_owns_a_slot_says_so_anew_where_others_say_it_too() -> None:
    metadata: Any = Metadata()
    routes = ClusterRoutes(metadata, ME, SlotRoutes(), lambda _: None)
    routes.own(SLOT, 7, {FILTER, "alone"}, False, {ME, OTHER}, None)
    assert metadata.there[key_of(SLOT, ME, FILTER)] == b"1\7"
    routes.own(SLOT, 8, {FILTER, "alone"}, False, {ME, OTHER}, None)
    assert metadata.there[key_of(SLOT, ME, FILTER)] == b"1\x08"
    assert metadata.there[key_of(SLOT, ME, "alone")] == b"1\7"
