"""Measures vmq beside its peers and writes docs/performance.md: python -m tests.bench.performance [PART ...] [--runs 5]

The parts are `rows` (what most users' clients do, side by side), `connections`, `subscriptions` and `subscribing` (what
a message costs as these grow), `durable`, `offline` and `tls` (what `tests.bench.durable`, `tests.bench.offline_fanout`
and `tests.bench.tls_cpu` print). Each load runs on vmq and on every peer that is installed, in turn, each time on a
fresh process. Figures are kept in docs/performance.json, so that a part can be measured again without the others, and
loads of a part too (`--loads fleet0,pair`); without a part named, all are. Nothing else may run on the machine
meanwhile.
"""

import argparse
import os
import platform
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from tests.bench.performance_page import GROWTH, MEANINGS, Figures, Part, Print, plot, render
from vmq.bench.compare import Load, compare, loads_for
from vmq.bench.control import Control
from vmq.bench.load.address import Address
from vmq.bench.load.options import Scenario, options_for
from vmq.bench.peers import find_peers

DOCS = Path(__file__).parents[2] / "docs"
NOWHERE = Address("mqtt", "127.0.0.1", 0)
PRINTING = {
    "durable": "tests.bench.durable",
    "offline": "tests.bench.offline_fanout",
    "tls": "tests.bench.tls_cpu",
}


def loads_of(part: str) -> list[Load]:
    """What a part measures, in order of size."""
    if part == "rows":
        return loads_for(list(MEANINGS), {})
    return [growing(part, size) for size in GROWTH[part].sizes]


def growing(part: str, size: int) -> Load:
    """One size of what grows."""
    scenario = Scenario.SUBSCRIBING
    given: dict[str, int | float] = {"sub_rate": size, "seconds": 5, "warmup": 1}
    if part == "connections":
        # Long enough that every client has published before it counts.
        scenario = Scenario.FAN_IN
        given = {"pubs": size, "rate": 5000, "seconds": 5, "warmup": 4}
    elif part == "subscriptions":
        scenario = Scenario.WILDCARD
        given = {"wild_subs": size, "clients": max(10, size // 1000), "topics": 50}
        given |= {"seconds": 4, "warmup": 1}
    return Load(str(size), options_for(scenario, NOWHERE, given))


def measure(part: str, brokers: list[str], runs: int, names: set[str], before: Part | None) -> Part:
    """One part on all brokers that are here; if loads are named, those only, the others as they were before.

    Raises:
        ValueError: the others were measured otherwise: of such rows no table can say how.
    """
    found, missing = find_peers(brokers)
    known = loads_of(part)
    loads = [load for load in known if not names or load.name in names]
    if names and before:
        alike(before, runs, {peer.name: peer.version for peer in found})
    comparison = compare(
        loads, found, missing, runs, Control(), lambda what: print(what, file=sys.stderr)
    )
    for row in comparison.rows:
        row.runs = []
    new = Part(today(), runs, comparison.brokers, comparison.rows)
    return joined(before, new, [load.name for load in known]) if names and before else new


def alike(before: Part, runs: int, brokers: dict[str, str]) -> None:
    """Refuses to measure some loads of a part in another way than the rest."""
    if (before.runs, before.brokers) != (runs, brokers):
        was = ", ".join(f"{name} {version}" for name, version in before.brokers.items())
        raise ValueError(
            f"the other loads of this part were measured with --runs {before.runs} on {was}: do the same,"
            " or measure the part whole"
        )


def joined(before: Part, new: Part, order: list[str]) -> Part:
    """A part with the rows that were measured anew in the place of those before."""
    anew = {row.scenario for row in new.rows}
    rows = [row for row in before.rows if row.scenario not in anew] + new.rows
    rows.sort(key=lambda row: order.index(row.scenario))
    return Part(new.measured, new.runs, new.brokers, rows)


def printed(module: str) -> Print:
    done = subprocess.run([sys.executable, "-m", module], check=True, stdout=subprocess.PIPE)
    return Print(today(), f"python -m {module}", done.stdout.decode().rstrip())


def today() -> str:
    return datetime.now(UTC).date().isoformat()


def machine() -> dict[str, str]:
    models = [
        line.partition(":")[2].strip()
        for line in Path("/proc/cpuinfo").read_text().splitlines()
        if line.startswith("model name")
    ]
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return {
        "processor": f"{models[0] if models else platform.machine()}, {os.cpu_count()} cores",
        "memory": f"{memory:.0f} GiB",
        "kernel": f"{platform.system()} {platform.release()}",
        "Python": platform.python_version(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    known = ["rows", *GROWTH, *PRINTING]
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(known)}")
    parser.add_argument("--brokers", default="vmq,mosquitto", help="vmq first")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument(
        "--loads", default="", help="of a part: measures these anew, of all others nothing"
    )
    parser.add_argument("--docs", type=Path, default=DOCS, help="where the page lies")
    options = parser.parse_args()
    parts = options.parts or known
    if unknown := set(parts) - set(known):
        parser.error(f"no part {', '.join(sorted(unknown))}")
    kept: Path = options.docs / "performance.json"
    figures = Figures()
    if kept.exists():
        figures = msgspec.json.decode(kept.read_bytes(), type=Figures)
    figures.machine = machine()
    for part in parts:
        if part in PRINTING:
            figures.prints[part] = printed(PRINTING[part])
        else:
            names = {name for name in options.loads.split(",") if name}
            if strange := names - {load.name for load in loads_of(part)}:
                parser.error(f"{part} has no load {', '.join(sorted(strange))}")
            before = figures.parts.get(part)
            try:
                found = measure(part, options.brokers.split(","), options.runs, names, before)
            except ValueError as error:
                parser.error(str(error))
            figures.parts[part] = found
        kept.write_bytes(msgspec.json.format(msgspec.json.encode(figures), indent=1) + b"\n")
        (options.docs / "performance.md").write_text(render(figures))
        (options.docs / "performance.svg").write_text(plot(figures))


if __name__ == "__main__":
    main()
