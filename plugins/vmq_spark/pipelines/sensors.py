"""Readings of sensors: cleaned, averaged per device and site, with alerts.

Messages such as `{"value": 21.5}`, or `{"value": 21.5, "time": "2026-01-31T12:00:00Z"}`, become

- the table `readings`: site, device, value, time, received, partition, offset, day. A reading's time is its
  message's `time` (ISO 8601, UTC where it says no zone, or seconds since 1970), or else when
  the broker received it; never later than that, lest one device whose clock is ahead makes
  all others late. What has no value, or one out of bounds, is left out.
- the table `averages`: site, device, start, end, readings, average, lowest, highest; a row for each window in
  which a device was heard, once `watermark` has passed since the window's end. What comes later than that
  is left out here (`vmq spark status` counts it), and is in `readings` all the same.
- messages to `alert_topic` for each window whose average is above `threshold`:
  `{"site": ..., "device": ..., "average": ..., "threshold": ..., "start": ..., "end": ...}`.

Time goes on by messages: the last window before a silence is closed when somebody speaks again.
"""

from typing import TYPE_CHECKING, Annotated, Final

from msgspec import Meta

from vmq_spark.errors import PipelineError
from vmq_spark.flow import Flow
from vmq_spark.options import Duration, interval

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

#: The year 10000 begins: beyond that, Spark cannot show a time.
END_OF_TIME: Final = 253_402_300_800


def pipeline(
    flow: Flow,
    *,
    topic: Annotated[
        str, Meta(description="Where readings come from; {site} and {device} are levels of it.")
    ] = "sensors/{site}/{device}/temp",
    lowest: Annotated[float, Meta(description="Values below are left out.")] = -100.0,
    highest: Annotated[float, Meta(description="Values above are left out.")] = 200.0,
    window: Annotated[Duration, Meta(description="What is averaged over.")] = "1m",
    watermark: Annotated[
        Duration, Meta(description="How late a reading may be, by its time.")
    ] = "5m",
    threshold: Annotated[float, Meta(description="An average above this raises an alert.")] = 30.0,
    alert_topic: Annotated[
        str, Meta(description="Where alerts go; {site} and {device} are filled in.")
    ] = "alerts/{site}/{device}",
    qos: Annotated[int, Meta(ge=0, le=2, description="Of the alerts.")] = 1,
) -> None:
    """Raw messages, readings, averages, alerts."""
    readings = cleaned(flow.messages(filter_of(topic)), topic, lowest, highest)
    flow.table("readings", readings, partition_by=["day"])
    averages = averaged(readings, interval(window), interval(watermark))
    flow.table("averages", averages)
    # From the table, so that windows are kept once: Spark reads what is committed there, in order.
    hot = flow.read_table("averages", averages.schema)
    flow.publish("alerts", alerts(hot, threshold, alert_topic), qos=qos)


def filter_of(topic: str) -> str:
    """The topic filter for a topic with {site} and {device}.

    Raises:
        PipelineError: a name is missing, or another is there.
    """
    levels = topic.split("/")
    if sorted(each for each in levels if each.startswith("{")) != ["{device}", "{site}"]:
        raise PipelineError(
            f"option 'topic': {topic!r} is not accepted; {{site}} and {{device}} are levels of it, "
            "as in sensors/{site}/{device}/temp"
        )
    return "/".join("+" if each.startswith("{") else each for each in levels)


def cleaned(messages: "DataFrame", topic: str, lowest: float, highest: float) -> "DataFrame":
    """Readings of a known device, with a value that can be and a time."""
    from pyspark.sql import functions as f
    from pyspark_vmq import parse

    typed = parse(messages, topic, "value double, time string")
    seconds = f.col("time").try_cast("double")
    said = f.coalesce(
        f.when(seconds.between(0, END_OF_TIME - 1), f.timestamp_seconds(seconds)),
        f.try_to_timestamp("time"),
        f.col("timestamp"),
    )
    # NaN is above every number.
    return typed.where(f.col("value").between(lowest, highest)).select(
        "site",
        "device",
        "value",
        f.least(said, "timestamp").alias("time"),
        f.col("timestamp").alias("received"),
        "partition",
        "offset",
        f.to_date("timestamp").alias("day"),
    )


def averaged(readings: "DataFrame", window: str, watermark: str) -> "DataFrame":
    """A row for each window and device."""
    from pyspark.sql import functions as f

    value = f.col("value")
    return (
        readings.withWatermark("time", watermark)
        .groupBy(f.window("time", window), "site", "device")
        .agg(
            f.count(value).alias("readings"),
            f.avg(value).alias("average"),
            f.min(value).alias("lowest"),
            f.max(value).alias("highest"),
        )
        .select(
            "site",
            "device",
            f.col("window.start").alias("start"),
            f.col("window.end").alias("end"),
            "readings",
            "average",
            "lowest",
            "highest",
        )
    )


def alerts(averages: "DataFrame", threshold: float, topic: str) -> "DataFrame":
    """A message for each average above the threshold."""
    from pyspark.sql import functions as f

    fields = ("site", "device", "average", f.lit(threshold).alias("threshold"), "start", "end")
    return averages.where(f.col("average") > threshold).select(
        filled(topic).alias("topic"), f.to_json(f.struct(*fields)).alias("payload")
    )


def filled(topic: str) -> "Column":
    """The topic with the row's site and device in it, level by level."""
    from pyspark.sql import functions as f

    names = {"{site}": f.col("site"), "{device}": f.col("device")}
    return f.concat_ws("/", *(names.get(each, f.lit(each)) for each in topic.split("/")))
