"""Following a stream by Flight, as `vmq stream tail` does: from its end or any offset on, as rows come."""

from collections.abc import Iterator
from typing import Final

import msgspec
import pyarrow as pa
from pyarrow import flight

from vmq.streams.errors import StreamError
from vmq.streams.tickets import OffsetsQuery, Ticket, encode

#: Seconds of one waiting call.
_WAIT: Final = 10.0


class Tail:
    """Follows all partitions of a stream.

    Args:
        client: connected to a server of vmq.
        stream: the stream's name.
        topic_filter: an MQTT topic filter; None = all topics.
        call: options of the calls, such as the credentials.
        start: offsets to begin at, by partition; None = what comes from now on.

    Raises:
        FlightError: the server refuses it; the text says why.
    """

    def __init__(
        self,
        client: flight.FlightClient,
        stream: str,
        topic_filter: str | None = None,
        call: flight.FlightCallOptions | None = None,
        start: dict[int, int] | None = None,
    ) -> None:
        self.client = client
        self.stream = stream
        self.filter = topic_filter
        self.call = call
        self.next = self._offsets({}) if start is None else dict(start)

    def batches(self, wait: float = _WAIT) -> Iterator[pa.RecordBatch]:
        """What has come since the last call; waits up to `wait` seconds for the first row.

        Call it again and again to follow the stream. Rows that do not match the filter count as
        news as well, so that there may be none.
        """
        ends = self._offsets(self.next, wait)
        for partition, end in sorted(ends.items()):
            start = self.next.get(partition, 0)
            if start >= end:
                continue
            ticket = Ticket(
                stream=self.stream, partition=partition, start=start, end=end, filter=self.filter
            )
            reader = self.client.do_get(flight.Ticket(encode(ticket)), self.call)
            for chunk in reader:
                yield chunk.data
                self.next[partition] = _next_of(chunk)

    def _offsets(self, after: dict[int, int], wait: float = 0.0) -> dict[int, int]:
        """The ends of the partitions, once one of them is behind a given offset."""
        body = msgspec.json.encode(OffsetsQuery(stream=self.stream, after=after or None, wait=wait))
        (result,) = self.client.do_action(flight.Action("latest", body), self.call)
        return msgspec.json.decode(result.body.to_pybytes(), type=dict[int, int])


def _next_of(chunk: flight.FlightStreamChunk) -> int:
    """Where to read on behind a chunk."""
    if chunk.app_metadata is None:
        raise StreamError("the server does not say where its batches end: it is none of vmq")
    return msgspec.json.decode(chunk.app_metadata.to_pybytes(), type=dict[str, int])["next"]
