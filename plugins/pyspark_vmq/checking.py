"""What a query would find out at its start, found out without Spark, whose start takes long."""

from collections.abc import Mapping

from pyspark.sql.datasource import CaseInsensitiveDict

from pyspark_vmq.client import Client
from pyspark_vmq.options import source_options
from pyspark_vmq.positions import streams_to_read


def check_stream(given: Mapping[str, object]) -> None:
    """Returns if a query of `spark.readStream.format("vmq")` with these options could begin.

    What is wrong is said in the words of the query. A broker that is away is waited for as a query does.

    Raises:
        OptionError: an option is missing or not accepted, or no stream keeps the topic.
        Unavailable: the broker cannot be reached.
        ServerError: it refuses the user, or has no such stream.
    """
    texts = {name: as_spark(value) for name, value in given.items()}
    options = source_options(CaseInsensitiveDict(texts), "stream")
    client = Client(options.connection)
    try:
        for stream in streams_to_read(client, options):
            client.latest(stream)
    finally:
        # Spark starts processes: nothing of gRPC is to be left then.
        client.client.close()


def as_spark(value: object) -> str:
    """An option as Spark hands it over."""
    return str(value).lower() if isinstance(value, bool) else str(value)
