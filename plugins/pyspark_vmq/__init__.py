"""vmq's streams in Spark: `spark.readStream.format("vmq")` and `df.writeStream.format("vmq")`.

Spark finds the format by the name of this package. Importing it is cheap, since Spark imports it
for everybody who uses any data source in Python.
"""

from typing import TYPE_CHECKING

from pyspark_vmq.errors import DataLossError, OptionError, ServerError, VmqError
from pyspark_vmq.parse import parse
from pyspark_vmq.source import DefaultSource
from pyspark_vmq.views import register_streams

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = [
    "DataLossError",
    "DefaultSource",
    "OptionError",
    "ServerError",
    "VmqError",
    "parse",
    "register",
    "register_streams",
]


def register(spark: "SparkSession") -> None:
    """Makes the format known to a session that did not find it.

    Spark's own search ends without a word when any other package named `pyspark_...` fails to
    import.
    """
    spark.dataSource.register(DefaultSource)
