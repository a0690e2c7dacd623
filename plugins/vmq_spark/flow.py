"""What a pipeline is built with: messages come in, tables and messages go out.

Importing this needs no Spark.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from vmq_spark.errors import PipelineError, UnreadyError
from vmq_spark.progress import reason
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
        start: gives the session; called when it is first needed.
        connection: options of pyspark_vmq for every reader and writer.
        output: where tables go.
        is_new: what the broker refuses is a mistake, and not to be tried again.
    """

    def __init__(
        self,
        start: "Callable[[], SparkSession]",
        connection: Mapping[str, str],
        output: str,
        *,
        is_new: bool = False,
    ) -> None:
        self._start = start
        self._is_new = is_new
        self.connection = dict(connection)
        self.output = output
        self.queries: dict[str, DataStreamWriter] = {}

    @cached_property
    def spark(self) -> "SparkSession":
        """The session; free to be used for anything."""
        return self._start()

    def messages(self, topic: str = "", **options: str | int | bool) -> "DataFrame":
        """The messages of a topic filter, from the first that is kept, as pyspark_vmq gives them.

        Args:
            topic: an MQTT topic filter; without one `stream="..."` says what to read.
            options: further ones of pyspark_vmq, such as startingOffsets or maxOffsetsPerTrigger.

        Raises:
            PipelineError: they are not accepted, or the broker refuses them.
            UnreadyError: the broker cannot be asked now.
        """
        given: dict[str, Any] = {
            "startingOffsets": "earliest",
            "maxOffsetsPerTrigger": BATCH,
            **self.connection,
            **({"topic": topic} if topic else {}),
            **options,
        }
        self._check(given)  # before Spark is there, whose start takes long
        return self.spark.readStream.format("vmq").options(**given).load()

    def _check(self, given: Mapping[str, Any]) -> None:
        """Whether messages can be read by these options."""
        from pyspark_vmq.checking import check_stream
        from pyspark_vmq.errors import OptionError, ServerError, Unavailable

        try:
            check_stream(given)
        except OptionError as problem:
            raise PipelineError(reason(problem)) from None
        except ServerError as problem:
            if self._is_new and not isinstance(problem, Unavailable):
                raise PipelineError(reason(problem)) from None
            raise UnreadyError(reason(problem)) from None

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
