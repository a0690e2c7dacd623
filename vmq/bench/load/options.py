"""What to measure: the scenarios, their options and defaults."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Final

from vmq.bench.load.address import Address
from vmq.bench.load.frames import HEADER, PACKET_ID_CYCLE

#: Nothing runs longer than this, whatever was asked for.
MAX_SECONDS: Final = 3600.0
MAX_COUNT: Final = 1_000_000_000
MAX_SIZE: Final = 1_000_000
#: How long a flow runs if neither a count nor a time is given.
SECONDS: Final = 5.0


class BenchError(Exception):
    """The measurement could not be made; the text says why."""


class Scenario(StrEnum):
    """What the clients do."""

    PAIR = "pair"
    FAN_IN = "fan-in"
    FAN_OUT = "fan-out"
    PING_PONG = "ping-pong"
    WILDCARD = "wildcard"
    CONNECT = "connect"
    RETAINED = "retained"
    STORM = "storm"
    SUBSCRIBING = "subscribing"


@dataclass(frozen=True)
class LoadOptions:
    """One measurement. The defaults are those of `pair`; `options_for` knows each scenario's."""

    scenario: Scenario
    address: Address
    qos: int = 0
    #: As a row is called (`vmq.bench.rows`); "" = as the scenario.
    name: str = ""
    size: int = 64  # bytes of payload
    topics: int = 1  # of a publisher, which it uses in turn
    rate: float = 0.0  # messages a second over all publishers, 0 = as fast as it goes
    count: int = MAX_COUNT  # messages over all publishers
    seconds: float = SECONDS  # no publishing after that
    pubs: int = 10
    subs: int = 10
    clients: int = (
        0  # that connect (connect, storm), hold filters (wildcard) or subscribe (subscribing)
    )
    window: int = 20  # unacknowledged messages a publisher, QoS 1 and 2
    credit: int = 200  # messages sent and not yet delivered, a publisher; 0 = no limit
    wild_subs: int = 0  # filters that match nothing
    sub_rate: float = 0.0  # SUBSCRIBEs of such filters a second, over all clients
    concurrency: int = 100  # connections under way at once
    hold: float = 1.0  # seconds that connections are held open and idle
    pid: int | None = None  # of the broker
    ca: Path | None = None  # whom to trust at mqtts:// and wss://
    insecure: bool = False
    warmup: float = 0.0  # seconds of the same load before measuring begins
    quiet: float = 1.0  # seconds of the measured flow before a storm
    stall: float = 5.0  # seconds without progress after which a run is given up


_FLOW: Final = frozenset(
    {"qos", "size", "rate", "count", "seconds", "window", "credit", "warmup", "topics"}
)

#: The options that mean something in a scenario.
APPLICABLE: Final[dict[Scenario, frozenset[str]]] = {
    Scenario.PAIR: _FLOW | {"pubs"},
    Scenario.FAN_IN: _FLOW | {"pubs"},
    Scenario.FAN_OUT: _FLOW | {"subs"},
    Scenario.PING_PONG: _FLOW - {"window", "credit", "rate"} | {"pubs"},
    Scenario.WILDCARD: _FLOW | {"pubs", "clients", "wild_subs", "concurrency"},
    Scenario.CONNECT: frozenset({"clients", "concurrency", "hold"}),
    Scenario.RETAINED: frozenset({"qos", "size", "count", "window"}),
    Scenario.STORM: (_FLOW - {"count", "warmup"}) | {"pubs", "clients", "concurrency", "quiet"},
    Scenario.SUBSCRIBING: _FLOW | {"subs", "clients", "sub_rate"},
}

_DEFAULTS: Final[dict[Scenario, dict[str, int | float]]] = {
    Scenario.PAIR: {},
    Scenario.FAN_IN: {"pubs": 50, "subs": 1, "credit": 100},
    Scenario.FAN_OUT: {"pubs": 1, "subs": 50, "credit": 100},
    Scenario.PING_PONG: {"credit": 1},
    Scenario.WILDCARD: {"clients": 10, "wild_subs": 100_000},
    Scenario.CONNECT: {"clients": 5000, "pubs": 0, "subs": 0},
    Scenario.RETAINED: {"count": 10_000, "pubs": 1, "subs": 1},
    Scenario.STORM: {"clients": 5000, "rate": 1000.0, "concurrency": 1000, "seconds": 60.0},
    Scenario.SUBSCRIBING: {
        "pubs": 1,
        "subs": 50,
        "credit": 100,
        "rate": 1000.0,
        "clients": 10,
        "sub_rate": 1000.0,
    },
}

#: Lowest and highest value of each number.
_RANGES: Final[dict[str, tuple[float, float]]] = {
    "qos": (0, 2),
    "size": (HEADER, MAX_SIZE),
    "topics": (1, 100),
    "rate": (0, 10_000_000),
    "count": (1, MAX_COUNT),
    "seconds": (0, MAX_SECONDS),
    "pubs": (1, 100_000),
    "subs": (1, 10_000),
    "clients": (1, 500_000),
    "window": (1, PACKET_ID_CYCLE // 2),
    "credit": (0, 1_000_000),
    "wild_subs": (0, 5_000_000),
    "sub_rate": (0, 1_000_000),
    "concurrency": (1, 10_000),
    "hold": (0, 600),
    "warmup": (0, 60),
    "quiet": (0, 60),
}


def _durable_credit(scenario: Scenario, pubs: int) -> int:
    """The credit at QoS 1 and 2: a broker queues what a subscriber has not acknowledged, 1000 messages as a rule."""
    return max(1, min(100, 800 // pubs)) if scenario is Scenario.FAN_IN else 100


def options_for(
    scenario: Scenario, address: Address, given: Mapping[str, int | float | None]
) -> LoadOptions:
    """A scenario's defaults with what was given in their place; None is not given.

    Raises:
        ValueError: an option that the scenario has no use for, or a number out of its range.
    """
    chosen = {name: value for name, value in given.items() if value is not None}
    for name, value in chosen.items():
        option = "--" + name.replace("_", "-")
        if name not in APPLICABLE[scenario]:
            raise ValueError(f"{option} means nothing to the scenario {scenario}")
        low, high = _RANGES[name]
        if not low <= value <= high:
            raise ValueError(f"{option} must be from {low} to {high}")
    values: dict[str, int | float] = dict(_DEFAULTS[scenario])
    if "count" in chosen and "seconds" not in chosen:
        # A count ends by itself; the time is there for a broker that does not.
        values["seconds"] = 120.0
    values.update(chosen)
    if chosen.get("qos") and "credit" in APPLICABLE[scenario] and "credit" not in chosen:
        values["credit"] = _durable_credit(scenario, int(values.get("pubs", LoadOptions.pubs)))
    if scenario in {Scenario.PAIR, Scenario.PING_PONG, Scenario.WILDCARD, Scenario.STORM}:
        values["subs"] = values.get("pubs", LoadOptions.pubs)
    return replace(LoadOptions(scenario, address), **values)  # type: ignore[arg-type]
