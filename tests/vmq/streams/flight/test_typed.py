"""Typed columns by Flight, from the server and by way of the front."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import flight

from tests.vmq.streams.flight_support import FACES, Running, serving
from tests.vmq.streams.support import options
from vmq.streams.definition import check_before
from vmq.streams.log.errors import StreamError

SCHEMA = {"temp": "double", "device": "string level:2"}


def get(server: Any, **ticket: Any) -> pa.Table:
    with flight.connect(f"grpc://127.0.0.1:{server.port}") as client:
        return client.do_get(
            flight.Ticket(json.dumps({"stream": "s", **ticket}).encode())
        ).read_all()


@pytest.mark.parametrize("face", FACES)
def test_they_come_with_the_others_and_alone(tmp_path: Path, face: str) -> None:
    running = Running(tmp_path / "streams", s=options(filters=["s/#"], schema=SCHEMA))
    running.append("s/1", b'{"temp": 20.5}', b'{"temp": "hot"}')
    running.append("s/2", b'{"temp": 3}')
    with serving(face, running) as server:
        whole = get(server)
        assert whole.schema.names[-2:] == ["temp", "device"]
        assert whole.column("temp").to_pylist() == [20.5, None, 3.0]
        found = get(server, columns=["device", "temp"], filter="s/2")
        assert found.to_pylist() == [{"device": "2", "temp": 3.0}]
        with flight.connect(f"grpc://127.0.0.1:{server.port}") as client:
            info = client.get_flight_info(flight.FlightDescriptor.for_path("s"))
            assert info.schema == whole.schema
        packed = get(server, packed=True)
        assert packed.schema.names == ["packed"]
        with pytest.raises(flight.FlightServerError, match="a typed column in a packed get"):
            get(server, packed=True, columns=["temp"])
        with pytest.raises(
            flight.FlightServerError, match=r"there is no column 'x'; accepted: .*device"
        ):
            get(server, columns=["x"])
    running.close()


def test_a_column_keeps_its_type(tmp_path: Path) -> None:
    Running(tmp_path / "streams", s=options(filters=["s/#"], schema=SCHEMA)).close()
    grown = {**SCHEMA, "more": "bool"}
    Running(tmp_path / "streams", s=options(filters=["s/#"], schema=grown)).close()
    with pytest.raises(StreamError, match=r"streams\.s\.schema: column 'temp' is double"):
        check_before(tmp_path / "streams" / "s", options(schema={"temp": "int64"}))
