"""What `vmq demo` shows."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rich.console import Console

from vmq.cli.demo_devices import Alert
from vmq.cli.demo_screen import Averages, DemoState, Screen, drawn

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def row(site: str, minute: int, average: float, readings: int = 2) -> dict[str, Any]:
    start = NOON + timedelta(minutes=minute)
    return {
        "site": site,
        "device": "d",
        "start": start,
        "end": start + timedelta(minutes=1),
        "readings": readings,
        "average": average,
        "lowest": average - 1,
        "highest": average + 1,
    }


def commit(table: Path, batch: int, *rows: dict[str, Any]) -> None:
    log = table / "_spark_metadata"
    log.mkdir(parents=True, exist_ok=True)
    path = table / f"{batch}.parquet"
    pq.write_table(pa.Table.from_pylist(list(rows)), path)
    (log / str(batch)).write_text("v1\n" + json.dumps({"path": f"file://{path}", "action": "add"}))


@pytest.fixture
def state(tmp_path: Path) -> DemoState:
    return DemoState(Averages(tmp_path / "averages"), "tcp://h:1", "http://h:2", tmp_path)


def test_the_latest_window_is_shown(state: DemoState) -> None:
    averages = state.averages
    averages.look()
    assert averages.start is None
    commit(averages.table, 0, row("a", 0, 20.0), row("b", 1, 10.0), row("b", 1, 20.0, readings=6))
    averages.look()
    commit(averages.table, 1, row("a", 1, 30.0), row("a", 0, 99.0))
    averages.look()
    averages.look()
    assert averages.start == NOON + timedelta(minutes=1)
    assert len(averages.windows) == 2
    assert {
        name: (each.devices, each.readings, each.average) for name, each in averages.sites.items()
    } == {
        "b": (2, 8, 17.5),
        "a": (1, 2, 30.0),
    }
    assert (averages.sites["b"].lowest, averages.sites["b"].highest) == (9, 21)


def text_of(state: DemoState) -> str:
    console = Console(width=120, record=True, file=None, quiet=False)
    with console.capture() as captured:
        console.print(drawn(state))
    return captured.get()


def test_a_terminal_gets_tables(state: DemoState) -> None:
    assert "Waiting for the first window" in text_of(state)
    commit(state.averages.table, 0, row("north", 0, 20.0))
    state.averages.look()
    state.alerts = 3
    state.last_alerts = [Alert("alerts/[bold]x", 31.25, "2026-01-01T12:00:00Z", "")]
    shown = text_of(state)
    rows = [line.split() for line in shown.splitlines()]
    assert ["north", "1", "2", "20.0", "19.0", "21.0"] in rows
    assert "Alerts over MQTT (3)" in shown
    assert "alerts/[bold]x" in shown


def test_elsewhere_each_change_is_a_line(
    state: DemoState, capsys: pytest.CaptureFixture[str]
) -> None:
    with Screen(state) as screen:
        screen.update()
        screen.update()
        commit(state.averages.table, 0, row("a", 0, 20.0), row("b", 0, 21.0))
        state.averages.look()
        state.pipeline = "running"
        state.last_alerts = [Alert("alerts/a", 31.25, "", ""), Alert("alerts/b", 32.0, "", "")]
        state.alerts = 2
        screen.update()
        state.last_alerts.append(Alert("alerts/c", 33.0, "", ""))
        state.alerts = 3
        screen.update()
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == ["pipeline: starting", "pipeline: running"]
    assert lines[2].startswith("window: ")
    assert lines[2].endswith(", 2 devices, 4 readings, average 20.5")
    assert lines[3:] == ["alert: alerts/a 31.2", "alert: alerts/b 32.0", "alert: alerts/c 33.0"]
    assert (
        state.summary() == "0 devices, 0 messages, 1 windows, 3 alerts, 0 rows too late, 0 restarts"
    )
