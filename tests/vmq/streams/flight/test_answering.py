"""What a program gets when a call of Flight fails."""

import json
import logging
from typing import Any

import pytest
from pyarrow import flight

from vmq.streams.flight.answering import answers, flight_error
from vmq.streams.log.errors import (
    AwayError,
    ElsewhereError,
    OutOfRangeError,
    PassingError,
    StreamError,
)


@pytest.mark.parametrize(
    ("error", "kind", "told"),
    [
        (StreamError("no"), flight.FlightServerError, {"code": "refused"}),
        # What passes is told as a state, which clients wait for the end of.
        (PassingError("too fast; try again"), flight.FlightUnavailableError, {"code": "passing"}),
        (AwayError("s", 0, "b"), flight.FlightUnavailableError, {"code": "away"}),
        (
            ElsewhereError("s", 0, "b", "grpc://b:1"),
            flight.FlightServerError,
            {"code": "elsewhere", "location": "grpc://b:1"},
        ),
        (
            OutOfRangeError("s", 0, 5, 6, 9),
            flight.FlightServerError,
            {"code": "offset_out_of_range", "offset": 5, "earliest": 6, "latest": 9},
        ),
    ],
)
def test_each_error_has_a_code(
    error: StreamError, kind: type[flight.FlightError], told: dict[str, object]
) -> None:
    answer: Any = flight_error(error)
    assert type(answer) is kind
    assert str(answer).startswith(str(error))
    assert json.loads(answer.extra_info) == told


class Answering:
    """A server of one call."""

    @answers
    def call(self, _context: object, error: Exception) -> None:
        raise error


def test_what_nobody_foresaw_goes_to_the_log(caplog: pytest.LogCaptureFixture) -> None:
    with (
        caplog.at_level(logging.ERROR, "vmq.streams"),
        pytest.raises(flight.FlightInternalError, match="the server's log has it"),
    ):
        Answering().call(None, KeyError("secret"))
    assert "secret" in caplog.text
    with pytest.raises(flight.FlightServerError, match="no"):
        Answering().call(None, StreamError("no"))
