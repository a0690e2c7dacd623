"""What a pipeline is built with: messages come in, tables and messages go out.

Importing this needs no Spark.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from vmq_spark.errors import PipelineError
from vmq_spark.status import is_name

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter
    from pyspark.sql.types import StructType

#: Messages in one batch, unless a pipeline says otherwise: a backlog is read in pieces that fit into memory.
BATCH: Final = 200_000


class Flow:
    """The handle that an entry function gets: `def pipeline(flow, *, option=...)`.

    Args:
        spark: the session; free to be used for anything.
        connection: options of pyspark_vmq for every reader and writer.
        output: where tables go.
    """

    def __init__(self, spark: "SparkSession", connection: Mapping[str, str], output: str) -> None:
        self.spark = spark
        self.connection = dict(connection)
        self.output = output
        self.queries: dict[str, DataStreamWriter] = {}

    def messages(self, topic: str = "", **options: str | int | bool) -> "DataFrame":
        """The messages of a topic filter, from the first that is kept, as pyspark_vmq gives them.

        Args:
            topic: an MQTT topic filter; without one `stream="..."` says what to read.
            options: further ones of pyspark_vmq, such as startingOffsets or maxOffsetsPerTrigger.
        """
        given: dict[str, Any] = {
            "startingOffsets": "earliest",
            "maxOffsetsPerTrigger": BATCH,
            **self.connection,
            **({"topic": topic} if topic else {}),
            **options,
        }
        return self.spark.readStream.format("vmq").options(**given).load()

    def table(self, name: str, rows: "DataFrame", *, partition_by: Sequence[str] = ()) -> None:
        """Has rows appended to a Parquet table in the output folder, each once."""
        writer = rows.writeStream.format("parquet").option("path", self.path(name))
        self.query(name, writer.partitionBy(*partition_by) if partition_by else writer)

    def read_table(self, name: str, schema: "StructType") -> "DataFrame":
        """The rows that another query of this pipeline appends to a table."""
        self._make_folder(self.path(name))
        return self.spark.readStream.schema(schema).parquet(self.path(name))

    def publish(self, name: str, rows: "DataFrame", **options: str | int | bool) -> None:
        """Has rows published, each once: columns topic, payload, qos, retain as pyspark_vmq takes them."""
        given: dict[str, Any] = {**self.connection, **options}
        self.query(name, rows.writeStream.format("vmq").options(**given))

    def query(self, name: str, writer: "DataStreamWriter") -> None:
        """Has any other query run. The runner sets its checkpoint and its trigger.

        Raises:
            PipelineError: the name is taken or unusable.
        """
        if not is_name(name):
            raise PipelineError(
                f"a query cannot be named {name!r}; accepted: letters, digits, _ and -"
            )
        if name in self.queries:
            raise PipelineError(f"two queries are named {name!r}")
        self.queries[name] = writer

    def path(self, name: str) -> str:
        """Where a table lies."""
        return f"{self.output.rstrip('/')}/{name}"

    def _make_folder(self, path: str) -> None:
        """Spark reads no folder that is not there. Any file system that Spark knows will do."""
        session: Any = self.spark
        place = session._jvm.org.apache.hadoop.fs.Path(path)
        place.getFileSystem(session._jsc.hadoopConfiguration()).mkdirs(place)
