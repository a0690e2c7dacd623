"""A stream of a test's own, for those who read topics as tables: with Arrow, DuckDB or Spark."""

import asyncio
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from vmq.testing.thread import BrokerThread

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql import DataFrame, SparkSession

R = TypeVar("R")


class SparkStream(BrokerThread):
    """A broker with one stream, and an address by which it is read.

    Args:
        filters: the topics that the stream keeps.
        name: of the stream.
        partitions: how many it has.
        folder: as of `BrokerThread`.
        options: as of `BrokerThread`.
    """

    def __init__(
        self,
        filters: str | Iterable[str] = "#",
        *,
        name: str = "stream",
        partitions: int = 1,
        folder: Path | None = None,
        **options: Any,
    ) -> None:
        wanted = [filters] if isinstance(filters, str) else list(filters)
        streams = {
            **options.pop("streams", {}),
            name: {"filters": wanted, "partitions": partitions},
        }
        listen = options.pop("listen", ("tcp://127.0.0.1:0", "grpc://127.0.0.1:0"))
        super().__init__(folder=folder, listen=listen, streams=streams, **options)
        #: The stream's name.
        self.name = name

    @property
    def server(self) -> str:
        """The address of Arrow Flight, for the option `server` of Spark's format `vmq`."""
        return next(each for each in self.addresses if each.startswith("grpc"))

    def add(self, *messages: tuple[str, bytes | str]) -> None:
        """Publishes topics and payloads; returns when the stream has them."""

        async def publish() -> None:
            pairs = [(t, p.encode() if isinstance(p, str) else p) for t, p in messages]
            await asyncio.gather(*(self.broker.publish(t, p, qos=1) for t, p in pairs))

        self.run(publish())

    def table(self) -> "pyarrow.Table":
        """All that the stream has now, by partition and offset."""
        import pyarrow
        from pyarrow import flight

        with flight.connect(self.server) as client:
            info = client.get_flight_info(flight.FlightDescriptor.for_path(self.name))
            tables = [client.do_get(each.ticket).read_all() for each in info.endpoints]
        return pyarrow.concat_tables(tables)

    def read(self, spark: "SparkSession", **options: Any) -> "DataFrame":
        """All that the stream has, as a DataFrame; `options` are those of the format `vmq`."""
        return self._options(spark, spark.read, options).load()

    def read_stream(self, spark: "SparkSession", **options: Any) -> "DataFrame":
        """The stream as a streaming DataFrame, from its beginning unless `startingOffsets` says otherwise."""
        stated = {"startingOffsets": "earliest", **options}
        return self._options(spark, spark.readStream, stated).load()

    def _options(self, spark: "SparkSession", reader: R, options: dict[str, Any]) -> R:
        import pyspark_vmq

        pyspark_vmq.register(spark)
        stated: Any = reader
        found: R = (
            stated.format("vmq")
            .option("server", self.server)
            .option("stream", self.name)
            .options(**options)
        )
        return found
