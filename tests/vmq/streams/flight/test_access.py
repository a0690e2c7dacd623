import base64
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import flight

from tests.vmq.streams.flight_support import FACES, Running, act, basic, code_of, serving, ticket
from tests.vmq.streams.support import options
from vmq.mqtt.topics import matches
from vmq.streams.flight import access as flight_access
from vmq.streams.flight.access import JUDGED_FOR, TOKEN_LIFE, Anybody, Tokens
from vmq.streams.flight.front import Front
from vmq.streams.flight.service import StreamServer
from vmq.streams.log.checkpoint import boot_id
from vmq.testing.authority import Authority

#: Users: their passwords, and the filter under which they may do everything.
USERS = {"ann": (b"secret", "a/#"), "bob": (b"other", "b/#"), "all": (b"x:y", "#")}


class Rules(Anybody):
    """Nobody without a password; to each his branch."""

    def authenticate(self, user: str | None, password: bytes) -> bool:
        return user in USERS and USERS[user][0] == password

    def may_read(self, user: str | None, filters: Sequence[str], group: str = "") -> bool:
        return all(self.may_write(user, each) for each in filters)

    def may_write(self, user: str | None, topic: str) -> bool:
        assert user is not None
        return matches(USERS[user][1], topic)


@pytest.fixture(scope="module", params=FACES)
def face(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory, face: str) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("streams")
    running = Running(
        folder,
        a=options(filters=["a/x", "a/y"]),
        b=options(filters=["b/#"]),
        mixed=options(filters=["a/x", "b/x"]),
    )
    running.append("a/x", b"1")
    running.append("b/x", b"2")
    yield running
    running.close()


@pytest.fixture(scope="module")
def server(running: Running, face: str) -> Iterator[StreamServer | Front]:
    with serving(face, running, access=Rules()) as server:
        yield server


@pytest.fixture
def client(server: StreamServer | Front) -> Iterator[flight.FlightClient]:
    with flight.connect(("127.0.0.1", server.port)) as client:
        yield client


def as_user(client: flight.FlightClient, user: str) -> flight.FlightCallOptions:
    token = client.authenticate_basic_token(user, USERS[user][0].decode())
    return flight.FlightCallOptions(headers=[token])


def test_a_user_reads_by_token_or_by_password(client: flight.FlightClient) -> None:
    for call in (as_user(client, "ann"), basic("ann", b"secret"), basic("all", b"x:y")):
        assert client.do_get(ticket("a"), call).read_all().num_rows == 1
        assert act(client, "latest", call, stream="a") == {"0": 1}


@pytest.mark.parametrize(
    ("header", "text"),
    [
        (None, "credentials are missing"),
        (b"Basic " + base64.b64encode(b"ann:wrong"), "wrong user name or password"),
        (b"Basic " + base64.b64encode(b"nobody:x"), "wrong user name or password"),
        (b"Basic " + base64.b64encode(b"ann"), "the credentials cannot be read"),
        (b"Basic !", "the credentials cannot be read"),
        (b"Basic " + base64.b64encode(b"a" * 4096 + b":"), "the credentials cannot be read"),
        (b"Bearer x", "the token is unknown or has ended"),
        (b"Digest x", "unknown kind of credentials"),
    ],
)
def test_whoever_is_not_known_learns_nothing(
    client: flight.FlightClient, header: bytes | None, text: str
) -> None:
    headers = [] if header is None else [(b"authorization", header)]
    call = flight.FlightCallOptions(headers=headers)
    with pytest.raises(flight.FlightUnauthenticatedError, match=text):
        client.do_get(ticket("a"), call).read_all()
    with pytest.raises(flight.FlightUnauthenticatedError, match=text):
        list(client.list_flights(options=call))
    with pytest.raises(flight.FlightUnauthenticatedError, match=text):
        act(client, "latest", call, stream="a")


def test_a_stream_takes_permission_for_each_of_its_filters(client: flight.FlightClient) -> None:
    bob = as_user(client, "bob")
    assert [info.descriptor.path for info in client.list_flights(options=bob)] == [[b"b"]]
    path = flight.FlightDescriptor.for_path("a")
    asks: tuple[Callable[[], object], ...] = (
        lambda: client.do_get(ticket("a"), bob).read_all(),
        lambda: client.get_flight_info(path, bob),
        lambda: act(client, "earliest", bob, stream="a"),
        lambda: act(client, "by-timestamp", bob, stream="a", time=0),
        # Whether there is one is not told.
        lambda: client.do_get(ticket("nothing"), bob).read_all(),
    )
    for ask in asks:
        with pytest.raises(flight.FlightUnauthorizedError, match="'bob' may not read") as caught:
            ask()
        assert code_of(caught.value) == "no_permission"


def test_who_may_read_some_topics_reads_these(client: flight.FlightClient) -> None:
    bob = as_user(client, "bob")
    some = client.do_get(ticket("mixed", filter="b/x"), bob).read_all()
    assert some.column("topic").to_pylist() == ["b/x"]
    assert act(client, "latest", bob, stream="mixed", filter="b/x") == {"0": 2}
    assert act(client, "by-timestamp", bob, stream="mixed", time=0, filter="b/x") == {"0": 0}
    assert act(client, "ids", bob, filter="b/x").keys() == {"b", "mixed"}
    assert act(client, "streams", bob, filter="a/x").keys() == {"b"}
    asked = flight.FlightDescriptor.for_command(b'{"stream": "mixed", "filter": "b/x"}')
    (endpoint,) = client.get_flight_info(asked, bob).endpoints
    assert client.do_get(endpoint.ticket, bob).read_all().equals(some)
    machine = boot_id().hex()
    asks: tuple[Callable[[], object], ...] = (
        lambda: client.do_get(ticket("mixed"), bob).read_all(),
        lambda: client.do_get(ticket("mixed", filter="a/x"), bob).read_all(),
        lambda: client.do_get(ticket("mixed", filter="#"), bob).read_all(),
        # A file has the rows of others, too; and of a stream that has none of his nothing is told.
        lambda: act(client, "file", bob, stream="mixed", filter="b/x", machine=machine),
        lambda: client.do_get(ticket("a", filter="b/x"), bob).read_all(),
    )
    for ask in asks:
        with pytest.raises(flight.FlightUnauthorizedError, match="'bob' may not read"):
            ask()


def test_writing_takes_permission_for_each_topic(client: flight.FlightClient) -> None:
    rows = pa.record_batch({"topic": ["b/1"], "payload": [b"1"]})
    for user, allowed in (("bob", True), ("ann", False)):
        call = as_user(client, user)
        path = flight.FlightDescriptor.for_path("b")
        writer, answers = client.do_put(path, rows.schema, call)
        writer.write_batch(rows)
        if allowed:
            assert answers.read() is not None
            writer.close()
            found = client.do_get(ticket("b"), call).read_all().to_pylist()
            assert [each["client_id"] for each in found] == ["c", "bob"]
        else:
            with pytest.raises(flight.FlightUnauthorizedError, match="'ann' may not publish"):
                writer.close()


def test_rules_that_fail_let_nobody_in_and_tell_nothing(
    running: Running, caplog: pytest.LogCaptureFixture
) -> None:
    class Broken(Rules):
        def authenticate(self, user: str | None, password: bytes) -> bool:
            raise RuntimeError("the database of users is away")

    with closing(StreamServer(running.catalog, access=Broken())) as server:
        with (
            flight.connect(("127.0.0.1", server.port)) as client,
            pytest.raises(flight.FlightUnavailableError) as caught,
        ):
            client.do_get(ticket("a"), basic("ann", b"secret")).read_all()
        assert "Traceback" not in str(caught.value)
        assert "the database of users is away" in caplog.text


def test_tokens_expire_and_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    tokens = Tokens(lambda: now[0])
    token = tokens.issue("ann", b"secret")
    now[0] = TOKEN_LIFE - 1
    assert tokens.user_of(token, lambda *_: True) == "ann"
    now[0] = TOKEN_LIFE
    assert tokens.user_of(token, lambda *_: True) is None
    assert tokens.issued == {}
    monkeypatch.setattr(flight_access, "MOST_TOKENS", 3)
    issued = [tokens.issue(str(number), b"x") for number in range(5)]
    assert [tokens.user_of(each, lambda *_: True) for each in issued] == [None, None, "2", "3", "4"]


def test_a_token_ends_when_its_user_may_not_connect_any_more() -> None:
    now = [0.0]
    users, asked = {"ann": b"secret", "bob": b"other"}, []

    def may_connect(user: str, password: bytes) -> bool:
        asked.append(user)
        return users.get(user) == password

    tokens = Tokens(lambda: now[0])
    issued = {user: tokens.issue(user, password) for user, password in users.items()}
    del users["ann"]
    now[0] = JUDGED_FOR - 1
    assert tokens.user_of(issued["ann"], may_connect) == "ann"
    assert asked == []
    for now[0] in (JUDGED_FOR, JUDGED_FOR + 1):
        assert tokens.user_of(issued["ann"], may_connect) is None
        assert tokens.user_of(issued["bob"], may_connect) == "bob"
    assert asked == ["ann", "bob"]
    users["bob"] = b"new"
    now[0] = 2 * JUDGED_FOR
    assert tokens.user_of(issued["bob"], may_connect) is None
    assert tokens.issued == {}


def test_who_is_deleted_reads_no_more_by_a_token(
    client: flight.FlightClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    call = as_user(client, "ann")
    monkeypatch.setattr(flight_access, "JUDGED_FOR", 0.0)
    assert client.do_get(ticket("a"), call).read_all().num_rows == 1
    monkeypatch.delitem(USERS, "ann")
    with pytest.raises(
        flight.FlightUnauthenticatedError, match="the token is unknown or has ended"
    ):
        client.do_get(ticket("a"), call).read_all()


def test_tls_shows_the_certificate(running: Running, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    issued = authority.issue("localhost")
    pair = (issued.certfile.read_bytes(), issued.keyfile.read_bytes())
    with closing(StreamServer(running.catalog, access=Rules(), tls=pair)) as server:
        address = f"grpc+tls://localhost:{server.port}"
        trust: dict[str, Any] = {"tls_root_certs": authority.cafile.read_bytes()}
        with flight.connect(address, **trust) as client:
            call = as_user(client, "ann")
            assert client.do_get(ticket("a"), call).read_all().num_rows == 1
        with flight.connect(address) as client, pytest.raises(pa.ArrowException):
            client.do_get(ticket("a")).read_all()
