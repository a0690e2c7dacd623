"""The operations of the API on consumer groups; see `vmq.http.operations`."""

from typing import Annotated, Final

from msgspec import Meta, Struct

from vmq.admin.listing import Listing
from vmq.admin.readers import groups
from vmq.http.operation import Context, List, Operation

_Name = Annotated[str, Meta(min_length=1, max_length=512, description="The group")]
_Stream = Annotated[str, Meta(description="The stream that it reads; empty: it reads one only")]
_Topics = Annotated[str, Meta(description="The FILTER that it reads; empty: it reads one only")]


class OneGroup(Struct, forbid_unknown_fields=True):
    """Which group."""

    group: _Name
    stream: _Stream = ""
    filter: _Topics = ""


class ResetGroup(Struct, forbid_unknown_fields=True, kw_only=True):
    """Which group, and where it is to begin."""

    group: _Name
    stream: _Stream = ""
    filter: _Topics = ""
    to: Annotated[
        str,
        Meta(
            description="earliest, latest, a span as in -15m, seconds since 1970, or a time in UTC"
        ),
    ]


async def _list(context: Context, wanted: List) -> Listing[groups.GroupRow]:
    return Listing(groups.GroupRow, await groups.list_groups(context.broker), wanted)


GROUP_OPERATIONS: Final = (
    Operation(
        "list_groups",
        "GET",
        "/groups",
        "List the consumer groups of streams, with their lag",
        List,
        groups.GroupRow,
        _list,
        many=True,
    ),
    Operation(
        "show_group",
        "GET",
        "/group",
        "Show a consumer group with its partitions and members",
        OneGroup,
        groups.GroupDetails,
        lambda context, wanted: groups.show_group(
            context.broker, wanted.group, wanted.stream, wanted.filter
        ),
    ),
    Operation(
        "reset_group",
        "POST",
        "/group/reset",
        "Have a consumer group without members begin elsewhere",
        ResetGroup,
        groups.GroupRow,
        lambda context, wanted: groups.reset_group(
            context.broker, wanted.group, wanted.stream, wanted.filter, wanted.to
        ),
    ),
    Operation(
        "delete_group",
        "DELETE",
        "/group",
        "Delete the place of a consumer group without members",
        OneGroup,
        groups.GroupRow,
        lambda context, wanted: groups.delete_group(
            context.broker, wanted.group, wanted.stream, wanted.filter
        ),
    ),
)
