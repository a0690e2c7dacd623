"""Share groups across nodes: one member of the whole cluster, whatever happens meanwhile."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.wire import publish_packet
from tests.vmq.clustering.fakes import Member
from tests.vmq.clustering.routing.test_routing import Three
from tests.vmq.support import Client
from vmq.clustering.messages.publishes import MAX_HOPS, RemotePublish
from vmq.clustering.routing.shared_dispatch import SlotTargets
from vmq.core.context import CoreOptions
from vmq.core.source import Source
from vmq.mqtt.message import Message

GROUP = "$share/g/t"


def worker(member: Member, number: int = 1, qos: int = 1, *, clean: bool = True) -> Client:
    return member.house.subscriber(f"{member.name}{number}", (GROUP, qos), clean=clean)


def policy(three: Three, name: str) -> None:
    for each in three.all:
        each.house.options.shared_subscription_policy = name


def sent(member: Member) -> list[tuple[str, str]]:
    return [(peer, message.group) for peer, message, _ in member.outboxes.sent]


@pytest.mark.parametrize("qos", (0, 1, 2))
def test_one_member_of_another_node_gets_it_if_there_is_none_here(three: Three, qos: int) -> None:
    workers = [worker(three.b, number, 2) for number in (1, 2)]
    three.settle()
    three.a.house.publish("t", b"x", qos)
    assert [(peer, message.group, sure) for peer, message, sure in three.a.outboxes.sent] == [
        ("b", GROUP, qos > 0)
    ]
    three.settle()
    assert [each.payloads() for each in workers] == [[b"x"], []]
    counters = [each.house.core.counters for each in three.all]
    assert [each.router_matches_local for each in counters] == [0, 1, 0]
    assert [each.router_matches_remote for each in counters] == [1, 0, 0]


def test_what_nobody_there_asked_for_more_than_once_goes_quickly(three: Three) -> None:
    worker(three.b, qos=0)
    three.settle()
    three.a.house.publish("t", b"x", 2)
    assert [(peer, sure) for peer, _, sure in three.a.outboxes.sent] == [("b", False)]


def test_a_run_of_packets_is_shared_out_one_by_one(three: Three) -> None:
    worker(three.b, qos=0)
    three.settle()
    three.a.house.client("p").send(*(publish_packet("t", b"%d" % each) for each in range(3)))
    assert sent(three.a) == [("b", GROUP)] * 3


def test_no_other_node_is_asked_where_only_members_here_count(three: Three) -> None:
    policy(three, "local_only")
    worker(three.b)
    three.settle()
    three.a.house.publish("t", b"1", 1)
    assert sent(three.a) == []
    here = worker(three.a)
    three.settle()
    three.a.house.publish("t", b"2", 1)
    assert here.payloads() == [b"2"]


def test_the_policy_of_the_publisher_overrides_the_brokers(three: Three) -> None:
    here = worker(three.a)
    worker(three.b, clean=False)
    three.settle()
    registry = three.a.house.registry
    route = registry.route(b"t")
    three.a.house.choice = 1
    message = Message(b"t", b"1", 1, False)
    publisher = three.a.house.client("p").connection.session
    publisher.options = CoreOptions()
    publisher.options.shared_subscription_policy = "random"
    registry.publish(route, message, publisher)
    assert sent(three.a) == [("b", GROUP)]
    publisher.options.shared_subscription_policy = "local_only"
    registry.publish(route, message, publisher)
    registry.publish(route, message, three.a.house.core.nobody)
    three.a.house.maybe_settle()
    assert len(here.take()) == 2


def test_who_left_in_the_same_pass_is_not_chosen(three: Three) -> None:
    here = worker(three.a)
    worker(three.b)
    three.settle()
    here.unsubscribe(GROUP)
    three.a.house.publish("t", b"1", 1)
    assert sent(three.a) == [("b", GROUP)]
    three.settle()
    # And who came is, though no other node knows of it.
    three.a.routing.set_members(["a"])
    late = worker(three.a, 2)
    three.a.house.publish("t", b"2", 1)
    assert late.payloads() == [b"2"]


def test_members_here_are_preferred(three: Three) -> None:
    here = worker(three.a)
    worker(three.b)
    three.settle()
    three.a.house.publish("t", b"1", 1)
    assert here.payloads() == [b"1"]
    here.disconnect()
    three.settle()
    three.a.house.publish("t", b"2", 1)
    assert sent(three.a) == [("b", GROUP)]


def test_a_node_that_is_down_is_the_last_resort(three: Three) -> None:
    worker(three.b)
    worker(three.c)
    three.settle()
    three.a.routing.set_up(["c"])
    three.a.house.publish("t", b"1", 1)
    assert sent(three.a) == [("c", GROUP)]
    three.a.routing.set_members(["a", "b"])
    three.a.house.publish("t", b"2", 1)
    assert sent(three.a)[1:] == [("b", GROUP)]


def test_a_node_without_a_member_left_chooses_again(three: Three) -> None:
    at_b, at_c = worker(three.b), worker(three.c)
    three.settle()
    three.a.house.publish("t", b"1", 1)
    assert sent(three.a) == [("b", GROUP)]
    at_b.disconnect()
    three.settle()
    assert at_c.payloads() == [b"1"]


class OneSlot(SlotTargets):
    """One with a member that is away: it gets what is for nobody else."""

    def __init__(self) -> None:
        super().__init__()
        self.offered: list[bytes] = []

    def choose(
        self, mountpoint: str, group: str, policy: str, here: int = 0, others: int = 0
    ) -> tuple[int, str] | None:
        return 7, GROUP

    def offer(self, slots: list[tuple[int, str]], message: Message, source: Source) -> None:
        assert slots == [(7, GROUP)]
        self.offered.append(message.payload)


@pytest.mark.parametrize("has_durable_member", [False, True])
def test_a_message_does_not_go_round_for_ever(
    three: Three, caplog: pytest.LogCaptureFixture, has_durable_member: bool
) -> None:
    """Two nodes that take each other for the one with the member: at last it is for one whose session is in a slot."""
    caplog.set_level("INFO")
    slots = OneSlot()
    for each in (three.a, three.b):
        worker(each)
        if has_durable_member:
            each.routing.set_slots(slots)
    three.settle()
    for member in three.a, three.b:
        # Members leave, and no node hears of the other's.
        registry = member.house.registry
        registry.end_session(registry.subscribers[f"{member.name}1"])
    message = RemotePublish(b"t", b"x", 1, "", GROUP)
    at, hops = three.a, 0
    while True:
        at.outboxes.sent.clear()
        at.outboxes.handlers[RemotePublish]("c", message)
        if not at.outboxes.sent:
            break
        [(_, message, sure)] = at.outboxes.sent
        hops += 1
        assert (sure, message.hops) == (True, hops)
        at = three.b if at is three.a else three.a
    assert hops == MAX_HOPS
    assert ("nobody is left of" in caplog.text) != has_durable_member
    assert slots.offered == has_durable_member * [b"x"]


def test_a_group_of_a_topic_tree_that_is_not_here_is_passed_on_or_lost(three: Three) -> None:
    handle = three.a.outboxes.handlers[RemotePublish]
    handle("b", RemotePublish(b"t", b"x", 1, "elsewhere", GROUP))
    handle("b", RemotePublish(b"t", b"x", 1, "", GROUP))
    assert three.a.outboxes.sent == []
    assert list(three.a.registries) == [""]


def test_what_a_leaving_client_did_not_acknowledge_goes_to_another_node(three: Three) -> None:
    here = worker(three.a)
    there = worker(three.b)
    three.settle()
    three.a.house.publish("t", b"1", 1)
    assert here.payloads() == [b"1"]
    here.disconnect()
    three.settle()
    assert there.payloads() == [b"1"]


ACTS = st.lists(
    st.tuples(
        st.sampled_from(["come", "leave", "publish", "settle", "down", "up"]), st.integers(0, 2)
    ),
    max_size=25,
)


@given(
    ACTS,
    st.sampled_from(["prefer_local", "random", "prefer_online_before_local"]),
    st.integers(0, 5),
)
def test_each_message_reaches_one_member_at_most_and_one_if_any_stays(
    acts: list[tuple[str, int]], name: str, choice: int
) -> None:
    three = Three()
    policy(three, name)
    members: dict[int, Client] = {}
    seen: Counter[bytes] = Counter()
    #: Published while somebody was there who stayed to the end.
    safe: list[bytes] = []
    number = 0

    def take(client: Client) -> None:
        for packet in client.take():
            seen[packet.payload] += 1
            client.acknowledge(packet)

    steady = worker(three.c, 9, 1)
    three.settle()
    for what, at in acts:
        node = three.all[at]
        node.house.choice = choice
        if what == "come" and at not in members:
            members[at] = worker(node, 1, 1)
        elif what == "leave" and at in members:
            take(members[at])
            members.pop(at).disconnect()
        elif what == "publish":
            number += 1
            node.house.publish("t", b"%d" % number, 1)
            safe.append(b"%d" % number)
        elif what == "settle":
            three.settle()
            for client in (*members.values(), steady):
                take(client)
        elif what in ("down", "up"):
            others = [each.name for each in three.all if each is not node]
            node.routing.set_up(others if what == "up" else others[:1])
    three.settle()
    for client in (*members.values(), steady):
        take(client)
    assert seen == Counter(safe)
