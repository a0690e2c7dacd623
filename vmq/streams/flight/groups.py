"""What programs say that are members of consumer groups: actions of Flight.

A member says all that holds, again and again: what it was handed and has not committed, and how far it is. Each answer
says all that it has. So an answer that is lost is made up for by the next one.
"""

import threading
import time
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import Annotated, Final, Protocol

from msgspec import Meta, Struct
from pyarrow import flight

from vmq.streams.flight.access import Access
from vmq.streams.flight.tickets import decode, understand
from vmq.streams.log.conditions import Condition
from vmq.streams.log.errors import PassingError, StreamError

#: Seconds that the broker has for an answer.
PATIENCE: Final = 30.0
#: Seconds between two looks whether the server ends.
_LOOK: Final = 0.5

_Name = Annotated[str, Meta(min_length=1, max_length=100)]
_Offset = Annotated[int, Meta(ge=0, le=1 << 62)]
_Partition = Annotated[int, Meta(ge=0, lt=1024)]
_Token = Annotated[str, Meta(pattern=r"^[0-9a-f]{32}\Z")]


class JoinQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body of `group-join`: the group, what it reads, and where it begins if it is new.

    `start`: as in a topic of history: `earliest`, `latest`, `-15m`, seconds since 1970, or a time in UTC.
    """

    stream: _Name
    group: _Name
    filter: Annotated[str, Meta(min_length=1, max_length=32_768)] = "#"
    where: Annotated[list[Condition], Meta(max_length=50)] = []
    start: Annotated[str, Meta(max_length=100)] = "latest"


class BeatQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body of `group-beat`.

    `has`: the first row, by partition, that was handed over and is not committed. `commit`: by partition, the
    generation in which the member has it, and the offset behind what it is done with. `back`: likewise, without an
    offset, partitions that were asked back: nothing more of them is handed over. `ends`: where partitions end, as
    far as the member has looked: for figures only.
    """

    member: _Token
    has: Annotated[dict[_Partition, _Offset], Meta(max_length=1024)] = {}
    commit: Annotated[dict[_Partition, tuple[_Offset, _Offset]], Meta(max_length=1024)] = {}
    back: Annotated[dict[_Partition, _Offset], Meta(max_length=1024)] = {}
    ends: Annotated[dict[_Partition, _Offset], Meta(max_length=1024)] = {}


class LeaveQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body of `group-leave`; `has` as in a beat."""

    member: _Token
    has: Annotated[dict[_Partition, _Offset], Meta(max_length=1024)] = {}


class GroupPublishQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body of `group-publish`: staged parts, as [part, attempt], are published together with a commit, or not.

    `batch`: higher than that of the last time. Said again it is answered likewise, and done once. `since`: where the
    program knows the cursors to be; elsewhere it is fenced, for others know more.
    """

    member: _Token
    batch: _Offset
    parts: Annotated[list[tuple[_Offset, _Offset]], Meta(max_length=1000)]
    commit: Annotated[
        dict[_Partition, tuple[_Offset, _Offset]], Meta(min_length=1, max_length=1024)
    ]
    since: Annotated[dict[_Partition, _Offset], Meta(max_length=1024)] = {}


class GivenPart(Struct, frozen=True):
    """A partition that a member has, from where on, and how many rows of it may be handed over at once.

    `is_leaving`: it is to be given back: nothing more of it is handed over.
    """

    generation: int
    start: int
    rows: int
    is_leaving: bool


class GroupAnswer(Struct, frozen=True):
    """What a member has.

    `lease`: seconds, from when the question left, for which it may hand over rows. `again`: seconds until it is to ask
    again. `fenced`: partitions whose commit counts for nothing, since the member has them no more.
    """

    member: str
    lease: float
    again: float
    partitions: dict[int, GivenPart]
    fenced: list[int] = []


class UnknownMemberError(StreamError):
    """A member is none any more: it was silent for too long, or the broker is another."""


Asked = JoinQuery | BeatQuery | LeaveQuery | GroupPublishQuery

ACTIONS: Final = {
    "group-join": """Makes the caller a member of a consumer group. \
Body: {"stream": NAME, "group": NAME, "filter": FILTER, "where": CONDITIONS, "start": FROM}, the last three optional""",
    "group-beat": """Says that a member is there and how far it is. Body: {"member": MEMBER, \
"has": {PARTITION: OFFSET}, "commit": {PARTITION: [GENERATION, OFFSET]}, \
"back": {PARTITION: GENERATION}, "ends": {PARTITION: OFFSET}}, the last four optional""",
    "group-publish": """Publishes staged messages and commits, both or neither. Body: {"member": MEMBER, \
"batch": NUMBER, "parts": [[PART, ATTEMPT], ...], "commit": {PARTITION: [GENERATION, OFFSET]}, \
"since": {PARTITION: OFFSET}}, the last optional""",
    "group-leave": 'Ends a member. Body: {"member": MEMBER, "has": {PARTITION: OFFSET}}, the last optional',
}
#: What the body of each says.
KINDS: Final[dict[str, type[Asked]]] = {
    "group-join": JoinQuery,
    "group-beat": BeatQuery,
    "group-publish": GroupPublishQuery,
    "group-leave": LeaveQuery,
}
understand(*KINDS.values())


class ProgramGroups(Protocol):
    """The groups of a broker, as programs reach them."""

    def ask(self, access: Access, user: str | None, asked: Asked) -> "Future[GroupAnswer]":
        """An answer, from the event loop; asked in another thread."""


def group_answer(
    groups: ProgramGroups,
    access: Access,
    user: str | None,
    action: str,
    body: bytes,
    stopping: threading.Event,
) -> GroupAnswer:
    """The answer to an action; nobody waits for it long once the server is stopping.

    Raises:
        StreamError: it cannot be.
    """
    asked = decode(body, KINDS[action], f"body of {action}")
    answer = groups.ask(access, user, asked)
    until = time.monotonic() + PATIENCE
    is_last = False
    while True:
        try:
            return answer.result(_LOOK)
        except FutureTimeoutError:
            if is_last or time.monotonic() >= until:
                answer.cancel()
                raise PassingError("the group does not answer: try again") from None
            is_last = stopping.is_set()


def no_right(user: str | None, group: str, filters: str) -> flight.FlightUnauthorizedError:
    """Who may not join."""
    who = "anonymous callers" if user is None else repr(user)
    return flight.FlightUnauthorizedError(
        f"{who} may not join group {group!r}: that takes permission to subscribe to {filters:.200}",
        b'{"code": "no_permission"}',
    )
