"""Batches of a group's log as Arrow messages: nothing is lost on the way, and no flipped bit passes."""

from pathlib import Path
from random import Random

import msgspec
import pyarrow as pa
import pytest

from tests.vmq.streams.replica.support import Leader, partition_in
from vmq.streams.log.frame import BadFrameError, check, parse
from vmq.streams.replica.batches import batch_of, check_batches
from vmq_cluster.errors import MalformedError
from vmq_cluster.raft.messages import BLANK, COMPACT, HOLE, MEMBERS, RETIRED, STATE, UNCLEAN, Batch


def some(folder: Path) -> tuple[list[Batch], list[bytes]]:
    partition = partition_in(folder)
    log = partition.open()
    leader = Leader(log)
    batches = leader.begin() + leader.control() + leader.rows(5) + leader.rows(1)
    messages = [log._codec.message(each) for each in batches]
    partition.shut()
    return batches, messages


def test_what_is_written_is_what_was_made(tmp_path: Path) -> None:
    batches, messages = some(tmp_path)
    check_batches(batches)
    for batch, raw in zip(batches, messages, strict=True):
        view = memoryview(raw)
        frame = parse(view, 0)
        assert frame is not None
        check(view, 0, frame)
        assert batch_of(frame, raw) == batch
        assert frame.end == batch.end


def test_any_arrow_library_reads_the_file(tmp_path: Path) -> None:
    some(tmp_path)
    [path] = tmp_path.glob("*.arrows")
    with pa.ipc.open_stream(path.read_bytes()) as reader:
        assert reader.read_all().num_rows == 6


def test_no_flipped_bit_of_a_peer_passes(tmp_path: Path) -> None:
    batches, _ = some(tmp_path)
    random = Random(1)
    rows = batches[-2]
    for _ in range(300):
        body = bytearray(rows.body)
        body[random.randrange(len(body))] ^= 1 << random.randrange(8)
        with pytest.raises(BadFrameError):
            check_batches([msgspec.structs.replace(rows, body=bytes(body))])


def test_a_control_batch_of_a_peer_can_be_taken_into_the_logs_state(tmp_path: Path) -> None:
    batches, _ = some(tmp_path)
    for kind in (MEMBERS, STATE, UNCLEAN, RETIRED, COMPACT, HOLE, BLANK):
        with pytest.raises(MalformedError):
            check_batches([msgspec.structs.replace(batches[0], kind=kind, body=b"\x93")])
    with pytest.raises(MalformedError):
        check_batches([msgspec.structs.replace(batches[0], span=2)])


@pytest.mark.parametrize(
    "change", [{"offset": 3}, {"span": 6}, {"term": 2}, {"marks": ()}, {"body": b""}]
)
def test_a_batch_says_of_itself_what_its_message_does(
    tmp_path: Path, change: dict[str, object]
) -> None:
    batches, _ = some(tmp_path)
    with pytest.raises(BadFrameError):
        check_batches([msgspec.structs.replace(batches[-2], **change)])
