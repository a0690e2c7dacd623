"""A call of Flight under way: its place among those that there may be, and the batches of its answer."""

import logging
import threading
from collections.abc import Iterator

import pyarrow as pa
from pyarrow import flight

from vmq.streams.flight.answering import flight_error
from vmq.streams.flight.get import Sent
from vmq.streams.log.errors import StreamError

log = logging.getLogger("vmq.streams")


class Slot:
    """One of a bounded number of places; freed with the last reference to it.

    A stream that a client gives up before its first batch is never run: only its end as an object
    is certain.
    """

    def __init__(self, places: threading.Semaphore, what: str) -> None:
        self.places: threading.Semaphore | None = None
        if not places.acquire(blocking=False):
            raise flight.FlightUnavailableError(f"too many {what} at a time: try again")
        self.places = places

    def free(self) -> None:
        """Gives the place back."""
        places, self.places = self.places, None
        if places is not None:
            places.release()

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
            yield batch
            batch = next(others, None)
    except StreamError as error:
        raise flight_error(error) from None
    except OSError:
        log.exception("a get of Flight failed")
        raise flight.FlightInternalError("internal error; the server's log has it") from None
    finally:
        slot.free()
