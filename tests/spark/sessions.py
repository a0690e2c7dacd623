"""A Spark session on this machine, for tests and measurements."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: What every session is made with: nothing listens for the network, nothing is shown.
CONF = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.catalogImplementation": "in-memory",
}
#: What is in the environment of programs whose Spark is to end soon: the quick one of Java's compilers, for what ends
#: within minutes does not earn back what the other one takes.
QUICK_JAVA = {"SPARK_SUBMIT_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}


def local_session(master: str, conf: Mapping[str, str]) -> SparkSession:
    """The session of this process, silent."""
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master(master).appName("tests")
    for name, value in {**CONF, **conf}.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    return session
