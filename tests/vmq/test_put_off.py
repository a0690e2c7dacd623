"""Messages at QoS 1 to durable sessions that are there: what is acknowledged before its commit is never written."""

import random
from pathlib import Path

import pytest

from tests.support import wire as mqtt
from tests.support.present import present
from tests.vmq.support import Client, House, stored_house
from vmq.store.lines import is_end
from vmq.store.store import Store


def entries(store: Store) -> list[bytes]:
    """What lies on the disk of messages, by kind."""
    return [key[:1] for key, _ in store.db.iterator() if key[:1] in b"qimc" and not is_end(key)]


def reader_of(house: House, window: int = 20) -> Client:
    """A durable session that is there, and reads at QoS 1."""
    house.options.max_inflight_messages = window
    client = house.subscriber("reader", ("t", 1), clean=False)
    house.patient = True
    return client


def send(client: Client, packet_id: int, payload: bytes = b"x") -> None:
    client.send(mqtt.publish_packet("t", payload, qos=1, packet_id=packet_id))


def window_of_one(house: House, *numbers: int) -> tuple[Client, Client]:
    """The reader, who may have one at a time, and a writer who has sent these as payloads."""
    reader = reader_of(house, window=1)
    writer = house.client("writer")
    for number in numbers:
        send(writer, number, b"%d" % number)
    return reader, writer


def acks(client: Client) -> list[int]:
    return [each.packet_id for each in client.take() if each.type == mqtt.PUBACK]


def test_what_is_acknowledged_before_the_commit_is_never_written(durable: House) -> None:
    reader = reader_of(durable)
    writer = durable.client("writer")
    store = present(durable.store)
    for number in range(1, 4):
        send(writer, number)
    packets = reader.take()
    assert [each.type for each in packets] == [mqtt.PUBLISH] * 3
    assert acks(writer) == []
    size = store.sizes.total
    assert size == store.sizes.of(reader.queue.session) > 0
    for each in packets:
        reader.send(mqtt.puback_packet(each.packet_id))
    assert (store.sizes.total, store.dirty) == (0, {})
    assert acks(writer) == []  # the pass of the commit is another one
    durable.commit()
    assert acks(writer) == [1, 2, 3]
    assert entries(store) == []


def test_what_waits_for_the_window_is_put_off_too(durable: House) -> None:
    reader, writer = window_of_one(durable, 1, 2)
    for payload in (b"1", b"2"):
        (packet,) = reader.take()
        assert packet.payload == payload
        reader.send(mqtt.puback_packet(packet.packet_id))
    durable.commit()
    assert acks(writer) == [1, 2]
    assert durable.store is not None
    assert entries(durable.store) == []


def test_what_has_an_entry_is_not_sent_before_that_says_so(durable: House) -> None:
    reader, _ = window_of_one(durable, 1, 2, 3)
    durable.commit()
    store = present(durable.store)
    assert sorted(entries(store)) == [b"i", b"q", b"q"]
    reader.send(mqtt.puback_packet(reader.take()[0].packet_id))
    assert reader.take() == []
    durable.commit()
    assert sorted(entries(store)) == [b"q", b"q"]  # that the first was sent stands elsewhere
    assert [each.payload for each in reader.take()] == [b"2"]
    durable.restart()
    durable.patient = False
    again = durable.client("reader", clean=False).take()
    assert [(each.payload, each.dup) for each in again] == [(b"2", True)]


def test_what_a_client_leaves_behind_is_there_when_it_comes_back(durable: House) -> None:
    reader, _ = window_of_one(durable, 1, 2, 3)
    reader.take()
    reader.lose()
    again = Client(durable)
    again.send(mqtt.connect_packet("reader", clean=False))
    durable.commit()
    found = []
    while packets := [each for each in again.take() if each.type == mqtt.PUBLISH]:
        found += [each.payload for each in packets]
        for each in packets:
            again.send(mqtt.puback_packet(each.packet_id))
        durable.drain()
        durable.commit()
    assert found == [b"1", b"2", b"3"]


def test_a_session_that_ends_leaves_nothing(durable: House) -> None:
    reader, writer = window_of_one(durable, 1, 2, 3)
    durable.commit()
    reader.send(mqtt.puback_packet(reader.take()[0].packet_id))
    send(writer, 4)
    session = reader.queue.session
    reader.lose()
    durable.client().send(mqtt.connect_packet("reader"))
    store = present(durable.store)
    assert session in durable.purged
    while store.purge_step(session, 2):
        durable.commit()
    durable.commit()
    assert [key for key, _ in store.db.iterator() if key[1:9] == session] == []
    assert entries(store) == []


def test_a_message_for_many_has_one_record(durable: House) -> None:
    readers = [durable.client(f"r{number}", clean=False) for number in range(3)]
    for each in readers:
        each.subscribe(("t", 1))
    durable.patient = True
    store = present(durable.store)
    durable.publish("t", b"x", 1)
    durable.core.outbox.flush()
    for each in readers[:2]:
        each.send(mqtt.puback_packet(each.take()[0].packet_id))
    durable.commit()
    assert sorted(entries(store)) == [b"i", b"m"]
    readers[2].send(mqtt.puback_packet(readers[2].take()[0].packet_id))
    durable.commit()
    assert entries(store) == []
    assert store.sizes.total == 0


def test_newest_first_and_qos_2_wait_for_the_commit(durable: House) -> None:
    durable.options.lifo = True
    reader = reader_of(durable)
    send(durable.client("writer"), 1)
    assert reader.take() == []
    durable.commit()
    assert len(reader.take()) == 1


def test_a_late_acknowledgement_is_for_no_other_message_after_a_restart(durable: House) -> None:
    reader = reader_of(durable)
    durable.publish("t", b"1", 1)
    durable.core.outbox.flush()
    late = reader.take()[0].packet_id
    durable.choice = 1000
    durable.restart()
    durable.patient = False
    reader = durable.client("reader", clean=False)
    durable.publish("t", b"2", 1)
    durable.core.outbox.flush()
    reader.take()
    reader.send(mqtt.puback_packet(late))
    assert len(reader.queue.inflight) == 1


@pytest.mark.parametrize("seed", range(30))
def test_killed_at_any_moment_nothing_acknowledged_is_lost(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    count = 30
    with stored_house(tmp_path) as house:
        house.options.max_inflight_messages = chance.choice((1, 3, 20))
        reader = Client(house)
        reader.send(mqtt.connect_packet("reader", clean=False), mqtt.subscribe_packet(1, ("t", 1)))
        house.patient = True
        writer = house.client("writer")
        received: list[int] = []
        unread: list[int] = []
        unacknowledged: list[int] = []
        following = 1
        while following <= count or unacknowledged:
            act = chance.choices("psacrk", (5, 5, 4, 4, 1, 1))[0]
            if act == "p" and following <= count and len(unacknowledged) < 8:
                unacknowledged.append(following)
                send(writer, following, b"%d" % following)
                following += 1
            elif act == "s":
                packets = [each for each in reader.take() if each.type == mqtt.PUBLISH]
                received += [int(each.payload) for each in packets]
                unread += [each.packet_id for each in packets]
            elif act == "a" and unread:
                reader.send(mqtt.puback_packet(unread.pop(0)))
            elif act == "c":
                house.drain()
                house.commit()
            elif act in "rk":
                if act == "k":
                    house.restart()
                    house.patient = True
                    writer = Client(house)
                    writer.send(mqtt.connect_packet("writer"))
                    for number in unacknowledged:  # it repeats what it must
                        send(writer, number, b"%d" % number)
                reader = Client(house)
                reader.send(mqtt.connect_packet("reader", clean=False))
                unread.clear()
            for number in acks(writer):
                if number in unacknowledged:
                    unacknowledged.remove(number)
        house.restart()
        reader = Client(house)
        reader.send(mqtt.connect_packet("reader", clean=False))
        house.settle()
        while packets := [each for each in reader.take() if each.type == mqtt.PUBLISH]:
            received += [int(each.payload) for each in packets]
            for each in packets:
                reader.send(mqtt.puback_packet(each.packet_id))
            house.settle()
        assert list(dict.fromkeys(received)) == list(range(1, count + 1))
