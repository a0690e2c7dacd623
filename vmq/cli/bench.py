"""`vmq bench`: measure a broker, or compare brokers, and check that nothing is lost on the way."""

import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Final

import typer

from vmq.cli.terminal.console import FAILURE, CliError, UsageError, is_terminal, table

if TYPE_CHECKING:
    from vmq.bench.control import Control

_LOAD: Final = "Load"
_CLIENTS: Final = "Clients"
_BROKER: Final = "Broker"
_COMPARE: Final = "Compare"
_INTERRUPTED: Final = 130
_BAR: Final = 40
_URL: Final = "mqtt://127.0.0.1:1883"

ScenarioArgument = Annotated[str, typer.Argument(metavar="[SCENARIO]", show_default=False)]
QosOption = Annotated[
    int | None,
    typer.Option(
        *("-q", "--qos"),
        metavar="QOS",
        help="Quality of service of everything.",
        show_default="0",
        rich_help_panel=_LOAD,
    ),
]
SizeOption = Annotated[
    int | None,
    typer.Option(
        "--size",
        metavar="BYTES",
        help="Payload of a message, 8 at least.",
        show_default="64",
        rich_help_panel=_LOAD,
    ),
]
RateOption = Annotated[
    float | None,
    typer.Option(
        "--rate",
        metavar="N",
        help="Messages a second over all publishers; 0 is as fast as it goes.",
        show_default="0; storm: 1000",
        rich_help_panel=_LOAD,
    ),
]
CountOption = Annotated[
    int | None,
    typer.Option(
        "--count",
        metavar="N",
        help="Messages over all publishers.",
        show_default="what the time allows; retained: 10000",
        rich_help_panel=_LOAD,
    ),
]
SecondsOption = Annotated[
    float | None,
    typer.Option(
        "--seconds",
        metavar="S",
        help="End publishing after this time; with --count, whichever comes first.",
        show_default="5; with --count: 120",
        rich_help_panel=_LOAD,
    ),
]
WarmupOption = Annotated[
    float | None,
    typer.Option(
        "--warmup",
        metavar="S",
        help="Time of the same load before measuring begins.",
        show_default="0; compare: 0.5",
        rich_help_panel=_LOAD,
    ),
]
WindowOption = Annotated[
    int | None,
    typer.Option(
        "--window",
        metavar="N",
        help="Unacknowledged messages of a publisher, QoS 1 and 2.",
        show_default="20",
        rich_help_panel=_LOAD,
    ),
]
CreditOption = Annotated[
    int | None,
    typer.Option(
        "--credit",
        metavar="N",
        help="Messages of a publisher that were sent and not yet delivered; 0 is no limit.",
        show_default="200; fan-in, fan-out and QoS 1, 2: 100 or less",
        rich_help_panel=_LOAD,
    ),
]
TopicsOption = Annotated[
    int | None,
    typer.Option(
        "--topics",
        metavar="N",
        help="Topics of a publisher, used in turn.",
        show_default="1; topics0, topics1: 50",
        rich_help_panel=_LOAD,
    ),
]
PubsOption = Annotated[
    int | None,
    typer.Option(
        "--pubs",
        metavar="N",
        help="Publishers; each has a subscriber of its own except in fan-in.",
        show_default="10; fan-in: 50",
        rich_help_panel=_CLIENTS,
    ),
]
SubsOption = Annotated[
    int | None,
    typer.Option(
        "--subs",
        metavar="N",
        help="Subscribers of fan-out and subscribing.",
        show_default="50",
        rich_help_panel=_CLIENTS,
    ),
]
ClientsOption = Annotated[
    int | None,
    typer.Option(
        "--clients",
        metavar="N",
        help="Clients that connect (connect, storm), hold filters (wildcard) or subscribe (subscribing).",
        show_default="5000; wildcard, subscribing: 10",
        rich_help_panel=_CLIENTS,
    ),
]
ConcurrencyOption = Annotated[
    int | None,
    typer.Option(
        "--concurrency",
        metavar="N",
        help="Connections under way at once.",
        show_default="100; storm: 1000",
        rich_help_panel=_CLIENTS,
    ),
]
WildSubsOption = Annotated[
    int | None,
    typer.Option(
        "--wild-subs",
        metavar="N",
        help="Filters that match nothing (wildcard).",
        show_default="100000",
        rich_help_panel=_CLIENTS,
    ),
]
SubRateOption = Annotated[
    float | None,
    typer.Option(
        "--sub-rate",
        metavar="N",
        help="SUBSCRIBEs a second over all clients (subscribing).",
        show_default="1000",
        rich_help_panel=_CLIENTS,
    ),
]
HoldOption = Annotated[
    float | None,
    typer.Option(
        "--hold",
        metavar="S",
        help="Time that connections are held before memory is read (connect).",
        show_default="1",
        rich_help_panel=_CLIENTS,
    ),
]
UrlOption = Annotated[
    str,
    typer.Option(
        *("-L", "--url"),
        metavar="URL",
        help="mqtt://USER:PASSWORD@HOST:PORT, or mqtts://, ws://, wss://",
        rich_help_panel=_BROKER,
    ),
]
PidOption = Annotated[
    int | None,
    typer.Option(
        "--pid",
        metavar="PID",
        min=1,
        help="The broker's process on this machine (Linux): measure the CPU time and memory of it and its children.",
        rich_help_panel=_BROKER,
    ),
]
CaOption = Annotated[
    Path | None,
    typer.Option(
        "--cafile", metavar="FILE", help="Certificates to trust (TLS).", rich_help_panel=_BROKER
    ),
]
# Its name until it became that of the other commands.
OldCaOption = Annotated[Path | None, typer.Option("--ca", metavar="FILE", hidden=True)]
InsecureOption = Annotated[
    bool,
    typer.Option(
        "--insecure", help="Trust whatever certificate comes (TLS).", rich_help_panel=_BROKER
    ),
]
ScenariosOption = Annotated[
    str | None,
    typer.Option(
        "--scenarios",
        metavar="LIST",
        help="Scenarios with commas between them, each with a QoS if wanted: pair,pair:1",
        show_default="all",
        rich_help_panel=_COMPARE,
    ),
]
BrokersOption = Annotated[
    str | None,
    typer.Option(
        "--brokers",
        metavar="LIST",
        help="Brokers with commas between them.",
        show_default="vmq,mosquitto,nats-server,amqtt",
        rich_help_panel=_COMPARE,
    ),
]
RunsOption = Annotated[
    int | None,
    typer.Option(
        "--runs",
        metavar="N",
        min=1,
        max=100,
        help="Runs of each; the table shows medians.",
        show_default="1",
        rich_help_panel=_COMPARE,
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]


def bench(
    scenario: ScenarioArgument = "fleet0",
    qos: QosOption = None,
    size: SizeOption = None,
    rate: RateOption = None,
    count: CountOption = None,
    seconds: SecondsOption = None,
    warmup: WarmupOption = None,
    window: WindowOption = None,
    credit: CreditOption = None,
    topics: TopicsOption = None,
    pubs: PubsOption = None,
    subs: SubsOption = None,
    clients: ClientsOption = None,
    concurrency: ConcurrencyOption = None,
    wild_subs: WildSubsOption = None,
    sub_rate: SubRateOption = None,
    hold: HoldOption = None,
    url: UrlOption = _URL,
    pid: PidOption = None,
    cafile: CaOption = None,
    ca: OldCaOption = None,
    insecure: InsecureOption = False,
    scenarios: ScenariosOption = None,
    brokers: BrokersOption = None,
    runs: RunsOption = None,
    as_json: JsonOption = False,
) -> int:
    """Measure a broker, and check that every message arrives once and in order.

    \b
    SCENARIO is one of these loads (without one: fleet0)
      fleet0, fleet1        2,000 devices and one subscriber, at QoS 0, 1
      fleetpair             1,000 devices, each with a subscriber of its own
      seldom0, seldom1      2,000 devices, 20,000 messages a second
      topics0, topics1      gateways, no two packets in a row of one topic
      connects, sequential  clients connect, 100 at once or one by one
      logins                the same with the password of --url
    \b
    or of these, whose options say how much of it
      pair       publishers, each with a subscriber of its own
      fan-in     many publishers, one subscriber
      fan-out    one publisher, many subscribers
      ping-pong  pairs with one message under way each
      wildcard   pairs, while others hold many filters that match nothing
      connect    many clients connect and stay
      retained   many retained messages, then one new subscriber
      storm      pairs, while a crowd connects as fast as the broker accepts
      subscribing  fan-out, while others go on subscribing
      compare    the above on vmq and the brokers installed here, in turn

    It ends by itself; Ctrl-C ends it early with what was measured. Exits with
    1 if anything was lost, repeated or out of order (in a comparison: by
    vmq), or somebody was cut off, with 130 after Ctrl-C.

    \b
    Examples:
      vmq bench --pid $(pgrep -f 'vmq start')
      vmq bench logins -L mqtt://USER:PASSWORD@127.0.0.1:1883
      vmq bench fan-out --subs 100 --qos 1 --seconds 10
      vmq bench storm --clients 20000 -L mqtt://127.0.0.1:1884
      vmq bench compare --scenarios pair,pair:1,connect --runs 3
    """
    given: dict[str, int | float | None] = {
        "qos": qos,
        "size": size,
        "rate": rate,
        "count": count,
        "seconds": seconds,
        "warmup": warmup,
        "window": window,
        "credit": credit,
        "topics": topics,
        "pubs": pubs,
        "subs": subs,
        "clients": clients,
        "concurrency": concurrency,
        "wild_subs": wild_subs,
        "sub_rate": sub_rate,
        "hold": hold,
    }
    cafile = ca if cafile is None else cafile
    if scenario == "compare":
        if pid is not None or url != _URL or cafile is not None or insecure:
            raise UsageError(
                "compare starts its brokers itself: no --url, --pid, --cafile, --insecure"
            )
        return _compare(scenarios, brokers, runs or 1, given, as_json)
    if scenarios is not None or brokers is not None or runs is not None:
        raise UsageError("--scenarios, --brokers and --runs belong to compare")
    return _measure(scenario, given, url, pid, (cafile, insecure), as_json)


def _measure(
    scenario: str,
    given: dict[str, int | float | None],
    url: str,
    pid: int | None,
    tls: tuple[Path | None, bool],
    as_json: bool,
) -> int:
    from dataclasses import replace

    from vmq.bench import report, rows, scenarios
    from vmq.bench.control import Control, Interrupted
    from vmq.bench.load.address import parse_address
    from vmq.bench.load.options import BenchError

    try:
        options = rows.load_for(scenario, parse_address(url), given)
    except ValueError as problem:
        raise UsageError(str(problem)) from None
    options = replace(options, pid=pid, ca=tls[0], insecure=tls[1])
    with _progress() as bar:
        control = Control(bar)
        try:
            with _stopped_by_signals(control):
                result = scenarios.run(options, control)
        except BenchError as problem:
            raise CliError(str(problem)) from None
        except Interrupted:
            return _INTERRUPTED
    if as_json:
        _print_json(result)
    else:
        table(("measure", "value"), report.rows_of(result))
    if not result.is_sound:
        return FAILURE
    return _INTERRUPTED if result.end == "interrupted" else 0


def _compare(
    scenarios: str | None,
    brokers: str | None,
    runs: int,
    given: dict[str, int | float | None],
    as_json: bool,
) -> int:
    from vmq.bench import compare, peers, report
    from vmq.bench.control import Control

    try:
        found, missing = peers.find_peers(brokers.split(",") if brokers else peers.known_peers())
        loads = compare.loads_for(
            scenarios.split(",") if scenarios else compare.DEFAULT, _set(given)
        )
    except ValueError as problem:
        raise UsageError(str(problem)) from None
    total = len(loads) * len(found) * runs
    with _progress() as bar:
        control = Control()
        done = 0

        def told(what: str) -> None:
            nonlocal done
            if bar is not None:
                bar(what, done, total)
            done += 1

        with _stopped_by_signals(control):
            comparison = compare.compare(loads, found, missing, runs, control, told)
    if as_json:
        _print_json(comparison)
    else:
        table(report.COMPARE_HEADERS, report.compare_rows(comparison))
        for name, version in comparison.brokers.items():
            print(f"{name} {version}")
        if comparison.not_found:
            print(f"not found: {', '.join(comparison.not_found)}")
    if not comparison.is_complete:
        return _INTERRUPTED
    return 0 if comparison.is_sound else FAILURE


def _set(given: dict[str, int | float | None]) -> dict[str, int | float]:
    return {name: value for name, value in given.items() if value is not None}


def _print_json(value: object) -> None:
    import msgspec

    print(msgspec.json.format(msgspec.json.encode(value), indent=2).decode())


@contextmanager
def _stopped_by_signals(control: "Control") -> Iterator[None]:
    """SIGINT, SIGTERM and SIGHUP end the measurement with what there is; a second one ends the command."""

    def handle(_number: int, _frame: FrameType | None) -> None:
        if control.is_stopping:
            raise KeyboardInterrupt
        control.stop()

    before = {
        each: signal.signal(each, handle) for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    }
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


@contextmanager
def _progress() -> Iterator[Callable[[str, float, float], None] | None]:
    """A progress bar on a terminal; None elsewhere.

    It is drawn between two messages of a measurement: a line as plain as this takes some 20 µs, a bar of a library
    milliseconds, which would show in the latencies.
    """
    if not is_terminal(sys.stderr):
        yield None
        return
    write = sys.stderr.write

    def tell(what: str, done: float, total: float) -> None:
        share = min(done / total, 1.0) if total else 1.0
        bar = "#" * round(share * _BAR)
        write(f"\r\x1b[K{bar:.<{_BAR}} {share:4.0%} {what}")
        sys.stderr.flush()

    try:
        yield tell
    finally:
        write("\r\x1b[K")
        sys.stderr.flush()
