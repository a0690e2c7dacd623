"""Where replicas go."""

from vmq_cluster.raft.placement import leaders, order, place_all

HOSTS = [f"h{number}" for number in range(7)]
GROUPS = [f"s/{number}" for number in range(210)]


def test_replicas_and_leaders_are_spread() -> None:
    placed = place_all(GROUPS, HOSTS, 3)
    assert all(len(set(hosts)) == 3 for hosts in placed.values())
    leads = [hosts[0] for hosts in placed.values()]
    assert max(leads.count(host) for host in HOSTS) <= 30 + 1
    held = [host for hosts in placed.values() for host in hosts]
    assert max(held.count(host) for host in HOSTS) < 1.3 * len(held) / len(HOSTS)


def test_a_new_host_takes_its_share_and_nothing_else_moves() -> None:
    before = {group: set(order(group, HOSTS)[:3]) for group in GROUPS}
    after = {group: set(order(group, [*HOSTS, "new"])[:3]) for group in GROUPS}
    moved = [group for group in GROUPS if before[group] != after[group]]
    assert all("new" in after[group] and len(before[group] - after[group]) == 1 for group in moved)
    assert len(moved) < 0.5 * len(GROUPS)


def test_fewer_hosts_than_replicas_have_one_each() -> None:
    assert set(place_all(["g"], ["a", "b"], 3)["g"]) == {"a", "b"}
    assert place_all(["g"], [], 3) == {"g": ()}


def test_a_node_gets_no_more_than_it_takes_while_others_have_room() -> None:
    room = {"h0": 10, "h1": 0}
    placed = place_all(GROUPS, HOSTS, 3, room=room)
    held = [host for hosts in placed.values() for host in hosts]
    assert (held.count("h0"), held.count("h1")) == (10, 0)
    assert all(len(set(hosts)) == 3 for hosts in placed.values())
    scarce = place_all(GROUPS[:3], ["a", "b"], 2, room={"b": 2})
    assert sorted(map(len, scarce.values())) == [1, 2, 2]


def test_leaders_are_spread_over_what_replicas_there_are() -> None:
    groups = [str(number) for number in range(30)]
    placed = dict(enumerate(place_all(groups, "abcde", 3).values()))
    assert leaders(placed) == {number: names[0] for number, names in placed.items()}
    alike = dict.fromkeys(range(5), ("a", "b", "c"))  # as after a recovery
    assert [*leaders(alike).values()] == [*"aabbc"]
    assert leaders({0: ("a",), 1: ("a",), 2: ("a", "b")}) == {0: "a", 1: "a", 2: "b"}
    assert leaders({}) == {}
