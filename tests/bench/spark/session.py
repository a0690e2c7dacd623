"""What the measurements of Spark's side share: a session, where the broker listens, a figure and its bar."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

from tests.spark.sessions import local_session
from tests.spark.support import executors_environment

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: What pyspark_vmq's page advises.
FLAGS = "-Darrow.enable_unsafe_memory_access=true -Darrow.enable_null_check_for_get=false"
ADVISED = {
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.driver.extraJavaOptions": FLAGS,
}

LISTEN = ("tcp://127.0.0.1:0", "grpc://127.0.0.1:0")


class Bar(NamedTuple):
    """A ratio and what it should be, at most or at least; None = it is for information."""

    name: str
    ratio: float
    bar: float | None
    least: bool = False

    def __str__(self) -> str:
        if self.bar is None:
            return f"{self.name:40} {self.ratio:6.2f}"
        met = self.ratio >= self.bar if self.least else self.ratio <= self.bar
        wanted = f"{'at least' if self.least else 'at most'} {self.bar}"
        return f"{self.name:40} {self.ratio:6.2f}   {wanted}: {'met' if met else 'MISSED'}"


def session(*, plain: bool = False) -> SparkSession:
    """A local session; `plain` leaves out what pyspark_vmq's page advises."""
    os.environ.update(executors_environment())
    conf = {"spark.sql.streaming.noDataMicroBatches.enabled": "false"}
    return local_session("local[2]", conf if plain else conf | ADVISED)
