"""The operations of the API on who is let in, and where: listeners, bans and API keys; see `vmq.http.operations`."""

from typing import Annotated, Final

from msgspec import Meta, Struct

from vmq.admin import (
    bans,
    keys,
    listeners,
)
from vmq.http.operation import List, Operation
from vmq.http.operations.common import listed


class OneBan(Struct, forbid_unknown_fields=True, kw_only=True):
    """Whose ban; one of the three."""

    client_id: str = ""
    user: str = ""
    address: Annotated[
        str, Meta(description="An address or a network, as in 192.0.2.7 or 2001:db8::/64")
    ] = ""


class AddBan(OneBan, forbid_unknown_fields=True, kw_only=True):
    """Whom to ban, and for how long."""

    seconds: (
        Annotated[float, Meta(gt=0, le=3e9, description="How long; null = until it is removed")]
        | None
    ) = None
    reason: Annotated[str, Meta(description="For the log and the list")] = ""


class OneListener(Struct, forbid_unknown_fields=True):
    """Which listener."""

    name: str


class CreateKey(Struct, forbid_unknown_fields=True):
    """What to call the key."""

    name: Annotated[str, Meta(description="For people: whose it is")] = ""
    scope: Annotated[keys.Scope, Meta(description="read = it may look, and change nothing")] = "all"


class OneKey(Struct, forbid_unknown_fields=True):
    """Which key."""

    id: str


ACCESS_OPERATIONS: Final = (
    Operation(
        "list_bans",
        "GET",
        "/bans",
        "List the bans that hold",
        List,
        bans.BanRow,
        lambda context, wanted: listed(bans.BanRow, bans.list_bans(context.broker), wanted),
        many=True,
    ),
    Operation(
        "add_ban",
        "POST",
        "/ban",
        "Ban a client id, a user or an address, and end its connections",
        AddBan,
        bans.BanAdded,
        lambda context, wanted: bans.add_ban(
            context.broker,
            wanted.client_id,
            wanted.user,
            wanted.address,
            wanted.seconds,
            wanted.reason,
        ),
    ),
    Operation(
        "remove_ban",
        "DELETE",
        "/ban",
        "End a ban",
        OneBan,
        bans.BanRemoved,
        lambda context, wanted: bans.remove_ban(
            context.broker, wanted.client_id, wanted.user, wanted.address
        ),
    ),
    Operation(
        "list_listeners",
        "GET",
        "/listeners",
        "List the listeners of the configuration",
        List,
        listeners.ListenerRow,
        lambda context, wanted: listed(
            listeners.ListenerRow, listeners.list_listeners(context.broker), wanted
        ),
        many=True,
    ),
    Operation(
        "start_listener",
        "POST",
        "/listener/start",
        "Open a listener that was stopped",
        OneListener,
        listeners.ListenerRow,
        lambda context, wanted: listeners.start_listener(context.broker, wanted.name),
    ),
    Operation(
        "stop_listener",
        "POST",
        "/listener/stop",
        "Close a listener; who is connected stays",
        OneListener,
        listeners.ListenerRow,
        lambda context, wanted: listeners.stop_listener(context.broker, wanted.name),
    ),
    Operation(
        "list_api_keys",
        "GET",
        "/api-keys",
        "List the API keys",
        List,
        keys.KeyRow,
        lambda context, wanted: listed(keys.KeyRow, context.api_keys.list_keys(), wanted),
        many=True,
        local=True,
    ),
    Operation(
        "create_api_key",
        "POST",
        "/api-key",
        "Make an API key; it is shown this once",
        CreateKey,
        keys.NewKey,
        lambda context, wanted: context.api_keys.create(keys.check_name(wanted.name), wanted.scope),
        local=True,
    ),
    Operation(
        "delete_api_key",
        "DELETE",
        "/api-key",
        "Delete an API key",
        OneKey,
        keys.KeyDeleted,
        lambda context, wanted: context.api_keys.delete(wanted.id),
        local=True,
    ),
)
