"""How errors of streams are answered by Flight: with a text for people and a code for programs."""

import json
import logging
from collections.abc import Callable
from functools import wraps
from typing import Any, Concatenate, Final, ParamSpec, TypeVar

from pyarrow import flight

from vmq.streams.flight.groups import UnknownMemberError
from vmq.streams.flight.put import BadPutError
from vmq.streams.flight.tickets import BadTicketError
from vmq.streams.log.errors import (
    AwayError,
    DamagedElsewhereError,
    DamagedError,
    ElsewhereError,
    NotLocalError,
    OutOfRangeError,
    PassingError,
    RecreatedError,
    StreamError,
    UnknownPartitionError,
    UnknownStreamError,
)

log = logging.getLogger("vmq.streams")

P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S")

#: The code of each kind of error, the narrower kind first.
_CODES: Final[tuple[tuple[type[StreamError], str], ...]] = (
    (UnknownStreamError, "unknown_stream"),
    (UnknownPartitionError, "unknown_partition"),
    (OutOfRangeError, "offset_out_of_range"),
    (RecreatedError, "recreated"),
    (BadTicketError, "bad_ticket"),
    (BadPutError, "bad_put"),
    (UnknownMemberError, "unknown_member"),
    (DamagedError, "damaged"),
    (DamagedElsewhereError, "damaged"),
    (ElsewhereError, "elsewhere"),
    (AwayError, "away"),
    (PassingError, "passing"),
    (NotLocalError, "not_local"),
    (StreamError, "refused"),
)


def flight_error(error: StreamError) -> flight.FlightServerError:
    """An error as Flight carries it: the text, and a JSON object with a code for programs."""
    code = next(code for kind, code in _CODES if isinstance(error, kind))
    extra: dict[str, object] = {"code": code}
    if isinstance(error, OutOfRangeError):
        extra |= {"offset": error.offset, "earliest": error.earliest, "latest": error.latest}
    if isinstance(error, ElsewhereError):
        extra["location"] = error.location
    kind = flight.FlightServerError
    if isinstance(error, PassingError):
        kind = flight.FlightUnavailableError
    return kind(str(error), json.dumps(extra).encode())


def answers(
    method: Callable[Concatenate[S, Any, P], R],
) -> Callable[Concatenate[S, Any, P], R]:
    """Turns the errors of streams into Flight's; what nobody foresaw goes to the log."""

    @wraps(method)
    def call(self: S, context: Any, /, *args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return method(self, context, *args, **kwargs)
        except StreamError as error:
            raise flight_error(error) from None
        except flight.FlightError:
            raise
        except Exception:
            log.exception("a call of Flight failed")
            raise flight.FlightInternalError("internal error; the server's log has it") from None

    return call
