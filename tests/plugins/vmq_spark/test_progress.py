"""Spark's reports and errors, as Spark 4.3 words them."""

import json
from typing import Any

import pytest
from vmq_spark.progress import LONGEST_ERROR, Tracker, is_final, lag_of, may_pass, reason


def report(
    batch: int,
    rows: int,
    *,
    second: int | None = None,
    is_idle: bool = False,
    late: int = 0,
    end: int = 0,
    latest: int = 0,
) -> dict[str, Any]:
    def offsets(value: int) -> str:
        return json.dumps({"v": 1, "s": {"a": {"0": value, "1": 2 * value}}})

    return {
        "timestamp": f"2026-01-01T00:00:0{batch if second is None else second}.000Z",
        "batchId": batch,
        "numInputRows": rows,
        "inputRowsPerSecond": rows / 2,
        "durationMs": {"triggerExecution": 1500} | ({} if is_idle else {"addBatch": 900}),
        "stateOperators": [{"numRowsDroppedByWatermark": late}],
        "sources": [{"endOffset": offsets(end), "latestOffset": offsets(latest)}],
    }


def test_each_batch_counts_once() -> None:
    tracker = Tracker()
    first = [report(4, 10, late=1), report(5, 20, late=2, end=7, latest=9)]
    tracker.see(first)
    seen = tracker.see([*first, report(6, 30, end=9, latest=19)])
    assert (seen.batch, seen.rows, seen.late) == (6, 60, 3)
    assert (seen.rows_per_second, seen.batch_seconds) == (15, 1.5)
    assert seen.lag == {"a": {"0": 10, "1": 20}}
    assert seen.time.startswith("2026")


def test_an_idle_report_changes_the_lag_only() -> None:
    tracker = Tracker()
    tracker.see([report(0, 10, end=1, latest=1)])
    idle = report(1, 0, is_idle=True, second=2, end=1, latest=3)
    seen = tracker.see([report(0, 10, end=1, latest=1), idle])
    assert (seen.batch, seen.rows, seen.rows_per_second) == (0, 10, 0)
    assert seen.total_lag == 6
    assert tracker.see([]) == seen
    # The batch that the idle query had announced.
    seen = tracker.see([idle, report(1, 5, second=3, end=3, latest=3)])
    assert (seen.batch, seen.rows, seen.total_lag) == (1, 15, 0)


@pytest.mark.parametrize(
    "source",
    [
        {},
        {"endOffset": None, "latestOffset": None},
        {"endOffset": '{"logOffset":2}', "latestOffset": None},
        {"endOffset": "3", "latestOffset": "4"},
        {"endOffset": "{", "latestOffset": '{"s": {"a": {"0": 1}}}'},
        {"endOffset": '{"s": {"a": {"0": "x"}}}', "latestOffset": '{"s": {"a": {"0": 1}}}'},
    ],
)
def test_other_sources_have_no_lag(source: dict[str, Any]) -> None:
    assert lag_of({"sources": [source]}) is None


def test_a_partition_that_was_not_read_yet_lags_whole() -> None:
    source = {"endOffset": '{"s": {"a": {}}}', "latestOffset": {"s": {"a": {"0": 5}}}}
    assert lag_of({"sources": [source]}) == {"a": {"0": 5}}


FAILED = """\
[STREAM_FAILED] Query [id = 1] terminated with exception: [PYTHON_STREAMING_DATA_SOURCE_RUNTIME_ERROR] Failed
Traceback (most recent call last):
  File "x.py", line 1, in latestOffset
pyspark_vmq.errors.OptionError: vmq: option 'topic': 'a/#/b' is no MQTT topic filter
JVM stacktrace:
org.apache.spark
"""


def test_a_query_that_failed_before_its_first_batch_says_so() -> None:
    early = (
        "[STREAM_FAILED] Query [id = 1] terminated with exception: null\n=== Streaming Query ===\n"
    )
    said = "[STREAM_FAILED] Query [id = 1] terminated with exception: null"
    assert reason(early + "Current State: ACTIVE\n") == said
    assert reason(early + "Current State: INITIALIZING\n") == said + " (before its first batch)"


class Py4JNetworkError(Exception):
    """As py4j's."""


@pytest.mark.parametrize(
    ("error", "passes"),
    [
        (ConnectionRefusedError(111, "Connection refused"), True),
        (Py4JNetworkError("Answer from Java side is empty"), True),
        (
            RuntimeError("o1.load\n: SparkException: Python worker exited unexpectedly (crashed)"),
            True,
        ),
        (RuntimeError("o1.load\n: java.io.EOFException\n\tat java.base/"), True),
        (RuntimeError("o1.load\n: java.net.SocketException: Connection reset"), True),
        (RuntimeError("[X] Failed\npyspark_vmq.errors.Unavailable: vmq: no answer"), True),
        (
            RuntimeError("pyspark_vmq.errors.OptionError: x\nPython worker exited unexpectedly"),
            False,
        ),
        (RuntimeError("[UNRESOLVED_COLUMN] There is no column `x`."), False),
        (FileNotFoundError(2, "No such file"), False),
    ],
)
def test_what_is_gone_may_be_there_for_the_next_driver(error: Exception, passes: bool) -> None:
    assert may_pass(error) is passes


class CapturedError(Exception):
    """As PySpark's, which keeps Java's cause so."""

    def __init__(self, text: str, cause: Exception | None = None) -> None:
        super().__init__(text)
        self._cause = cause


QUERY = "[STREAM_FAILED] Query [id = 1] terminated with exception: "


@pytest.mark.parametrize(
    ("error", "told"),
    [
        # Spark's worker was killed while it planned.
        (
            CapturedError(
                f"{QUERY} SQLSTATE: XXKST (no cause message)\n",
                CapturedError("java.io.EOFException"),
            ),
            f"{QUERY} SQLSTATE: XXKST (no cause message): java.io.EOFException",
        ),
        (
            CapturedError(
                "Stream closed\n=== Streaming Query ===",
                CapturedError("java.io.IOException: Stream closed"),
            ),
            "java.io.IOException: Stream closed",
        ),
        (
            CapturedError(
                QUERY + "Job aborted: Task 0 failed",
                CapturedError("x.SparkException: Job aborted: Task 0 failed"),
            ),
            QUERY + "Job aborted: Task 0 failed",
        ),
        # What is not pyspark_vmq's has its name, too.
        (
            CapturedError(
                QUERY
                + 'Traceback (most recent call last):\n  File "x.py", line 1, in latestOffset\n'
                "pyarrow.lib.ArrowInvalid: it broke off\n\nJVM stacktrace:\norg.apache.spark\n"
            ),
            QUERY.rstrip(" :") + ": pyarrow.lib.ArrowInvalid: it broke off",
        ),
        (
            CapturedError(
                "Failed to plan:\nTraceback (most recent call last):\n  File \"x.py\"\n\nKeyError: 'a'\n"
            ),
            "Failed to plan: KeyError: 'a'",
        ),
    ],
)
def test_the_line_says_what_was_raised(error: Exception, told: str) -> None:
    assert reason(error) == told


def test_an_error_is_told_in_one_line() -> None:
    assert reason(FAILED) == "option 'topic': 'a/#/b' is no MQTT topic filter"
    assert is_final(FAILED)
    assert reason("[DIVIDE_BY_ZERO] Division by zero.\n== SQL ==\n") == (
        "[DIVIDE_BY_ZERO] Division by zero."
    )
    called = (
        "An error occurred while calling o51.load.\n: org.apache.spark.X: [NO] There is none.\n\tat"
    )
    assert reason(called) == "org.apache.spark.X: [NO] There is none."
    assert not is_final("[DIVIDE_BY_ZERO]")
    assert reason(ValueError()) == "ValueError"
    assert len(reason("x" * 5000)) == LONGEST_ERROR
