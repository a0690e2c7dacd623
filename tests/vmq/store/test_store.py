"""The store's records: what is written, when it is visible, when it is committed."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.support.present import present
from tests.vmq.test_store_model import LARGE, commit, delivery, message, number, records, send
from vmq.mqtt.message import Delivery, Message
from vmq.store.damage import Damage, LostKeys
from vmq.store.entries import INLINE_PAYLOAD, decode_message, encode_message
from vmq.store.opening import ended_sessions, open_store, stored_retained, stored_sessions
from vmq.store.store import Store
from vmq.store.tools import check

SESSION = (1).to_bytes(8, "big")
OTHER = (2).to_bytes(8, "big")


#: Commits, and opens the store anew.
Reopen = Callable[[], Store]


@pytest.fixture
def reopen(store: Store, tmp_path: Path) -> Iterator[Reopen]:
    with ExitStack() as opened:

        def again() -> Store:
            commit(store)
            store.db.close()
            made = open_store(tmp_path / "store", "os", lambda: None)
            opened.callback(made.db.close)
            return made

        yield again


# Forms


@pytest.mark.parametrize("topic", ("a", "ä/ß", "x" * 65_535))
@pytest.mark.parametrize("payload", (b"", b"\0\xff", LARGE))
def test_message_comes_back_from_its_form(topic: str, payload: bytes) -> None:
    raw = b"head" + encode_message(topic.encode(), payload)
    found = decode_message(raw, 4, 2)
    seen = (found.topic, found.payload, found.qos, found.retain)
    assert seen == (topic.encode(), payload, 2, False)


@pytest.mark.parametrize("group", ("$share/ä/#", "$share/g/" + "x" * 65_526))
@pytest.mark.parametrize("payload", (b"", LARGE))
def test_the_share_group_of_a_delivery_comes_back(
    store: Store, reopen: Reopen, group: str, payload: bytes
) -> None:
    waits, sent = (Delivery(message(payload), 1, True, group) for _ in range(2))
    waits.seq, sent.order, sent.packet_id = 7, 8, 9
    store.put_waiting(SESSION, waits)
    store.put_inflight(SESSION, sent)
    store = reopen()
    found = [store.load_waiting(SESSION, 7), *store.load_inflight(SESSION)]
    assert [
        (each.message.topic, each.message.payload, each.group, each.retain)
        for each in found
        if each is not None
    ] == [(b"a/b", payload, group, True)] * 2


@pytest.mark.parametrize(("qos", "retain"), ((1, False), (2, True)))
@pytest.mark.parametrize("payload", (b"", b"x" * INLINE_PAYLOAD, LARGE))
@pytest.mark.parametrize("share", (False, True))
def test_waiting_delivery_comes_back(
    store: Store, reopen: Reopen, qos: int, retain: bool, payload: bytes, share: bool
) -> None:
    store.put_waiting(
        SESSION, delivery(message(payload, share=share), 2**40 + 7, qos, retain=retain)
    )
    store = reopen()
    found = present(store.load_waiting(SESSION, 2**40 + 7))
    assert (found.message.topic, found.message.payload) == (b"a/b", payload)
    assert (found.qos, found.retain, found.seq) == (qos, retain, 2**40 + 7)
    assert (found.packet_id, found.released, found.group) == (0, False, "")
    assert (found.ref > 0) is (share or payload == LARGE)
    assert found.message.ref == found.ref


@pytest.mark.parametrize("payload", (b"small", LARGE))
@pytest.mark.parametrize("was_waiting", (False, True))
def test_inflight_deliveries_come_back_in_order(
    store: Store, reopen: Reopen, payload: bytes, was_waiting: bool
) -> None:
    for order, packet_id in ((300, 65_535), (2, 7), (70_000, 1)):
        made = delivery(message(payload), 5 if was_waiting else 0, 2)
        if was_waiting:
            store.put_waiting(SESSION, made)
        send(store, SESSION, made, order, packet_id)
    store = reopen()
    found = store.load_inflight(SESSION)
    assert [(each.order, each.packet_id) for each in found] == [(2, 7), (300, 65_535), (70_000, 1)]
    assert {each.message.payload for each in found} == {payload}
    assert not any(each.released for each in found)
    assert store.load_waiting(SESSION, 5) is None
    assert store.load_inflight(OTHER) == []


def test_received_packet_ids_come_back(store: Store, reopen: Reopen) -> None:
    for packet_id in (1, 256, 65_535):
        store.put_received(SESSION, packet_id)
    store.put_received(OTHER, 9)
    commit(store)
    store.remove_received(SESSION, 256)
    store = reopen()
    assert store.load_received(SESSION) == [1, 65_535]
    assert store.load_received(OTHER) == [9]


def test_sessions_and_subscriptions_come_back(store: Store, reopen: Reopen) -> None:
    first = store.create_session("dev-ä")
    second = store.create_session("dev-2")
    store.put_session("dev-2", second, 1_700_000_000_123, "alice")
    store.put_subscription(first, "a/+/ü", 1)
    store.put_subscription(first, "$share/g/x/#", 2)
    store.put_subscription(second, "a", 0)
    store.put_subscription(second, "b", 0, "asked/ü")
    store.remove_subscription(second, "a")
    store = reopen()
    found = {each.client_id: each for each in stored_sessions(store)}
    assert set(found) == {"dev-ä", "dev-2"}
    assert found["dev-ä"].number == first
    assert found["dev-ä"].offline_at == 0
    assert sorted(found["dev-ä"].subscriptions) == [("$share/g/x/#", 2), ("a/+/ü", 1)]
    assert found["dev-2"].offline_at == 1_700_000_000_123
    assert found["dev-2"].subscriptions == [("b", 0)]
    assert (found["dev-ä"].asked, found["dev-2"].asked) == ({}, {"b": "asked/ü"})


def test_retained_messages_come_back(store: Store, reopen: Reopen) -> None:
    store.put_retained(Message(b"a", b"1", 0, True))
    store.put_retained(Message(b"b", LARGE, 2, True))
    store.put_retained(Message(b"c", b"3", 1, True))
    store.put_retained(Message(b"a", b"4", 1, True))
    store.remove_retained(b"c")
    store = reopen()
    found = [
        (each.topic, each.payload, each.qos, each.retain) for _, each in stored_retained(store)
    ]
    assert found == [(b"a", b"4", 1, True), (b"b", LARGE, 2, True)]


# Messages that several queues share


def test_a_large_payload_is_not_written_again_when_it_is_sent(store: Store) -> None:
    made = delivery(message(LARGE), 1)
    store.put_waiting(SESSION, made)
    commit(store)
    send(store, SESSION, made, 1, 5)
    assert not any(value is not None and LARGE in value for value in store.dirty.values())
    commit(store)
    assert sorted(key[:1] for key in records(store.db)) == [b"i", b"m"]


@pytest.mark.parametrize("is_gone", [True, False], ids=["gone", "on its way"])
def test_a_retained_message_is_stored_again_after_its_record_was_deleted(
    store: Store, is_gone: bool
) -> None:
    retained = message(LARGE)
    first = delivery(retained, 1)
    store.put_waiting(SESSION, first)
    commit(store)
    store.remove_waiting(SESSION, first)
    if is_gone:
        commit(store)
        assert retained.ref == 1  # the number of a record that is gone
    else:
        store.begin_commit()
    again = delivery(retained, 2)
    store.put_waiting(SESSION, again)
    if not is_gone:
        store.write()
        store.end_commit()
    commit(store)
    found = present(store.load_waiting(SESSION, 2))
    assert found.message.payload == LARGE


def test_an_entry_whose_message_is_missing_is_none(store: Store) -> None:
    store.put_waiting(SESSION, delivery(message(LARGE), 1))
    commit(store)
    store.db.delete(b"m" + number(1))
    assert store.load_waiting(SESSION, 1) is None
    assert store.load_message(1) is None


# Ended sessions


def fill(store: Store, client_id: str, count: int, shared: Message) -> bytes:
    """A session with entries of every kind, which hold `shared` twice each."""
    session = store.create_session(client_id)
    store.put_subscription(session, "a/#", 1)
    store.put_received(session, 5)
    for seq in range(1, count + 1):
        store.put_waiting(session, delivery(message(), seq))
    store.put_waiting(session, delivery(shared, count + 1))
    send(store, session, delivery(shared, 0), 1, 1)
    return session


def sessions_with_records(store: Store) -> set[bytes]:
    return {key[1:9] for key in records(store.db) if key[:1] in b"qiux"}


def test_an_ended_session_is_deleted_in_steps(store: Store) -> None:
    shared = message(share=True)
    ended = fill(store, "gone", 25, shared)
    stays = fill(store, "stays", 3, shared)
    commit(store)
    store.end_session("gone", ended)
    commit(store)
    left = len(records(store.db))
    steps = 0
    while store.purge_step(ended, 10):
        commit(store)
        steps += 1
        assert left - len(records(store.db)) == 10 * steps
        assert ended_sessions(store) == [ended]
    commit(store)
    assert steps == 2
    assert ended_sessions(store) == []
    assert records(store.db)[b"c" + number(1)] == (2).to_bytes(4, "big")
    assert sessions_with_records(store) == {stays}


def test_session_numbers_are_not_used_again_while_records_remain(
    store: Store, reopen: Reopen
) -> None:
    session = fill(store, "dev", 5, message(share=True))
    commit(store)
    store.end_session("dev", session)
    store = reopen()
    assert stored_sessions(store) == []
    assert store.create_session("new") > session


@pytest.mark.parametrize("key", (b"q" + number(9) + number(1), b"u" + number(9) + b"a"))
def test_session_numbers_pass_over_what_a_damaged_store_forgot(
    store: Store, reopen: Reopen, key: bytes
) -> None:
    store.db.put(key, b"\1")
    store = reopen()
    stored_sessions(store)
    assert store.create_session("new") == number(10)


def test_whether_it_was_a_node_need_not_be_known(store: Store) -> None:
    """Where that record may be lost, it is noted as for a node: a broker that was none takes no notice."""
    store.note_alone()
    assert not store.was_alone()
    store.damage = Damage([LostKeys("1.ldb", b"k", b"m")])
    store.note_alone()
    assert store.was_alone()


def test_what_joins_a_record_counts_as_a_write(store: Store) -> None:
    store.put(b"k", b"")
    writes, gathered = store.writes, store.gathered
    store.extend(5000)
    assert (store.writes, store.gathered) == (writes + 1, gathered + 5)


def test_by_how_much_the_clock_was_set_is_kept_and_is_no_flaw(
    store: Store, reopen: Reopen, tmp_path: Path
) -> None:
    store.put_clock_set(-7_200_000, 5)
    store = reopen()
    assert (store.clock_set, store.clock_noted) == (-7_200_000, 5)
    store.db.close()
    assert check(tmp_path / "store").problems == []
