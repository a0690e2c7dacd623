"""Damaged blocks of tables are found with the keys that they may have, and blanked so that LevelDB goes on."""

import random
from contextlib import closing
from itertools import pairwise
from pathlib import Path

import plyvel
import pyarrow as pa
import pytest

from tests.support.flipped import flip
from vmq.store.damage import Damage, LostKeys
from vmq.store.files import KEY_TAIL, LiveTable, read_version
from vmq.store.lines import END
from vmq.store.tables import TableError, bad_blocks, blank, blocks_of, contents, entries, unsnappy

RECORDS = 2000


def value(index: int) -> bytes:
    """Half of it can be compressed."""
    return b"x" * 60 + random.Random(index).randbytes(60)


@pytest.fixture(scope="module", params=["snappy", None], ids=["snappy", "plain"])
def original(memory: Path, request: pytest.FixtureRequest) -> Path:
    folder = memory / f"original-{request.param}"
    with closing(plyvel.DB(str(folder), create_if_missing=True)) as db:
        for index in range(RECORDS):
            db.put(b"key-%06d" % index, value(index))
    # Opening it brings what is in the log to a table.
    plyvel.DB(str(folder), compression=request.param).close()
    return folder


def the_table(folder: Path) -> tuple[Path, LiveTable]:
    ((number, table),) = read_version(folder).tables.items()
    return folder / f"{number:06}.ldb", table


def read_all(folder: Path) -> dict[bytes, bytes]:
    with closing(plyvel.DB(str(folder), paranoid_checks=True)) as db:
        found = dict(db.iterator(verify_checksums=True))
        db.compact_range()  # LevelDB reads and writes everything
        assert dict(db.iterator(verify_checksums=True)) == found
        return found


def test_a_whole_table_has_no_bad_block(folder: Path) -> None:
    path, table = the_table(folder)
    assert bad_blocks(path, table) == []
    blocks = list(blocks_of(path.read_bytes(), table))
    assert len(blocks) > 20
    assert blocks[0].first == b"key-000000"
    assert blocks[-1].last >= b"key-%06d" % (RECORDS - 1)
    assert all(a.last < b.first for a, b in pairwise(blocks))


@pytest.mark.parametrize("seed", range(4))
def test_only_what_a_damaged_block_had_is_lost(folder: Path, seed: int) -> None:
    rng = random.Random(seed)
    path, table = the_table(folder)
    raw = bytearray(path.read_bytes())
    blocks = list(blocks_of(bytes(raw), table))
    hurt = rng.sample(blocks, 2)
    for block in hurt:
        raw[rng.randrange(block.offset, block.offset + block.size + 5)] ^= 1 << rng.randrange(8)
    path.write_bytes(raw)
    found = bad_blocks(path, table)
    assert sorted(found) == sorted(hurt)
    for block in found:
        blank(path, block)
    assert path.stat().st_size == len(raw)
    assert bad_blocks(path, table) == []
    left = read_all(folder)
    for index in range(RECORDS):
        key = b"key-%06d" % index
        is_lost = any(block.first <= key <= block.last for block in hurt)
        assert left.get(key) == (None if is_lost else value(index))
    assert len(left) > RECORDS // 2


@pytest.mark.parametrize("back", (1, 20, 40, 47, 60, 200))
def test_a_table_whose_index_is_damaged_is_blanked_whole(folder: Path, back: int) -> None:
    path, table = the_table(folder)
    flip(path, -back, 255)
    size = path.stat().st_size
    found = bad_blocks(path, table)
    if not found:  # of no use: the index of filters, or padding
        assert len(read_all(folder)) == RECORDS
        return
    (block,) = found
    assert (block.offset, block.size) == (0, size)
    assert (block.first, block.last) == (b"key-000000", b"key-%06d" % (RECORDS - 1))
    blank(path, block)
    assert path.stat().st_size == size
    assert read_all(folder) == {}


def test_a_block_is_not_thought_to_have_keys_that_lie_between_it_and_the_next(memory: Path) -> None:
    """Records of the sessions with odd numbers would be in other tables."""
    folder = memory / "sparse"
    keys = [
        b"q" + session.to_bytes(8, "big") + seq.to_bytes(8, "big")
        for session in range(2, 400, 2)
        for seq in range(1, 30)
    ] + [b"q" + session.to_bytes(8, "big") + END for session in range(2, 400, 2)]
    with closing(plyvel.DB(str(folder), create_if_missing=True)) as db:
        for index, key in enumerate(sorted(keys)):
            db.put(key, value(index))
    plyvel.DB(str(folder), compression=None).close()
    path, table = the_table(folder)
    raw = path.read_bytes()
    between = 0
    for block in blocks_of(raw, table):
        inside = [key[:-KEY_TAIL] for key, _ in entries(contents(raw, block.offset, block.size))]
        assert block.first <= inside[0]
        assert inside[-1] <= block.last
        low, high = (int.from_bytes(key[1:9], "big") for key in (inside[0], inside[-1]))
        damage = Damage([LostKeys(path.name, block.first, block.last)])
        assert damage.numbers == [(low, high)]
        between += inside[0][9:] == (1).to_bytes(8, "big")
        assert not damage.touches(b"r")
    assert between > 5  # blocks that begin with a session, as those before end with one


def test_an_open_database_reads_what_was_blanked(folder: Path) -> None:
    """Its reader of the table stays."""
    path, table = the_table(folder)
    raw = bytearray(path.read_bytes())
    block = list(blocks_of(bytes(raw), table))[5]
    raw[block.offset + 3] ^= 1
    with closing(plyvel.DB(str(folder), paranoid_checks=True)) as db:
        assert db.get(b"key-000000") == value(0)
        path.write_bytes(raw)
        with pytest.raises(plyvel.CorruptionError):
            db.get(block.last, verify_checksums=True)
        blank(path, block)
        assert db.get(block.last, verify_checksums=True) is None
        assert db.get(b"key-000000") == value(0)


def test_what_is_no_table_has_no_blocks(folder: Path) -> None:
    _, table = the_table(folder)
    for raw in (b"", bytes(100), bytes(40) + b"\x57\xfb\x80\x8b\x24\x75\x47\xdb"):
        with pytest.raises(TableError):
            list(blocks_of(raw, table))


@pytest.mark.parametrize("length", (0, 1, 59, 60, 61, 300, 70_000))
def test_what_was_compressed_comes_back(length: int) -> None:
    rng = random.Random(length)
    for data in (
        bytes(length),
        rng.randbytes(length),
        b"".join(rng.choice((b"one", b"two", rng.randbytes(5))) for _ in range(length // 3)),
    ):
        assert unsnappy(pa.compress(data, codec="snappy", asbytes=True)) == data


@pytest.mark.parametrize("raw", (b"\5\x00", b"\1\x01\x05", b"\2\x00a", b"\5\xf0", b"\xff"))
def test_what_was_not_is_refused(raw: bytes) -> None:
    with pytest.raises((IndexError, ValueError)):
        unsnappy(raw)
