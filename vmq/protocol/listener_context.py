"""What the connections of one listener have in common, kept once for all of them."""

from collections.abc import Callable
from typing import Any, Final, Literal

#: So many write buffers of replies may wait for a peer.
REPLY_BUFFERS: Final = 4


class ListenerContext:
    """What a connection has from its listener.

    Args:
        opened, closed: told of each connection, when its transport is there and when it is over.
        name, scheme: of the listener; a connection inside the broker's own process has none.
        write_buffer: bytes that wait in a transport before its client's messages wait in their queue.
    """

    def __init__(
        self,
        opened: Callable[[Any], object],
        closed: Callable[[Any], object],
        name: str = "",
        scheme: Literal["tcp", "tls", "ws", "wss", "unix", "local"] = "local",
        write_buffer: int = 262_144,
    ) -> None:
        self.opened = opened
        self.closed = closed
        self.name = name
        self.scheme: Literal["tcp", "tls", "ws", "wss", "unix", "local"] = scheme
        self.reply_limit: int = 0
        self.limit_replies(write_buffer)

    def limit_replies(self, write_buffer: int) -> None:
        """Replies are bounded by so many bytes from now on.

        A peer is not read further while more than `reply_limit` bytes of them wait for it, in the transport or for a
        commit. Messages wait in its queue above a quarter of it.
        """
        self.reply_limit = REPLY_BUFFERS * write_buffer
