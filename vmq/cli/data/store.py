"""`vmq store`: look at and mend the store of durable sessions, while no broker uses it."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from vmq.cli.terminal import settings
from vmq.cli.terminal.console import FAILURE, CliError, error, is_terminal, table
from vmq.cli.terminal.settings import ConfigOption, DataDirOption

if TYPE_CHECKING:
    from vmq.config.options import Config
    from vmq.store.tools import Progress, StoreReport

app = typer.Typer(
    help="Check or repair the store of durable sessions. The broker must not be running.",
    no_args_is_help=True,
    rich_markup_mode="rich",
)


@app.command("check")
def check(config: ConfigOption = None, data_dir: DataDirOption = None) -> int:
    """Read the whole store and report what it holds and what is wrong with it.

    Works on a copy and changes nothing. Exits with 1 if there are problems.

    \b
    Examples:
      vmq store check
      vmq store check --data-dir /var/lib/vmq
    """
    from vmq.store import tools as store_tools
    from vmq.store.store import StoreError

    path = Path(_configured(config, data_dir).broker.data_dir)
    try:
        with _progress("checking") as step:
            report = store_tools.check(path, step)
    except (StoreError, OSError) as problem:
        raise CliError(str(problem)) from None
    return _finish(report, advice="vmq store repair mends it")


@app.command("repair")
def repair(config: ConfigOption = None, data_dir: DataDirOption = None) -> int:
    """Mend a damaged store, as far as it can be read.

    Works on a copy: the damaged store is kept beside the mended one. Exits with
    1 if problems remain.

    \b
    Examples:
      vmq store repair
      vmq store repair --data-dir /var/lib/vmq
    """
    from vmq.cli.data.auditing import audited
    from vmq.store import tools as store_tools
    from vmq.store.store import StoreError

    found = _configured(config, data_dir)
    path = Path(found.broker.data_dir)
    try:
        with (
            audited(found, "repair_store", {"data_dir": path}) as results,
            _progress("repairing") as step,
        ):
            report = store_tools.repair(path, step)
            results.append("ok" if report.ok else "problems remain")
    except (StoreError, OSError) as problem:
        raise CliError(str(problem)) from None
    return _finish(report, advice="what is listed here could not be mended")


def _configured(config: Path | None, data_dir: str | None) -> "Config":
    overrides = {} if data_dir is None else {"broker.data_dir": data_dir}
    return settings.load(config, overrides).config


def _finish(report: "StoreReport", advice: str) -> int:
    """Print a report; the exit code says whether all is well."""
    counts = ("sessions", "subscriptions", "queued", "inflight", "retained", "messages")
    table(("store", "count"), [(name, str(getattr(report, name))) for name in counts])
    for note in report.notes:
        print(note)
    for problem in report.problems:
        error(problem)
    if report.ok:
        print("ok")
        return 0
    error(f"the store is damaged: {advice}")
    return FAILURE


@contextmanager
def _progress(what: str) -> Iterator["Progress | None"]:
    """A progress bar on stderr, and what moves it; None where nobody would see it."""
    if not is_terminal(sys.stderr):
        yield None
        return
    from rich.console import Console
    from rich.progress import Progress as Bar

    with Bar(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=None)

        def step(part: str, done: int, total: int) -> None:
            bar.update(task, description=part, completed=done, total=total)

        yield step
