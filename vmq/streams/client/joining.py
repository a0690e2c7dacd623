"""How a program becomes a member of a group: `vmq.streams.group`."""

from collections.abc import Sequence
from types import TracebackType
from typing import Any, Final
from urllib.parse import urlsplit

from vmq.streams.client.aio import AsyncStreamGroup
from vmq.streams.client.connection import FlightConnection, Server
from vmq.streams.client.group import ROWS, StreamGroup

#: A column, an operator, and a value that it is compared with.
Where = Sequence[tuple[str, str, Any] | tuple[str, str]]

_SCHEMES: Final = frozenset({"grpc", "grpc+tcp", "grpc+tls"})


class group:  # noqa: N801 - called as a function
    """A member of a consumer group, for `with` and for `async with`.

    Args:
        stream: what is read.
        name: of the group.
        server: the broker's Flight listener, or those of several nodes of a cluster.
        filter: an MQTT topic filter.
        where: conditions on columns, all of which are to hold, as `[("temp", ">", 20.5)]`.
        start: where the group begins if it is new: `latest`, `earliest`, `-15m`, a time.
        columns: those of the rows that are wanted; all, unless they are named.
        rows: at most so many are handed over at once.
        username: as whom; nobody, unless it is said.
        password: of the user.
        cafile: who has signed the broker's certificate (PEM), with `grpc+tls`.
        certfile: an own certificate (PEM).
        keyfile: its key.
        patience: seconds for which a broker that cannot be reached is tried again.

    Raises:
        ValueError: `server` is no address of a broker, or `rows` less than 1.
    """

    def __init__(
        self,
        stream: str,
        name: str,
        *,
        server: str | Sequence[str] = "grpc://127.0.0.1:8815",
        filter: str = "#",  # noqa: A002 - as in tickets
        where: Where = (),
        start: str = "latest",
        columns: Sequence[str] = (),
        rows: int = ROWS,
        username: str = "",
        password: str = "",
        cafile: str = "",
        certfile: str = "",
        keyfile: str = "",
        patience: float = 60.0,
    ) -> None:
        if rows < 1:
            raise ValueError(f"rows is {rows}; accepted: 1 or more")
        urls = [server] if isinstance(server, str) else list(server)
        if not urls or not all(map(_is_server, urls)):
            text = (
                f"server is {server!r}; accepted: grpc://HOST:PORT, grpc+tls://HOST:PORT, or a list"
            )
            raise ValueError(text)
        files = cafile, certfile, keyfile
        self._server = Server(urls, username, password, *files, patience)
        self._asked = {
            "stream": stream,
            "group": name,
            "filter": filter,
            "where": [list(each) for each in where],
            "start": start,
        }
        self._columns, self._rows = columns, rows
        self._members: list[StreamGroup] = []
        self._async: list[AsyncStreamGroup] = []

    def join(self) -> StreamGroup:
        """Joins; `close` of what comes back leaves.

        Raises:
            GroupError: the broker refuses, or cannot be reached.
        """
        connection = FlightConnection(self._server)
        return StreamGroup(connection, self._asked, self._columns, self._rows)

    def __enter__(self) -> StreamGroup:
        self._members.append(self.join())
        return self._members[-1]

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._members.pop().close()

    async def __aenter__(self) -> AsyncStreamGroup:
        member = await AsyncStreamGroup(self.join).__aenter__()
        self._async.append(member)
        return member

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._async.pop().close()


def _is_server(url: str) -> bool:
    """Whether it may be a broker's: what Arrow says to others names neither the option nor what is accepted."""
    parts = urlsplit(url)
    try:
        port = parts.port
    except ValueError:
        return False
    return parts.scheme in _SCHEMES and bool(parts.hostname and port)
