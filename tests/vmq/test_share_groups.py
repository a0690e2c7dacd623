"""The members of a share group, and which of them gets a message."""

import pytest

from tests.support.wire import DISCONNECT_BYTES, PUBLISH, PUBREL, publish_packet, pubrec_packet
from tests.vmq.support import Client, House
from vmq.core.waiting import PENDING_IN_MEMORY
from vmq.runtime.registries import BrokerRegistries


def members(house: House, *names: str, clean: bool = True, qos: int = 1) -> list[Client]:
    clients = [house.client(name, clean=clean) for name in names]
    for client in clients:
        client.subscribe(("$share/g/t", qos))
    return clients


def test_each_message_goes_to_one_member_by_choice(house: House) -> None:
    clients = members(house, "a", "b", "c")
    for choice in (0, 2, 1, 1):
        house.choice = choice
        house.publish("t", b"%d" % choice, 0)
    assert [client.payloads() for client in clients] == [[b"0"], [b"1", b"1"], [b"2"]]


def test_a_member_that_can_take_it_now_is_preferred(durable: House) -> None:
    durable.options.max_inflight_messages = 1
    away, blocked, full, ready = members(durable, "away", "blocked", "full", "ready", clean=False)
    away.disconnect()
    blocked.block()
    full.subscribe(("mine", 1))
    durable.publish("mine", b"-", 1)
    full.take()
    for choice in range(4):
        durable.choice = choice
        durable.publish("t", b"%d" % choice, 1)
        packet = ready.take_one(PUBLISH)
        assert packet.payload == b"%d" % choice
        ready.acknowledge(packet)


def test_a_connected_member_that_has_to_wait_comes_before_one_that_is_away(durable: House) -> None:
    away, blocked = members(durable, "away", "blocked", clean=False)
    away.disconnect()
    blocked.block()
    durable.publish("t", b"1", 1)
    assert durable.queue("away").waiting() == 0
    blocked.unblock()
    assert blocked.payloads() == [b"1"]


@pytest.mark.parametrize(("is_there", "qos"), ((True, 0), (True, 1), (False, 1)))
def test_a_member_whose_queue_has_room_comes_before_one_whose_queue_is_full(
    durable: House, qos: int, *, is_there: bool
) -> None:
    durable.options.max_online_messages = durable.options.max_offline_messages = 2
    for client in members(durable, "full", "roomy", clean=False):
        if is_there:
            client.block()
        else:
            client.disconnect()
    for number in range(4):
        durable.publish("t", b"%d" % number, qos)  # by choice all would go to the first
    assert [durable.queue(name).waiting() for name in ("full", "roomy")] == [2, 2]
    assert durable.core.counters.queue_message_drop == 0


@pytest.mark.parametrize("qos", (1, 2))
@pytest.mark.parametrize("orderly", (False, True))
def test_what_a_clean_member_leaves_unacknowledged_goes_to_another_in_order(
    house: House, qos: int, orderly: bool
) -> None:
    house.options.max_inflight_messages = 2
    dies, lives = members(house, "dies", "lives", qos=2)
    house.options.max_inflight_messages = 2
    lives.block()
    for number in range(5):
        house.publish("t", b"%d" % number, qos)
    assert dies.payloads() == [b"0", b"1"]
    lives.unblock()
    assert lives.payloads() == []
    if orderly:
        dies.disconnect()
    else:
        dies.lose()
    packets = lives.take()
    assert [packet.payload for packet in packets] == [b"0", b"1"]
    assert not any(packet.dup for packet in packets)
    lives.acknowledge(*packets)
    packets = lives.take()
    lives.acknowledge(*packets)
    assert [packet.payload for packet in packets] == [b"2", b"3"]
    assert lives.payloads() == [b"4"]


def test_a_qos_2_message_that_was_released_goes_to_nobody_else(house: House) -> None:
    dies, lives = members(house, "dies", "lives", qos=2)
    house.publish("t", b"1", 2)
    packet = dies.take_one(PUBLISH)
    dies.send(pubrec_packet(packet.packet_id))
    assert dies.take_one(PUBREL).packet_id == packet.packet_id
    dies.lose()
    lives.expect()


@pytest.mark.parametrize("size", (1, 2000))
@pytest.mark.parametrize("first", (1, 2))
def test_what_was_stored_for_one_member_goes_to_the_next_at_the_qos_that_it_came_with(
    durable: House, size: int, first: int
) -> None:
    """Also where the first asked for less."""
    [away] = members(durable, "away", clean=False, qos=first)
    away.disconnect()
    for qos in (2, 2, 1, 2):
        durable.publish("t", bytes(size), qos)
    durable.restart()
    durable.options.max_inflight_messages = 1
    [lives] = members(durable, "lives", qos=2)
    away = durable.client("away", clean=False)
    assert away.take_one(PUBLISH).qos == first
    durable.options.max_inflight_messages = 20
    away.send(DISCONNECT_BYTES)
    # What is under way at QoS 2 stays with its member.
    assert [packet.qos for packet in lives.take()] == [2] * (first == 1) + [2, 1, 2]


def test_a_bridge_s_own_message_goes_to_another_member(house: House) -> None:
    [bridge] = members(house, "bridge")
    bridge.queue.bridge = True
    [other] = members(house, "other")
    for choice in (0, 1):
        house.choice = choice
        bridge.send(publish_packet("t", b"%d" % choice, qos=1, packet_id=choice + 1))
    assert other.payloads() == [b"0", b"1"]
    assert PUBLISH not in [packet.type for packet in bridge.take()]


@pytest.mark.parametrize("size", (1, 2000))
def test_after_a_restart_as_before_another_member_gets_what_was_stored_for_the_first(
    durable: House, size: int
) -> None:
    """The second size has a record of its own in the store."""
    durable.options.max_inflight_messages = 2
    leaves, stays = members(durable, "leaves", "stays", clean=False)
    leaves.subscribe(("mine", 1))
    stays.disconnect()
    for number in range(4):
        durable.publish("t", b"%d" % number * size, 1)
    durable.publish("mine", b"own", 1)
    durable.restart()
    stays, leaves = (durable.client(name, clean=False) for name in ("stays", "leaves"))
    stays.expect()
    leaves.lose()
    seen: list[bytes] = []
    while packets := stays.take():
        seen += [packet.payload for packet in packets]
        stays.acknowledge(*packets)
    assert seen == [b"%d" % number * size for number in range(4)]
    client = durable.client("leaves", clean=False)
    assert [packet.payload for packet in client.take()] == [b"own"]


def test_when_the_last_member_dies_its_messages_are_lost_and_nothing_else(house: House) -> None:
    [alone] = members(house, "alone")
    house.publish("t", b"1", 1)
    alone.lose()
    assert house.registry.trie.root.is_empty()
    house.publish("t", b"2", 1)


def test_a_dead_clean_member_leaves_its_messages_to_a_durable_one_that_is_away(
    durable: House,
) -> None:
    [away] = members(durable, "away", clean=False)
    [dies] = members(durable, "dies")
    away.disconnect()
    durable.publish("t", b"1", 1)
    assert dies.payloads() == [b"1"]
    dies.lose()
    assert durable.client("away", clean=False).payloads() == [b"1"]


@pytest.mark.parametrize(
    ("ends", "count"), (("expires", PENDING_IN_MEMORY + 4), ("begins anew", 4), ("is deleted", 4))
)
def test_a_session_that_ends_leaves_what_waits_to_a_member_that_is_away(
    durable: House, ends: str, count: int
) -> None:
    """Sent or not, from before a restart or not; what it alone subscribed to goes with it."""
    durable.options.persistent_client_expiration = 100
    leaves, stays = members(durable, "leaves", "stays", clean=False, qos=2)
    leaves.subscribe(("mine", 1))
    stays.disconnect()
    durable.publish("t", b"sent", 2)
    leaves.lose()
    durable.publish("mine", b"own", 1)
    for number in range(count):
        durable.publish("t", b"%d" % number, 1)
    durable.restart()
    durable.core.registries = BrokerRegistries(lambda _: durable.registry)
    stays = durable.client("stays", clean=False)
    seen = drained(stays)
    stays.lose()
    durable.pass_time(60)
    if ends == "expires":
        durable.registry.offline["leaves"] -= 60_000
        assert durable.expired_after(0) == 1
    elif ends == "begins anew":
        assert durable.client("leaves").payloads() == []
    else:
        durable.registry.end_session(durable.registry.subscribers["leaves"])
    durable.settle()
    seen += drained(durable.client("stays", clean=False))
    assert sorted(seen) == sorted([b"sent", *[b"%d" % number for number in range(count)]])


def drained(client: Client) -> list[bytes]:
    """What waits for a client, all of it acknowledged."""
    seen: list[bytes] = []
    while packets := [each for each in client.take() if each.type == PUBLISH]:
        seen += [packet.payload for packet in packets]
        client.acknowledge(*packets)
    return seen


def test_qos_0_that_waited_for_a_socket_goes_to_another_member(house: House) -> None:
    dies, lives = members(house, "dies", "lives")
    dies.block()
    lives.block()
    house.publish("t", b"1", 0)
    lives.unblock()
    dies.lose()
    assert lives.payloads() == [b"1"]


def test_every_policy_serves_a_group_on_one_node_alike(house: House) -> None:
    for policy in ("prefer_local", "random", "local_only", "prefer_online_before_local"):
        house.options.shared_subscription_policy = policy
        clients = members(house, policy + "-a", policy + "-b")
        house.publish("t", b"1", 1)
        assert sorted(len(client.payloads()) for client in clients) == [0, 1]
        for client in clients:
            client.disconnect()
