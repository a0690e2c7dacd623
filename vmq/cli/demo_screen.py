"""What `vmq demo` shows: a table that changes on a terminal, lines elsewhere."""

import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from vmq.cli.demo_devices import Alert
from vmq.cli.terminal.console import is_terminal

if TYPE_CHECKING:
    from rich.console import Group
    from rich.live import Live

#: Times of a second that the screen is drawn anew.
RATE: Final = 4


@dataclass
class Site:
    """What one window says of a site."""

    devices: int = 0
    readings: int = 0
    total: float = 0.0
    lowest: float = float("inf")
    highest: float = float("-inf")

    @property
    def average(self) -> float:
        """Of all readings."""
        return self.total / self.readings

    def add(self, row: dict[str, Any]) -> None:
        """One device's row of the table of averages."""
        self.devices += 1
        self.readings += row["readings"]
        self.total += row["average"] * row["readings"]
        self.lowest = min(self.lowest, row["lowest"])
        self.highest = max(self.highest, row["highest"])


class Averages:
    """The latest window of the table that the pipeline writes, read without Spark."""

    def __init__(self, table: Path) -> None:
        self.table = table
        self.seen: set[Path] = set()
        self._commit = 0
        self.windows: set[datetime] = set()
        self.start: datetime | None = None
        self.end: datetime | None = None
        self.sites: dict[str, Site] = {}

    def look(self) -> None:
        """Takes up what was committed since the last look."""
        import pyarrow.parquet as pq
        from vmq_spark.tables import committed_files, last_commit

        commit = last_commit(self.table)
        if commit == self._commit:
            return
        self._commit = commit
        fresh = [each for each in committed_files(self.table) if each not in self.seen]
        for path in fresh:
            self.seen.add(path)
            self.add(pq.read_table(path, partitioning=None).to_pylist())

    def add(self, rows: Iterable[dict[str, Any]]) -> None:
        """Takes up rows; those of the latest window are shown."""
        for row in rows:
            self.windows.add(row["start"])
            if self.start is None or row["start"] > self.start:
                self.start, self.end, self.sites = row["start"], row["end"], {}
            if row["start"] == self.start:
                self.sites.setdefault(row["site"], Site()).add(row)


@dataclass
class DemoState:
    """All that is shown."""

    averages: Averages
    mqtt: str
    http: str
    folder: Path
    began: float = field(default_factory=time.monotonic)
    devices: int = 0
    sent: int = 0
    alerts: int = 0
    last_alerts: list[Alert] = field(default_factory=list)
    pipeline: str = "starting"
    lag: int | None = None
    restarts: int = 0
    late: int = 0

    def summary(self) -> str:
        """One line."""
        return (
            f"{self.devices} devices, {self.sent} messages, {len(self.averages.windows)} windows, "
            f"{self.alerts} alerts, {self.late} rows too late, {self.restarts} restarts"
        )


class Screen:
    """Shows the state; a context manager that leaves the terminal as it was."""

    def __init__(self, state: DemoState) -> None:
        self.state = state
        self.live: Live | None = None
        self._said = ""
        self._window: datetime | None = None
        self._alerts = 0

    def __enter__(self) -> "Screen":
        if is_terminal(sys.stdout):
            from rich.live import Live

            self.live = Live(drawn(self.state), refresh_per_second=RATE, screen=False)
            self.live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.live is not None:
            self.live.update(drawn(self.state), refresh=True)
            self.live.stop()

    def update(self) -> None:
        """Shows what has changed."""
        if self.live is not None:
            self.live.update(drawn(self.state))
            return
        state = self.state
        if state.pipeline != self._said:
            self._said = state.pipeline
            print(f"pipeline: {state.pipeline}", flush=True)
        if state.averages.start != self._window:
            self._window = state.averages.start
            print(_window_line(state.averages), flush=True)
        fresh = state.alerts - self._alerts
        self._alerts = state.alerts
        for each in state.last_alerts[-fresh:] if fresh else ():
            print(f"alert: {each.topic} {each.average:.1f}", flush=True)


def _window_line(averages: Averages) -> str:
    sites = averages.sites.values()
    readings = sum(each.readings for each in sites)
    return (
        f"window: {_times(averages)}, "
        f"{sum(each.devices for each in sites)} devices, {readings} readings, "
        f"average {sum(each.total for each in sites) / readings:.1f}"
    )


def _times(averages: Averages) -> str:
    """Start and end of the latest window."""
    ends = (averages.start, averages.end)
    return " to ".join(each.astimezone().strftime("%H:%M:%S") for each in ends if each is not None)


def drawn(state: DemoState) -> "Group":
    """The screen of this moment."""
    from rich import box
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    averages = state.averages
    seconds = int(time.monotonic() - state.began)
    lag = "-" if state.lag is None else str(state.lag)
    head = Text.assemble(
        ("vmq demo", "bold"),
        f"  {seconds} s   {state.summary()}\n",
        f"pipeline {state.pipeline}, lag {lag}   {state.mqtt}   {state.http}/metrics\n",
        f"tables in {state.folder}   Ctrl-C stops\n",
    )
    if averages.start is None:
        waiting = Text(
            "Waiting for the first window: Spark starts, and a window ends, in half a minute or so."
        )
        return Group(head, waiting)
    sites = Table(
        title=f"Averages of the window {_times(averages)}",
        title_justify="left",
        box=box.SIMPLE,
    )
    for name in ("site", "devices", "readings", "average", "lowest", "highest"):
        sites.add_column(name, justify="left" if name == "site" else "right")
    for name, each in sorted(averages.sites.items()):
        figures = (f"{value:.1f}" for value in (each.average, each.lowest, each.highest))
        sites.add_row(name, str(each.devices), str(each.readings), *figures)
    alerts = Table(title=f"Alerts over MQTT ({state.alerts})", title_justify="left", box=box.SIMPLE)
    for name in ("topic", "average", "window"):
        alerts.add_column(name, justify="right" if name == "average" else "left")
    for alert in reversed(state.last_alerts):
        alerts.add_row(
            Text(alert.topic), Text(f"{alert.average:.1f}", style="red"), Text(alert.start[11:19])
        )
    return Group(head, sites, alerts)
