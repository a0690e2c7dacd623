"""Files of a store are cut, deleted and flipped: what is intact in the others survives whatever is run.

The oracle is LevelDB's own view of each file before the damage: a record whose every version lies in other files, and
that of the session it belongs to, has to be there after the repair.
"""

import hashlib
import os
import random
import shutil
import tempfile
from contextlib import closing, suppress
from pathlib import Path

import plyvel
import pytest

from tests.attacks.size import size
from tests.vmq.test_store_model import commit
from vmq.mqtt.message import Delivery, Message
from vmq.store.lines import is_end
from vmq.store.opening import open_store
from vmq.store.store import Store, StoreError
from vmq.store.tools import check, repair

Records = dict[bytes, bytes]

CLIENTS = 12
#: Each run of the broker leaves a table of what it has written; the last one a log.
RUNS = 4


def deliver(store: Store, sessions: list[bytes], seq: int, rng: random.Random) -> None:
    """A message for each, every fourth one for all of them together."""
    shared = Message(b"t/shared", rng.randbytes(100), 1, False)
    shared.share = True
    for session in sessions:
        message = shared if seq % 4 == 0 else Message(b"t/own", rng.randbytes(100), 1, False)
        delivery = Delivery(message, 1, False, "")
        delivery.seq = seq
        store.put_waiting(session, delivery)


def make(data: Path) -> None:
    rng = random.Random(1)
    sessions: list[bytes] = []
    for life in range(RUNS):
        store = open_store(data / "store", "os", lambda: None, write_buffer_size=1 << 16)
        for number in range(len(sessions), CLIENTS * (life + 1) // RUNS):
            sessions.append(number_of := (number + 1).to_bytes(8, "big"))
            store.put_session(f"dev-{number}", number_of, 1, None)
            store.end_lines(number_of)
            store.put_subscription(number_of, "t/#", 1)
        for seq in range(life * 40 + 1, life * 40 + 41):
            deliver(store, sessions, seq, rng)
            store.put_retained(Message(b"t/%d" % seq, rng.randbytes(50), 1, True))
            commit(store)
        store.db.close()


def raw(folder: Path) -> Records:
    """What LevelDB finds in a copy of a database, apart from what a repair or a start makes anew."""
    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        copy = Path(shutil.copytree(folder, Path(scratch) / "copy"))
        with closing(plyvel.DB(str(copy), paranoid_checks=True)) as db:
            found = dict(db.iterator(verify_checksums=True))
            return {key: found[key] for key in found if key[:1] != b"b" and not is_end(key)}


def keys_in(path: Path) -> set[bytes]:
    with tempfile.TemporaryDirectory(dir=path.parents[2]) as scratch:
        shutil.copy(path, scratch)
        if path.suffix == ".ldb":
            plyvel.repair_db(scratch)
        with closing(plyvel.DB(scratch, create_if_missing=True)) as db:
            return set(db.iterator(include_value=False))


class Made:
    """A store, what is in it, and in which of its files."""

    def __init__(self, data: Path) -> None:
        make(data)
        self.data = data
        self.folder = data / "store"
        self.records = raw(self.folder)
        files = [*self.folder.glob("*.ldb"), *self.folder.glob("*.log")]
        self.keys = {each.name: keys_in(each) for each in files}

    def copy(self) -> Path:
        target = self.data.with_name("damaged")
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(self.data, target)
        return target

    def intact(self, damaged: str) -> Records:
        """The records that need nothing of a file: neither they themselves, nor their session or message."""
        gone = self.keys.get(damaged, set())
        named = {
            value[:8] for key, value in self.records.items() if key[:1] == b"s" and key not in gone
        }
        found = {}
        for key, value in self.records.items():
            if key in gone:
                continue
            if key[:1] in b"qu" and key[1:9] not in named:
                continue
            if key[:1] == b"q" and value and value[0] & 8 and b"m" + value[3:11] in gone:
                continue
            if key[:1] in b"qursv":
                found[key] = value
        return found


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    return Made(tmp_path_factory.mktemp("made") / "whole")


def hurt(folder: Path, rng: random.Random) -> tuple[Path, str]:
    """Does something to one file of a database; returns which, and what."""
    files = sorted(
        each for each in folder.iterdir() if each.stat().st_size and not each.name.startswith("LO")
    )
    kinds = sorted({each.name.split("-")[0].rpartition(".")[2] for each in files})
    kind = rng.choice(kinds)
    path = rng.choice([each for each in files if kind in each.name])
    length = path.stat().st_size
    what = rng.choice(("cut", "deleted", "flipped"))
    if what == "cut":
        left = length * rng.randrange(0, 10) // 10
        os.truncate(path, left)
        what = f"cut to {left} of {length} bytes"
    elif what == "deleted":
        path.unlink()
    else:
        data = bytearray(path.read_bytes())
        for _ in range(3):
            data[rng.randrange(length)] ^= 1 << rng.randrange(8)
        path.write_bytes(data)
    return path, what


def fingerprint(folder: Path) -> dict[str, str]:
    """Every file that matters."""
    return {
        each.name: hashlib.sha256(each.read_bytes()).hexdigest()
        for each in folder.iterdir()
        if not each.name.startswith("LO")
    }


@pytest.mark.parametrize("seed", range(size(8, 1000)))
def test_what_is_intact_in_other_files_is_never_lost(made: Made, seed: int) -> None:
    rng = random.Random(seed)
    data = made.copy()
    path, what = hurt(data / "store", rng)
    before = fingerprint(data / "store")
    check(data)
    assert fingerprint(data / "store") == before, "a check changed the store"
    if rng.random() < 0.5:
        # A broker that takes a torn log for what it is writes to the store; whatever it misses it leaves alone.
        with suppress(StoreError):
            open_store(data / "store", "os", lambda: None).db.close()
    report = repair(data)
    assert report.ok, report.problems
    found = raw(data / "store")
    wanted = made.intact(path.name)
    lost = wanted.keys() - found.keys()
    assert not lost, f"{path.name} {what}: {len(lost)} of {len(wanted)} lost, such as {min(lost)!r}"
    for key in found.keys() & made.records.keys():
        if key[:1] in b"qrs":
            assert found[key] == made.records[key]
