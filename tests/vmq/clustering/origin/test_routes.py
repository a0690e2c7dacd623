"""Which slots get a topic's messages."""

from vmq.clustering.origin.routes import SlotRoutes


def test_a_slot_is_named_once_however_many_filters_of_it_match() -> None:
    routes = SlotRoutes()
    routes.add("a/#", 2)
    routes.add("a/+", 2)
    routes.add("a/b", 1)
    assert routes.targets("a/b") == [(1, ""), (2, "")]
    routes.remove("a/b", 1)
    assert routes.targets("a/b") == [(2, "")]
    assert routes.targets("c") == []


def test_of_a_share_group_the_slots_take_turns_and_others_get_theirs() -> None:
    routes = SlotRoutes()
    routes.add("$share/g/a", 1)
    routes.add("$share/g/a", 2)
    routes.add("a", 1)
    found = [routes.targets("a") for _ in range(4)]
    assert all(targets[0] == (1, "") for targets in found)
    seen = sorted(targets[1] for targets in found)
    assert seen == [*[(1, "$share/g/a")] * 2, *[(2, "$share/g/a")] * 2]


def test_what_has_no_member_here_goes_to_another_slot_if_there_is_one() -> None:
    routes, group = SlotRoutes(), "$share/g/a"
    routes.add(group, 4)
    assert routes.slot_for(group, 4, True) == -1
    routes.add(group, 9)
    routes.add(group, 7)
    assert {routes.slot_for(group, 4, False) for _ in range(4)} == {7, 9}
    routes.set_presence(group, 7, False)
    assert {routes.slot_for(group, 4, True) for _ in range(4)} == {9}
    routes.set_presence(group, 9, False)
    assert routes.slot_for(group, 4, False) == -1
    assert {routes.slot_for(group, 4, True) for _ in range(4)} == {7, 9}
    assert routes.slots_of(group) == ([4], [7, 9])
    routes.remove(group, 7)
    routes.add(group, 7)
    assert routes.slots_of(group) == ([4, 7], [9])
    assert routes.all() == [(group, 4), (group, 7), (group, 9)]


def test_mountpoints_have_routes_of_their_own() -> None:
    routes = SlotRoutes()
    routes.add("t/+", 1)
    routes.add("\0west\0t/+", 2)
    routes.add("\0west\0$share/g/#", 3)
    assert routes.find("t/1") == ([1], [])
    assert routes.find("t/1", "\0west\0") == ([2], ["\0west\0$share/g/#"])
    assert routes.find("t/1", "\0east\0") == ([], [])
    assert routes.find("$SYS/1", "\0west\0") == ([], [])
    assert routes.mountpoints() == ["", "west"]
    routes.remove("\0west\0t/+", 2)
    routes.remove("\0west\0$share/g/#", 3)
    assert routes.mountpoints() == [""]
