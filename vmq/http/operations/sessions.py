"""The operations of the API on sessions, their queues and retained messages; see `vmq.http.operations`."""

from typing import Annotated, Final

from msgspec import Meta, Struct

from vmq.admin import (
    queues,
    retained,
    sessions,
)
from vmq.admin.listing import Selection
from vmq.admin.payloads import PayloadBytes
from vmq.admin.trees import Mountpoint
from vmq.http.operation import List, Operation
from vmq.http.operations.common import ClientId, Filter

AnyMountpoint = Annotated[
    str | None,
    Meta(description="Of this topic tree only, empty = the default one; none given: of all"),
]


Local = Annotated[
    bool, Meta(description="Only what the asked node has, not what other nodes of its cluster have")
]


class ListSessions(List, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which sessions."""

    mountpoint: AnyMountpoint = None
    local: Local = False


class OneClient(Struct, forbid_unknown_fields=True, kw_only=True):
    """Which session."""

    client_id: ClientId
    mountpoint: Mountpoint = ""


class ShowSession(OneClient, forbid_unknown_fields=True, kw_only=True):
    """Which session to show."""

    local: Local = False


class Disconnect(OneClient, forbid_unknown_fields=True, kw_only=True):
    """Which client to disconnect."""

    cleanup: Annotated[
        bool, Meta(description="End the session, too, with its messages and subscriptions")
    ] = False


class Unsubscribe(OneClient, forbid_unknown_fields=True, kw_only=True):
    """Which subscription to remove."""

    filter: Filter


class Peek(Selection, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which queue to look into, and how far."""

    client_id: ClientId
    payload_bytes: PayloadBytes = 64
    mountpoint: Mountpoint = ""


class ListRetained(Selection, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which retained messages."""

    filter: Annotated[
        str, Meta(description="Topics that this filter matches; none given: all of them")
    ] = ""
    payload_bytes: PayloadBytes = 64
    mountpoint: AnyMountpoint = None


class OneTopic(Struct, forbid_unknown_fields=True):
    """Which retained message."""

    topic: Annotated[str, Meta(min_length=1)]
    payload_bytes: PayloadBytes = 0
    mountpoint: Mountpoint = ""


class DeleteRetained(Struct, forbid_unknown_fields=True):
    """Which retained messages to delete."""

    filter: Filter
    mountpoint: Mountpoint = ""


SESSION_OPERATIONS: Final = (
    Operation(
        "list_sessions",
        "GET",
        "/sessions",
        "List the sessions of all nodes, connected or not",
        ListSessions,
        sessions.SessionRow,
        lambda context, wanted: sessions.list_sessions(
            context.broker, wanted, wanted.mountpoint, local=wanted.local
        ),
        many=True,
    ),
    Operation(
        "show_session",
        "GET",
        "/session",
        "Show one session with its subscriptions",
        ShowSession,
        sessions.SessionDetails,
        lambda context, wanted: sessions.show_session(
            context.broker, wanted.client_id, wanted.mountpoint, local=wanted.local
        ),
    ),
    Operation(
        "disconnect",
        "DELETE",
        "/session",
        "Close a client's connection; its will is published",
        Disconnect,
        sessions.Disconnected,
        lambda context, wanted: sessions.disconnect(
            context.broker, wanted.client_id, wanted.mountpoint, cleanup=wanted.cleanup
        ),
    ),
    Operation(
        "unsubscribe",
        "DELETE",
        "/session/subscription",
        "Remove a client's subscription",
        Unsubscribe,
        sessions.Unsubscribed,
        lambda context, wanted: sessions.unsubscribe(
            context.broker, wanted.client_id, wanted.filter, wanted.mountpoint
        ),
    ),
    Operation(
        "peek",
        "GET",
        "/queue",
        "Look into a client's queue without consuming it",
        Peek,
        queues.QueuedRow,
        lambda context, wanted: queues.peek(
            context.broker, wanted.client_id, wanted, wanted.payload_bytes, wanted.mountpoint
        ),
        many=True,
    ),
    Operation(
        "purge",
        "DELETE",
        "/queue",
        "Drop what waits in a client's queue; what is in flight stays",
        OneClient,
        queues.Purged,
        lambda context, wanted: queues.purge(context.broker, wanted.client_id, wanted.mountpoint),
    ),
    Operation(
        "list_retained",
        "GET",
        "/retained",
        "List the retained messages",
        ListRetained,
        retained.RetainedRow,
        lambda context, wanted: retained.list_retained(
            context.broker, wanted, wanted.filter, wanted.payload_bytes, wanted.mountpoint
        ),
        many=True,
    ),
    Operation(
        "delete_retained",
        "DELETE",
        "/retained",
        "Delete the retained messages whose topics a filter matches",
        DeleteRetained,
        retained.RetainedDeleted,
        lambda context, wanted: retained.delete_retained(
            context.broker, wanted.filter, wanted.mountpoint
        ),
    ),
    Operation(
        "show_retained",
        "GET",
        "/retained/message",
        "Show the retained message of one topic",
        OneTopic,
        retained.RetainedRow,
        lambda context, wanted: retained.show_retained(
            context.broker, wanted.topic, wanted.payload_bytes, wanted.mountpoint
        ),
    ),
)
