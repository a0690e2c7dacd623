"""The process in which a pipeline's queries run: python -m vmq_spark.driver, started by the runner.

Its settings come as the first line of standard input, which then stays open for as long as the pipeline is to
run. The driver ends with the first query that fails, and is started anew: what heals a JVM that has
gone wrong is another one, and checkpoints say where to go on.
"""

import os
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

import msgspec

from vmq_spark import pipeline, status
from vmq_spark.conf import conf_of
from vmq_spark.errors import PipelineError, UnreadyError
from vmq_spark.flow import Flow
from vmq_spark.options import check
from vmq_spark.progress import Tracker, is_final, may_pass, reason
from vmq_spark.settings import Settings
from vmq_spark.status import Progress

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

#: Exit codes: a failure that may pass, and one that will not.
FAILED: Final = 1
HOPELESS: Final = 2
#: Seconds between two looks at the queries.
STEP: Final = 1.0
#: Seconds for which the next query waits for the first batch of the one before.
PATIENCE: Final = 10.0
#: Seconds that stopping may take.
GRACE: Final = 25.0


class QueryError(Exception):
    """A query has failed."""

    def __init__(self, name: str, error: BaseException | str) -> None:
        super().__init__(f"query {name}: {reason(error)}")
        self.code = HOPELESS if is_final(error) else FAILED


class Driver:
    """The queries of one pipeline, from their start to their end."""

    def __init__(self, settings: Settings, stopping: threading.Event) -> None:
        self.settings = settings
        self.stopping = stopping
        self.folder = Path(settings.folder)
        self.trackers: dict[str, Tracker] = {}
        self.running: dict[str, StreamingQuery] = {}
        #: Spark is there, or comes up.
        self.has_begun = False

    def run(self) -> None:
        """Runs the pipeline in a session of its own, as `run_in` does."""
        loaded, options = self.load()
        started: list[SparkSession] = []

        def start() -> "SparkSession":
            self.has_begun = True
            try:
                started.append(session(self.settings))
            except Exception as problem:  # py4j's and Spark's: a JVM that does not come up
                raise UnreadyError(reason(problem)) from problem
            return started[0]

        try:
            self.run_in(start, loaded, options)
        finally:
            # What failed before counts; a JVM that is gone needs no stop.
            with suppress(Exception):
                for spark in started:
                    spark.stop()

    def load(self) -> tuple[pipeline.Pipeline, dict[str, Any]]:
        """The pipeline and its options.

        Raises:
            PipelineError: they are wrong.
        """
        loaded = pipeline.load(Path(self.settings.source))
        return loaded, check(loaded.options, self.settings.options)

    def run_in(
        self,
        start: "Callable[[], SparkSession]",
        loaded: pipeline.Pipeline,
        options: dict[str, Any],
    ) -> None:
        """Runs the queries until somebody wants them to stop, or, with `is_once`, until they have taken all.

        `start` gives the session: late, since much of what can be wrong is found out without one.

        Raises:
            PipelineError: the pipeline cannot be built.
            UnreadyError: the broker does not answer.
            QueryError: a query has failed.
        """
        if loaded.module is not None:
            from pyspark import cloudpickle

            cloudpickle.register_pickle_by_value(loaded.module)  # type: ignore[no-untyped-call]  # it has no types
        settings = self.settings
        flow = Flow(start, settings.connection, settings.output, is_new=settings.is_new)
        build(loaded, flow, options)
        for name, writer in flow.queries.items():
            if self.stopping.is_set():
                break
            self._start(name, writer)
            if self.settings.is_once:
                self._await_end(self.running[name])
            else:
                self._await_first_batch(name)
        if not self.settings.is_once:
            self._follow()
        for query in self.running.values():
            query.stop()
        self._report()

    def _start(self, name: str, writer: "DataStreamWriter") -> None:
        checkpoint = f"{self.settings.checkpoint.rstrip('/')}/{name}"
        writer = writer.queryName(name).option("checkpointLocation", checkpoint)
        if self.settings.is_once:
            writer = writer.trigger(availableNow=True)
        else:
            writer = writer.trigger(processingTime=self.settings.trigger)
        self.trackers[name] = Tracker()
        try:
            self.running[name] = writer.start()
        except Exception as error:
            raise _analysis(name, error) from error

    def _await_first_batch(self, name: str) -> None:
        """Lets a query plan its first batch alone.

        Spark 4.3 may break when two queries plan their first batches at the same moment: it cannot
        serialize tasks any more ("Illegal size 5 of collection, expected 6").
        """
        deadline = monotonic() + PATIENCE
        while monotonic() < deadline and not self.stopping.wait(STEP / 5):
            self._look()
            if self.trackers[name].progress.time:
                return

    def _await_end(self, query: "StreamingQuery") -> None:
        """Tells the progress until a query has taken what there is."""
        is_over: bool | None = False
        while not is_over and not self.stopping.is_set():
            # Its failure is looked at below.
            with suppress(Exception):
                is_over = query.awaitTermination(int(STEP))
            self._look()

    def _follow(self) -> None:
        """Tells the progress until it is time to stop."""
        while not self.stopping.wait(STEP):
            self._look()

    def _look(self) -> None:
        """Tells the progress; raises QueryError if a query has failed."""
        self._report()
        for name, query in self.running.items():
            if query.isActive:
                continue
            error = query.exception()
            if error is not None:
                raise QueryError(name, error)
            if not self.settings.is_once:
                raise QueryError(name, f"has ended by itself: {query.status['message']}")

    def _report(self) -> None:
        queries = {
            name: self.trackers[name].see(query.recentProgress)
            for name, query in self.running.items()
        }
        status.write(self.folder, Progress(queries))


def _analysis(name: str, error: Exception) -> Exception:
    """A query that Spark does not accept will not be accepted the next time either."""
    from pyspark.errors import AnalysisException

    if isinstance(error, AnalysisException) and not may_pass(error):
        return PipelineError(f"query {name}: {reason(error)}")
    return QueryError(name, error)


def build(loaded: pipeline.Pipeline, flow: Flow, options: dict[str, Any]) -> None:
    """Has a pipeline declare its queries.

    Raises:
        PipelineError: it cannot, or declares none.
        UnreadyError: it cannot now.
    """
    try:
        loaded.build(flow, **options)
    except (PipelineError, UnreadyError):
        raise
    except Exception as error:
        told = f"cannot be built: {type(error).__name__}: {reason(error)}"
        raise UnreadyError(told) if may_pass(error) else PipelineError(told) from error
    if not flow.queries:
        raise PipelineError("it declares no query")


def session(settings: Settings) -> "SparkSession":
    """The session, by defaults that suit pipelines and the user's own settings."""
    from pyspark.sql import SparkSession
    from pyspark_vmq import register

    builder = SparkSession.builder.master(settings.master).appName(f"vmq-{settings.name}")
    for name, value in conf_of(settings).items():
        builder = builder.config(name, value)
    found = builder.getOrCreate()
    # Spark's own search does not see what is installed as editable, and ends at any package that is broken.
    register(found)
    return found


def watch(driver: Driver) -> None:
    """Waits for the end of standard input: the runner wants a stop, or is dead. Who hangs then is killed."""
    # The bare descriptor: blocked in `sys.stdin`, a thread would hold a lock that the interpreter wants at exit.
    while os.read(0, 4096):
        continue
    if not driver.has_begun:
        os._exit(0)  # there is nothing to be ended, but a broker that is away may be waited for
    driver.stopping.set()
    threading.Event().wait(GRACE)
    os.killpg(0, signal.SIGKILL)


def main() -> int:
    """One life of a driver; returns its exit code."""
    settings = msgspec.json.decode(sys.stdin.buffer.readline(), type=Settings)
    stopping = threading.Event()
    driver = Driver(settings, stopping)
    threading.Thread(target=watch, args=(driver,), daemon=True).start()
    try:
        driver.run()
    except PipelineError as problem:
        text, code = str(problem), HOPELESS
    except QueryError as problem:
        text, code = str(problem), problem.code
    except UnreadyError as problem:
        text, code = str(problem), FAILED
    except Exception as problem:  # noqa: BLE001 - py4j's and Spark's: no session, a JVM that died
        text, code = reason(problem), FAILED
    else:
        return 0
    # A query that fails while it is stopped has not failed: its checkpoint holds what was done.
    if stopping.is_set() and code != HOPELESS:
        return 0
    progress = Progress({name: each.progress for name, each in driver.trackers.items()}, text)
    status.write(driver.folder, progress)
    return code


if __name__ == "__main__":
    sys.exit(main())
