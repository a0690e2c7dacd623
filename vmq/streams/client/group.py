"""A program that is a member of a consumer group: it reads the partitions that it has, and commits how far it is.

A thread tells the broker every second that the program is there, and hears what it has. Nothing is handed over without
a lease, which is counted from when the question left: before others get a partition, this member has stopped.
"""

import logging
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import count
from types import TracebackType
from typing import Any, Final, Protocol, Self

import pyarrow as pa

from vmq.streams.client.errors import BrokerAwayError, FencedError, GroupError
from vmq.streams.client.messages import Messages, table_of

log = logging.getLogger("vmq.streams.client")

#: Rows that are handed over at once, unless the program says another number.
ROWS: Final = 10_000
#: Seconds that the broker holds an answer for want of rows, and until a question is repeated that found nobody.
_WAIT: Final = 0.5
_RETRY: Final = 0.25
_LONGEST: Final = 2.0


class GroupConnection(Protocol):
    """Who answers a member; called by several threads."""

    #: Seconds for which who cannot be reached is tried again.
    patience: float

    def ask(
        self, action: str, body: Mapping[str, Any], patience: float | None = None
    ) -> dict[str, Any]:
        """The answer to an action, which may be repeated until some seconds are over.

        Raises:
            BrokerAwayError: nobody answers.
            GroupError: the broker refuses.
        """

    def stage(self, command: Mapping[str, Any], messages: pa.Table) -> None:
        """Lays messages down at the broker, which publishes them when it is told to; likewise."""

    def read(self, ticket: Mapping[str, Any]) -> tuple[pa.Table, int]:
        """Rows of a ticket, some MiB at most, and the offset behind them; likewise."""

    def close(self) -> None:
        """Ends it."""


class GroupPart:
    """A partition that a member has."""

    def __init__(self, given: Mapping[str, Any]) -> None:
        self.generation: int = given["generation"]
        #: Where to read on, and up to where all is committed.
        self.position: int = given["start"]
        self.committed = self.position
        #: The first row that was handed over and is not committed; -1: none was.
        self.first = -1
        self.rows: int = given["rows"]
        self.is_leaving: bool = given["is_leaving"]


class StreamGroup:
    """A member of a group, from its making until `close`. To be used by one thread at a time.

    Args:
        connection: to the broker; it ends with the member.
        asked: the group, and what it reads: the body of the action `group-join`.
        columns: those of the rows; empty: all.
        rows: at most so many are handed over at once.
        clock: monotonic seconds.

    Raises:
        GroupError: the broker refuses, or cannot be reached (`BrokerAwayError`).
    """

    def __init__(
        self,
        connection: GroupConnection,
        asked: Mapping[str, Any],
        columns: Sequence[str] = (),
        rows: int = ROWS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.asked = asked
        self.columns = list(columns)
        self.rows = rows
        self.clock = clock
        self.connection = connection
        self.patience = connection.patience
        self.parts: dict[int, GroupPart] = {}
        self.member = ""
        self.lease_until = 0.0
        self.again = 1.0
        #: Where partitions end, as far as is known; and whose turn it is.
        self.ends: dict[int, int] = {}
        self.last = -1
        #: Partitions of which rows were handed over that others have by now.
        self.lost: set[int] = set()
        #: The rows that were handed over last: their partition, and where and since which row it was before.
        self.undone: tuple[GroupPart, int, int] | None = None
        self.failure: GroupError | None = None
        #: Since when the broker does not answer, and how that is said.
        self.away: tuple[float, BrokerAwayError] | None = None
        self.pause = _RETRY
        self.is_closed = False
        #: The last one that was published with a commit.
        self.batch = 0
        #: One question at a time; and whoever looks at what the member has.
        self._asking = threading.Lock()
        self._changed = threading.Condition()
        try:
            self._join(self.patience)
        except BaseException:
            self.connection.close()
            raise
        self._thread = threading.Thread(target=self._beats, name="vmq-group", daemon=True)
        self._thread.start()

    # What programs call

    @property
    def partitions(self) -> list[int]:
        """The partitions that it has now."""
        with self._changed:
            return sorted(self.parts)

    def read(self, timeout: float | None = None) -> pa.RecordBatch | None:
        """Rows of one partition, in order, behind those that were handed over before.

        Args:
            timeout: seconds after which there may be none; None = it waits for rows as long as it is not closed.

        Returns:
            The rows, or None where there are none in time, or it is closed.

        Raises:
            BrokerAwayError: nobody has answered for as long as `patience` says. It may be called again.
            GroupError: the broker refuses.
        """
        until = None if timeout is None else self.clock() + timeout
        while True:
            found = self._next(until)
            if found is not None or self.is_closed:
                return found
            if until is not None and self.clock() >= until:
                return None

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        """Rows, until it is closed."""
        while (found := self.read()) is not None:
            yield found

    def undo(self) -> None:
        """The rows that were handed over last reached nobody: they come again."""
        with self._changed:
            if self.undone is not None:
                part, position, first = self.undone
                part.position, part.first = position, first
                self.undone = None

    def commit(self, publish: Messages = ()) -> None:
        """The program is done with all that was handed over: none of it comes again.

        Args:
            publish: messages that are published together with it, both or neither: topic and payload, and QoS (1) and
                RETAIN (False) if you like; or a table of Arrow with these columns.

        Raises:
            FencedError: partitions are another member's by now. All else is committed; with messages to publish nothing
                is, and none of them is published.
            GroupError: the broker refuses, or cannot be reached: nobody knows whether it is committed.
            ValueError: there is something to publish, but nothing was handed over that it could come of.
        """
        messages = table_of(publish)
        with self._asking:
            with self._changed:
                done = {
                    number: part.position
                    for number, part in self.parts.items()
                    if part.position > part.committed
                }
                if messages.num_rows and not done and not self.lost:
                    raise ValueError(
                        "nothing was read since the last commit; accepted: publish it as others do"
                    )
                lost, self.lost = self.lost, set()
                commit = {
                    str(number): (self.parts[number].generation, position)
                    for number, position in done.items()
                }
                since = {str(number): self.parts[number].committed for number in done}
            fenced: list[int] = []
            try:
                if messages.num_rows:
                    # What came of rows that others have now counts for nothing.
                    fenced = (
                        list(done)
                        if lost
                        else self._publish({"commit": commit, "since": since}, messages, done)
                    )
                elif commit:
                    fenced = self._say({"commit": commit}, self.patience, done)
            except GroupError as error:
                if error.code != "unknown_member":
                    self.lost |= lost
                    raise
                self._forget()
                fenced = list(done)
            with self._changed:
                if fenced and messages.num_rows:
                    for part in self.parts.values():
                        part.position, part.first = part.committed, -1  # all of it comes again
                lost, self.lost = lost | self.lost | set(fenced), set()
        if lost:
            raise FencedError(sorted(lost))

    def close(self) -> None:
        """Leaves the group; what is not committed goes to others."""
        if self.is_closed:
            return
        self.is_closed = True
        with self._changed:
            self._changed.notify_all()
        self._thread.join()
        try:
            with self._asking:
                body = {"member": self.member, "has": self._has(())}
                self.connection.ask("group-leave", body, 0.0)
        except GroupError:
            pass  # the broker hears nothing more of it, and finds that out
        self.connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    # Rows

    def _next(self, until: float | None) -> pa.RecordBatch | None:
        """Rows, if there are any within a moment."""
        if self.failure is not None:
            raise self.failure
        if self.away is not None and self.clock() >= self.away[0] + self.patience:
            raise self.away[1]
        with self._changed:
            ready = {} if self.clock() >= self.lease_until else self._readable()
            if not ready:
                self._changed.wait(_left(until, self.clock()))
                return None
            behind = [
                number for number, part in ready.items() if part.position < self.ends.get(number, 0)
            ]
        try:
            if not behind:
                self._look(ready, _left(until, self.clock()))
                self.pause = _RETRY
                return None
            # One after the other.
            number = min(behind, key=lambda each: (each <= self.last, each))
            self.last = number
            return self._rows_of(number, ready[number])
        except BrokerAwayError as error:
            log.debug("%s", error)
            # A crowd that waits for rows takes turns: there is room for so many questions that wait.
            time.sleep(_left(until, self.clock(), self.pause))
            self.pause = min(2 * self.pause, _LONGEST)
            return None

    def _readable(self) -> dict[int, GroupPart]:
        return {number: part for number, part in self.parts.items() if not part.is_leaving}

    def _look(self, parts: Mapping[int, GroupPart], seconds: float) -> None:
        """Finds out where partitions end, as soon as one has more."""
        after = {str(number): part.position for number, part in parts.items()}
        body = {"stream": self.asked["stream"], "after": after, "wait": seconds}
        body |= _topics(self.asked)
        found = self.connection.ask("latest", body, 0.0)
        self.ends = {int(number): int(end) for number, end in found.items()}

    def _rows_of(self, number: int, part: GroupPart) -> pa.RecordBatch | None:
        """The next rows of a partition, if there are some that are wanted and it still has it."""
        limit = min(self.rows, part.rows)
        ticket: dict[str, Any] = {
            "stream": self.asked["stream"],
            "partition": number,
            "start": part.position,
            "limit": limit,
            **_topics(self.asked),
        }
        if self.asked.get("where"):
            ticket["where"] = self.asked["where"]
        if self.columns:
            ticket["columns"] = [*self.columns, *({"offset"} - set(self.columns))]
        try:
            rows, following = self.connection.read(ticket)
        except GroupError as error:
            if error.code != "offset_out_of_range":
                raise
            self._skip(number, part, int(str(error.extra["earliest"])))
            return None
        first = rows.column("offset")[0].as_py() if rows.num_rows else -1
        with self._changed:
            if not self._may_hand_over(number, part):
                return None
            self.undone = part, part.position, part.first
            part.position = following
            if part.first < 0:
                part.first = first
        if not rows.num_rows:
            return None
        if limit == 1 and part.rows == 1 and not self._is_told(number, part):
            return None
        batch = rows.combine_chunks().to_batches()[0]
        return batch.select(self.columns) if self.columns else batch

    def _may_hand_over(self, number: int, part: GroupPart) -> bool:
        is_own = self.parts.get(number) is part and not part.is_leaving
        return is_own and self.clock() < self.lease_until and not self.is_closed

    def _is_told(self, number: int, part: GroupPart) -> bool:
        """Tells the broker which row it hands over: it is one that nobody could take yet."""
        with self._asking:
            self._say({}, self.patience, {})
        with self._changed:
            return self._may_hand_over(number, part)

    def _skip(self, number: int, part: GroupPart, earliest: int) -> None:
        """What comes next is not there any more."""
        text = "group=%s stream=%s partition=%d goes on at offset=%d instead of %d: what lay before is gone"
        names = self.asked["group"], self.asked["stream"], number
        with self._changed:
            log.warning(text, *names, earliest, part.position)
            part.position = earliest

    # The broker

    def _beats(self) -> None:
        """Says that the program is there, until it is closed."""
        while True:
            with self._changed:
                if not self.is_closed:
                    self._changed.wait_for(lambda: self.is_closed, self.again)
                if self.is_closed:
                    return
            try:
                with self._asking:
                    if not self.member:
                        self._join(0.0)
                    self._say({}, 0.0, {})
            except BrokerAwayError as error:
                log.debug("%s", error)
                self.away = self.away or (self.clock(), error)
                self.again = _RETRY
            except GroupError as error:
                if error.code == "unknown_member":
                    self._forget()
                    self.again = 0.0
                    continue
                self.failure = error
                with self._changed:
                    self._changed.notify_all()
                return

    def _join(self, patience: float) -> None:
        sent = self.clock()
        self._take(self.connection.ask("group-join", self.asked, patience), sent, {})

    def _say(self, more: Mapping[str, Any], patience: float, done: Mapping[int, int]) -> list[int]:
        """Says where the program is, and with what it is done; which partitions it had no more for that."""
        with self._changed:
            back = {
                str(number): part.generation
                for number, part in self.parts.items()
                if part.is_leaving
            }
            ends = {str(number): self.ends.get(number, 0) for number in self.parts}
        body = {"member": self.member, "has": self._has(done), "back": back, "ends": ends, **more}
        until = self.clock() + patience
        while True:
            sent = self.clock()
            try:
                return self._take(self.connection.ask("group-beat", body, 0.0), sent, done)
            except BrokerAwayError:
                if sent >= until or self.is_closed:
                    raise
                time.sleep(_RETRY)

    def _publish(
        self, commit: Mapping[str, Any], messages: pa.Table, done: Mapping[int, int]
    ) -> list[int]:
        """Publishes, and commits; which partitions are another member's, or further: then neither is done."""
        until = self.clock() + self.patience
        self.batch += 1
        for attempt in count():
            part = {"member": self.member, "batch": self.batch, "part": 0, "attempt": attempt}
            body = {"member": self.member, "batch": self.batch, "parts": [[0, attempt]]}
            sent = self.clock()
            try:
                self.connection.stage(part, messages)
                answer = self.connection.ask("group-publish", {**body, **commit}, 0.0)
                return self._take(answer, sent, {} if answer["fenced"] else done)
            except BrokerAwayError:
                if sent >= until or self.is_closed:
                    raise
                time.sleep(_RETRY)
        raise AssertionError

    def _has(self, done: Collection[int]) -> dict[str, int]:
        with self._changed:
            return {
                str(number): part.first
                for number, part in self.parts.items()
                if part.first >= 0 and number not in done
            }

    def _take(self, answer: Mapping[str, Any], sent: float, done: Mapping[int, int]) -> list[int]:
        """The broker has answered a question that left then; `done` is committed, but for what is fenced."""
        fenced = [int(number) for number in answer["fenced"]]
        given = {int(number): each for number, each in answer["partitions"].items()}
        with self._changed:
            self.member = answer["member"]
            self.lease_until = sent + answer["lease"]
            self.again, self.away = answer["again"], None
            for number, position in done.items():
                part = self.parts.get(number)
                if part is not None and number not in fenced:
                    part.committed, part.first = position, -1
            for number, part in list(self.parts.items()):
                if number not in given or given[number]["generation"] != part.generation:
                    self._lose(number, part)
                elif number in fenced:
                    part.committed = given[number]["start"]  # it was committed, and nobody heard
            for number, each in given.items():
                part = self.parts.setdefault(number, GroupPart(each))
                part.rows, part.is_leaving = each["rows"], each["is_leaving"]
            self._changed.notify_all()
        return fenced

    def _lose(self, number: int, part: GroupPart) -> None:
        del self.parts[number]
        if part.first >= 0:
            self.lost.add(number)

    def _forget(self) -> None:
        """It is no member any more: what it has is others'."""
        with self._changed:
            self.member = ""
            self.lease_until = 0.0
            for number, part in list(self.parts.items()):
                self._lose(number, part)


def _topics(asked: Mapping[str, Any]) -> dict[str, Any]:
    return {} if asked.get("filter", "#") == "#" else {"filter": asked["filter"]}


def _left(until: float | None, now: float, most: float = _WAIT) -> float:
    return most if until is None else max(0.0, min(most, until - now))
