"""All streams of a broker as views of a Spark session, by one line."""

from typing import TYPE_CHECKING

from pyspark_vmq.client import client_of
from pyspark_vmq.options import connection_of
from pyspark_vmq.schema import DDL, columns_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register_streams(
    spark: "SparkSession", server: str, prefix: str = "", **options: str
) -> list[str]:
    """Makes a view of each stream that the user may read; returns their names.

    A view has the columns of all streams and the typed ones of its own, and shows what is there whenever it is
    queried: `spark.sql("select topic, avg(temp) from sensors group by topic")`. A `-` in a name becomes `_`.

    Args:
        spark: the session.
        server: as the option `server` of `format("vmq")`.
        prefix: what the names of views begin with.
        options: more options of `format("vmq")`: `username`, `password`, `cafile`, ...

    Raises:
        OptionError: an option is wrong.
        ServerError: the broker refuses, or cannot be reached.
    """
    given = {"server": server, **options}
    client = client_of(connection_of(given))
    names = []
    for stream in sorted(client.streams()):
        typed = columns_of(client.schema(stream))
        ddl = ", ".join([DDL, *(f"`{name}` {kind}" for name, kind in typed.items())])
        rows = spark.read.format("vmq").options(**given).option("stream", stream).schema(ddl).load()
        name = prefix + stream.replace("-", "_")
        rows.createOrReplaceTempView(name)
        names.append(name)
    return names
