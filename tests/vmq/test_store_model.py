"""The store against a model: random work, failing commits and restarts."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from vmq.mqtt.message import Delivery, Message
from vmq.store.entries import INLINE_PAYLOAD, encode_message
from vmq.store.lines import is_end
from vmq.store.opening import open_store, stored_sessions
from vmq.store.sent import runs_of
from vmq.store.sizes import DRIFT
from vmq.store.store import Store

LARGE = b"x" * (INLINE_PAYLOAD + 1)


def number(value: int) -> bytes:
    return value.to_bytes(8, "big")


def commit(store: Store) -> int:
    """What the committer does when the disk is well."""
    done = store.begin_commit()
    store.write()
    store.end_commit()
    return done


def records(db: Any) -> dict[bytes, bytes]:
    """Everything in the database but its format record and the sizes."""
    return {key: value for key, value in db.iterator() if key[:1] not in b"vb"}


def check_sizes(store: Store, crashes: int = 1) -> None:
    """After a commit: what is counted, and noted, is what lies there."""
    found = records(store.db)
    entries = {k: value for k, value in found.items() if k[:1] in b"qi" and not is_end(k)}
    bodies = sum(len(value) for key, value in found.items() if key[:1] == b"m")
    total = bodies + sum(len(value) for value in entries.values())
    assert store.sizes.total == total
    assert int.from_bytes(store.db.get(b"b", bytes(8)), "big") == total
    sizes: dict[bytes, int] = {}
    for key, value in entries.items():
        body = len(found[b"m" + value[3:11]]) if value[0] & 8 else 0
        sizes[key[1:9]] = sizes.get(key[1:9], 0) + len(value) + body
    for session in {*sizes, *store.sizes.sessions}:
        noted = int.from_bytes(store.db.get(b"b" + session, bytes(8)), "big")
        assert abs(noted - store.sizes.of(session)) <= DRIFT
        assert abs(sizes.get(session, 0) - store.sizes.of(session)) <= DRIFT * crashes


def delivery(message: Message, seq: int, qos: int = 1, *, retain: bool = False) -> Delivery:
    made = Delivery(message, qos, retain, "")
    made.seq = seq
    return made


def send(store: Store, session: bytes, made: Delivery, order: int, packet_id: int) -> None:
    """A delivery, which may have waited, is in flight."""
    made.order = order
    made.packet_id = packet_id
    store.put_inflight(session, made)


def as_noted(raw: bytes, place: int) -> list[tuple[int, int]]:
    """Under which packet ids, and as number what, a place was sent."""
    return [
        (run.packet_id_of(place), run.order_of(place))
        for run in runs_of(raw)
        if run.place <= place < run.place + run.count
    ]


def message(payload: bytes = b"payload", *, share: bool = False) -> Message:
    made = Message(b"a/b", payload, 1, False)
    made.share = share
    return made


Key = tuple[bytes, bytes, int]


class Held:
    """What the model knows of one entry."""

    def __init__(self, payload: bytes, named: bool) -> None:
        self.payload = payload
        #: The entry names a message record.
        self.named = named
        self.packet_id = 0
        self.released = False

    def copy(self) -> Held:
        made = Held(self.payload, self.named)
        made.packet_id, made.released = self.packet_id, self.released
        return made


class StoreMachine(RuleBasedStateMachine):
    """Random work on a store, compared with dicts after every commit.

    The model is (kind, session, place or order) -> entry. `deliveries` holds what a broker has in
    memory: after a restart that is loaded from the store.
    """

    SESSIONS = 3

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="vmq-test-"))
        self.store = open_store(self.folder, "os", lambda: None)
        self.store.is_alone = True
        self.model: dict[Key, Held] = {}
        self.saved: dict[Key, Held] = {}
        self.deliveries: dict[Key, Delivery] = {}
        self.retained: list[Message] = []
        self.sessions = [self.store.create_session(str(each)) for each in range(self.SESSIONS)]
        self.last = 0
        self.packet_id = 0
        self.made = 0
        self.committed = False
        self.commit()

    def teardown(self) -> None:
        self.store.db.close()
        shutil.rmtree(self.folder)

    def next(self) -> int:
        """The next place, or order: one count is as good as two."""
        self.last += 1
        return self.last

    def put(self, made: Message, index: int, off: bool = False, qos: int = 2) -> None:
        session = self.sessions[index]
        each = delivery(made, self.next(), qos)
        if off:
            self.store.put_off(session, each)
        else:
            self.store.put_waiting(session, each)
        key = (b"q", session, each.seq)
        self.deliveries[key] = each
        self.model[key] = Held(made.payload, made.share or len(made.payload) > 1024)
        assert (each.ref > 0) is (self.model[key].named and not off)

    def pick(self, data: st.DataObject, sent: bool) -> Key:
        kind = b"i" if sent else b"q"
        return data.draw(st.sampled_from(sorted(key for key in self.model if key[0] == kind)))

    def has(self, sent: bool) -> bool:
        return any(key[0] == (b"i" if sent else b"q") for key in self.model)

    @rule(
        receivers=st.lists(st.integers(0, SESSIONS - 1), min_size=1, unique=True),
        large=st.booleans(),
        retain=st.booleans(),
        off=st.booleans(),
        qos=st.integers(1, 2),
    )
    def publish(self, receivers: list[int], large: bool, retain: bool, off: bool, qos: int) -> None:
        self.made += 1
        payload = b"%08d" % self.made + (LARGE if large else b"")
        made = message(payload, share=len(receivers) > 1)
        for index in receivers:
            self.put(made, index, off, qos)
        if retain:
            self.retained.append(made)

    @precondition(lambda self: self.retained)
    @rule(data=st.data(), index=st.integers(0, SESSIONS - 1))
    def deliver_retained(self, data: st.DataObject, index: int) -> None:
        self.put(data.draw(st.sampled_from(self.retained)), index)

    @precondition(lambda self: self.has(False))
    @rule(data=st.data(), off=st.booleans(), stays=st.booleans())
    def send(self, data: st.DataObject, off: bool, stays: bool) -> None:
        key = self.pick(data, False)
        held, each = self.model.pop(key), self.deliveries.pop(key)
        self.packet_id += 1
        held.packet_id = self.packet_id
        if off and not each.key:
            each.order, each.packet_id = self.next(), self.packet_id
            self.store.put_off(key[1], each)
        elif stays:
            each.order, each.packet_id = self.next(), self.packet_id
            assert self.store.put_sent(key[1], each) is (each.seq > 0) or not each.key
        else:
            send(self.store, key[1], each, self.next(), self.packet_id)
        self.model[b"i", key[1], each.order] = held
        self.deliveries[b"i", key[1], each.order] = each

    @precondition(lambda self: self.has(False))
    @rule(data=st.data())
    def drop(self, data: st.DataObject) -> None:
        key = self.pick(data, False)
        self.store.remove_waiting(key[1], self.deliveries.pop(key))
        del self.model[key]

    @precondition(lambda self: self.has(True))
    @rule(data=st.data())
    def acknowledge(self, data: st.DataObject) -> None:
        key = self.pick(data, True)
        self.store.remove_inflight(key[1], self.deliveries.pop(key))
        del self.model[key]

    @rule(index=st.integers(0, SESSIONS - 1))
    def client_goes(self, index: int) -> None:
        session = self.sessions[index]
        sent = [each for key, each in self.deliveries.items() if key[:2] == (b"i", session)]
        self.store.move_sent(session, sent)

    def releasable(self) -> list[Key]:
        return [
            key
            for key, held in self.model.items()
            if held.packet_id and not held.released and self.deliveries[key].qos == 2
        ]

    @precondition(lambda self: self.releasable())
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        keys = self.releasable()
        key = data.draw(st.sampled_from(sorted(keys)))
        held, each = self.model.pop(key), self.deliveries.pop(key)
        moved = (b"i", key[1], self.next())
        self.store.put_released(key[1], each, moved[2])
        held.payload, held.named, held.released = b"", False, True
        self.model[moved] = held
        self.deliveries[moved] = each

    @rule(index=st.integers(0, SESSIONS - 1))
    def end_session(self, index: int) -> None:
        old = self.sessions[index]
        self.store.end_session(str(index), old)
        self.sessions[index] = self.store.create_session(str(index))
        for key in [key for key in self.model if key[1] == old]:
            del self.model[key]
            del self.deliveries[key]
        while self.store.purge_step(old, 3):
            self.store.begin_commit()
            self.store.retry_commit()

    @rule()
    def fail_to_commit(self) -> None:
        self.store.begin_commit()
        self.store.retry_commit()

    @rule()
    def commit(self) -> None:
        commit(self.store)
        self.saved = {key: held.copy() for key, held in self.model.items()}
        self.committed = True

    @rule()
    def restart(self) -> None:
        """The process dies: what was not committed is gone."""
        self.store.db.close()
        self.store = open_store(self.folder, "os", lambda: None)
        self.store.is_alone = True
        assert not [key for key in records(self.store.db) if key[:1] == b"j"]
        self.model = {key: held.copy() for key, held in self.saved.items()}
        self.sessions = [b""] * self.SESSIONS
        for found in stored_sessions(self.store):
            self.sessions[int(found.client_id)] = found.number
        self.deliveries = {}
        for session in self.sessions:
            for each in self.store.load_inflight(session):
                self.deliveries[b"i", session, each.order] = each
        for kind, session, seq in self.model:
            if kind == b"q":
                waiting = self.store.load_waiting(session, seq)
                assert waiting is not None
                self.deliveries[kind, session, seq] = waiting
        assert set(self.deliveries) == set(self.model)
        for key, held in self.model.items():
            assert self.deliveries[key].message.payload == held.payload
        # They come back without their numbers, as the broker reads them.
        self.retained = [message(each.payload, share=each.share) for each in self.retained]

    @invariant()
    def records_are_right(self) -> None:
        """After a commit: exactly the records that the model asks for."""
        if not self.committed:
            return
        self.committed = False
        check_sizes(self.store)
        found = records(self.store.db)
        entries = {
            key: value for key, value in found.items() if key[:1] in b"qi" and not is_end(key)
        }
        assert len(entries) == len(self.model)
        named: dict[bytes, list[bytes]] = {}
        for (kind, session, place), held in self.model.items():
            assert (kind == b"i") is (held.packet_id > 0)
            waited_at = self.deliveries[kind, session, place].seq if kind == b"i" else 0
            if waited_at:  # its entry is where it waited, and that it is sent stands elsewhere
                value = entries[b"q" + session + number(waited_at)]
                assert value[1:3] == b"\0\0"
                assert as_noted(found[b"j" + session], waited_at) == [(held.packet_id, place)]
            else:
                value = entries[kind + session + number(place)]
                assert int.from_bytes(value[1:3], "big") == held.packet_id
            assert bool(value[0] & 16) is held.released
            if held.named:
                named.setdefault(value[3:11], []).append(held.payload)
            elif not held.released:
                assert value[3:] == encode_message(b"a/b", held.payload)
        for ref, payloads in named.items():
            assert found[b"m" + ref] == encode_message(b"a/b", payloads[0])
            assert len(set(payloads)) == 1
            count = found.get(b"c" + ref)
            assert count == (len(payloads).to_bytes(4, "big") if len(payloads) > 1 else None)
        assert {key[1:] for key in found if key[:1] == b"m"} == set(named)
        assert {key[1:] for key in found if key[:1] == b"c"} <= set(named)
        assert not [key for key in found if key[:1] == b"g"]


TestStoreMachine = StoreMachine.TestCase
TestStoreMachine.settings = settings(
    max_examples=60,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
