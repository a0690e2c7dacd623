"""Files of a store are damaged: the broker refuses or recovers, and never serves what is not true.

A torn tail of the log is what a machine that lost power leaves: the broker starts without what was
torn off. Anything else is refused with one clear line, and `vmq store repair` makes a store of it
that the broker starts with. What LevelDB cannot see: where a flipped bit makes a record of the log
longer than the rest of the file, that looks like a torn tail.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import plyvel
import pytest

from tests.support.flipped import flip
from tests.support.wire import Wire
from vmq.mqtt.message import Delivery, Message
from vmq.store.opening import open_store, stored_retained, stored_sessions
from vmq.store.store import Store, StoreError
from vmq.store.tools import check, repair
from vmq.testing.process import BrokerProcess, BrokerStartError

#: Messages of each client in the table; the log has some more.
IN_TABLE = 300

CLIENTS = tuple(f"dev-{index}" for index in range(4))

#: What a store says: (what, of whom or what, which one) -> value.
Contents = dict[tuple[str, str, str], bytes]

UNREADABLE = (StoreError, plyvel.Error, ValueError)


def start(data: Path) -> Store:
    return open_store(data / "store", "os", lambda: None)


def read(data: Path) -> Contents:
    """Everything that a broker would read of a store, sooner or later.

    Raises:
        StoreError, plyvel.Error, ValueError: it cannot be opened, or read.
    """
    store = start(data)
    with closing(store.db):
        found: Contents = {}
        for session in stored_sessions(store):
            for topic_filter, qos in session.subscriptions:
                found["subscription", session.client_id, topic_filter] = bytes((qos,))
            for seq in range(session.first, session.last + 1 if session.first else 0):
                waiting = store.load_waiting(session.number, seq)
                if waiting is not None:
                    found["waiting", session.client_id, str(seq)] = waiting.message.payload
        for _, message in stored_retained(store):
            found["retained", message.topic.decode(), ""] = message.payload
        return found


class Made:
    """A store of known contents: most of it in a table, the rest in the log."""

    def __init__(self, data: Path) -> None:
        self.data = data
        self.rng = random.Random(1)
        self.now: Contents = {}
        #: All that was ever true.
        self.ever: Contents = {}
        self.waiting: dict[tuple[int, int], Delivery] = {}
        self.store = start(data)
        self.sessions = [self.store.create_session(client) for client in CLIENTS]
        for session, client in zip(self.sessions, CLIENTS, strict=True):
            self.store.put_subscription(session, "t/#", 1)
            self.now["subscription", client, "t/#"] = b"\1"
        for seq in range(1, IN_TABLE + 1):
            self.put(seq)
        self.commit()
        self.store.db.close()
        self.store = start(data)
        #: What was true after each commit in the log, beginning with none of them.
        self.history = [dict(self.now)]
        for seq in range(IN_TABLE + 1, IN_TABLE + 21):
            self.put(seq)
            self.remove(seq - IN_TABLE)
            self.commit()
            self.history.append(dict(self.now))
        self.store.db.close()

    def put(self, seq: int) -> None:
        """A message for each client, every fifth one for all of them together."""
        shared = Message(b"t/shared", self.payload(), 1, False)
        shared.share = True
        for index, client in enumerate(CLIENTS):
            own = Message(b"t/own", self.payload(), 1, False)
            delivery = Delivery(shared if seq % 5 == 0 else own, 1, False, "")
            delivery.seq = seq
            self.store.put_waiting(self.sessions[index], delivery)
            self.waiting[index, seq] = delivery
            self.now["waiting", client, str(seq)] = delivery.message.payload
        retained = Message(b"t/retained/%d" % seq, self.payload(), 1, True)
        self.store.put_retained(retained)
        self.now["retained", f"t/retained/{seq}", ""] = retained.payload

    def remove(self, seq: int) -> None:
        for index, client in enumerate(CLIENTS):
            self.store.remove_waiting(self.sessions[index], self.waiting.pop((index, seq)))
            del self.now["waiting", client, str(seq)]

    def commit(self) -> None:
        self.store.begin_commit()
        self.store.write()
        self.store.end_commit()
        self.ever.update(self.now)

    def payload(self) -> bytes:
        """Random bytes are not compressed, so that they can be found in the files."""
        return self.rng.randbytes(100)

    def file(self, pattern: str) -> Path:
        """The store's one file of this kind that is not empty."""
        (found,) = [each for each in self.folder.glob(pattern) if each.stat().st_size]
        return found

    @property
    def folder(self) -> Path:
        return self.data / "store"

    def copy(self, data: Path) -> Made:
        """The same in another folder, to be damaged."""
        made = Made.__new__(Made)
        made.__dict__.update(self.__dict__)
        made.data = data
        shutil.rmtree(data, ignore_errors=True)
        shutil.copytree(self.data, data)
        return made


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Made:
    return Made(tmp_path_factory.mktemp("whole") / "whole")


@pytest.fixture
def made(whole: Made) -> Made:
    """A store that a test may damage."""
    return whole.copy(whole.data.parent / "damaged")


def flip_payload(made: Made, key: tuple[str, str, str], pattern: str) -> None:
    """Damages one message where it lies in a file."""
    path = made.file(pattern)
    flip(path, path.read_bytes().index(made.ever[key]) + 50)


def test_the_undamaged_store_is_whole(made: Made) -> None:
    assert read(made.data) == made.now == made.history[-1]
    assert check(made.data).ok


def check_repaired(made: Made) -> Contents:
    """A repaired store can be read, fits together, and says nothing that was never true."""
    report = repair(made.data)
    assert report.ok, report.problems
    found = read(made.data)
    assert {key: made.ever.get(key) for key in found} == found
    assert report.queued == sum(key[0] == "waiting" for key in found)
    return found


@pytest.mark.parametrize("pattern", ("*.log", "*.ldb", "MANIFEST-*", "CURRENT"))
def test_a_flipped_bit_is_never_served(whole: Made, pattern: str) -> None:
    rng = random.Random(pattern)
    size = whole.file(pattern).stat().st_size
    refused = 0
    for _ in range(60):
        made = whole.copy(whole.data.parent / "damaged")
        position, bit = rng.randrange(size), rng.randrange(8)
        flip(made.file(pattern), position, 1 << bit)
        try:
            found = read(made.data)
        except UNREADABLE:
            refused += 1
        else:
            # Not used at all, or taken for the end of the log.
            assert found in made.history, f"bit {bit} of byte {position}"
    assert refused >= 40


def test_a_repair_loses_little_of_the_log(made: Made) -> None:
    """LevelDB gives up the rest of a block of 32 KiB, and reads on in the next."""
    flip_payload(made, ("retained", "t/retained/305", ""), "*.log")
    with pytest.raises(StoreError, match=r"is damaged \(Corruption: checksum mismatch\)"):
        read(made.data)
    assert check(made.data).problems == [
        "the database cannot be opened: Corruption: checksum mismatch"
    ]
    report = repair(made.data)
    assert report.ok
    assert any("lost of 0" in each and "dropping" in each for each in report.notes), report.notes
    found = read(made.data)
    assert ("retained", "t/retained/300", "") in found
    assert ("retained", "t/retained/305", "") not in found


def test_a_repair_does_not_believe_a_log_whose_checksum_is_wrong(made: Made) -> None:
    """LevelDB's own repair does: it would bring back the payload with its flipped bit."""
    key = ("waiting", "dev-0", "303")
    flip_payload(made, key, "*.log")
    assert key not in check_repaired(made)


def test_a_torn_log_is_cut_at_a_commit(whole: Made) -> None:
    """Whatever the length that reached the disk, the store is as it was after some commit."""
    rng = random.Random(1)
    size = whole.file("*.log").stat().st_size
    seen = set()
    for length in (*(rng.randrange(size) for _ in range(40)), size - 1, size - 8, 1):
        made = whole.copy(whole.data.parent / "damaged")
        with made.file("*.log").open("r+b") as file:
            file.truncate(length)
        found = read(made.data)
        assert found in made.history
        seen.add(made.history.index(found))
        assert check(made.data).ok
    assert len(seen) > 10


def refusal(data: Path) -> str:
    """Starts a broker that must not come up; returns the one line that says why."""
    with pytest.raises(BrokerStartError) as caught:
        BrokerProcess.start(data_dir=data).close()
    assert caught.value.returncode == 1
    (line,) = caught.value.stderr.splitlines()
    assert line.startswith("vmq: error: ")
    return line


def remove(pattern: str) -> Callable[[Made], None]:
    return lambda made: made.file(pattern).unlink()


@pytest.mark.parametrize(
    ("damage", "reason"),
    (
        (
            lambda made: flip_payload(made, ("waiting", "dev-0", "303"), "*.log"),
            "checksum mismatch",
        ),
        (remove("CURRENT"), "its file CURRENT is missing"),
        (remove("*.log"), "its log file is missing"),
        (remove("*.ldb"), ".ldb is missing"),
    ),
    ids=("log", "current-missing", "log-missing", "table-missing"),
)
def test_a_damaged_store_is_refused_until_it_is_repaired(
    made: Made, damage: Callable[[Made], None], reason: str
) -> None:
    damage(made)
    line = refusal(made.data)
    assert str(made.data) in line
    assert reason in line
    assert "vmq store repair" in line
    assert "b'" not in line
    assert repair(made.data).ok
    found = read(made.data)
    with BrokerProcess.start(data_dir=made.data) as broker, Wire.connect_tcp(broker.tcp) as wire:
        wire.connect("dev-0", clean=False)
        waiting = [key for key in found if key[:2] == ("waiting", "dev-0")]
        for key in sorted(waiting, key=lambda key: int(key[2])):
            received = wire.expect_publish()
            assert received.payload == found[key]
            wire.acknowledge(received)
        assert broker.terminate() == 0
