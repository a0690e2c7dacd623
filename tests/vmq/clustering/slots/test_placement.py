"""Which hosts have which slots."""

from collections import Counter
from math import ceil

import pytest

from vmq.clustering.messages.slots import Beat
from vmq.clustering.slots.here import LocalNode
from vmq.clustering.slots.placement import BOUND, MOVES_AT_ONCE, SlotPlaces, choose, spread
from vmq.clustering.slots.reach import Reach
from vmq.clustering.slots.words import incarnation_of
from vmq_cluster.storage import MemoryStorage

SLOTS = 1024


def hosts(count: int, workers: int = 1) -> dict[int, str]:
    """So many hosts of so many nodes each."""
    return {
        host * 100 + worker: f"host-{host}"
        for host in range(1, count + 1)
        for worker in range(workers)
    }


@pytest.mark.parametrize("count", [1, 2, 3, 10, 50])
@pytest.mark.parametrize("replicas", [1, 2, 3])
def test_no_host_has_much_more_than_its_share(count: int, replicas: int) -> None:
    found = spread(SLOTS, hosts(count), replicas)
    copies = min(replicas, count)
    assert {len(nodes) for nodes in found} == {copies}
    owned = Counter(nodes[0] for nodes in found)
    held = Counter(node for nodes in found for node in nodes)
    assert max(owned.values()) <= ceil(BOUND * SLOTS / count)
    # The last slots take what room is left, if that is on too few hosts.
    assert max(held.values()) <= ceil(BOUND * SLOTS * copies / count) + copies


def test_nodes_of_one_host_are_never_each_others_copies() -> None:
    names = hosts(3, workers=4)
    for nodes in spread(SLOTS, names, 2):
        assert len({names[node] for node in nodes}) == 2


def test_all_nodes_of_a_host_have_slots() -> None:
    owned = Counter(nodes[0] for nodes in spread(SLOTS, hosts(2, workers=4), 2))
    assert set(owned) == set(hosts(2, workers=4))


def test_when_a_host_joins_little_more_than_its_share_moves() -> None:
    before, after = spread(SLOTS, hosts(10), 2), spread(SLOTS, hosts(11), 2)
    moved = sum(one[0] != other[0] for one, other in zip(before, after, strict=True))
    assert SLOTS / 11 * 0.8 <= moved <= SLOTS / 11 * 1.6


def test_slots_change_followers_a_few_at_a_time() -> None:
    reach = Reach(1, "a", 1000, 100)
    reach.set_members({1: "a", 2: "b", 3: "c"})
    here = LocalNode(incarnation_of(1, 1), reach, part_bytes=100, disk=MemoryStorage())
    places = SlotPlaces(here, SLOTS)
    assert not places.followers(0, ())  # who is to have it is not known while others are missed
    for store in (2, 3):
        reach.on_link(store, 10 + store)
        reach.on_beat(store, Beat(incarnation_of(store, 1), [1, 2, 3]))
    own = [slot for slot in range(SLOTS) if places.wanted(slot)[0] == 1]
    others = [slot for slot in range(SLOTS) if places.wanted(slot)[0] != 1]
    assert not any(places.followers(slot, ()) for slot in others)
    for _ in range(2):
        moving = [slot for slot in own if places.followers(slot, (9,))]
        assert moving == own[:MOVES_AT_ONCE]
    assert places.followers(own[0], ()) == places.wanted(own[0])[1:]
    assert not places.followers(own[0], places.wanted(own[0])[1:])
    places.stay(own[1])
    moving = [slot for slot in own[2:] if places.followers(slot, (9,))]
    assert moving == own[2 : MOVES_AT_ONCE + 2]


def test_without_nodes_nobody_has_a_slot() -> None:
    assert spread(3, {}, 2) == [(), (), ()]


def test_who_is_to_stay_stays() -> None:
    names = hosts(5)
    first = choose(3, names, 2, [])
    other = next(node for node in names if node not in first)
    assert choose(3, names, 2, [other]) == [other, first[0]]
    assert choose(3, {1: "a", 2: "a"}, 2, []) in ([1], [2])
