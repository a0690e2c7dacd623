"""Spark's reports on a query's batches, made into its progress; and Spark's errors, made into a line."""

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final

from vmq_spark.status import QueryProgress

#: Characters of an error that are kept.
LONGEST_ERROR: Final = 1000
#: What Python's part of a traceback begins a line with, when the error is one of pyspark_vmq's.
OURS: Final = ("pyspark_vmq.errors.", "vmq: ")
#: What a line begins with that only says which call of Java failed.
OF_PY4J: Final = "An error occurred while calling "
#: What an error says when a process that a query needs was gone: a worker of Spark's, or the broker.
GONE: Final = (
    "pyspark_vmq.errors.Unavailable",
    "Python worker exited unexpectedly",
    "Python worker failed to connect back",
    # The same where Spark was waiting for an answer of its process.
    "java.io.EOFException",
    "java.io.IOException: Stream closed",
    "java.net.SocketException",
)
#: What Python begins the account of an exception with, whose own line is the first one that is not indented.
TRACEBACK: Final = "Traceback (most recent call last):"
#: What Spark says of a query that has failed and had planned no batch yet.
NOT_BEGUN: Final = "Current State: INITIALIZING"


class Tracker:
    """Adds up the reports on one query. Spark keeps the last ones; each is counted once."""

    def __init__(self) -> None:
        self.progress = QueryProgress()

    def see(self, reports: Iterable[Mapping[str, Any]]) -> QueryProgress:
        """Takes reports in order; those seen before add nothing.

        An idle query reports too, with the number of the batch that is to come: reports are told apart by
        their times.
        """
        progress = self.progress
        for each in reports:
            time = str(each["timestamp"])
            if time <= progress.time:
                continue
            progress.time = time
            progress.rows_per_second = float(each.get("inputRowsPerSecond") or 0.0)
            progress.lag = lag_of(each)
            durations = each.get("durationMs") or {}
            if "addBatch" not in durations:
                continue
            progress.batch = int(each["batchId"])
            progress.batch_seconds = int(durations["triggerExecution"]) / 1000
            progress.rows += int(each.get("numInputRows") or 0)
            progress.late += late_rows(each)
        return progress


def late_rows(report: Mapping[str, Any]) -> int:
    """Rows of a batch that the watermark left out."""
    operators = report.get("stateOperators") or []
    return sum(int(each.get("numRowsDroppedByWatermark") or 0) for each in operators)


def lag_of(report: Mapping[str, Any]) -> dict[str, dict[str, int]] | None:
    """Messages between what a query has read and what the broker has; None: it reads no stream."""
    lag: dict[str, dict[str, int]] = {}
    for source in report.get("sources") or []:
        latest, end = _offsets(source.get("latestOffset")), _offsets(source.get("endOffset"))
        if latest is None or end is None:
            continue
        for stream, partitions in latest.items():
            read = end.get(stream, {})
            into = lag.setdefault(stream, {})
            for partition, offset in partitions.items():
                into[partition] = max(0, offset - read.get(partition, 0))
    return lag or None


def _offsets(plain: object) -> dict[str, dict[str, int]] | None:
    """The offsets of vmq; None: those of another source."""
    try:
        value = json.loads(plain) if isinstance(plain, str) else plain
        return {
            stream: {partition: int(offset) for partition, offset in partitions.items()}
            for stream, partitions in value["s"].items()  # type: ignore[index]  # not so: TypeError
        }
    except (ValueError, TypeError, KeyError, AttributeError):
        return None


def reason(error: BaseException | str) -> str:
    """One line for an error of Spark's: the last that is ours, else the first with what Python or Java has raised."""
    lines = [line.strip().removeprefix(": ") for line in str(error).splitlines() if line.strip()]
    lines = [line for line in lines if not line.startswith(OF_PY4J)] or lines
    ours = [line for line in lines if line.startswith(OURS)]
    said = ours[-1] if ours else told(error, next(iter(lines), type(error).__name__))
    for prefix in OURS:
        # "pyspark_vmq.errors.OptionError: vmq: option ..." says the same with less.
        if said.startswith(prefix):
            said = said[said.find("vmq: ") + len("vmq: ") :] if "vmq: " in said else said
    said = said[:LONGEST_ERROR]
    return said + " (before its first batch)" if NOT_BEGUN in lines else said


def told(error: BaseException | str, first: str) -> str:
    """The first line of an error of Spark's, with the cause where that line leaves it out.

    A worker of Spark's that dies leaves Java an exception without a text (EOFException), or one that says little by
    itself ("Stream closed").
    """
    raised = raised_in(str(error))
    if raised is not None:
        return f"{first.removesuffix(TRACEBACK).rstrip(' :')}: {raised}"
    cause = getattr(error, "_cause", None)  # as PySpark's exceptions have it
    if cause is None:
        return first
    deeper = reason(cause)
    if first in deeper:
        return deeper
    return first if deeper.partition(": ")[2] in first and ": " in deeper else f"{first}: {deeper}"


def raised_in(text: str) -> str | None:
    """The exception of the last traceback of Python's in a text."""
    found, is_inside = None, False
    for line in text.splitlines():
        if line.strip().endswith(TRACEBACK):
            is_inside = True
        elif is_inside and line.strip() and not line[:1].isspace():
            found, is_inside = line.strip(), False
    return found


def may_pass(error: BaseException) -> bool:
    """Whether something was gone that the next driver may have: its JVM, a worker of Spark's, or the broker."""
    # By name: whoever has no pyspark has no py4j to import.
    is_jvm = isinstance(error, ConnectionError) or type(error).__name__ == "Py4JNetworkError"
    return not is_final(error) and (is_jvm or any(each in str(error) for each in GONE))


def is_final(error: BaseException | str) -> bool:
    """Whether trying again would fail likewise: the query itself is wrong."""
    return "pyspark_vmq.errors.OptionError" in str(error)
