"""The front as a process; what it serves is tested beside the server that it asks (`flight_support.FACES`)."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest
from pyarrow import flight

from tests.support.present import present
from tests.vmq.streams.flight_support import FACES, Running, act, serving, ticket
from tests.vmq.streams.support import options
from vmq.streams.flight.access import Access, Anybody
from vmq.streams.flight.front import NICENESS, Front, News, Orders, step_back
from vmq.streams.flight.service import StreamServer
from vmq.streams.serving.process import COMMAND, environment


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Running]:
    running = Running(tmp_path / "streams", s=options(filters=["a/+"]))
    running.append("a/1", b"x")
    yield running
    running.close()


@contextmanager
def inner_of(running: Running, access: Access | None = None) -> Iterator[tuple[str, int]]:
    """The server that a front asks: its socket, and the descriptor by which that is reached."""
    folder = os.open(running.catalog.folder, os.O_RDONLY)
    inner = f"/proc/self/fd/{folder}/flight.sock"
    server = StreamServer(running.catalog, access=access, socket=inner)
    try:
        yield inner, folder
    finally:
        server.close()
        os.close(folder)


@contextmanager
def process(orders: Orders, folder: int) -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(
        COMMAND,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment(),
        pass_fds=(folder,),
    ) as found:
        assert found.stdin is not None
        try:
            found.stdin.write(msgspec.json.encode(orders) + b"\n")
            found.stdin.flush()
            yield found
        finally:
            found.kill()


def heard(process: subprocess.Popen[bytes]) -> News:
    return msgspec.json.decode(present(process.stdout).readline(), type=News)


def test_it_serves_until_its_input_ends(running: Running) -> None:
    with (
        inner_of(running) as (inner, folder),
        process(Orders(inner, "127.0.0.1", 0), folder) as front,
    ):
        port = heard(front).port
        assert os.sched_getscheduler(front.pid) == os.SCHED_BATCH
        assert os.getpriority(os.PRIO_PROCESS, front.pid) == min(19, os.nice(0) + NICENESS)
        with flight.connect(("127.0.0.1", port)) as client:
            assert client.do_get(ticket("s")).read_all().num_rows == 1
        # A signal is for the broker, which closes the input when it is done.
        front.terminate()
        with flight.connect(("127.0.0.1", port)) as client:
            assert act(client, "streams") == {"s": ["a/+"]}
        present(front.stdin).close()
        assert front.wait(30) == 0


def test_a_system_that_knows_no_priorities_is_served_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(_steps: int) -> int:
        raise PermissionError

    monkeypatch.setattr(os, "nice", refuse)
    step_back()


def test_a_port_that_is_taken_is_news(running: Running) -> None:
    with (
        inner_of(running) as (inner, folder),
        serving("server", running) as other,
        process(Orders(inner, "127.0.0.1", other.port), folder) as front,
    ):
        assert "the port is in use" in heard(front).failure
        assert front.wait(30) == 0


def test_where_files_lie_is_told_to_fronts_only(running: Running) -> None:
    for face in FACES:
        with serving(face, running) as server, flight.connect(("127.0.0.1", server.port)) as client:
            with pytest.raises(flight.FlightServerError, match="there is no action 'locate'"):
                act(client, "locate", stream="s")
            assert "locate" not in {each.type for each in client.list_actions()}


def test_a_front_whose_server_is_away_says_that_it_may_come_back(running: Running) -> None:
    with (
        inner_of(running) as (inner, folder),
        process(Orders(inner + "x", "127.0.0.1", 0), folder) as front,
        flight.connect(("127.0.0.1", heard(front).port)) as client,
    ):
        with pytest.raises(flight.FlightUnavailableError):
            client.do_get(ticket("s")).read_all()
        with pytest.raises(flight.FlightUnavailableError):
            act(client, "streams")


def test_a_token_outlives_the_front_that_carried_it(running: Running) -> None:
    class Password(Anybody):
        def authenticate(self, _user: str | None, password: bytes) -> bool:
            return password == b"secret"

    with inner_of(running, access=Password()) as (inner, _):
        first, second = (Front(Orders(inner, "127.0.0.1", 0)) for _ in range(2))
        try:
            with flight.connect(("127.0.0.1", first.port)) as client:
                token = client.authenticate_basic_token("ann", "secret")
            first.close()
            with flight.connect(("127.0.0.1", second.port)) as client:
                call = flight.FlightCallOptions(headers=[token])
                assert client.do_get(ticket("s"), call).read_all().num_rows == 1
                with pytest.raises(flight.FlightUnauthenticatedError):
                    client.do_get(ticket("s")).read_all()
        finally:
            second.close()
