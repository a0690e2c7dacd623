"""Bans: list, add, remove."""

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import msgspec
from msgspec import Meta, Struct

from vmq.admin.errors import AdminError, NotFoundError
from vmq.runtime.bans import Ban, BansError, Kind

if TYPE_CHECKING:
    from vmq.ports import BrokerView


class BanRow(Struct, frozen=True, kw_only=True):
    """One ban."""

    kind: Annotated[Kind, Meta(description="What is banned")]
    value: Annotated[str, Meta(description="The client id, the user name, or the network")]
    since: str
    until: Annotated[str | None, Meta(description="null = until it is removed")]
    reason: str


class BanAdded(BanRow, frozen=True, kw_only=True):
    """A ban that holds from now on."""

    disconnected: Annotated[int, Meta(description="Connections that it has ended")]


class BanRemoved(Struct, frozen=True):
    """A ban that holds no longer."""

    kind: Kind
    value: str


def list_bans(broker: "BrokerView") -> list[BanRow]:
    """The bans that hold, the oldest first."""
    return [_row(each) for each in broker.banning.bans.all()]


def add_ban(
    broker: "BrokerView",
    client_id: str = "",
    user: str = "",
    address: str = "",
    seconds: float | None = None,
    reason: str = "",
) -> BanAdded:
    """Bans a client id, a user or an address, and ends its connections.

    Raises:
        AdminError: not one of them is given, or it is none; there are too many; the file cannot be written.
    """
    if len(reason) > 200 or not reason.isprintable():
        raise AdminError("reason: accepted: up to 200 printable characters")
    kind, value = _one(client_id, user, address)
    try:
        ban, ended = broker.banning.add(kind, value, seconds, reason)
    except BansError as error:
        raise AdminError(str(error)) from None
    return BanAdded(**msgspec.structs.asdict(_row(ban)), disconnected=ended)


def remove_ban(
    broker: "BrokerView", client_id: str = "", user: str = "", address: str = ""
) -> BanRemoved:
    """Ends a ban.

    Raises:
        AdminError: not one of them is given, or it is none; the file cannot be written.
        NotFoundError: there is no such ban.
    """
    kind, value = _one(client_id, user, address)
    try:
        ban = broker.banning.remove(kind, value)
    except BansError as error:
        raise AdminError(str(error)) from None
    if ban is None:
        raise NotFoundError(f"no ban of {kind} {value!r} (vmq ban list)")
    return BanRemoved(ban.kind, ban.value)


def _one(client_id: str, user: str, address: str) -> tuple[Kind, str]:
    kinds: list[tuple[Kind, str]] = [
        ("client_id", client_id),
        ("user", user),
        ("address", address),
    ]
    given = [each for each in kinds if each[1]]
    if len(given) != 1:
        raise AdminError("accepted: one of client_id, user and address")
    return given[0]


def _row(ban: Ban) -> BanRow:
    until = None if ban.until is None else _when(ban.until)
    return BanRow(
        kind=ban.kind, value=ban.value, since=_when(ban.since), until=until, reason=ban.reason
    )


def _when(seconds: float) -> str:
    text = datetime.fromtimestamp(int(seconds), UTC).isoformat()
    return text.removesuffix("+00:00") + "Z"
