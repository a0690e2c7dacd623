import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import flight

from tests.support.until import reach
from tests.vmq.streams.flight_support import FACES, Running, act, code_of, serving, ticket
from tests.vmq.streams.support import options
from vmq.streams.flight import calls
from vmq.streams.flight.front import Front
from vmq.streams.flight.service import StreamServer
from vmq.streams.flight.tickets import LONGEST
from vmq.streams.log.errors import StreamError
from vmq.streams.log.schema import READ


@pytest.fixture(scope="module", params=FACES)
def face(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory, face: str) -> Iterator[Running]:
    running = Running(
        tmp_path_factory.mktemp("streams"),
        temp=options(filters=["sensors/#"], partitions=3, key="topic"),
        other=options(filters=["other/+"]),
    )
    for number in range(30):
        running.append(f"sensors/{number % 5}", b"%d" % number, at=1000 + number)
    yield running
    running.close()


@pytest.fixture(scope="module")
def server(running: Running, face: str) -> Iterator[StreamServer | Front]:
    with serving(face, running, most_calls=4) as server:
        yield server


@pytest.fixture
def client(server: StreamServer | Front) -> Iterator[flight.FlightClient]:
    with flight.connect(("127.0.0.1", server.port)) as client:
        yield client


def get(client: flight.FlightClient, stream: str, **fields: Any) -> pa.Table:
    return client.do_get(ticket(stream, **fields)).read_all()


def test_streams_are_listed_with_an_endpoint_for_each_partition(
    client: flight.FlightClient,
) -> None:
    infos = list(client.list_flights())
    assert [info.descriptor.path for info in infos] == [[b"other"], [b"temp"]]
    (info,) = client.list_flights(b"te")
    assert info.schema.equals(READ)
    assert (info.total_records, len(info.endpoints)) == (30, 3)
    assert info.total_bytes > 1000
    assert info.endpoints[0].locations == []


def test_what_the_endpoints_give_is_everything_once(client: flight.FlightClient) -> None:
    info = client.get_flight_info(flight.FlightDescriptor.for_path("temp"))
    tables = [client.do_get(endpoint.ticket).read_all() for endpoint in info.endpoints]
    table = pa.concat_tables(tables)
    assert table.schema.equals(READ)
    assert sorted(int(each) for each in table.column("payload").to_pylist()) == list(range(30))
    for number, part in enumerate(tables):
        assert set(part.column("partition").to_pylist()) <= {number}
        assert part.column("offset").to_pylist() == list(range(part.num_rows))
        by_topic: dict[str, int] = {}
        for each in part.to_pylist():
            assert by_topic.get(each["topic"], -1) < int(each["payload"])
            by_topic[each["topic"]] = int(each["payload"])


def test_a_ticket_may_say_of_which_stream_its_offsets_are(client: flight.FlightClient) -> None:
    """The endpoints' do: of a stream that is made anew they are refused."""
    ids = act(client, "ids")
    assert ids.keys() == act(client, "streams").keys()
    info = client.get_flight_info(flight.FlightDescriptor.for_path("temp"))
    assert {json.loads(each.ticket.ticket)["stream_id"] for each in info.endpoints} == {ids["temp"]}
    found = client.do_get(ticket("temp", stream_id=ids["temp"])).read_all()
    assert found == client.do_get(ticket("temp")).read_all()
    with pytest.raises(flight.FlightError, match="'temp' was deleted and made anew") as caught:
        client.do_get(ticket("temp", stream_id="another")).read_all()
    assert code_of(caught.value) == "recreated"


def test_a_command_carries_columns_filter_and_limit_to_the_endpoints(
    client: flight.FlightClient,
) -> None:
    command = {"stream": "temp", "columns": ["offset", "topic"], "filter": "+/3", "limit": 2}
    descriptor = flight.FlightDescriptor.for_command(json.dumps(command).encode())
    info = client.get_flight_info(descriptor)
    assert info.schema.names == ["offset", "topic"]
    rows = [
        each
        for endpoint in info.endpoints
        for each in client.do_get(endpoint.ticket).read_all().to_pylist()
    ]
    assert [each["topic"] for each in rows] == ["sensors/3"] * 2


def test_batches_say_where_to_read_on(client: flight.FlightClient) -> None:
    reader = client.do_get(ticket("temp", partition=0, filter="nothing"))
    chunk = reader.read_chunk()
    assert chunk.data.num_rows == 0
    ends = act(client, "latest", stream="temp")
    assert json.loads(chunk.app_metadata.to_pybytes()) == {"next": ends["0"]}


def test_offsets_by_action(client: flight.FlightClient) -> None:
    ends = act(client, "latest", stream="temp")
    assert sum(ends.values()) == 30
    assert act(client, "earliest", stream="temp") == {"0": 0, "1": 0, "2": 0}
    at = act(client, "by-timestamp", stream="temp", time=1015)
    for number in range(3):
        rows = get(client, "temp", partition=number).to_pylist()
        older = [each for each in rows if int(each["payload"]) < 15]
        assert at[str(number)] == len(older)
    assert act(client, "by-timestamp", stream="temp", time=1 << 60) == ends
    assert {each.type for each in client.list_actions()} == {
        "streams",
        "publish",
        "discard",
        "earliest",
        "latest",
        "by-timestamp",
        "file",
        "group-join",
        "group-beat",
        "group-publish",
        "group-leave",
        "ids",
    }


def test_rows_that_are_put_are_durable_when_the_answer_comes(
    running: Running, client: flight.FlightClient
) -> None:
    before = act(client, "latest", stream="temp")
    rows = pa.table({"topic": [f"sensors/{n}" for n in range(9)], "payload": [b"put"] * 9})
    writer, answers = client.do_put(flight.FlightDescriptor.for_path("temp"), rows.schema)
    with writer:
        writer.write_table(rows)
        assert json.loads(answers.read().to_pybytes()) == {"rows": 9}
        ends = act(client, "latest", stream="temp")
        assert sum(ends.values()) == sum(before.values()) + 9
        writer.done_writing()
    found = []
    for number in range(3):
        part = get(client, "temp", partition=number, start=before[str(number)]).to_pylist()
        keys = running.catalog.get("temp").appender.keys
        assert all(keys.partition(each["key"]) == number for each in part)
        found += part
    assert sorted(each["topic"] for each in found) == rows.column("topic").to_pylist()
    one = found[0]
    assert (one["qos"], one["retain"], one["client_id"], one["headers"]) == (0, False, "", [])
    assert one["key"] == one["topic"].encode()
    assert abs(one["timestamp"].timestamp() - time.time()) < 600


def test_waiting_gets_and_offsets_end_with_a_row(
    running: Running, client: flight.FlightClient
) -> None:
    end = act(client, "latest", stream="other")["0"]
    stream = running.catalog.get("other")
    for how in ("get", "latest"):
        answers: list[Any] = []

        def ask(how: str = how, end: int = end, answers: list[Any] = answers) -> None:
            if how == "get":
                answers.append(get(client, "other", start=end, wait=30).num_rows)
            else:
                answers.append(act(client, "latest", stream="other", after={0: end}, wait=30))

        thread = threading.Thread(target=ask)
        thread.start()
        reach(lambda: stream.watchers)
        running.append("other/x", b"1")
        thread.join(30)
        assert answers == [1] if how == "get" else [{"0": end + 1}]
        end += 1
    assert get(client, "other", start=end, wait=0.01).num_rows == 0


@pytest.mark.parametrize(
    ("fields", "code", "text"),
    [
        ({"stream": "temq"}, "unknown_stream", "there is no stream 'temq'; there are: other, temp"),
        ({"partition": 3}, "unknown_partition", "has no partition 3; accepted: 0 to 2"),
        ({"start": 1000}, "offset_out_of_range", "offset 1000 of stream 'temp', partition 0"),
        ({"end": 1000}, "offset_out_of_range", "is out of range; accepted: 0 to"),
        ({"start": 3, "end": 2}, "offset_out_of_range", "offset 2 of stream 'temp'"),
        ({"columns": ["nope"]}, "refused", "there is no column 'nope'; accepted: topic"),
        ({"filter": "a/#/b"}, "refused", "not a topic filter: misplaced #"),
        ({"start": -1}, "bad_ticket", "Expected `int` >= 0"),
        ({"start": "begin"}, "bad_ticket", "the ticket cannot be understood: Invalid enum value"),
        ({"wait": 31}, "bad_ticket", "Expected `float` <= 30"),
        ({"from": 5}, "bad_ticket", "unknown field `from`"),
    ],
)
def test_a_wrong_get_is_answered_with_what_is_accepted(
    client: flight.FlightClient, fields: dict[str, Any], code: str, text: str
) -> None:
    with pytest.raises(flight.FlightServerError) as caught:
        get(client, **{"stream": "temp", **fields})
    assert text in str(caught.value)
    assert code_of(caught.value) == code


def test_an_offset_out_of_range_tells_the_range(client: flight.FlightClient) -> None:
    with pytest.raises(flight.FlightServerError) as caught:
        get(client, "temp", partition=0, start=1000)
    extra = json.loads(caught.value.extra_info)
    assert (extra["offset"], extra["earliest"]) == (1000, 0)
    assert extra["latest"] == act(client, "latest", stream="temp")["0"]


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (b"", "the ticket cannot be understood"),
        (b"\xff", "the ticket cannot be understood"),
        (b"[]", "accepted: a JSON object of stream, columns, filter, "),
        (b"{}", "missing required field `stream`"),
        (b" " * (LONGEST + 1), f"accepted: at most {LONGEST}"),
    ],
)
def test_a_bad_ticket_is_refused(client: flight.FlightClient, raw: bytes, text: str) -> None:
    with pytest.raises(flight.FlightServerError) as caught:
        client.do_get(flight.Ticket(raw)).read_all()
    assert text in str(caught.value)
    assert code_of(caught.value) == "bad_ticket"


def test_bad_actions_and_descriptors_are_refused(client: flight.FlightClient) -> None:
    with pytest.raises(flight.FlightServerError, match="there is no action 'drop'; accepted: str"):
        act(client, "drop", stream="temp")
    with pytest.raises(flight.FlightServerError, match="body of by-timestamp cannot be understood"):
        act(client, "by-timestamp", stream="temp")
    with pytest.raises(flight.FlightServerError, match="a path of 2 parts; accepted: the name"):
        client.get_flight_info(flight.FlightDescriptor.for_path("a", "b"))
    with pytest.raises(flight.FlightServerError, match="the command cannot be understood"):
        client.get_flight_info(flight.FlightDescriptor.for_command(b"select 1"))
    with pytest.raises(flight.FlightServerError, match="there is no stream 'x'"):
        client.get_flight_info(flight.FlightDescriptor.for_path("x"))


def test_reads_at_a_time_are_bounded_and_their_places_come_back(
    server: StreamServer | Front, client: flight.FlightClient
) -> None:
    def free() -> int:
        return server.calls.free

    for call in range(4):
        assert server.calls.take(call)
    with pytest.raises(flight.FlightUnavailableError, match="too many reads at a time"):
        get(client, "temp")
    for call in range(4):
        server.calls.leave(call)
    for number in range(12):
        reader = client.do_get(ticket("temp"))
        if number % 3 == 0:
            reader.read_chunk()
        if number % 2 == 0:
            reader.cancel()
        del reader
        reach(lambda: free() == 4)
    with pytest.raises(flight.FlightServerError):
        get(client, "temp", start=1000)
    assert free() == 4


def test_clients_that_read_no_further_keep_nobody_out(
    tmp_path: Path, face: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calls, "PATIENCE", 0.0)
    running = Running(tmp_path, temp=options(filters=["#"]))
    for _ in range(32):
        running.append("large", bytes(1_000_000))
    with (
        serving(face, running, most_calls=1) as server,
        flight.connect(("127.0.0.1", server.port)) as client,
    ):
        stalled = client.do_get(ticket("temp"))
        stalled.read_chunk()
        until = time.monotonic() + 30
        while True:
            try:
                assert get(client, "temp", limit=1).num_rows == 1
                break
            except flight.FlightUnavailableError:  # the stalled one is being filled
                assert time.monotonic() < until
        stalled.cancel()
    running.close()


def test_a_mistake_of_ours_is_logged_and_not_sent(
    server: StreamServer | Front,
    client: flight.FlightClient,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr("vmq.streams.extents.offset_at", lambda *_: 1 // 0)
    with pytest.raises(flight.FlightInternalError) as caught:
        act(client, "by-timestamp", stream="temp", time=5)
    assert "Traceback" not in str(caught.value)
    assert "ZeroDivisionError" in caplog.text
    assert server.calls.free == 4


def test_a_server_without_rules_is_on_loopback_only(running: Running) -> None:
    with pytest.raises(StreamError, match=r"refused: .*; accepted without access rules: an addr"):
        StreamServer(running.catalog, "0.0.0.0")


def test_closing_ends_calls_that_wait(running: Running) -> None:
    server = StreamServer(running.catalog)
    stream = running.catalog.get("other")
    end = stream.partitions[0].end
    ended = threading.Event()

    def ask() -> None:
        with flight.connect(("127.0.0.1", server.port)) as client:
            try:
                get(client, "other", start=end, wait=30)
            except (flight.FlightError, pa.ArrowException, OSError):
                pass
        ended.set()

    thread = threading.Thread(target=ask)
    thread.start()
    reach(lambda: stream.watchers)
    server.close()
    assert ended.wait(10)
    thread.join()
