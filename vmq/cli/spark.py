"""`vmq spark`: data pipelines over streams, run by Spark."""

import asyncio
import os
import shutil
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec
import typer

from vmq.cli.spark_options import (
    CafileOption,
    CheckpointOption,
    ConfOption,
    MasterOption,
    NameOption,
    OnceOption,
    OutputOption,
    PasswordFileOption,
    PipelineArgument,
    PipelineOption,
    ServerOption,
    TriggerOption,
    UsernameOption,
    master_of,
    pairs,
    password_of,
    place_of,
    server_of,
)
from vmq.cli.terminal import settings
from vmq.cli.terminal.console import CliError, UsageError, error, table
from vmq.cli.terminal.rows import Columns, JsonOption, cell, clean, print_json, show_rows
from vmq.cli.terminal.settings import ConfigOption, DataDirOption

if TYPE_CHECKING:
    from vmq_spark.settings import Settings
    from vmq_spark.status import Status

app = typer.Typer(
    help="Run data pipelines over streams by Spark, and look at them.",
    no_args_is_help=True,
    rich_markup_mode="rich",
)

COLUMNS: Final = Columns(
    (
        *("pipeline", "state", "query", "batch", "rows", "rows_per_second"),
        *("batch_seconds", "lag", "late", "restarts", "error"),
    ),
    if_any=("late", "restarts", "error"),
)


@app.command("run")
def run(
    pipeline: PipelineArgument,
    option: PipelineOption = None,
    output: OutputOption = None,
    checkpoint: CheckpointOption = None,
    name: NameOption = None,
    trigger: TriggerOption = "5s",
    once: OnceOption = False,
    server: ServerOption = None,
    username: UsernameOption = None,
    password_file: PasswordFileOption = None,
    cafile: CafileOption = None,
    master: MasterOption = "local[*,4]",
    conf: ConfOption = None,
    config: ConfigOption = None,
    data_dir: DataDirOption = None,
) -> int:
    """Run a pipeline in the foreground, for ever or --once.

    When it fails it is started again, after 1 to 60 seconds, and goes on
    where its checkpoint says. Ctrl-C or SIGTERM stops it cleanly.

    \b
    Examples:
      vmq spark run sensors
      vmq spark run sensors -o window=10s -o threshold=28.5 --output /srv/tables
      vmq spark run mine.py --master spark://cluster:7077 --output s3a://lake/mine \\
        --checkpoint s3a://lake/checkpoints/mine
    """
    loaded = settings.load(config, _overrides(data_dir)).config
    with _usage():
        from vmq_spark import pipeline as pipelines
        from vmq_spark.options import interval
        from vmq_spark.settings import Settings
        from vmq_spark.status import checked_name, pipelines_folder

        source = pipelines.find(pipeline)
        chosen = checked_name(source.stem if name is None else name)
        folder = pipelines_folder(_plugin_folder(loaded.broker.data_dir)) / chosen
        connection = {
            "server": server_of(server, loaded),
            "username": username,
            "password": password_of(password_file),
            "cafile": None if cafile is None else str(cafile.absolute()),
        }
        wanted = Settings(
            name=chosen,
            source=str(source),
            options=pairs("--option", option),
            connection={key: value for key, value in connection.items() if value is not None},
            master=master_of(master),
            conf=pairs("--conf", conf),
            folder=str(folder.absolute()),
            checkpoint=place_of(checkpoint, folder / "checkpoints"),
            output=place_of(output, folder / "tables"),
            trigger=interval(trigger),
            is_once=once,
        )
    require_spark()
    return asyncio.run(_run(wanted))


async def _run(wanted: "Settings") -> int:
    """Runs a pipeline until it ends, or a signal ends it; a second one ends it at once."""
    from vmq_spark.errors import PipelineError
    from vmq_spark.runner import Runner

    runner = Runner(wanted, lambda line: error(clean(line)))
    loop = asyncio.get_running_loop()
    work = asyncio.ensure_future(runner.run())

    def on_signal() -> None:
        if runner.stopping.is_set():
            work.cancel()
        runner.stop()

    for each in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(each, on_signal)
    print(f"vmq spark: running {wanted.name}, tables in {wanted.output}", flush=True)
    try:
        return await work
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None
    except (PipelineError, OSError) as problem:
        raise CliError(str(problem)) from None


@app.command("status")
def status(
    pipeline: str | None = typer.Argument(
        None, metavar="[PIPELINE]", help="This one, with the lag of each partition."
    ),
    config: ConfigOption = None,
    data_dir: DataDirOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show the pipelines of the data folder: whether they run, and how far they are.

    "lag" is how many messages wait at the broker to be read, "late" how many
    rows came after the watermark and were left out.

    \b
    Examples:
      vmq spark status
      vmq spark status sensors --data-dir /var/lib/vmq
      vmq spark status --json
    """
    from vmq_spark.status import read_all

    loaded = settings.load(config, _overrides(data_dir)).config
    if not Path(loaded.broker.data_dir).is_dir():
        raise CliError(f"there is no data folder {loaded.broker.data_dir}")
    found = read_all(_plugin_folder(loaded.broker.data_dir))
    if pipeline is not None:
        found = [each for each in found if each.name == pipeline]
        if not found:
            raise CliError(f"no pipeline {pipeline!r} was ever run in {loaded.broker.data_dir}")
    if as_json:
        print_json([_plain(each) for each in found])
        return
    show_rows({"rows": [row for each in found for row in _rows(each)]}, COLUMNS, as_json=False)
    if pipeline is not None and (lag := list(_lag_rows(found[0]))):
        print()
        table(lag[0], [[cell(value) for value in row.values()] for row in lag])


def _plain(found: "Status") -> dict[str, Any]:
    """A pipeline for programs."""
    queries = {
        name: {**msgspec.to_builtins(query), "total_lag": query.total_lag}
        for name, query in found.progress.queries.items()
    }
    return {
        "pipeline": found.name,
        "is_running": found.is_running,
        **msgspec.to_builtins(found.runner),
        "state": found.state,
        "queries": queries,
    }


def _rows(found: "Status") -> Iterator[dict[str, Any]]:
    """A row for each query of a pipeline, or one that says why there is none."""
    runner = found.runner
    of_all = {"pipeline": found.name, "state": found.state}
    # What healed is for programs (--json) only.
    problem = None if found.state == "running" else runner.error or None
    restarts = {"restarts": runner.restarts or None, "error": problem}
    for name, query in found.progress.queries.items():
        yield {
            **of_all,
            "query": name,
            "batch": None if query.batch < 0 else query.batch,
            "rows": query.rows,
            "rows_per_second": round(query.rows_per_second, 1),
            "batch_seconds": query.batch_seconds,
            "lag": query.total_lag,
            "late": query.late or None,
            **restarts,
        }
    if not found.progress.queries:
        yield {**dict.fromkeys(COLUMNS.shown), **of_all, **restarts}


def _lag_rows(found: "Status") -> Iterator[dict[str, Any]]:
    for name, query in found.progress.queries.items():
        for stream, partitions in (query.lag or {}).items():
            for partition, messages in partitions.items():
                yield {"query": name, "stream": stream, "partition": partition, "lag": messages}


@app.command("list")
def list_pipelines() -> None:
    """List the pipelines in the box."""
    from vmq_spark import pipeline as pipelines

    rows = [(name, pipelines.load(path)) for name, path in pipelines.in_the_box().items()]
    table(("pipeline", "what"), [(name, each.description.split("\n")[0]) for name, each in rows])


@app.command("show")
def show(pipeline: PipelineArgument) -> None:
    """Show what a pipeline does, and its options. A file of your own is run as a module for that."""
    with _usage():
        from vmq_spark import pipeline as pipelines

        found = pipelines.load(pipelines.find(pipeline))
    print(clean_lines(found.description))
    print()
    rows = [
        (each.name, "(required)" if each.is_required else str(each.default), each.description)
        for each in found.options.values()
    ]
    table(("option", "default", "meaning"), [[clean(text) for text in row] for row in rows])


def clean_lines(text: str) -> str:
    """Text of several lines with its other control characters escaped."""
    return "\n".join(clean(line) for line in text.splitlines())


@contextmanager
def _usage() -> Iterator[None]:
    """A pipeline that cannot be run is a mistake of the command line."""
    from vmq_spark.errors import PipelineError

    try:
        yield
    except PipelineError as problem:
        raise UsageError(clean(str(problem))) from None


def require_spark() -> None:
    """Raises CliError, saying what to install, where Spark cannot run."""
    missing = [name for name in ("pyspark", "pyarrow") if find_spec(name) is None]
    if missing:
        raise CliError(f"pipelines need {' and '.join(missing)}: pip install 'vmq[spark]'")
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else "java"
    if shutil.which(java) is None:
        where = f"JAVA_HOME is {home}, where there is none" if home else "there is none on the PATH"
        raise CliError(
            f"Spark needs Java 17 or later, and {where} (Debian: openjdk-17-jre-headless)"
        )


def _overrides(data_dir: str | None) -> dict[str, object]:
    return {} if data_dir is None else {"broker.data_dir": data_dir}


def _plugin_folder(data_dir: str) -> Path:
    """The folder of the plugin vmq_spark, which shows the pipelines in /metrics."""
    return Path(data_dir) / "plugins" / "vmq_spark"
