"""Other nodes, as a listener shows them."""

from typing import NamedTuple


class NodeSeen(NamedTuple):
    """One node: its 40 digits, where clients reach it, and how it is."""

    node_id: bytes
    address: str
    port: int
    is_up: bool
    is_leaving: bool
