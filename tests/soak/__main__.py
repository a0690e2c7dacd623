"""`python -m tests.soak --minutes 60`: a soak by hand, with a bar and a table of what the broker holds."""

import argparse
from time import monotonic

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from tests.soak.figures import RULES, Figures, growth
from tests.soak.run import soak


def table_of(history: list[Figures]) -> Table:
    """Each figure at the first and the last round that is judged, its range, and how it grew."""
    table = Table("figure", "first", "last", "lowest", "highest", "growth", "allowed")
    for rule in RULES:
        values = [getattr(each, rule.name) for each in history]
        shown = (values[0], values[-1], min(values), max(values), growth(values), rule.allowance)
        table.add_row(rule.name, *map(rule.show, shown))
    return table


def main() -> int:
    """Soaks; 1 if something leaked."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--warm-up", type=int, default=100, help="rounds that are not judged")
    options = parser.parse_args()
    seconds = options.minutes * 60
    bar = (
        TextColumn("{task.description}"),
        BarColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with soak(options.warm_up) as found:
        with Progress(*bar) as progress:
            task = progress.add_task("warming up", total=seconds)
            began = monotonic()
            while (passed := monotonic() - began) < seconds or len(found.history) < 3:
                found.play_round()
                if found.history:
                    now = found.history[-1]
                    text = f"round {found.played}: {now.memory / (1 << 20):.1f} MiB, {now.sockets} sockets"
                    progress.update(task, description=text)
                progress.update(task, completed=min(passed, seconds))
        wrong = found.verdict()
        console = Console()
        console.print(table_of(found.history))
        for each in wrong:
            console.print(f"[red]{each}[/red]")
        console.print("something leaks" if wrong else f"{found.played} rounds, nothing grows")
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
