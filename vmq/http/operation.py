"""What an operation of the API is."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from vmq.admin import keys
from vmq.admin.listing import Listing, Selection

if TYPE_CHECKING:
    from vmq.ports import BrokerView


class Context:
    """What operations work on."""

    def __init__(self, broker: "BrokerView") -> None:
        self.broker = broker
        self.api_keys: keys.ApiKeys = keys.ApiKeys(Path(broker.config.broker.data_dir))


Result = Struct | Listing[Any]


@dataclass(frozen=True)
class Operation:
    """One operation.

    `row` is what it gives: one, or with `many` a list in `rows`. GET and DELETE take `parameters` from the query, POST
    from a JSON body. A `local` one is served on the socket in the data directory only; what is no `change` of the
    broker is not told of in the audit log.
    """

    name: str
    method: str
    path: str
    summary: str
    parameters: type[Struct]
    row: type[Struct]
    run: Callable[[Context, Any], Result | Awaitable[Result]]
    many: bool = False
    local: bool = False
    change: bool = True


class List(Selection, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which rows."""
