"""The bridge to Spark on the broker's side: streams that Spark reads with `format("vmq")`."""

from vmq_spark.plugin import SparkConfig, SparkPlugin, SparkStream

__all__ = ["SparkConfig", "SparkPlugin", "SparkStream"]
