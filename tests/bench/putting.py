"""Fills a stream by Flight."""

import pyarrow as pa
from pyarrow import flight


def put(url: str, stream: str, rows: pa.RecordBatch, count: int) -> None:
    """Puts so many rows: these, again and again."""
    with flight.connect(url) as client:
        writer, answers = client.do_put(flight.FlightDescriptor.for_path(stream), rows.schema)
        for done in range(0, count, rows.num_rows):
            writer.write_batch(rows.slice(0, min(rows.num_rows, count - done)))
            answers.read()
        writer.close()
