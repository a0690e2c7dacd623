"""Channels: in order, once, resent, bounded, whatever happens to links and nodes."""

from dataclasses import replace
from functools import partial
from itertools import pairwise
from random import Random
from typing import Any

import pytest

from tests.simulator.machines import OPTIONS, Sim, joined, ready
from tests.simulator.network import Network
from tests.simulator.seeds import over_seeds
from vmq_cluster.channels import OVERHEAD, Channels
from vmq_cluster.effects import Acknowledged, Arrived, Outbox
from vmq_cluster.errors import ClusterError
from vmq_cluster.identity import Identity
from vmq_cluster.messages import MAX_PAYLOAD, Frame, Received, Reliable, Unreliable
from vmq_cluster.order import MAX_PEERS, FrameOrder
from vmq_cluster.storage import MemoryStorage, Transaction


def arrived(sim: Sim, name: str, reliable: bool = True) -> list[bytes]:
    found = [effect for effect in sim.nodes[name].of(Arrived) if effect.reliable == reliable]
    return [payload for effect in found for payload in effect.payloads]


def tickets(sim: Sim, name: str) -> list[Any]:
    return [ticket for effect in sim.nodes[name].of(Acknowledged) for ticket in effect.tickets]


@over_seeds(30)
def test_restarts_lose_nothing_that_the_other_side_keeps(seed: int) -> None:
    """The receiver's restart repeats what it had not acknowledged; the sender's begins a new count."""
    sim, names = joined(Sim(seed, network=Network(longest=0.05)), 2)
    sent: list[bytes] = []
    for life in range(4):
        machine = sim[names[0]]
        for number in range(10):
            payload = b"%d.%d" % (life, number)
            sim.ask(names[0], partial(machine.channels.send, names[1], payload, payload))
            sent.append(payload)
            sim.run(sim.random.uniform(0, 0.05))
        if sim.random.random() < 0.5:
            sim.crash(names[1], power=sim.random.random() < 0.5)
            sim.run(sim.random.uniform(0, 6))
            sim.restart(names[1])
        sim.until(lambda m=machine: m.channels.waiting(names[1])[0] == 0, 30)  # type: ignore[misc]
        if sim.random.random() < 0.5:
            sim.crash(names[0], power=sim.random.random() < 0.5)
            sim.restart(names[0])
            sim.until(lambda: sim.is_joined(names), 20)
    got = arrived(sim, names[1])
    assert list(dict.fromkeys(got)) == sent
    assert tickets(sim, names[0]) == sent


def test_who_left_and_is_back_takes_no_new_payload_for_an_old_one() -> None:
    """It remembers the numbers of a sender that ran all the time."""
    sim, names = ready(Sim(3), 2)
    channels = sim[names[0]].channels
    for payload in (b"1", b"2"):
        sim.ask(names[0], partial(channels.send, names[1], payload))
    sim.until(lambda: channels.waiting(names[1])[0] == 0, 10)
    channels.set_members([])
    channels.set_members([names[1]])
    sim.ask(names[0], partial(channels.send, names[1], b"3", "third"))
    sim.until(lambda: channels.waiting(names[1])[0] == 0, 10)
    assert arrived(sim, names[1]) == [b"1", b"2", b"3"]
    assert tickets(sim, names[0]) == ["third"]


def test_at_most_once_and_only_to_those_who_are_up() -> None:
    sim, names = ready(Sim(1, network=Network(loss=0.3, duplicate=0.3)), 2)
    channels = sim[names[0]].channels
    for number in range(100):
        assert channels.send_unreliable(names[1], b"%d" % number)
        sim.ask(names[0], lambda: None)
        sim.run(0.03)
    got = arrived(sim, names[1], reliable=False)
    assert 40 < len(got) < 100
    assert got == sorted(set(got), key=int)
    sim.crash(names[1])
    sim.run(6)
    assert not channels.send_unreliable(names[1], b"x")
    assert channels.dropped_bytes == 1


def test_what_waits_for_a_dead_peer_stops_nobody() -> None:
    sim, names = ready(Sim(2), 3)
    sim.crash(names[1])
    channels = sim[names[0]].channels
    for number in range(10):
        channels.send(names[1], b"x" * 100, ticket=number)
    channels.send(names[2], b"y" * 100)
    sim.ask(names[0], lambda: None)
    sim.run(1)
    assert arrived(sim, names[2]) == [b"y" * 100]
    sim.restart(names[1])
    sim.until(lambda: len(tickets(sim, names[0])) == 10, 20)
    assert channels.waiting(names[1]) == (0, 0)


def test_what_waited_for_a_removed_peer_is_counted() -> None:
    sim, names = ready(Sim(3), 2)
    sim.crash(names[1])
    sim.ask(names[0], lambda: sim[names[0]].channels.send(names[1], b"x", ticket="t"))
    sim.run(6)
    sim.ask(names[0], lambda: sim[names[0]].remove(names[1]))
    assert sim[names[0]].channels.dropped_bytes == 1
    with pytest.raises(ClusterError, match="no other member"):
        sim[names[0]].channels.send(names[1], b"x")


class One:
    """One end of channels, with what it sends."""

    def __init__(self, **options: int) -> None:
        self.outbox = Outbox()
        identity = Identity(Transaction(MemoryStorage()), "a", b"", 7, Random(1))
        self.epoch = identity.epoch
        self.channels = Channels(identity, replace(OPTIONS, **options), self.outbox)
        self.channels.set_members(["b"])
        self.channels.set_peers(["b"])

    def sent(self, now: float = 0.0) -> list[Any]:
        self.channels.flush(now)
        sent = self.outbox.messages.get("b", [])
        self.outbox.messages = {}
        return sent


@pytest.fixture
def one() -> One:
    return One()


def test_a_pass_is_one_message(one: One) -> None:
    for number in range(5):
        one.channels.send("b", b"%d" % number)
    one.channels.send_unreliable("b", b"u")
    found = one.sent()
    assert found == [Unreliable([b"u"]), Reliable(one.epoch, 1, 1, [b"0", b"1", b"2", b"3", b"4"])]
    assert one.sent() == []


def test_a_large_pass_is_several_and_the_window_bounds_what_is_under_way() -> None:
    one = One(batch_bytes=250, window_bytes=5 * (100 + OVERHEAD))
    for _ in range(9):
        one.channels.send("b", b"x" * 100)
    assert [(each.first, len(each.payloads)) for each in one.sent()] == [(1, 2), (3, 2), (5, 1)]
    one.channels.on_received("b", Received(one.epoch, 3))
    found = [(each.oldest, each.first, len(each.payloads)) for each in one.sent()]
    assert found == [(4, 6, 2), (4, 8, 1)]


def test_a_payload_may_go_now_if_it_is_the_next_and_there_is_room() -> None:
    one = One(window_bytes=3 * (100 + OVERHEAD))
    channels, payload = one.channels, b"x" * 100
    for number in (1, 2, 3):
        assert channels.next_place("b", payload) == (one.epoch, 1, number)
        channels.went("b", payload, None, 0.0)
    assert channels.next_place("b", payload) is None, "the window is full"
    assert one.sent() == []
    channels.on_received("b", Received(one.epoch, 2))
    assert channels.next_place("b", payload) == (one.epoch, 3, 4)
    channels.send("b", payload)
    assert channels.next_place("b", payload) is None, "one waits before it"
    assert one.sent() == [Reliable(one.epoch, 3, 4, [payload])]
    channels.set_peers([])
    assert channels.next_place("b", payload) is None
    channels.set_peers(["b"])
    assert one.sent() == [Reliable(one.epoch, 3, 3, [payload, payload])]


def test_silence_is_answered_by_sending_again_at_growing_intervals(one: One) -> None:
    one.channels.send("b", b"x")
    times = []
    for step in range(1, 80):
        if one.sent(step / 4):
            times.append(step / 4)
        one.channels.tick(step / 4)
    pauses = [later - earlier for earlier, later in pairwise(times)]
    assert pauses == sorted(pauses)
    assert pauses[0] < 2
    assert pauses[-1] > 7
    one.channels.on_received("b", Received(one.epoch, 1))
    one.channels.tick(1000.0)
    assert one.sent(1000.0) == []


def test_a_peer_that_is_up_again_gets_everything_at_once(one: One) -> None:
    one.channels.send("b", b"x")
    assert len(one.sent()) == 1
    one.channels.set_peers([])
    one.channels.set_peers(["b"])
    assert one.sent() == [Reliable(one.epoch, 1, 1, [b"x"])]


def test_acknowledgements_that_make_no_sense_change_nothing(one: One) -> None:
    one.channels.send("b", b"x", ticket=1)
    one.sent()
    for message in (Received(one.epoch + 1, 1), Received(one.epoch, 0)):
        one.channels.on_received("b", message)
    one.channels.on_received("c", Received(one.epoch, 1))
    assert one.channels.waiting("b")[0] == 1
    one.channels.on_received("b", Received(one.epoch, 10**9))
    assert one.channels.waiting("b") == (0, 0)


def test_a_payload_is_bounded(one: One) -> None:
    with pytest.raises(ClusterError, match="the limit is"):
        one.channels.send("b", b"x" * (MAX_PAYLOAD + 1))
    with pytest.raises(ClusterError, match="the limit is"):
        one.channels.send_unreliable("b", b"x" * (MAX_PAYLOAD + 1))


def test_who_holds_acknowledges_what_is_confirmed_and_nothing_else(one: One) -> None:
    one.channels.holds = True
    one.channels.on_reliable("b", Reliable(5, 1, 1, [b"1", b"2"]))
    one.channels.on_reliable("b", Reliable(5, 1, 3, [b"3"]))
    receipts = [each.receipt for each in one.outbox.effects if isinstance(each, Arrived)]
    assert one.sent() == []
    # Repeated because nobody answered: it is not handed on again, and not safe yet.
    one.channels.on_reliable("b", Reliable(5, 1, 1, [b"1", b"2"]))
    assert one.sent() == [Received(5, 0)]
    one.channels.confirm("b", receipts[0])
    assert one.sent() == [Received(5, 2)]
    one.channels.confirm("b", receipts[1])
    one.channels.confirm("b", receipts[0])
    assert one.sent() == [Received(5, 3)]
    # Nonsense, and receipts of an earlier life of the peer.
    for peer, receipt in (("b", (5, 9)), ("b", (4, 3)), ("c", (5, 3))):
        one.channels.confirm(peer, receipt)
    one.channels.on_reliable("b", Reliable(6, 4, 4, [b"4"]))
    one.channels.confirm("b", receipts[1])
    assert one.sent() == []
    one.channels.on_reliable("b", Reliable(6, 4, 4, [b"4"]))
    assert one.sent() == [Received(6, 3)]


def test_what_is_held_is_bounded_and_the_rest_is_taken_when_it_comes_again() -> None:
    one = One(held_bytes=2 * (10 + OVERHEAD))
    one.channels.holds = True
    payloads = [b"%d" % number * 10 for number in range(4)]
    for number, payload in enumerate(payloads):
        one.channels.on_reliable("b", Reliable(5, 1, number + 1, [payload]))

    def got() -> list[bytes]:
        arrived = [each for each in one.outbox.effects if isinstance(each, Arrived)]
        return [payload for each in arrived for payload in each.payloads]

    assert got() == payloads[:2]
    assert one.sent() == [Received(5, 0)]
    one.channels.confirm("b", (5, 1))
    one.channels.on_reliable("b", Reliable(5, 1, 1, payloads))
    assert got() == payloads
    # What was held of an earlier life counts on, and is confirmed for nobody.
    one.channels.on_reliable("b", Reliable(6, 1, 1, [b"new"]))
    assert got() == payloads
    one.channels.confirm("b", (5, 4))
    one.channels.on_reliable("b", Reliable(6, 1, 1, [b"new"]))
    assert got() == [*payloads, b"new"]


def test_what_is_forgotten_goes_to_the_peer_no_more_and_holds_up_nothing() -> None:
    one = One(held_bytes=2 * (10 + OVERHEAD))
    one.channels.holds = True
    for number in range(3):
        one.channels.send("b", b"%d" % number, ticket=number)
    assert len(one.sent()) == 1
    one.channels.forget("b")
    assert one.channels.waiting("b") == (0, 0)
    one.channels.tick(1000.0)
    one.channels.on_received("b", Received(one.epoch, 2))
    assert one.sent(1000.0) == []
    one.channels.send("b", b"3", ticket=3)
    assert one.sent() == [Reliable(one.epoch, 4, 4, [b"3"])]
    one.channels.on_received("b", Received(one.epoch, 4))
    assert [each.tickets for each in one.outbox.effects if isinstance(each, Acknowledged)] == [[3]]
    one.channels.forget("stranger")
    # The other end: what it was sent and did not confirm is not waited for, and takes up no room.
    for number in (1, 2):
        one.channels.on_reliable("b", Reliable(5, 1, number, [b"x" * 10]))
    one.channels.on_reliable("b", Reliable(5, 1, 3, [b"x" * 10]))
    one.channels.on_reliable("b", Reliable(5, 3, 3, [b"y"]))
    arrived = [each for each in one.outbox.effects if isinstance(each, Arrived)]
    assert [each.payloads for each in arrived] == [[b"x" * 10], [b"x" * 10], [b"y"]]
    one.sent()
    one.channels.confirm("b", arrived[2].receipt)
    assert one.sent() == [Received(5, 3)]


@over_seeds(20)
def test_who_holds_gets_everything_once_in_order_and_loses_nothing(seed: int) -> None:
    """Whatever the network does, and however late and far apart the confirmations come."""
    sim, names = ready(Sim(seed, network=Network(loss=0.2, duplicate=0.2, longest=0.1)), 2)
    receiver = sim[names[1]].channels
    receiver.holds = True
    confirmed = 0

    def confirm() -> None:
        nonlocal confirmed
        found = [each for each in sim.nodes[names[1]].of(Arrived) if each.reliable]
        count = sim.random.randint(0, len(found))
        if count > 0:
            receiver.confirm(names[0], found[count - 1].receipt)
            confirmed = max(confirmed, sum(len(each.payloads) for each in found[:count]))

    for number in range(40):
        sim.ask(names[0], partial(sim[names[0]].channels.send, names[1], b"%d" % number, number))
        sim.run(sim.random.uniform(0, 0.5))
        if sim.random.random() < 0.3:
            sim.ask(names[1], confirm)
        assert len(tickets(sim, names[0])) <= confirmed
    sim.heal()
    sim.until(lambda: len(arrived(sim, names[1])) == 40, 60)
    last = sim.nodes[names[1]].of(Arrived)[-1].receipt
    sim.ask(names[1], lambda: receiver.confirm(names[0], last))
    sim.until(lambda: len(tickets(sim, names[0])) == 40, 60)
    assert arrived(sim, names[1]) == [b"%d" % number for number in range(40)]


def test_of_strangers_only_so_many_are_remembered() -> None:
    order = FrameOrder()
    for number in range(MAX_PEERS + 1):
        assert order.accepts(Frame(1, str(number), 7, 1, []))
    assert not order.accepts(Frame(1, str(MAX_PEERS), 7, 1, []))
    assert order.epoch("0") == 0
    assert order.epoch("1") == 7
