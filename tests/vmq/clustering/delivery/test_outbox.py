"""One outbox: everything once and in order, a window of it in memory, whatever is committed when."""

import tempfile
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vmq.clustering.delivery import outbox as lane_module
from vmq.clustering.delivery.outbox import OutboxEntry, PeerOutbox
from vmq.clustering.delivery.outbox_storage import stored_lanes
from vmq.clustering.messages.codec import HEAD, count_of, decode_parcel, without
from vmq.clustering.messages.publishes import RemotePublish
from vmq.core.output import Outbox, Output
from vmq.store.opening import open_store
from vmq.streams.serving.batch_commit import SinkStep
from vmq_cluster.messages import MAX_PAYLOAD

ROOM = 1 << 40


class Sender:
    """An outbox on a disk, and a peer that takes what comes; commits are made by hand."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.life = 0
        self.sent: deque[OutboxEntry] = deque()
        self.got: list[bytes] = []
        self.added: list[bytes] = []
        self.keys: list[bytes] = []
        self.start()

    def start(self) -> None:
        self.store = open_store(self.folder, "os", lambda: None)
        self.life += 1
        self.numbers = count(1)
        self.outbox = PeerOutbox("b", self.store, lambda: (7, self.life, next(self.numbers)))
        for peer, last, messages, size in stored_lanes(self.store):
            assert peer == "b"
            self.outbox.restore(last, messages, size)

    def add(self, payload: bytes, room: int = ROOM) -> int:
        before = self.outbox.key
        size = self.outbox.add(RemotePublish(b"t", payload, 1), room)
        if size > 0:
            self.added.append(payload)
        if self.outbox.key != before:
            self.keys.append(self.outbox.key)
        return size

    def commit(self) -> None:
        self.write()
        self.take()

    def write(self) -> None:
        self.outbox.tidy()
        self.outbox.seal()
        self.outbox.save_total()
        self.store.begin_commit()
        self.store.write()
        self.store.end_commit()
        self.outbox.safe(self.outbox.key)
        self.outbox.written(self.outbox.key)

    def take(self) -> None:
        self.sent += self.outbox.take()

    def confirm(self) -> None:
        if self.sent:
            entry = self.sent.popleft()
            self.got += contents(entry.payload)
            self.outbox.confirm(entry)

    def die(self) -> None:
        """What is committed stays, and the peer gets again what it had not confirmed on the disk."""
        self.store.db.close()
        self.sent.clear()
        self.start()
        self.take()

    def drain(self) -> None:
        self.commit()
        while self.sent:
            self.confirm()
            self.take()


def contents(raw: bytes) -> list[bytes]:
    return [message.payload for message in decode_parcel(raw)[0].messages]  # type: ignore[union-attr]


@contextmanager
def sender(folder: Path) -> Iterator[Sender]:
    found = Sender(folder)
    try:
        yield found
    finally:
        found.store.db.close()


@pytest.fixture
def a(tmp_path: Path) -> Iterator[Sender]:
    with sender(tmp_path / "store") as found:
        yield found


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lane_module, "PARCEL", 200)
    monkeypatch.setattr(lane_module, "WINDOW", 1000)


Steps = st.lists(
    st.tuples(st.sampled_from(["add", "add", "commit", "confirm", "die"]), st.integers(1, 12)),
    max_size=40,
)


@given(Steps)
def test_everything_arrives_in_order_and_memory_holds_a_window(
    steps: list[tuple[str, int]],
) -> None:
    with (
        pytest.MonkeyPatch.context() as patch,
        tempfile.TemporaryDirectory() as folder,
        sender(Path(folder) / "store") as each,
    ):
        patch.setattr(lane_module, "PARCEL", 200)
        patch.setattr(lane_module, "WINDOW", 1000)
        safe = 0
        got: list[bytes] = []
        for kind, number in steps:
            for _ in range(number):
                match kind:
                    case "add":
                        each.add(b"%d" % len(each.added) + b"x" * 60)
                    case "confirm":
                        each.confirm()
                        each.take()
            if kind == "commit":
                each.commit()
                safe = len(each.added)
                got = list(each.got)
            if kind == "die":
                del each.added[safe:]
                each.got = list(got)
                each.die()
            assert each.outbox._held <= 1000 + 200 + HEAD
            assert each.outbox.messages == len(each.added) - len(each.got)
            assert each.got == each.added[: len(each.got)]
        each.drain()
        assert each.got == each.added
        assert (each.outbox.messages, each.outbox.size, each.outbox.has_any()) == (0, 0, False)
        each.commit()
        assert list(stored_lanes(each.store)) == []


def test_a_pass_is_one_record_and_one_payload(a: Sender) -> None:
    for number in range(100):
        a.add(b"%d" % number)
    a.commit()
    assert len(a.keys) == len(a.sent) == 1
    assert contents(a.sent[0].payload) == a.added
    assert a.outbox.size == len(a.sent[0].payload)


def test_what_has_no_room_is_refused_whole(a: Sender) -> None:
    assert a.add(b"x" * 100, room=50) > 100  # one alone always fits
    size = a.outbox.size
    assert a.add(b"y" * 60, room=size + 60) < -60
    assert a.add(b"z" * 60, room=size + 100) > 60
    a.drain()
    assert a.got == [b"x" * 100, b"z" * 60]


def test_what_no_channel_takes_is_refused(a: Sender) -> None:
    assert a.add(bytes(MAX_PAYLOAD)) < 0
    assert not a.outbox.has_any()
    assert a.add(b"small") > 0
    assert a.add(bytes(MAX_PAYLOAD - HEAD - 30)) > 0
    a.commit()
    assert [len(each.payload) <= MAX_PAYLOAD for each in a.sent] == [True, True]


def test_nothing_is_sent_before_it_is_committed_nor_loaded_before_it_is_on_the_disk(
    a: Sender, small: None
) -> None:
    a.add(b"1")
    a.outbox.seal()
    assert list(a.outbox.take()) == []
    a.outbox.safe(a.outbox.key)
    assert len(list(a.outbox.take())) == 1
    for number in range(40):
        a.add(b"%d" % number + b"x" * 90)
    a.outbox.seal()
    a.outbox.safe(a.outbox.key)
    before = len(list(a.outbox.take()))
    assert before < 20
    assert a.outbox._has_backlog()
    assert list(a.outbox.take()) == []


def test_who_wanted_to_know_is_told_in_order(a: Sender) -> None:
    told: list[tuple[int, bool]] = []
    for number in range(4):
        a.add(b"%d" % number)
        a.outbox.on_done(lambda good, number=number: told.append((number, good)))  # type: ignore[misc]
        if number == 1:
            a.commit()
    a.commit()
    a.confirm()
    assert told == [(0, True), (1, True)]
    a.outbox.lose()
    assert told[2:] == [(2, False), (3, False)]


def test_what_is_gone_is_deleted_with_the_next_commit_and_waits_for_nobody_until_then(
    a: Sender,
) -> None:
    for number in range(3):
        a.add(b"%d" % number)
        a.commit()
    first, second, third = a.keys
    a.confirm()
    a.confirm()
    assert not a.store.dirty
    assert [key for key, _ in a.outbox.stored(b"", a.outbox.key)] == [third]
    a.write()
    assert [key for key, _ in a.store.db.iterator(prefix=first[:-1])] == [third]
    assert second not in a.store.dirty


def test_what_is_confirmed_is_not_sent_again_to_a_peer_that_was_no_member_for_a_moment(
    a: Sender,
) -> None:
    """It is deleted, and the commit of that under way."""
    for number in range(3):
        a.add(b"%d" % number)
        a.commit()
    a.confirm()
    a.confirm()
    a.outbox.rewind()
    a.sent.clear()
    a.take()
    assert [contents(each.payload) for each in a.sent] == [[b"2"]]
    a.confirm()
    assert (a.outbox.messages, a.outbox.size, a.outbox.has_any()) == (0, 0, False)
    a.outbox.rewind()
    assert not a.outbox.has_any()
    a.take()
    assert not a.sent


def test_what_is_given_to_others_is_not_sent_while_the_commit_of_that_is_under_way(
    a: Sender,
) -> None:
    for number in range(4):
        a.add(b"%d" % number)
        if number % 2:
            a.commit()
    a.outbox.lose()
    a.sent.clear()
    (first, whole), (second, rest) = a.outbox.stored(b"", a.outbox.key)
    a.outbox.cut(first, whole, b"")
    a.outbox.cut(second, rest, without(decode_parcel(rest)[0], 1))
    a.take()
    assert [contents(each.payload) for each in a.sent] == [[b"3"]]
    a.confirm()
    assert (a.outbox.messages, a.outbox.size) == (0, 0)


def test_an_entry_that_is_not_the_next_is_none_of_this_lane(a: Sender) -> None:
    a.add(b"1")
    a.commit()
    a.outbox.confirm(OutboxEntry(a.outbox.key, a.sent[0].payload))
    assert a.outbox.messages == 1


def test_a_pass_waits_for_the_last_of_its_messages_and_a_dead_peer_is_not_waited_for(
    a: Sender,
) -> None:
    outbox = Outbox()
    first, second = Output(outbox), Output(outbox)
    a.add(b"1")
    a.outbox.wait(first)
    a.commit()
    a.add(b"2")
    a.outbox.wait(first)
    a.add(b"3")
    a.outbox.wait(second)
    waits = [each.confirmations() for each in (first, second)]
    assert [each.open for each in waits] == [1, 1]
    a.commit()
    a.confirm()
    assert [each.open for each in waits] == [1, 1]
    a.confirm()
    assert [each.open for each in waits] == [0, 0]
    a.add(b"4")
    a.outbox.wait(first)
    a.outbox.settle()
    assert waits[0].open == 0


@pytest.mark.usefixtures("small")
def test_what_waits_can_be_looked_through_and_cut_and_the_rest_goes_out(a: Sender) -> None:
    for number in range(100):
        a.add(b"%d" % number + b"x" * 90)
        if number % 10 == 0:
            a.commit()
    a.confirm()
    a.outbox.rewind()
    a.sent.clear()
    a.write()
    waits = a.outbox.messages
    left: list[bytes] = []
    for number, (key, raw) in enumerate(a.outbox.stored(b"", a.outbox.key)):
        cut = without(decode_parcel(raw)[0], number % 3)
        a.outbox.cut(key, raw, cut)
        waits -= count_of(raw) - count_of(cut)
        left += contents(cut) if cut else []
    assert a.outbox.messages == waits == len(left)
    assert 0 < waits < 100
    a.write()
    assert a.outbox.size == sum(len(raw) for _, raw in a.outbox.stored(b"", a.outbox.key))
    a.got.clear()
    a.drain()
    assert a.got == left
    assert (a.outbox.messages, a.outbox.size) == (0, 0)
    a.write()
    assert list(a.store.db.iterator(prefix=b"o")) == []


async def test_who_is_paused_reads_on_when_there_is_room(a: Sender) -> None:
    output = SinkStep(Outbox())
    assert a.outbox.pause(output)
    assert not a.outbox.pause(output)
    assert output.pauses == 1
    a.outbox.resume()
    a.outbox.resume()
    assert output.pauses == 0
    a.outbox.pause(output)
    assert output.pauses == 1
    a.outbox.settle()
    assert output.pauses == 0
