"""The screen of `vmq top`."""

import asyncio
import signal
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, ClassVar, Final

from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.widgets import DataTable, Footer, Sparkline, Static

from vmq.cli.terminal.console import CliError
from vmq.cli.terminal.rows import clean
from vmq.cli.top.news import Newsroom, TopNews
from vmq.http.dashboard.worker_row import WorkerRow

#: By which word clients are sorted, and the order that the API has for it.
SORTS: Final = {
    "queue": "-queue_size,-dropped",
    "unacked": "-waiting_acks",
    "dropped": "-dropped,-queue_size",
    "client": "client_id",
}
#: Seconds of figures that are drawn, and between two looks at the clients.
SPAN: Final = 120
LOOK: Final = 2.0
#: Warnings that are shown.
WARNINGS: Final = 4

#: The columns of clients: title, and the field of the API.
COLUMNS: Final = (
    ("client", "client_id"),
    ("state", "is_online"),
    ("user", "user"),
    ("address", "peer_host"),
    ("queued", "queue_size"),
    ("unacked", "waiting_acks"),
    ("dropped", "dropped"),
    ("filters", "subscriptions"),
)
_NUMBERS: Final = ("queue_size", "waiting_acks", "dropped", "subscriptions")


def short(value: float) -> str:
    """A figure in few characters."""
    for unit in ("", "k", "M", "G", "T"):
        if abs(value) < 1000:
            return f"{value:.0f}{unit}" if not unit or abs(value) >= 100 else f"{value:.1f}{unit}"
        value /= 1000
    return f"{value:.0f}P"


def size(value: float) -> str:
    """Bytes."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(value) < 1024:
            return f"{value:.0f} {unit}" if unit == "B" or value >= 100 else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} TiB"


def span(seconds: float) -> str:
    """A length of time."""
    whole = max(0, int(seconds))
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min"
    if whole < 86400:
        return f"{whole // 3600} h {whole % 3600 // 60} min"
    return f"{whole // 86400} d {whole % 86400 // 3600} h"


class Gauge(Vertical):
    """One figure with its last minutes."""

    def __init__(self, title: str, name: str, show: Callable[[float], str]) -> None:
        super().__init__(classes="gauge")
        self.title = title
        self.series = name
        self.show = show
        self.values: deque[float] = deque(maxlen=SPAN)
        self.label = Static(classes="label")
        self.line = Sparkline([], summary_function=max)

    def compose(self) -> ComposeResult:
        yield self.label
        yield self.line

    def add(self, value: float) -> None:
        """One second more."""
        self.values.append(value)
        self.label.update(Text.assemble((f"{self.title} ", "dim"), (self.show(value), "bold")))
        self.line.data = list(self.values)


class TopScreen(App[None]):
    """Figures, what is wrong, and the clients."""

    TITLE = "vmq top"
    ENABLE_COMMAND_PALETTE = False
    CSS = """
    #head { height: 1; padding: 0 1; background: $boost; }
    #gauges { height: 4; }
    .gauge { width: 1fr; padding: 0 1; height: 4; }
    .gauge Sparkline { height: 2; margin-top: 1; }
    #reasons { height: auto; max-height: 6; padding: 0 1; }
    #worst { height: auto; max-height: 3; padding: 0 1; }
    #workers { height: auto; max-height: 8; padding: 0 1; }
    DataTable { height: 1fr; }
    #log { height: auto; max-height: 4; padding: 0 1; color: $warning; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q", "quit", "Quit"),
        Binding("ctrl+c", "quit", show=False, priority=True),
        *(Binding(str(n), f"sort('{name}')", f"By {name}") for n, name in enumerate(SORTS, 1)),
    ]

    def __init__(self, news: Newsroom, sort: str = "queue") -> None:
        super().__init__()
        self.news = news
        self.sort = sort
        self.hello: dict[str, Any] = {}
        self.gone = ""
        self.head = Static(id="head")
        self.reasons = Static(id="reasons")
        self.worst = Static(id="worst")
        self.workers_lines = Static(id="workers")
        self.log_lines = Static(id="log")
        self.clients: DataTable[Text] = DataTable(cursor_type="row", zebra_stripes=True)
        self.gauges = [
            Gauge("in/s", "received", short),
            Gauge("out/s", "sent", short),
            Gauge("clients", "connections", short),
            Gauge("dropped/s", "dropped", short),
            Gauge("loop late", "lag", lambda value: f"{value:.1f} ms"),
            Gauge("memory", "memory", size),
        ]

    def compose(self) -> ComposeResult:
        yield self.head
        yield Horizontal(*self.gauges, id="gauges")
        yield self.reasons
        yield self.workers_lines
        yield self.worst
        yield self.clients
        yield self.log_lines
        yield Footer()

    def on_mount(self) -> None:
        # The terminal is in a state of the screen's own, which nobody else takes back.
        loop = asyncio.get_running_loop()
        for each in (signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(each, partial(self.exit, return_code=128 + each))
        for title, _ in COLUMNS:
            self.clients.add_column(title, key=title)
        self.clients.focus()
        self.run_worker(self._follow, thread=True, exit_on_error=True)
        self.set_interval(LOOK, self.look)
        self.look()

    def on_unmount(self) -> None:
        # The program ends when its threads have.
        self.news.close()

    # What is told, in a thread of its own

    def _follow(self) -> None:
        for each in self.news.follow():
            if not self.is_running:
                return
            self.call_from_thread(self.take, each)

    def take(self, news: TopNews) -> None:
        """Something was told."""
        if news.kind == "hello":
            self.hello, self.gone = news.what, ""
        elif news.kind == "tick":
            self.gone = ""
            self._tick(news.what)
        elif news.kind == "worst":
            self.worst.update(_worst_line(news.what))
        elif news.kind == "warnings":
            rows = news.what[-WARNINGS:]
            self.log_lines.update(Text("\n".join(clean(row["text"]) for row in rows), no_wrap=True))
        elif news.kind == "gone":
            self.gone = clean(news.what)
            self.head.update(Text(f"no news: {self.gone}", style="bold red"))

    def _tick(self, tick: dict[str, Any]) -> None:
        values = dict(zip(self.hello["series"], tick["values"], strict=True))
        for gauge in self.gauges:
            gauge.add(values[gauge.series])
        style = {"ok": "bold green", "degraded": "bold yellow", "failing": "bold red"}[
            tick["status"]
        ]
        self.head.update(
            Text.assemble(
                (f"vmq {self.hello['version']} ", "bold"),
                clean(self.hello["node"]),
                ("  " + tick["status"], style),
                f"  up {span(tick['time'] - self.hello['started'])}"
                f"  {short(values['sessions'])} sessions, {short(values['subscriptions'])} subscriptions"
                f"  processor {values['cpu']:.0f} %  disk free {size(values['disk_free'])}",
                no_wrap=True,
            )
        )
        lines = [
            f"{clean(each['text'])} (for {span(tick['time'] - each['since'])})"
            for each in tick["reasons"]
        ]
        self.reasons.update(Text("\n".join(lines), style="red"))
        self.reasons.display = bool(lines)
        workers = [_worker_line(WorkerRow(*row)) for row in tick.get("workers", ())]
        self.workers_lines.update(Text("\n".join(workers), no_wrap=True))
        self.workers_lines.display = bool(workers)

    # The clients

    def action_sort(self, name: str) -> None:
        """Sorts by another column."""
        self.sort = name
        self.look()

    def look(self) -> None:
        """Asks for the clients, in a thread."""
        self.run_worker(self._look, thread=True, exclusive=True, group="clients")

    def _look(self) -> None:
        try:
            rows = self.news.sessions(SORTS[self.sort])
        except CliError:
            return  # who follows says so
        if self.is_running:
            self.call_from_thread(self.show_clients, rows)

    def show_clients(self, rows: list[dict[str, Any]]) -> None:
        """Shows rows; where the cursor was it stays."""
        table = self.clients
        place = table.cursor_row
        table.clear()
        for row in rows:
            table.add_row(*_cells(row))
        table.border_title = f"by {self.sort}"
        if rows:
            table.move_cursor(row=min(place, len(rows) - 1))


def _cells(row: dict[str, Any]) -> Iterator[Text]:
    for _, name in COLUMNS:
        value = row[name]
        if name == "is_online":
            yield Text("connected" if value else "away" if value is False else "elsewhere")
        elif name in _NUMBERS:
            yield Text("-" if value is None else short(value), justify="right")
        else:
            yield Text(clean("" if value is None else str(value)))


def _worker_line(row: WorkerRow) -> str:
    """One of several workers."""
    again = f", started again {row.restarts} times" if row.restarts else ""
    return (
        f"worker {row.number}  {clean(row.state)}{again}  {short(row.connections)} clients"
        f"  in {short(row.received)}/s  out {short(row.sent)}/s"
        f"  processor {row.cpu:.0f} %  late {row.lag:.1f} ms  {size(row.memory)}"
    )


def _worst_line(worst: dict[str, list[list[Any]]]) -> Text:
    """Who is worst by what no column of the clients has."""
    shown = {
        "queue_bytes": ("largest queue", size),
        "inflight_age": ("longest unacknowledged", span),
        "reconnects": ("most reconnects", short),
        "logins_refused": ("refused logins", short),
        "hook_time": ("slowest hook", lambda value: f"{value:.1f} ms"),
    }
    parts = [
        f"{title}: {clean(str(worst[name][0][0]))} {show(worst[name][0][1])}"
        for name, (title, show) in shown.items()
        if worst.get(name)
    ]
    return Text("   ".join(parts), style="dim")
