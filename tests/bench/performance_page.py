"""The page and the plot that `tests.bench.performance` makes of its figures."""

from collections.abc import Iterator
from typing import NamedTuple

from msgspec import Struct, field

from tests.bench.plot import chart, page
from vmq.bench.compare import REFERENCE, ComparisonRow
from vmq.bench.report import duration

#: Growth that is too much.
MOST_GROWTH = 1.3


class Part(Struct):
    """Loads that were measured side by side."""

    measured: str  # date
    runs: int
    brokers: dict[str, str]  # name: version
    rows: list[ComparisonRow]


class Print(Struct):
    """What a command printed."""

    measured: str
    command: str
    text: str


class Figures(Struct):
    machine: dict[str, str] = field(default_factory=dict)
    parts: dict[str, Part] = field(default_factory=dict)
    prints: dict[str, Print] = field(default_factory=dict)


class Growth(NamedTuple):
    """Something that grows while the load stays."""

    sizes: tuple[int, ...]
    what: str
    meaning: str


GROWTH = {
    "connections": Growth(
        (10, 1000, 10_000, 19_000),
        "connections",
        "So many devices publish 5,000 messages of 64 bytes a second in all, at QoS 0, to one subscriber.",
    ),
    "subscriptions": Growth(
        (1000, 10_000, 100_000, 1_000_000),
        "subscriptions",
        "10 pairs exchange messages at QoS 0 as fast as it goes, each over 50 topics in turn, while others hold so "
        "many filters with wildcards that begin like these topics and match none of them.",
    ),
    "subscribing": Growth(
        (0, 100, 1000),
        "SUBSCRIBEs a second",
        "One client publishes 1,000 messages a second to 50 subscribers at QoS 0, while others subscribe so many times "
        "a second to one more filter with wildcards. What the SUBSCRIBEs themselves cost is in it.",
    ),
}

#: The rows, and what each is.
MEANINGS = {
    "fleet0": "2,000 devices, each with one message under way, to one subscriber, as fast as it goes; QoS 0",
    "fleet1": "the same at QoS 1",
    "fleetpair": "1,000 devices, each with a subscriber of its own and one message under way; QoS 0",
    "seldom0": "2,000 devices, 20,000 messages a second in all, to one subscriber; QoS 0",
    "seldom1": "the same at QoS 1",
    "topics0": "10 pairs, each over 50 topics in turn, as fast as it goes; QoS 0",
    "topics1": "the same at QoS 1",
    "pair": "10 pairs, one topic each, as fast as it goes; QoS 0",
    "pair:1": "the same at QoS 1",
    "pair:2": "the same at QoS 2",
    "ping-pong": "10 pairs, each with one message under way; QoS 0",
    "fan-out": "one publisher, 50 subscribers; QoS 0",
    "fan-in": "50 publishers, one subscriber; QoS 0",
    "connects": "5,000 clients connect, 100 at once; a rate and a cost is that of a connection",
    "sequential": "1,000 clients connect, one at a time",
    "retained": "10,000 retained messages are sent to one new subscriber",
    "wildcard": "10 pairs beside 10,000 filters with wildcards that match nothing; QoS 0",
}

#: What one of the things is that a row's memory is divided by.
EACH = {"connects": "idle connection", "retained": "retained message", "wildcard": "filter"}

PRINTED = {
    "durable": (
        "Durable sessions",
        "What a message to a durable session costs beside one to a clean session.",
    ),
    "offline": (
        "Many sessions that are away",
        "What a message costs in each of the queues that it waits in: it has one body and many places.",
    ),
    "tls": ("TLS", "CPU of both brokers over TLS."),
}

HEAD = """\
# Performance

What a message costs vmq, beside other brokers and as things grow. This page, its plot and `performance.json` are
written by `python -m tests.bench.performance`, and by nobody else. To make them anew: `make build`, activate `.venv`,
install the brokers to compare with (`apt-get install mosquitto`), and run it in the checkout, on a machine that does
nothing else; `--help` names its parts, which can be measured one by one. `vmq bench` has the same loads for any broker.
"""

MEASURES = """\
## What the measures mean

- **CPU µs** is the processor time, user and system, of the broker's process with all its threads, divided by the
  messages that arrived (in the rows about connections: by the connections). It is what a message costs whoever runs
  the broker, and does not depend on how fast the load generator is.
- **messages/s** is what arrived in a second. Where the broker costs little the load generator, which is one process on
  the same machine, is the limit: then it says what that can do, not the broker. Where a rate is given, it is that.
- **p50** is half of the latencies, from the moment that a message was to be sent until it has arrived. In loads that go
  as fast as they can it is mostly the time in queues: it says how much is under way, not how quick a broker is.
  A virtual machine may wake a processor that slept in one of two ways, of which the second takes some 65 µs longer
  and costs the broker CPU too; which one depends on the rate. Rows whose p50 differ by that much compare badly.
- **ratio** is the first broker's figure divided by the other's, in runs that took turns: below 1 the first is cheaper.
  Above, where the other is ahead, it is set in bold.
- Figures are medians. A row in which anything was lost, repeated or out of order shows what instead of figures.
"""


GROWN = f"""\
## Growth

What a message costs as one thing grows and the load stays. **×** is the figure divided by that of the smallest size;
the goal is at most {MOST_GROWTH}, and more is set in bold.

![CPU a message, relative to the smallest size](performance.svg)
"""


def render(figures: Figures) -> str:
    parts = [
        HEAD,
        "## Machine\n",
        *(f"- {name}: {value}" for name, value in figures.machine.items()),
    ]
    rows = figures.parts.get("rows")
    if rows is not None:
        parts += ["\n## Side by side\n", *told(rows), *side_by_side(rows), "", *memory(rows)]
    parts += ["", MEASURES]
    found = [name for name in GROWTH if name in figures.parts]
    if found:
        parts.append(GROWN)
    for name in found:
        parts += grown(name, figures.parts[name])
    for name, (title, meaning) in PRINTED.items():
        each = figures.prints.get(name)
        if each is not None:
            parts += [f"## {title}\n", f"{meaning} `{each.command}`, {each.measured}:\n"]
            parts += ["```", each.text, "```\n"]
    return "\n".join(parts).rstrip() + "\n"


def told(part: Part) -> list[str]:
    """When and what was measured."""
    brokers = ", ".join(f"{name} {version}".strip() for name, version in part.brokers.items())
    return [f"{brokers}; {part.measured}, medians of {part.runs}.\n"]


def by_load(part: Part) -> dict[str, dict[str, ComparisonRow]]:
    found: dict[str, dict[str, ComparisonRow]] = {}
    for row in part.rows:
        found.setdefault(row.scenario, {})[row.broker] = row
    return found


def side_by_side(part: Part) -> Iterator[str]:
    """The table of rows: CPU and latency of each broker, and the ratios to the first."""
    names = list(part.brokers)
    others = [name for name in names if name != REFERENCE]
    columns = ["row"]
    for what in ("CPU µs", "p50"):
        columns += [f"{what} {name}" for name in names] + [f"ratio to {name}" for name in others]
    columns += [f"messages/s {name}" for name in names]
    yield from header(columns, 1)
    for load, rows in by_load(part).items():
        cells = [load]
        for is_cpu in (True, False):
            cells += [figure(rows.get(name), is_cpu) for name in names]
            cells += [ratio(rows.get(REFERENCE), rows.get(name), is_cpu) for name in others]
        cells += [rate(rows.get(name)) for name in names]
        yield line(cells)
    yield ""
    yield from (
        f"- `{name}`: {meaning}" for name, meaning in MEANINGS.items() if name in by_load(part)
    )


def memory(part: Part) -> Iterator[str]:
    """A table of what one more of something takes."""
    found = [(load, rows) for load, rows in by_load(part).items() if load in EACH]
    if not found:
        return
    yield "Resident memory, in bytes:\n"
    yield from header(["of each", *part.brokers], 1)
    for load, rows in found:
        cells = [EACH[load]]
        for broker in part.brokers:
            row = rows.get(broker)
            is_known = row is not None and row.is_sound and row.bytes_each
            cells.append(f"{row.bytes_each:,.0f}" if row is not None and is_known else "-")
        yield line(cells)


def grown(name: str, part: Part) -> Iterator[str]:
    growth = GROWTH[name]
    yield f"### {growth.what[:1].upper() + growth.what[1:]}\n"
    yield growth.meaning + "\n"
    yield from told(part)
    columns = [growth.what]
    for broker in part.brokers:
        columns += [f"CPU µs {broker}", f"× {broker}", f"p50 {broker}"]
    yield from header(columns, 0)
    for size, rows in by_load(part).items():
        cells = [f"{int(size):,}"]
        for broker in part.brokers:
            row = rows.get(broker)
            times = relative(part, broker).get(int(size))
            shown = "-" if times is None else f"{times:.2f}"
            bold = times is not None and times > MOST_GROWTH
            cells += [figure(row, True), f"**{shown}**" if bold else shown, figure(row, False)]
        yield line(cells)
    yield ""


def relative(part: Part, broker: str) -> dict[int, float]:
    """By size: the CPU a message, divided by that of the smallest size."""
    found = [row for row in part.rows if row.broker == broker and row.is_sound and row.cpu_us]
    if not found or found[0].scenario != part.rows[0].scenario:
        return {}  # nothing to compare with
    return {int(row.scenario): row.cpu_us / found[0].cpu_us for row in found}


def plot(figures: Figures) -> str:
    """The growth of each part as a chart."""
    charts: list[str] = []
    for name, growth in GROWTH.items():
        part = figures.parts.get(name)
        if part is None:
            continue
        lines = {
            broker: [(max(size, 1), times) for size, times in relative(part, broker).items()]
            for broker in part.brokers
        }
        lines = {broker: points for broker, points in lines.items() if points}
        if lines:
            charts.append(chart("CPU a message, ×", growth.what, lines))
    return page(charts)


def header(columns: list[str], texts: int) -> Iterator[str]:
    yield line(columns)
    yield line(["---" if index < texts else "---:" for index in range(len(columns))])


def line(cells: list[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def figure(row: ComparisonRow | None, is_cpu: bool) -> str:
    if row is None or not row.is_sound:
        return "-" if row is None else row.problem or "-"
    if is_cpu:
        return f"{row.cpu_us:.3g}"
    return duration(row.p50_us) if row.p50_us else "-"


def ratio(ours: ComparisonRow | None, theirs: ComparisonRow | None, is_cpu: bool) -> str:
    if ours is None or theirs is None or not (ours.is_sound and theirs.is_sound):
        return "-"
    mine, other = (ours.cpu_us, theirs.cpu_us) if is_cpu else (ours.p50_us, theirs.p50_us)
    if not mine or not other:
        return "-"
    shown = f"{mine / other:.2f}"
    return f"**{shown}**" if mine > other else shown


def rate(row: ComparisonRow | None) -> str:
    return f"{row.rate:,.0f}" if row is not None and row.is_sound else "-"
