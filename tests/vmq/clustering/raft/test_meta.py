"""What is decided follows from the log, also where an unclean election has taken some of it back."""

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock, patch

import pyarrow as pa

from vmq.clustering.raft.cursors import CursorLog
from vmq.clustering.raft.meta import MetaDecisions, MetaGroup
from vmq.streams.groups.records import GroupKey, PutPlace, encode_row
from vmq_cluster.raft.members import Members
from vmq_cluster.raft.meta import MakeStream, SetHosts, encode


class Log:
    """Rows of a group's log, as its reader gives them."""

    earliest = 0

    def __init__(self, *rows: bytes) -> None:
        self.rows = rows

    @property
    def end(self) -> int:
        return len(self.rows)

    def read(self, first: int, end: int) -> Iterator[SimpleNamespace]:
        offsets = range(first, end)
        columns = [pa.array(self.rows[first:end], pa.binary()), pa.array(offsets, pa.int64())]
        yield SimpleNamespace(rows=pa.RecordBatch.from_arrays(columns, ["payload", "offset"]))


def look(log: MetaGroup | CursorLog, rows: Log, unclean: int) -> None:
    """Has it look at a log, the last unclean election of which was in this term."""
    state = SimpleNamespace(last_unclean=(0, unclean))
    replica = SimpleNamespace(state=state, commit=rows.end, members=Members(("a",)))
    group = SimpleNamespace(leading=None, replica=replica)
    thread = Mock(opened={log.name: Mock(group=group)})
    with (
        patch.object(log, "_thread", thread),
        patch.object(log, "_partition", rows),
        patch.object(log, "_reader", rows),
    ):
        log.look()


def test_what_an_unclean_election_took_back_is_decided_no_more(tmp_path: Path) -> None:
    told: list[MetaDecisions] = []
    meta = MetaGroup(Mock(), tmp_path, "meta/x", told.append)
    hosts = encode(SetHosts(("a",)))
    look(meta, Log(hosts, encode(MakeStream("s", "1", 1, 1))), 0)
    look(meta, Log(hosts, encode(MakeStream("t", "2", 1, 1))), 7)
    assert [each.streams for each in told] == [{"s": ("1", 1, 1)}, {"t": ("2", 1, 1)}]
    assert told[-1].gone == [("s", "1", 1)]


def test_what_an_unclean_election_took_back_of_consumer_groups_is_their_place_no_more(
    tmp_path: Path,
) -> None:
    cursors = CursorLog(Mock(), tmp_path, "cursors/x", Mock(), Mock())
    for term, group in ((0, "g"), (7, "h")):
        look(cursors, Log(encode_row(PutPlace(group, "s", 1, [], [], []))), term)
        assert [*cursors._kept.places] == [GroupKey(group, "s")]
