"""The page of figures: it holds what was measured, and nothing else."""

from xml.etree import ElementTree

import msgspec
import pytest

from tests.bench.performance import DOCS, alike, joined, loads_of
from tests.bench.performance_page import GROWTH, Figures, Part, Print, plot, render
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


def test_rows_stand_side_by_side_with_their_ratio() -> None:
    figures = made("rows", row("pair", "vmq", 2.0), row("pair", "mosquitto", 8.0))
    figures.prints["tls"] = Print("2026-01-31", "python -m x", "what it printed")
    text = render(figures)
    assert "| pair | 2 | 8 | 0.25 | 50 µs | 50 µs | 1.00 | 1,000 | 1,000 |" in text
    assert "what it printed" in text
    assert "- processor: a machine" in text


def test_a_peer_that_is_ahead_is_told_in_bold() -> None:
    text = render(made("rows", row("pair", "vmq", 8.0), row("pair", "mosquitto", 2.0)))
    assert "| pair | 8 | 2 | **4.00** |" in text


def test_memory_has_a_table() -> None:
    figures = made("rows", row("connects", "vmq", 8.0), row("connects", "mosquitto", 2.0))
    figures.parts["rows"].rows[0].bytes_each = 2800.4
    assert "| idle connection | 2,800 | - |" in render(figures)


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


def test_growth_above_the_goal_is_bold() -> None:
    figures = made(
        "connections", row("10", "vmq", 4.0), row("1000", "vmq", 5.2), row("19000", "vmq", 5.3)
    )
    text = render(figures)
    assert "| 10 | 4 | 1.00 | 50 µs | - | - | - |" in text
    assert "| 1,000 | 5.2 | 1.30 | 50 µs | - | - | - |" in text
    assert "| 19,000 | 5.3 | **1.32** | 50 µs | - | - | - |" in text


def test_growth_without_its_first_size_is_not_told() -> None:
    figures = made("connections", row("10", "vmq", 4.0, "1 lost"), row("1000", "vmq", 5.2))
    assert "| 1,000 | 5.2 | - |" in render(figures)


def test_the_plot_has_a_line_a_broker() -> None:
    figures = made(
        "subscribing",
        *(row(str(size), "vmq", 4.0 + size / 1000) for size in (0, 100, 1000)),
        *(row(str(size), "mosquitto", 8.0) for size in (0, 100, 1000)),
    )
    tree = ElementTree.fromstring(plot(figures))
    lines = [each.get("points", "") for each in tree.iter("{http://www.w3.org/2000/svg}polyline")]
    assert [len(points.split()) for points in lines] == [3, 3]
    heights = [[float(point.partition(",")[2]) for point in points.split()] for points in lines]
    assert heights[0][0] > heights[0][1] > heights[0][2]
    assert heights[1][0] == heights[1][2] == heights[0][0]


@pytest.mark.parametrize("name", ["rows", *GROWTH])
def test_every_part_has_loads(name: str) -> None:
    loads = loads_of(name)
    assert len({load.name for load in loads}) == len(loads) > 2
