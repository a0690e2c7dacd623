"""An outbox against a naive model of it: whatever is committed, confirmed, rewound, given to others or lost in a crash.

The model is a list of batches that nobody has. What is sent, what is looked through and the totals have to be exactly
that, in every state: also while what was deleted is not committed yet.
"""

import shutil
import tempfile
from collections import deque
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from vmq.clustering.delivery import outbox as lane_module
from vmq.clustering.delivery.outbox import OutboxEntry, PeerOutbox
from vmq.clustering.delivery.outbox_storage import stored_lanes
from vmq.clustering.messages.codec import HEAD, decode_parcel, without
from vmq.clustering.messages.publishes import RemotePublish
from vmq.store.opening import open_store

#: Batches by their keys, in order, and of each the payloads with their bytes.
Parcels = dict[bytes, list[tuple[bytes, int]]]
ROOM = 1 << 40


def contents(raw: bytes) -> list[bytes]:
    return [message.payload for message in decode_parcel(raw)[0].messages]  # type: ignore[union-attr]


class LaneMachine(RuleBasedStateMachine):
    """One outbox with its store, which `delivery.outboxes` and the committer would have in their hands."""

    @initialize()
    def begin(self) -> None:
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr(lane_module, "PARCEL", 150)
        self.patch.setattr(lane_module, "WINDOW", 500)
        self.folder = Path(tempfile.mkdtemp(dir="/dev/shm" if Path("/dev/shm").is_dir() else None))
        self.life = 0
        self.was_sent: set[bytes] = set()
        self.payloads = count(1)
        #: What nobody has, as it is now, in the commit that is being written, and on the disk.
        self.waits: Parcels = {}
        self.closed: Parcels | None = None
        self.durable: Parcels = {}
        self.start()

    def start(self) -> None:
        self.store = open_store(self.folder / "store", "os", lambda: None)
        self.life += 1
        self.numbers = count(1)
        self.sent: deque[OutboxEntry] = deque()
        self.is_open = False
        self.last_sent = b""
        self.closed_key = b""
        #: What looks through the outbox, and the key of what it has in its hands.
        self.search: Iterator[tuple[bytes, bytes]] | None = None
        self.make_lane()
        for peer, last, messages, size in stored_lanes(self.store):
            assert peer == "b"
            self.outbox.restore(last, messages, size)

    def make_lane(self) -> None:
        self.outbox = PeerOutbox("b", self.store, lambda: (7, self.life, next(self.numbers)))

    def teardown(self) -> None:
        if hasattr(self, "store"):
            self.store.db.close()
            shutil.rmtree(self.folder)
            self.patch.undo()

    # --- what comes

    @rule(number=st.integers(1, 8), size=st.sampled_from([0, 60]))
    def add(self, number: int, size: int) -> None:
        for _ in range(number):
            payload = b"%d" % next(self.payloads) + b"x" * size
            added = self.outbox.add(RemotePublish(b"t", payload, 1), ROOM)
            assert added > 0
            self.waits.setdefault(self.outbox.key, []).append((payload, added))

    @rule()
    def seal(self) -> None:
        """As for a store that acknowledges early."""
        self.outbox.seal()
        self.outbox.safe(self.outbox.key)
        self.maybe_take()

    # --- commits

    @precondition(lambda self: self.closed is None)
    @rule()
    def begin_commit(self) -> None:
        self.outbox.tidy()
        self.outbox.seal()
        self.outbox.save_total()
        self.store.begin_commit()
        self.closed = {key: list(each) for key, each in self.waits.items()}
        self.closed_key = self.outbox.key

    @precondition(lambda self: self.closed is not None)
    @rule(fails=st.integers(0, 4))
    def end_commit(self, fails: int) -> None:
        assert self.closed is not None
        if not fails:
            self.store.retry_commit()
            self.closed = None
            return
        self.store.write()
        self.store.end_commit()
        self.durable, self.closed = self.closed, None
        self.outbox.safe(max(self.closed_key, self.outbox._safe))
        self.outbox.written(self.closed_key)
        self.maybe_take()

    @rule()
    def commit(self) -> None:
        if self.closed is None:
            self.begin_commit()
        self.end_commit(1)

    # --- sending

    def maybe_take(self) -> None:
        for entry in self.outbox.take() if self.is_open else ():
            assert entry.key > self.last_sent
            assert entry.key in self.waits, "what is gone is sent"
            assert contents(entry.payload) == [each for each, _ in self.waits[entry.key]]
            assert all(key <= self.last_sent or key >= entry.key for key in self.waits)
            self.last_sent = entry.key
            self.was_sent.add(entry.key)
            self.sent.append(entry)
        assert self.outbox._held <= 500 + 200 + HEAD

    @rule(number=st.integers(1, 6))
    def confirm(self, number: int) -> None:
        for _ in range(min(number, len(self.sent))):
            entry = self.sent.popleft()
            self.outbox.confirm(entry)
            del self.waits[entry.key]
        self.maybe_take()

    @precondition(lambda self: self.search is None)
    @rule(data=st.data(), sends_on=st.booleans())
    def farewell(self, data: st.DataObject, sends_on: bool) -> None:
        """The peer says what it has had of what was sent to it in any life, whatever was confirmed."""
        keys = [key for key in self.waits if key in self.was_sent]
        if not keys:
            return
        last = data.draw(st.sampled_from(keys))
        if last > self.outbox._written and not (self.sent and last <= self.sent[-1].key):
            return  # what is not on the disk yet it had from what is in memory
        self.outbox.confirm_up_to(last)
        while self.sent and self.sent[0].key <= last:
            self.outbox.confirm(self.sent.popleft())  # as what comes late
        for key in [key for key in self.waits if key <= last]:
            del self.waits[key]
        if not sends_on:
            self.lose()

    # --- members come and go

    @precondition(lambda self: self.search is None)
    @rule()
    def open(self) -> None:
        self.is_open = True
        self.maybe_take()

    @rule(is_lost=st.booleans(), comes_back=st.booleans())
    def close(self, is_lost: bool, comes_back: bool) -> None:
        """The peer is no member any more, or this node is none."""
        if is_lost:
            self.lose()
        else:
            self.outbox.settle()
            self.outbox.rewind()
            self.forget_sent()
        if comes_back and self.search is None:
            self.open()

    def lose(self) -> None:
        self.outbox.lose()
        self.forget_sent()

    def forget_sent(self) -> None:
        late = list(self.sent)
        self.sent.clear()
        for entry in late:
            self.outbox.confirm(entry)  # as what comes late
        self.is_open = False
        self.last_sent = b""

    # --- what waits is given to others

    @precondition(lambda self: self.search is None)
    @rule()
    def begin_search(self) -> None:
        if self.is_open:
            self.lose()  # else it goes on with what came since
        self.commit()
        self.commit()
        self.search = self.outbox.stored(b"", self.outbox.key)

    @precondition(lambda self: self.search is not None)
    @rule(
        part=st.sampled_from([0, 0, 1, 3]),
        number=st.sampled_from([2, 20]),
        comes_back=st.booleans(),
    )
    def give(self, part: int, number: int, comes_back: bool) -> None:
        assert self.search is not None
        for _ in range(number):
            found = next(self.search, None)
            if found is None:
                self.search = None
                self.outbox.rewind()
                if comes_back:
                    self.open()
                return
            key, raw = found
            assert contents(raw) == [each for each, _ in self.waits[key]]
            left = without(decode_parcel(raw)[0], part) if part else b""
            self.outbox.cut(key, raw, left)
            self.waits[key] = self.waits[key][part:] if part else []
            if not self.waits[key]:
                del self.waits[key]

    @precondition(lambda self: not self.waits)
    @rule()
    def forget(self) -> None:
        """All is given, and the peer no member; it comes back."""
        self.lose()
        self.search = None
        self.outbox.save_total()
        self.make_lane()

    # --- the end of a life

    @rule(writes=st.booleans())
    def crash(self, writes: bool) -> None:
        if writes and self.closed is not None:
            self.end_commit(1)
        self.store.db.close()
        self.closed = None
        self.waits = {key: list(each) for key, each in self.durable.items()}
        self.start()

    # --- what holds

    @invariant()
    def totals_are_what_waits(self) -> None:
        if hasattr(self, "outbox"):
            found = [size for parcel in self.waits.values() for _, size in parcel]
            assert self.outbox.messages == len(found)
            assert self.outbox.size == sum(found) + HEAD * len(self.waits)
            assert self.outbox.has_any() or not found


TestLane = LaneMachine.TestCase
TestLane.settings = settings(max_examples=100, stateful_step_count=30, deadline=None)
