"""Runs one load on vmq and its peers in turn, each on a fresh process."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Final

from msgspec import Struct

from vmq.bench.control import Control, Interrupted
from vmq.bench.load.address import Address
from vmq.bench.load.options import APPLICABLE, BenchError, LoadOptions, Scenario
from vmq.bench.peers import BenchPeer, RunningPeer
from vmq.bench.result import Latency, Result
from vmq.bench.rows import load_for, scenario_of
from vmq.bench.scenarios import run

#: The broker that the ratios refer to.
REFERENCE: Final = "vmq"
#: What is compared unless scenarios are named.
DEFAULT: Final = (
    *("fleet0", "fleet1", "fleetpair", "seldom0", "seldom1", "topics0", "topics1"),
    *("pair", "pair:1", "pair:2", "ping-pong", "fan-out", "fan-in"),
    *("wildcard", "subscribing", "connect", "retained", "storm"),
)
#: Smaller than for one broker: the slowest peer has to manage, and there are many runs.
_SIZES: Final[dict[Scenario, dict[str, int | float]]] = {
    Scenario.WILDCARD: {"wild_subs": 10_000},
    Scenario.CONNECT: {"clients": 2000},
    Scenario.STORM: {"clients": 2000},
}
_FLOW: Final = {"seconds": 2.0, "warmup": 0.5}
#: Until a broker runs.
_NOWHERE: Final = Address("mqtt", "127.0.0.1", 0)


@dataclass(frozen=True)
class Load:
    """A row, or a scenario at a QoS, as `--scenarios` names it: fleet0, pair, pair:1."""

    name: str
    options: LoadOptions


class ComparisonRow(Struct, omit_defaults=True):
    """A scenario on a broker."""

    scenario: str
    broker: str
    #: Messages received a second; connections accepted a second in connect and storm.
    rate: float = 0.0
    cpu_us: float = 0.0  # of the broker, a message or a connection
    p50_us: float = 0.0
    p99_us: float = 0.0
    loader_share: float = 0.0
    is_sound: bool = False
    #: Relative to vmq in the same comparison: 2.0 is twice its rate, or twice its cost.
    rate_ratio: float | None = None
    cpu_ratio: float | None = None
    problem: str = ""
    runs: list[Result] = []
    bytes_each: float = 0.0  # of the broker, a connection, a filter or a retained message


class Comparison(Struct):
    """The whole of it."""

    brokers: dict[str, str]  # name: version
    not_found: list[str]
    rows: list[ComparisonRow]
    is_complete: bool = True

    @property
    def is_sound(self) -> bool:
        """Whether vmq passed everywhere. What its peers lose is shown, but is no failure of this command."""
        return all(row.is_sound for row in self.rows if row.broker == REFERENCE)


def loads_for(names: Sequence[str], given: dict[str, int | float]) -> list[Load]:
    """The loads that the names stand for, with the given options where they mean something.

    Raises:
        ValueError: a name that is no scenario, a QoS that is none, or a number out of its range.
    """
    return [Load(name, _options(name, given)) for name in names]


def _options(name: str, given: dict[str, int | float]) -> LoadOptions:
    text, _, qos = name.partition(":")
    scenario = scenario_of(text)
    wanted = {**_FLOW, **_SIZES.get(scenario, {}), **given}
    if scenario is Scenario.STORM:
        del wanted["seconds"]  # it lasts until everybody is in
    values = {key: value for key, value in wanted.items() if key in APPLICABLE[scenario]}
    if qos:
        values["qos"] = int(qos) if qos.isdigit() else -1
    return load_for(text, _NOWHERE, values)


def compare(
    loads: Sequence[Load],
    peers: Sequence[BenchPeer],
    not_found: Sequence[str],
    runs: int,
    control: Control,
    told: Callable[[str], None],
) -> Comparison:
    """Measures each load on each broker `runs` times; the figures are medians.

    `told` hears what is measured now. After the wish to stop, what was measured until then is returned.
    """
    rows: dict[tuple[str, str], ComparisonRow] = {}
    found = Comparison({peer.name: peer.version for peer in peers}, list(not_found), [])
    try:
        for load in loads:
            for number in range(runs):
                for peer in peers:
                    control.check()
                    row = rows.get((load.name, peer.name))
                    if row is None:
                        row = rows[load.name, peer.name] = ComparisonRow(load.name, peer.name)
                        found.rows.append(row)
                    told(
                        f"{load.name} on {peer.name}" + (f", run {number + 1}" if runs > 1 else "")
                    )
                    _measure(row, load, peer, control)
    except Interrupted:
        found.is_complete = False
    found.rows = [row for row in found.rows if row.runs or row.problem]
    for row in found.rows:
        _summarise(row)
    for row in found.rows:
        _relate(row, rows.get((row.scenario, REFERENCE)))
    return found


def _measure(row: ComparisonRow, load: Load, peer: BenchPeer, control: Control) -> None:
    """One run on a fresh process."""
    if row.problem:
        return  # it would only take its time to fail again
    try:
        with RunningPeer(peer) as broker:
            result = run(replace(load.options, address=broker.address, pid=broker.pid), control)
    except BenchError as problem:
        row.problem = str(problem)
        return
    control.check()  # an interrupted run is no measurement
    row.runs.append(result)


def _summarise(row: ComparisonRow) -> None:
    """The medians of the runs."""
    if not row.runs:
        return
    row.is_sound = not row.problem and all(result.is_sound for result in row.runs)

    def middle(value: Callable[[Result], float | None]) -> float:
        return round(median(value(result) or 0.0 for result in row.runs), 3)

    row.rate = middle(_rate)
    row.cpu_us = middle(_cpu)
    row.bytes_each = middle(_bytes)
    latencies = [latency for result in row.runs if (latency := _latency(result)) is not None]
    if latencies:
        row.p50_us = median(latency.p50 for latency in latencies)
        row.p99_us = median(latency.p99 for latency in latencies)
    row.loader_share = middle(lambda result: result.loader.cpu_share if result.loader else None)
    bad = [result for result in row.runs if not result.is_sound]
    if bad:
        row.problem = bad[0].faults_text()


def _rate(result: Result) -> float:
    return result.connects.rate if result.connects is not None else result.receive_rate


def _latency(result: Result) -> Latency | None:
    """Of the messages; of the connections where nothing else was done."""
    if result.latency_us is None and result.connects is not None:
        return result.connects.latency_us
    return result.latency_us


def _cpu(result: Result) -> float | None:
    broker = result.broker
    if broker is None:
        return None
    return broker.cpu_us_per_message or broker.cpu_us_per_connection


def _bytes(result: Result) -> float | None:
    broker = result.broker
    if broker is None:
        return None
    return broker.bytes_per_connection or broker.bytes_per_filter or broker.bytes_per_retained


def _relate(row: ComparisonRow, reference: ComparisonRow | None) -> None:
    if reference is None or row is reference or not (row.is_sound and reference.is_sound):
        return  # what loses messages is no faster for it
    if row.rate and reference.rate:
        row.rate_ratio = round(row.rate / reference.rate, 3)
    if row.cpu_us and reference.cpu_us:
        row.cpu_ratio = round(row.cpu_us / reference.cpu_us, 2)
