"""Whether a database is whole is seen by its files alone, and LevelDB is not let near one that is not."""

import os
import random
import shutil
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import plyvel
import pytest

from vmq.store.files import BLOCK, StoreFlawError, check_whole, masked_crc, read_version, records

MADE_BY = """
import os, sys, plyvel, random
db = plyvel.DB(sys.argv[1], create_if_missing=True, write_buffer_size=65536, max_file_size=1 << 20)
rng = random.Random(1)
for index in range(4000):
    db.put(b"%06d" % rng.randrange(3000), rng.randbytes(200))
if len(sys.argv) > 2:
    os.kill(os.getpid(), 9)
db.close()
"""


def make(folder: Path, *kill: str) -> Path:
    subprocess.run([sys.executable, "-c", MADE_BY, str(folder), *kill], check=False, timeout=60)
    return folder


@pytest.fixture(scope="module")
def original(memory: Path) -> Path:
    """Tables on several levels, and a log: the process that wrote it was killed."""
    return make(memory / "original", "kill")


def manifest(folder: Path) -> Path:
    return folder / (folder / "CURRENT").read_text().strip()


def tables(folder: Path) -> list[Path]:
    """Those that belong to it: a killed process leaves others behind."""
    return sorted(folder / f"{number:06}.ldb" for number in read_version(folder).tables)


def read_all(folder: Path) -> dict[bytes, bytes]:
    with closing(plyvel.DB(str(folder), paranoid_checks=True)) as db:
        return dict(db.iterator(verify_checksums=True))


def test_a_killed_process_leaves_a_whole_database(original: Path, folder: Path) -> None:
    check_whole(original)
    assert len(read_all(folder)) > 2000
    check_whole(folder)


def test_a_closed_database_is_whole(memory: Path) -> None:
    check_whole(make(memory / "closed"))


def test_a_database_after_leveldbs_own_repair_is_whole(folder: Path) -> None:
    before = read_all(folder)
    plyvel.repair_db(str(folder))
    check_whole(folder)
    assert read_all(folder).keys() >= before.keys()


def test_the_tables_are_those_of_the_folder(folder: Path) -> None:
    version = read_version(folder)
    assert len(version.tables) > 1
    for number, table in version.tables.items():
        assert (folder / f"{number:06}.ldb").stat().st_size == table.size
        assert len(table.first) == len(table.last) == 6
        assert table.first <= table.last


def test_wherever_the_manifest_was_cut_nothing_is_lost(original: Path, memory: Path) -> None:
    """It is seen, or the files that it names are the whole database all the same."""
    before = read_all(Path(shutil.copytree(original, memory / "whole")))
    size = manifest(original).stat().st_size
    seen = 0
    rng = random.Random(1)
    lengths = [size * percent // 100 for percent in range(50, 100, 10)]
    for length in [0, 6, 7, size - 1, *lengths, *(rng.randrange(size) for _ in range(60))]:
        shutil.rmtree(memory / "copy", ignore_errors=True)
        copy = Path(shutil.copytree(original, memory / "copy"))
        os.truncate(manifest(copy), length)
        try:
            check_whole(copy)
        except StoreFlawError:
            seen += 1
        else:
            assert read_all(copy) == before
    assert seen > 40


def test_a_flipped_bit_in_the_manifest_is_seen(original: Path, folder: Path) -> None:
    raw = manifest(original).read_bytes()
    rng = random.Random(2)
    for _ in range(60):
        position = rng.randrange(len(raw))
        flipped = (
            raw[:position] + bytes([raw[position] ^ 1 << rng.randrange(8)]) + raw[position + 1 :]
        )
        manifest(folder).write_bytes(flipped)
        with pytest.raises(StoreFlawError):
            check_whole(folder)


def test_each_missing_table_is_named(original: Path, folder: Path) -> None:
    for each in [folder / each.name for each in tables(original)]:
        raw = each.read_bytes()
        each.unlink()
        with pytest.raises(StoreFlawError, match=f"its file {each.name} is missing"):
            check_whole(folder)
        each.write_bytes(raw[:-1])
        with pytest.raises(
            StoreFlawError, match=f"its file {each.name} has {len(raw) - 1} bytes of"
        ):
            check_whole(folder)
        each.write_bytes(raw)
    check_whole(folder)


def test_missing_tables_are_counted(folder: Path) -> None:
    first, *others = tables(folder)
    for each in (first, *others):
        each.unlink()
    with pytest.raises(
        StoreFlawError, match=f"{first.name} and {len(others)} more tables are missing"
    ):
        check_whole(folder)


def test_other_missing_files_are_named(folder: Path) -> None:
    log = folder / f"{read_version(folder).log:06}.log"
    log.rename(folder / "aside")
    with pytest.raises(StoreFlawError, match=f"its log file is missing: {log.name}"):
        check_whole(folder)
    (folder / "aside").rename(log)
    name = manifest(folder).name
    manifest(folder).unlink()
    with pytest.raises(StoreFlawError, match=f"its file {name} is missing"):
        check_whole(folder)


@pytest.mark.parametrize(
    "text", (b"", b"\n", b"MANIFEST-000009", b"LOG\n", b"\xff\n", b"MANIFEST-x\n")
)
def test_a_current_that_names_no_manifest_is_seen(folder: Path, text: bytes) -> None:
    (folder / "CURRENT").write_bytes(text)
    with pytest.raises(StoreFlawError, match="its file CURRENT does not name a MANIFEST"):
        check_whole(folder)


def test_the_manifest_of_an_empty_database_is_not_believed(folder: Path, tmp_path: Path) -> None:
    """LevelDB would delete every table."""
    edit = b"\2\0\3\2\4\0"
    head = masked_crc(b"\1" + edit).to_bytes(4, "little") + bytes((len(edit), 0))
    manifest(folder).write_bytes(head + b"\1" + edit)
    with pytest.raises(StoreFlawError, match="that of an empty database, and there are files"):
        check_whole(folder)


# Records of a log


def framed(*parts: tuple[int, bytes]) -> bytes:
    raw = b""
    for kind, body in parts:
        data = bytes([kind]) + body
        raw += masked_crc(data).to_bytes(4, "little") + len(body).to_bytes(2, "little") + data
    return raw


def test_records_in_parts_and_over_blocks() -> None:
    first = framed((1, b"one"))
    rest = BLOCK - len(first) - 7
    raw = first + framed((2, b"a" * rest), (3, b"b" * (BLOCK - 7)), (4, b"c"), (1, b"last"))
    assert list(records(raw, "x")) == [b"one", b"a" * rest + b"b" * (BLOCK - 7) + b"c", b"last"]
    # A part whose first record was lost with a writer that began anew.
    assert list(records(framed((2, b"lost"), (1, b"kept")), "x")) == [b"kept"]


def test_the_end_of_a_block_too_small_for_a_record_is_passed_over() -> None:
    first = framed((1, b"a" * (BLOCK - 7 - 5)))
    found = [len(each) for each in records(first + bytes(5) + framed((1, b"b")), "x")]
    assert found == [BLOCK - 12, 1]


def test_zeros_and_torn_records_end_a_log() -> None:
    raw = framed((1, b"one"))
    assert list(records(raw + bytes(100), "x")) == [b"one"]
    for length in range(1, len(raw)):
        assert list(records(raw + raw[:length], "x")) == [b"one"]


@pytest.mark.parametrize("damaged", (framed((9, b"x")), b"abcd" + framed((1, b"x"))[4:]))
def test_a_damaged_record_is_named(damaged: bytes) -> None:
    with pytest.raises(StoreFlawError, match="its file x is damaged at byte 10"):
        list(records(framed((1, b"one")) + damaged, "x"))
