"""A call of Flight under way: its place among those that there may be, and the batches of its answer."""

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from math import inf
from operator import itemgetter
from typing import Final, TypeVar

import pyarrow as pa
from pyarrow import flight

from vmq.streams.flight.answering import flight_error
from vmq.streams.flight.get import Sent
from vmq.streams.log.errors import StreamError

log = logging.getLogger("vmq.streams")

T = TypeVar("T")

#: Seconds for which a call keeps its place while its peer takes or sends nothing.
PATIENCE: Final = 30.0
#: Calls at most that lost their places so and wait for their peers all the same: each has a thread.
MOST_STALLED: Final = 256


class CallPlaces:
    """Calls of one kind at a time.

    Whose peer takes and sends nothing for a while has no claim to its place: who asks for one gets it.

    Args:
        most: of them.
        clock: seconds.
    """

    def __init__(self, most: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._most = most
        self._clock = clock
        #: A call may end in the midst of a change, when garbage is collected.
        self._lock = threading.RLock()
        #: Since when each waits for its peer; those at work for ever later.
        self._waiting: dict[int, float] = {}
        #: Those that lost their places, and are there.
        self._stalled: set[int] = set()

    @property
    def free(self) -> int:
        """Places that nobody has."""
        return self._most - len(self._waiting)

    def take(self, call: int) -> bool:
        """Whether a call has a place: the one that it had, or another."""
        with self._lock:
            if call not in self._waiting and self.free <= 0 and not self._take_back():
                return False
            self._stalled.discard(call)
            self._waiting[call] = inf
            return True

    def wait(self, call: int) -> None:
        """A call goes on when its peer does."""
        with self._lock:
            if call in self._waiting:
                self._waiting[call] = self._clock()

    def leave(self, call: int) -> None:
        """A call is over."""
        with self._lock:
            self._waiting.pop(call, None)
            self._stalled.discard(call)

    def _take_back(self) -> bool:
        call, since = min(self._waiting.items(), key=itemgetter(1))
        if self._clock() - since < PATIENCE or len(self._stalled) >= MOST_STALLED:
            return False
        del self._waiting[call]
        self._stalled.add(call)
        return True


class Slot:
    """One of a bounded number of places; freed with the last reference to it.

    A stream that a client gives up before its first batch is never run: only its end as an object
    is certain.

    Raises:
        FlightUnavailableError: there is none.
    """

    def __init__(self, places: CallPlaces, what: str) -> None:
        self.places: CallPlaces | None = None
        self.what = what
        self.take(places)

    def take(self, places: CallPlaces) -> None:
        """Takes a place, or goes on with the one that it has."""
        if not places.take(id(self)):
            raise flight.FlightUnavailableError(f"too many {self.what} at a time: try again")
        self.places = places

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """The peer's turn. If that takes long, another call may need the place meanwhile.

        Raises:
            FlightUnavailableError: it did, and there is no other.
        """
        places = self.places
        assert places is not None
        places.wait(id(self))
        yield
        self.take(places)

    def each(self, reader: Iterable[T]) -> Iterator[T]:
        """What the peer sends."""
        chunks = iter(reader)
        while True:
            with self.waiting():
                chunk = next(chunks, None)
            if chunk is None:
                return
            yield chunk

    def free(self) -> None:
        """Gives the place back."""
        places, self.places = self.places, None
        if places is not None:
            places.leave(id(self))

    __del__ = free


def sent(
    found: tuple[pa.Schema, Iterator[Sent]], slot: Slot, stopping: threading.Event
) -> flight.GeneratorStream:
    """The answer of a get.

    Raises:
        StreamError: something is wrong with what is asked for: that is said before the stream begins.
    """
    schema, batches = found
    first = next(batches, None)
    return flight.GeneratorStream(schema, _until_the_end(first, batches, slot, stopping))


def _until_the_end(
    batch: Sent | None, others: Iterator[Sent], slot: Slot, stopping: threading.Event
) -> Iterator[Sent]:
    try:
        while batch is not None:
            if stopping.is_set():
                raise flight.FlightUnavailableError("the server ends")
            with slot.waiting():
                yield batch
            batch = next(others, None)
    except StreamError as error:
        raise flight_error(error) from None
    except OSError:
        log.exception("a get of Flight failed")
        raise flight.FlightInternalError("internal error; the server's log has it") from None
    finally:
        slot.free()
