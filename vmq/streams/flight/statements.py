"""Flight SQL, as far as the Flight server knows it: messages that are not its own, and who answers them."""

from typing import Any, Final, Protocol

import pyarrow as pa
from pyarrow import flight

#: How the messages of Flight SQL begin: protobuf's Any, a field and a length before its type.
_MARK: Final = b"type.googleapis.com/arrow.flight.protocol.sql."


def is_sql(data: bytes | None) -> bool:
    """Whether a command or a ticket is of Flight SQL, and not one of ours, which are JSON."""
    return bool(data) and _MARK in (data or b"")[: len(_MARK) + 8]


class Statements(Protocol):
    """Who answers Flight SQL, to a user; None is a caller without credentials. Calls block.

    What they raise is a `StreamError`.
    """

    def info(self, user: str | None, descriptor: Any) -> flight.FlightInfo:
        """Where the rows of a question or a statement are to be had."""

    def columns(self, user: str | None, descriptor: Any) -> pa.Schema:
        """Its columns."""

    def rows(self, user: str | None, ticket: bytes) -> pa.Table:
        """Its rows."""

    def act(self, user: str | None, action: str, body: bytes) -> list[bytes] | None:
        """What an action brings; None: it is none of Flight SQL."""

    def actions(self) -> list[tuple[str, str]]:
        """The actions, with their meanings."""
