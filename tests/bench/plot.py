"""A chart of lines as SVG: figures over sizes, both axes logarithmic."""

from collections.abc import Mapping, Sequence
from html import escape
from math import log10

Points = Sequence[tuple[float, float]]

WIDTH, HEIGHT = 400, 300
LEFT, RIGHT, TOP, BOTTOM = 52, 12, 44, 44
COLOURS = ("#1f6feb", "#d1242f", "#1a7f37", "#8250df")
#: Heights that get a line of the grid.
STEPS = (0.5, 1, 1.3, 2, 3, 5, 10, 20, 50, 100, 1000)


def chart(title: str, across: str, lines: Mapping[str, Points]) -> str:
    """A figure of its own coordinates; `lines` by name, of positive sizes and figures."""
    every = [point for points in lines.values() for point in points]
    low_x, high_x = min(x for x, _ in every), max(x for x, _ in every)
    low_y = min(0.8, *(y for _, y in every))
    high_y = max(2.0, *(y for _, y in every)) * 1.1

    def at(x: float, y: float) -> tuple[float, float]:
        right = log10(x / low_x) / max(log10(high_x / low_x), 1e-9)
        up = log10(y / low_y) / log10(high_y / low_y)
        return (
            round(LEFT + right * (WIDTH - LEFT - RIGHT), 1),
            round(HEIGHT - BOTTOM - up * (HEIGHT - TOP - BOTTOM), 1),
        )

    parts = [text(WIDTH / 2, 18, title, "middle", 13), text(WIDTH / 2, HEIGHT - 8, across)]
    for step in STEPS:
        if low_y <= step <= high_y:
            (x1, y1), (x2, _) = at(low_x, step), at(high_x, step)
            dashes = ' stroke-dasharray="4 3"' if step == 1.3 else ""
            parts.append(f'<path d="M{x1} {y1}H{x2}" stroke="#bbb"{dashes}/>')
            parts.append(text(x1 - 6, y1 + 4, f"{step:g}", "end"))
    for x in sorted({x for x, _ in every}):
        parts.append(text(at(x, low_y)[0], HEIGHT - BOTTOM + 16, short(x)))
    for index, (name, points) in enumerate(lines.items()):
        colour = COLOURS[index % len(COLOURS)]
        places = [at(x, y) for x, y in points]
        path = " ".join(f"{x},{y}" for x, y in places)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts += [f'<circle cx="{x}" cy="{y}" r="3" fill="{colour}"/>' for x, y in places]
        parts.append(text(LEFT + 110 * index, 36, name, "start", 11, colour))
    return "\n".join(parts)


def page(charts: Sequence[str]) -> str:
    """An SVG file with the charts side by side."""
    width = WIDTH * len(charts)
    size = f'viewBox="0 0 {width} {HEIGHT}" width="{width}" height="{HEIGHT}"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif">',
        f'<rect width="{width}" height="{HEIGHT}" fill="#fff"/>',
    ]
    for index, each in enumerate(charts):
        parts.append(f'<g transform="translate({index * WIDTH} 0)">\n{each}\n</g>')
    return "\n".join([*parts, "</svg>\n"])


def text(
    x: float, y: float, words: str, anchor: str = "middle", size: int = 11, colour: str = "#333"
) -> str:
    return (
        f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}" font-size="{size}" fill="{colour}">'
        f"{escape(words)}</text>"
    )


def short(number: float) -> str:
    """10, 1k, 19k, 1M."""
    for unit, sign in ((1e6, "M"), (1e3, "k")):
        if number >= unit:
            return f"{number / unit:g}{sign}"
    return f"{number:g}"
