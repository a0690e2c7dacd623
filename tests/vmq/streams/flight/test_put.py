import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import flight

from tests.vmq.streams.flight_support import Running
from tests.vmq.streams.support import options, plain, read_all
from vmq.streams.flight import put as flight_put
from vmq.streams.flight.access import Anybody
from vmq.streams.flight.put import BadPutError, Put


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Running]:
    running = Running(tmp_path / "streams", s=options(filters=["a/+"], partitions=2))
    yield running
    running.close()


@pytest.fixture
def put(running: Running) -> Put:
    catalog = running.catalog
    return Put(catalog.get("s"), catalog.commits.writer, Anybody(), "ann")


class UpToTen(Anybody):
    def longest_payload(self) -> int:
        return 10


def test_a_payload_above_max_message_size_appends_nothing(running: Running) -> None:
    catalog = running.catalog
    put = Put(catalog.get("s"), catalog.commits.writer, UpToTen(), "ann")
    rows = pa.record_batch({"topic": ["a/1", "a/1"], "payload": [b"x" * 10, b"x" * 11]})
    with pytest.raises(BadPutError, match="at most 10 bytes"):
        put.append(rows)
    assert not any(read_all(each) for each in catalog.get("s").partitions)
    put.append(pa.record_batch({"topic": ["a/1"], "payload": [b"x" * 10]}))


def test_rows_keep_what_they_bring_and_get_what_they_lack(running: Running, put: Put) -> None:
    headers = [[{"key": "k", "value": "v"}], []]
    batch = pa.record_batch(
        {
            "topic": ["a/1", "a/2"],
            "payload": [b"1", None],
            "qos": [2, None],
            "client_id": ["dev", None],
            "headers": headers,
            "retain": [True, None],
        }
    )
    put.append(batch)
    rows = [row for each in running.catalog.get("s").partitions for row in read_all(each)]
    for row in rows:
        assert row.pop("timestamp") > 1_700_000_000_000_000
    assert sorted(rows, key=lambda row: str(row["topic"])) == [
        {
            "topic": "a/1",
            "payload": b"1",
            "qos": 2,
            "retain": True,
            "client_id": "dev",
            "key": b"dev",
            "headers": headers[0],
        },
        {
            "topic": "a/2",
            "payload": b"",
            "qos": 0,
            "retain": False,
            "client_id": "ann",
            "key": b"ann",
            "headers": [],
        },
    ]


def test_rows_without_options_are_complete(running: Running, put: Put) -> None:
    put.append(pa.record_batch({"topic": ["a/1"] * 3, "payload": ["text"] * 3}))
    put.append(
        pa.record_batch({"topic": pa.array([], pa.string()), "payload": pa.array([], pa.binary())})
    )
    partitions = running.catalog.get("s").partitions
    assert [each.end for each in partitions] in ([3, 0], [0, 3])
    rows = put.rows(pa.record_batch({"topic": ["a/1"], "payload": [b"1"]}), 5)
    rows.validate(full=True)
    assert plain(rows)[0]["timestamp"] == 5


@pytest.mark.parametrize(
    ("columns", "text"),
    [
        ({"topic": ["a/1"]}, "the columns are topic; accepted: topic (string), payload"),
        (
            {"topic": ["a/1"], "payload": [b""], "offset": [5]},
            "the columns are topic, payload, off",
        ),
        ({"topic": [""], "payload": [b""]}, "'' is no topic name"),
        ({"topic": [None], "payload": [b""]}, "'' is no topic name"),
        ({"topic": ["a/+"], "payload": [b""]}, "'a/+' is no topic name"),
        ({"topic": ["a/\0"], "payload": [b""]}, "is no topic name"),
        ({"topic": ["b"], "payload": [b""]}, "'b' is not of stream 's'; accepted: a/+"),
        ({"topic": ["a/" + "x" * 70_000], "payload": [b""]}, "a topic is too long"),
        ({"topic": [b"a/\xff"], "payload": [b""]}, "column topic: "),
        ({"topic": ["a/1"], "payload": [5]}, "column payload: "),
        ({"topic": ["a/1"], "payload": [b""], "qos": [3]}, "a qos that is none; accepted: 0, 1, 2"),
        ({"topic": ["a/1"], "payload": [b""], "qos": ["x"]}, "column qos: "),
        ({"topic": ["a/1"], "payload": [b""], "headers": [5]}, "column headers: "),
    ],
)
def test_rows_that_cannot_be_used_are_refused_whole(
    running: Running, put: Put, columns: dict[str, list[Any]], text: str
) -> None:
    with pytest.raises(BadPutError) as caught:
        put.append(pa.record_batch(columns))
    assert text in str(caught.value)
    assert all(each.end == 0 for each in running.catalog.get("s").partitions)


def test_a_batch_has_a_limit(put: Put, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flight_put, "LARGEST", 1000)
    with pytest.raises(BadPutError, match="accepted: at most 1000"):
        put.append(pa.record_batch({"topic": ["a/1"], "payload": [bytes(1000)]}))


def test_a_disk_that_takes_too_long_is_said(
    running: Running, put: Put, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flight_put, "PATIENCE", 0.01)
    go_on = threading.Event()
    busy = running.catalog.commits.writer.call(lambda: go_on.wait(30))
    with pytest.raises(flight.FlightUnavailableError, match="the disk does not take the rows"):
        put.append(pa.record_batch({"topic": ["a/1"], "payload": [b"1"]}))
    go_on.set()
    assert busy.result(30)
