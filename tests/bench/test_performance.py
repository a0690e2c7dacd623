"""The page of figures: it holds what was measured, and nothing else."""

import msgspec
import pytest

from tests.bench.performance import DOCS, alike, joined, loads_of
from tests.bench.performance_page import GROWTH, Figures, Part, plot, render
from vmq.bench.compare import ComparisonRow


def row(load: str, broker: str, cpu: float, problem: str = "") -> ComparisonRow:
    return ComparisonRow(
        load, broker, rate=1000.0, cpu_us=cpu, p50_us=50.0, is_sound=not problem, problem=problem
    )


def made(name: str, *rows: ComparisonRow) -> Figures:
    part = Part("2026-01-31", 3, {"vmq": "1", "mosquitto": "2"}, list(rows))
    return Figures({"processor": "a machine"}, {name: part})


def test_the_page_is_what_was_measured() -> None:
    figures = msgspec.json.decode((DOCS / "performance.json").read_bytes(), type=Figures)
    assert (DOCS / "performance.md").read_text() == render(figures)
    assert (DOCS / "performance.svg").read_text() == plot(figures)


def test_loads_that_are_measured_again_take_their_places() -> None:
    before = Part("2026-01-30", 3, {"vmq": "1"}, [row("a", "vmq", 1.0), row("b", "vmq", 2.0)])
    new = Part("2026-01-31", 3, {"vmq": "1"}, [row("a", "vmq", 3.0)])
    found = joined(before, new, ["a", "b"])
    assert [(each.scenario, each.cpu_us) for each in found.rows] == [("a", 3.0), ("b", 2.0)]


def test_loads_that_would_be_measured_otherwise_are_refused_before() -> None:
    before = Part("2026-01-30", 3, {"vmq": "1"}, [row("a", "vmq", 1.0), row("b", "vmq", 2.0)])
    alike(before, 3, {"vmq": "1"})
    with pytest.raises(ValueError, match="with --runs 3 on vmq 1"):
        alike(before, 5, {"vmq": "1"})


def test_a_row_with_a_loss_shows_no_figures() -> None:
    figures = made("rows", row("pair", "vmq", 2.0), row("pair", "mosquitto", 8.0, "3 lost"))
    assert "| pair | 2 | 3 lost | - | 50 µs | 3 lost | - | 1,000 | - |" in render(figures)


@pytest.mark.parametrize("name", ["rows", *GROWTH])
def test_every_part_has_loads(name: str) -> None:
    loads = loads_of(name)
    assert len({load.name for load in loads}) == len(loads) > 2
