"""What parameters of several operations have in common."""

from typing import Annotated, Any

from msgspec import Meta, Struct

from vmq.admin.listing import Listing, Selection

ClientId = Annotated[str, Meta(min_length=1, description="The client")]


Filter = Annotated[str, Meta(description="A topic filter, as in sensors/#")]


def listed(row: type[Struct], rows: "list[Any]", wanted: Selection) -> Listing[Any]:
    """A page of rows, as it was asked for."""
    return Listing(row, rows, wanted)
