"""A session is taken apart on one node and put together on another; here, without anything between them."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.support.stored import records_of
from tests.support.wire import PUBLISH, PUBREL, publish_packet, pubrec_packet
from tests.vmq.support import Client, House, stored_house, subscribed
from vmq.clustering.messages.takeover import SessionMessage, Who
from vmq.clustering.takeover.local_sessions import BATCH_BYTES, BATCH_ENTRIES, HELD, LocalSessions
from vmq.clustering.takeover.port import BufferVerdict, SessionKind
from vmq.core.ports import SessionListener
from vmq.core.source import Source
from vmq.runtime.registries import BrokerRegistries

WHO: Who = ("", "s")


class Place(LocalSessions):
    """The sessions of a house, with verdicts by hand."""

    def __init__(self, house: House) -> None:
        super().__init__(house.core, {"": house.registry}, lambda _name: house.registry)
        self.verdicts: dict[str, BufferVerdict] = {}
        self.haunted_by: set[str] = set()
        self.took = 0

    def verdict(self, who: Who, origin: str) -> BufferVerdict:
        return self.verdicts.get(origin, BufferVerdict.DROP)

    def haunts(self, who: Who, origin: str) -> bool:
        return origin in self.haunted_by

    def user(self, _who: Who) -> str:
        return ""

    def ghost_took(self, who: Who) -> None:
        self.took += 1


class Two:
    """Two nodes."""

    def __init__(self, one: House, other: House) -> None:
        self.one, self.other = one, other
        self.here, self.there = Place(one), Place(other)

    def move(self) -> None:
        """All at once."""
        self.here.close_client(WHO)
        self.here.make_ghost(WHO)
        subscriptions, received = self.here.state(WHO)
        self.there.build(WHO, subscriptions)
        self.there.receive(WHO, received)
        self.here.forget_received(WHO)
        for take in (self.here.take_inflight, self.here.take_waiting):
            while entries := take(WHO):
                self.there.add(WHO, entries)
        self.here.end_ghost(WHO)
        self.settle()

    def settle(self) -> None:
        self.one.settle()
        self.other.settle()


@pytest.fixture
def two(tmp_path: Path) -> Iterator[Two]:
    with ExitStack() as stack:
        yield Two(
            stack.enter_context(stored_house(tmp_path / "one", is_alone=False)),
            stack.enter_context(stored_house(tmp_path / "other", is_alone=False)),
        )


def texts(client: Client) -> list[str]:
    return [payload.decode() for _, payload in client.take_published()]


def publish_from(house: House, origin: str, text: str, qos: int = 2) -> None:
    """A publish of another node."""
    source = Source(house.core.outbox.nowhere, node=origin)
    house.publish("t", text.encode(), qos, source=source)


def records(house: House, kind: bytes) -> int:
    house.commit()
    assert house.store is not None
    return len(records_of(house.store.db, kind))


def test_a_session_is_afterwards_what_it_was_before(two: Two) -> None:
    client = subscribed(two.one, 2, clean=False)
    for number in range(3):
        two.one.publish("t", b"flight %d" % number, 2)
    sent = client.take()
    client.send(pubrec_packet(sent[1].packet_id))
    assert client.take_one(PUBREL).packet_id == sent[1].packet_id
    client.send(publish_packet("own", b"x", qos=2, packet_id=77))
    client.take()
    client.lose()
    large = b"x" * BATCH_BYTES
    for number in range(BATCH_ENTRIES + 100):
        two.one.publish("t", b"waiting %d" % number, 1 + number % 2)
    two.one.publish("t", large, 2)
    two.one.restart()
    two.here = Place(two.one)
    two.move()
    assert two.here.kind(WHO) is SessionKind.NONE
    assert two.there.kind(WHO) is SessionKind.DURABLE
    two.other.restart()
    assert two.other.registry.subscribers["s"].subscriptions.keys() == {"t"}
    again = two.other.client("s", clean=False)
    packets = again.take()
    # In the order of their sending, and PUBRELs in the order of the PUBRECs [MQTT-4.6.0-4].
    assert [(each.type, each.packet_id) for each in packets[:3]] == [
        (PUBLISH, sent[0].packet_id),
        (PUBLISH, sent[2].packet_id),
        (PUBREL, sent[1].packet_id),
    ]
    assert all(each.dup for each in packets[:2])
    assert set(two.other.registry.subscribers["s"].received_ids(two.other.core)) == {77}
    assert two.other.queue("s").waiting() == BATCH_ENTRIES + 101 - 17


def test_what_its_client_may_not_read_any_more_stays_behind(two: Two) -> None:
    """Taken away while its messages waited in the store, or on their way."""
    for house in (two.one, two.other):
        house.core.registries = BrokerRegistries(lambda _mountpoint, house=house: house.registry)  # type: ignore[misc]
    client = subscribed(two.one, 1, clean=False)
    client.subscribe(("u", 1))
    client.lose()
    for topic in ("t", "u"):
        two.one.publish(topic, b"waits", 1)
    subscriber = two.one.registry.subscribers["s"]
    two.one.registry.unsubscribe(subscriber, "t")
    subscriber.queue.drop_unwanted()
    two.move()
    there = two.other.registry.subscribers["s"]
    assert there.queue.waiting() == 1
    two.other.registry.unsubscribe(there, "u")
    there.queue.drop_unwanted()
    two.there.add(WHO, [SessionMessage(b"u", b"late", 1)])
    again = two.other.client("s", clean=False)
    assert again.take() == []
    assert [records(each, kind) for each in (two.one, two.other) for kind in (b"q", b"m")] == [
        0
    ] * 4


def test_nothing_of_it_stays_behind(two: Two) -> None:
    subscribed(two.one, 2, clean=False).lose()
    two.one.publish("t", b"1", 2)
    two.move()
    assert two.one.registry.trie.count == 0
    assert two.one.registry.offline == {}
    [session] = two.one.purged
    assert two.one.store is not None
    assert not two.one.store.purge_step(session, 1000)
    assert [records(two.one, kind) for kind in (b"s", b"u", b"q", b"i", b"x", b"g")] == [0] * 6


def test_what_could_not_be_sent_is_where_it_was(two: Two) -> None:
    client = subscribed(two.one, 2, clean=False)
    for number in range(3):
        two.one.publish("t", b"%d" % number, 2)
    sent = [each.packet_id for each in client.take()]
    client.lose()
    for number in range(3, 9):
        two.one.publish("t", b"%d" % number, 2)
    two.here.make_ghost(WHO)
    entries = two.here.take_inflight(WHO)
    two.here.put_back(WHO, entries)
    assert two.here.take_inflight(WHO) == entries
    two.here.put_back(WHO, entries)
    place = two.here.place(WHO)
    waiting = two.here.take_waiting(WHO)
    assert two.here.has_shipped(WHO, place)
    two.here.put_back(WHO, waiting)
    assert not two.here.has_shipped(WHO, place)
    two.here.revive(WHO)
    two.settle()
    two.one.restart()
    again = two.one.client("s", clean=False)
    packets = again.take()
    assert [each.packet_id for each in packets[:3]] == sent
    assert [each.payload for each in packets] == [b"%d" % number for number in range(9)]


def test_a_ghost_takes_only_what_is_its_own(two: Two) -> None:
    subscribed(two.one, 2, clean=False).lose()
    two.here.make_ghost(WHO)
    two.here.haunted_by = {"x"}
    for origin in ("x", "y", ""):
        publish_from(two.one, origin, origin)
    publish_from(two.one, "x", "quick", 0)
    assert two.here.took == 1
    assert [each.payload for each in two.here.take_waiting(WHO)] == [b"x"]
    # The id is free for a new session, which shares nothing with it.
    two.here.add(WHO, [SessionMessage(b"t", b"later", 2)])
    two.here.end_ghost(WHO)
    publish_from(two.one, "x", "nobody's")
    assert not two.one.client("s", clean=False).take()


def test_a_gate_drops_holds_and_takes(two: Two) -> None:
    two.there.build(WHO, {"t": 2})
    two.there.open_gate(WHO)
    client = two.other.client("s", clean=False)
    two.there.verdicts = {"held": BufferVerdict.HOLD, "taken": BufferVerdict.TAKE}
    for origin in ("dropped", "held", "taken"):
        publish_from(two.other, origin, origin)
        publish_from(two.other, origin, origin + " quick", 0)
    assert texts(client) == ["held quick", "taken", "taken quick"]
    publish_from(two.other, "held", "more")
    two.there.release(WHO, "other")
    assert records(two.other, HELD) == 2
    two.there.release(WHO, "held")
    two.settle()
    assert texts(client) == ["held", "more"]
    assert records(two.other, HELD) == 0
    publish_from(two.other, "held", "last")
    two.there.close_gate(WHO)
    publish_from(two.other, "dropped", "open")
    assert texts(client) == ["last", "open"]
    assert two.other.queue("s").fast


def test_what_was_held_survives_the_broker(two: Two) -> None:
    two.there.build(WHO, {"t": 2})
    two.there.open_gate(WHO)
    two.there.verdicts = {"x": BufferVerdict.HOLD}
    for text in "abc":
        publish_from(two.other, "x", text)
    two.other.restart()
    Place(two.other).load()
    assert texts(two.other.client("s", clean=False)) == ["a", "b", "c"]
    assert records(two.other, HELD) == 0


def test_a_gate_holds_no_more_than_a_queue(two: Two) -> None:
    two.other.options.max_offline_messages = 2
    two.there.build(WHO, {"t": 2})
    two.there.open_gate(WHO)
    two.there.verdicts = {"x": BufferVerdict.HOLD}
    for text in "abc":
        publish_from(two.other, "x", text)
    assert two.other.core.counters.queue_message_drop == 1
    assert records(two.other, HELD) == 2


def test_of_two_sessions_with_one_packet_id_both_messages_come(two: Two) -> None:
    client = subscribed(two.other, 2, clean=False)
    two.other.publish("t", b"here", 2)
    [packet] = client.take()
    entries = [
        SessionMessage(b"t", b"there", 2, packet.packet_id),
        SessionMessage(b"t", b"free", 2, 500),
        SessionMessage(b"", b"", 2 | 8, packet.packet_id),
        SessionMessage(b"", b"", 2 | 8, 501),
    ]
    two.there.add(WHO, entries)
    two.settle()
    found = [(each.type, each.packet_id) for each in client.take()]
    assert found == [(PUBLISH, packet.packet_id + 1), (PUBLISH, 500), (PUBREL, 501)]


def test_a_session_that_is_made_anew_subscribes_to_just_that(two: Two) -> None:
    told: list[object] = []

    class Listener(SessionListener):
        def on_subscriber(self, *event: object) -> None:
            told.append(event)

    two.other.core.sessions = Listener()
    two.there.build(WHO, {"a": 1, "b": 1})
    two.there.build(WHO, {"b": 2, "$share/g/c": 1})
    two.there.receive(WHO, [1, 2])
    two.there.receive(WHO, [2, 3])
    two.settle()
    assert told == []  # its record is not this node's business yet
    two.other.restart()
    [subscriber] = two.other.registry.subscribers.values()
    assert {name: each.qos for name, each in subscriber.subscriptions.items()} == {
        "b": 2,
        "$share/g/c": 1,
    }
    assert set(subscriber.received_ids(two.other.core)) == {2, 3}
