"""Members of groups that are part of the broker: they ask it without a network, in threads of their own."""

from collections.abc import Iterator, Mapping
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import contextmanager
from typing import Any, Final

import msgspec
import pyarrow as pa

from vmq.streams.client.errors import BrokerAwayError, GroupError
from vmq.streams.flight.access import OwnAccess
from vmq.streams.flight.groups import KINDS, PATIENCE, UnknownMemberError
from vmq.streams.flight.sink import member_query
from vmq.streams.log.errors import OutOfRangeError, PassingError, StreamError
from vmq.streams.logs import COLUMNS, LogsAnywhere
from vmq.streams.places import PageQuery
from vmq.streams.serving.programs import Programs
from vmq.streams.staging.state import BusyError

#: Bytes of rows that are handed over at once, and rows of a batch that is staged.
_ENOUGH: Final = 4 << 20
_STAGED_ROWS: Final = 16_384
#: Seconds that other nodes have to say where partitions end.
_SHORT: Final = 0.2
_LAST: Final = 1 << 62


class InsideConnection:
    """What `vmq.streams.client.group.StreamGroup` asks, answered by the broker around it.

    Args:
        programs: the groups.
        name: who asks, for people.
    """

    #: Seconds for which a coordinator that cannot be reached is tried again.
    patience = 60.0

    def __init__(self, programs: Programs, name: str) -> None:
        self._programs = programs
        self._catalog = programs.readers.catalog
        self._name = name
        self._access = OwnAccess()
        self._logs: LogsAnywhere | None = None

    def ask(
        self, action: str, body: Mapping[str, Any], _patience: float | None = None
    ) -> dict[str, Any]:
        """See `GroupConnection`: the actions of groups, and `latest`."""
        with _in_its_words():
            if action == "latest":
                return self._ends(body)
            asked = msgspec.convert(body, KINDS[action], str_keys=True)
            answer = self._programs.ask(self._access, self._name, asked)
            try:
                found: dict[str, Any] = msgspec.to_builtins(answer.result(PATIENCE))
            except FutureTimeoutError:
                answer.cancel()
                raise PassingError("the group does not answer: try again") from None
            return found

    def stage(self, command: Mapping[str, Any], messages: pa.Table) -> None:
        """See `GroupConnection`."""
        with _in_its_words():
            number = command["batch"], command["part"], command["attempt"]
            part = self._programs.sinks.staging.part(member_query(command["member"]), *number)
            try:
                for batch in messages.to_batches(_STAGED_ROWS):
                    part.write(batch)
                part.close()
            except BaseException:
                part.drop()
                raise

    def read(self, ticket: Mapping[str, Any]) -> tuple[pa.Table, int]:
        """See `GroupConnection`: some rows, wherever the partition is."""
        with _in_its_words():
            limit: int = ticket["limit"]
            wanted = PageQuery(ticket["start"], _LAST, limit, _ENOUGH, ticket.get("filter"))
            logs = self._logs_of(ticket["stream"])
            rows, following = logs.rows(ticket["partition"], wanted, COLUMNS)
            if rows.num_rows > limit:
                rows = rows.slice(0, limit)
                following = rows.column("offset")[-1].as_py() + 1
            return pa.Table.from_batches([rows]), following

    def close(self) -> None:
        """See `GroupConnection`."""

    def _ends(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Where partitions end, once one has passed an offset, or time is up."""
        logs = self._logs_of(body["stream"])
        after = {int(number): offset for number, offset in body["after"].items()}
        logs.wait(after, body["wait"])
        return {str(number): span.end for number, span in logs.spans(after, _SHORT).items()}

    def _logs_of(self, stream: str) -> LogsAnywhere:
        if self._logs is None:
            self._logs = LogsAnywhere(self._catalog.get(stream), self._catalog.places)
        return self._logs


@contextmanager
def _in_its_words() -> Iterator[None]:
    """Errors of streams as members know them."""
    try:
        yield
    except UnknownMemberError as error:
        raise GroupError(str(error), "unknown_member") from None
    except OutOfRangeError as error:
        more: dict[str, object] = {"earliest": error.earliest}
        raise GroupError(str(error), "offset_out_of_range", more) from None
    except (PassingError, BusyError) as error:
        raise BrokerAwayError(str(error), "passing") from None
    except StreamError as error:
        raise GroupError(str(error), "refused") from None
