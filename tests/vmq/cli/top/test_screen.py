import threading
from collections.abc import Iterator
from typing import Any

import msgspec

from vmq.cli.terminal.console import CliError
from vmq.cli.top.news import TopNews
from vmq.cli.top.screen import COLUMNS, SORTS, TopScreen, short, size, span
from vmq.http.dashboard.routes import Hello
from vmq.http.dashboard.sampler import SERIES
from vmq.http.dashboard.worker_row import WorkerRow

MARKUP = "[red]c[/red]\x1b[2J"
HELLO = msgspec.to_builtins(Hello("1", True, "n[b]", 0.0, "run", "all", SERIES, 1.0))


def tick(**more: float) -> dict[str, Any]:
    values = [float(more.get(name, 0)) for name in SERIES]
    return {"time": 100, "values": values, "status": "ok", "reasons": []}


class Told:
    """A newsroom that tells what a test gives it."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.fails = False
        self.done = threading.Event()

    def follow(self) -> Iterator[TopNews]:
        self.done.wait(60)
        yield from ()

    def sessions(self, sort: str) -> list[dict[str, Any]]:
        self.asked.append(sort)
        if self.fails:
            raise CliError("gone")
        row: dict[str, Any] = {name: 3 for _, name in COLUMNS}
        row |= {"client_id": MARKUP, "is_online": True, "user": None, "peer_host": "10.0.0.1"}
        return [row, row | {"client_id": "other", "is_online": False, "queue_size": None}]

    def close(self) -> None:
        self.done.set()


async def test_figures_and_clients_are_shown_as_text() -> None:
    told = Told()
    screen = TopScreen(told)
    async with screen.run_test(size=(150, 40)) as pilot:
        screen.take(TopNews("hello", HELLO))
        screen.take(TopNews("tick", tick(received=1234, connections=7)))
        screen.take(TopNews("worst", {"reconnects": [[MARKUP, 12, None]], "hook_time": []}))
        screen.take(TopNews("warnings", [{"text": MARKUP}]))
        await pilot.pause()
        assert [gauge.values[-1] for gauge in screen.gauges[:3]] == [1234, 0, 7]
        while screen.clients.row_count < 2:
            await pilot.pause()
        name = screen.clients.get_row_at(0)[0]
        assert name.plain.startswith("[red]c[/red]")
        assert "\x1b" not in name.plain
        screen.take(TopNews("gone", "the broker stopped"))
        assert screen.gone == "the broker stopped"
        screen.take(TopNews("tick", tick()))
        assert screen.gone == ""


async def test_keys_sort_by_what_is_worst() -> None:
    told = Told()
    screen = TopScreen(told)
    async with screen.run_test() as pilot:
        for number, name in enumerate(SORTS, 1):
            await pilot.press(str(number))
            while SORTS[name] not in told.asked:
                await pilot.pause()
        assert told.asked[0] == "-queue_size,-dropped", "it begins with the largest queues"
        told.fails = True
        await pilot.press("q")


def is_shown(screen: TopScreen) -> bool:
    return bool(screen.reasons.display)


async def test_what_is_wrong_is_shown_with_its_age() -> None:
    told = Told()
    screen = TopScreen(told)
    async with screen.run_test() as pilot:
        screen.take(TopNews("hello", HELLO))
        screen.take(TopNews("tick", tick()))
        assert not is_shown(screen)
        reason = {"text": "the store cannot write", "since": 40.0, "failing": True}
        screen.take(TopNews("tick", tick() | {"status": "failing", "reasons": [reason]}))
        await pilot.pause()
        assert is_shown(screen)


async def test_each_of_several_workers_has_a_line() -> None:
    told = Told()
    screen = TopScreen(told)
    async with screen.run_test() as pilot:
        screen.take(TopNews("hello", HELLO))
        screen.take(TopNews("tick", tick()))
        assert not screen.workers_lines.display
        rows = [WorkerRow(1, "running", 7, 0, connections=3), WorkerRow(2, "starting", 0, 2)]
        screen.take(TopNews("tick", tick() | {"workers": msgspec.to_builtins(rows)}))
        await pilot.pause()
        lines = str(screen.workers_lines.render()).splitlines()
        assert [line.split("  ")[1] for line in lines] == [
            "running",
            "starting, started again 2 times",
        ]


def test_figures_are_short() -> None:
    assert [short(value) for value in (0, 999, 1500, 2_000_000)] == ["0", "999", "1.5k", "2.0M"]
    assert [size(value) for value in (0, 2048, 3 << 30)] == ["0 B", "2.0 KiB", "3.0 GiB"]
    found = [span(value) for value in (-1, 59, 61, 3700, 90_000)]
    assert found == ["0 s", "59 s", "1 min", "1 h 1 min", "1 d 1 h"]
