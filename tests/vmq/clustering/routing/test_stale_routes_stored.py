"""Which nodes route which sessions elsewhere: kept, and passed by."""

from pathlib import Path

from tests.vmq.support import stored_house
from vmq.clustering.routing.stale_routes_stored import ELSEWHERE, StoredStaleRoutes, without
from vmq.store.lines import scan


def test_it_is_kept_until_everybody_routes_the_session_here(tmp_path: Path) -> None:
    one, other = ("", "one"), ("", "other")
    with stored_house(tmp_path) as house:
        assert house.store is not None
        elsewhere = StoredStaleRoutes(house.store)
        elsewhere.set(one, b"1" * 8, {"a", "b"})
        elsewhere.set(other, b"2" * 8, {"b"})
        assert elsewhere.passed == {"a": {b"1" * 8}, "b": {b"1" * 8, b"2" * 8}}
        house.commit()
        house.restart()
        assert house.store is not None
        elsewhere = StoredStaleRoutes(house.store)
        elsewhere.load({b"1" * 8: one})  # the other has ended
        assert (set(elsewhere), elsewhere.nodes(one)) == ({one}, {"a", "b"})
        assert elsewhere.passed == {"a": {b"1" * 8}, "b": {b"1" * 8}}
        elsewhere.set(one, b"1" * 8, {"b"})
        assert (elsewhere.nodes(one), elsewhere.passed) == ({"b"}, {"b": {b"1" * 8}})
        house.commit()
        assert [value for _, value in scan(house.store.db, ELSEWHERE)] == [b"b"]
        elsewhere.set(one, b"1" * 8, set())
        elsewhere.remove(other)
        assert (list(elsewhere), elsewhere.nodes(one), elsewhere.passed) == ([], set(), {})
        house.commit()
        assert not list(scan(house.store.db, ELSEWHERE))


def test_a_route_passes_sessions_by(tmp_path: Path) -> None:
    with stored_house(tmp_path) as house:
        for name in ("one", "other"):
            house.client(name, clean=False).subscribe(("t", 1))
        clean = house.client("clean")
        clean.subscribe(("t", 1))
        route = house.registry.route(b"t")
        number = house.queue("one").session
        rest = without(route, {number})
        assert {each.queue.client_id for each in rest.targets} == {"other", "clean"}
        assert (rest.topic, rest.stored_copies) == (route.topic, route.stored_copies)
        assert without(route, {b"x" * 8}) is route
        assert len(route.targets) == 3
