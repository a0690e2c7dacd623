"""Named loads: what most users' clients do, each a scenario with its options. A row counts only with nothing lost."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from vmq.bench.load.address import Address
from vmq.bench.load.options import LoadOptions, Scenario, options_for


@dataclass(frozen=True)
class Row:
    """A load with a name."""

    meaning: str
    scenario: Scenario
    values: Mapping[str, int | float] = field(default_factory=dict)
    #: Clients have to have a user name and a password.
    has_passwords: bool = False


#: Many devices that publish to one subscriber, a message each under way.
_FLEET: Final = {"pubs": 2000, "credit": 1}
_GATEWAY: Final = {"size": 16, "topics": 50}

#: What is measured if nothing is named.
USUAL: Final = "fleet0"

ROWS: Final[dict[str, Row]] = {
    "fleet0": Row("2,000 devices, one subscriber, as fast as it goes", Scenario.FAN_IN, _FLEET),
    "fleet1": Row("the same at QoS 1", Scenario.FAN_IN, {**_FLEET, "qos": 1, "window": 1}),
    "fleetpair": Row(
        "1,000 devices, each with a subscriber of its own",
        Scenario.PAIR,
        {"pubs": 1000, "credit": 1},
    ),
    "seldom0": Row(
        "2,000 devices, 20,000 messages a second", Scenario.FAN_IN, {"pubs": 2000, "rate": 20_000}
    ),
    "seldom1": Row("the same at QoS 1", Scenario.FAN_IN, {"pubs": 2000, "rate": 20_000, "qos": 1}),
    "topics0": Row("gateways: no two packets in a row of one topic", Scenario.PAIR, _GATEWAY),
    "topics1": Row("the same at QoS 1", Scenario.PAIR, {**_GATEWAY, "qos": 1}),
    "connects": Row("5,000 clients connect, 100 at once", Scenario.CONNECT),
    "sequential": Row(
        "1,000 clients connect, one at a time",
        Scenario.CONNECT,
        {"clients": 1000, "concurrency": 1},
    ),
    "logins": Row(
        "clients connect with the user name and password of --url",
        Scenario.CONNECT,
        {"clients": 1000},
        has_passwords=True,
    ),
}


def names() -> list[str]:
    """All that may be measured: rows, then scenarios."""
    return [*ROWS, *Scenario]


def scenario_of(name: str) -> Scenario:
    """The scenario of a row, or of that name.

    Raises:
        ValueError: there is neither.
    """
    row = ROWS.get(name)
    if row is not None:
        return row.scenario
    if name not in list(Scenario):
        raise ValueError(f"no scenario {name!r}; there are {', '.join(names())}")
    return Scenario(name)


def load_for(name: str, address: Address, given: Mapping[str, int | float | None]) -> LoadOptions:
    """The options of a row or scenario, with what was given in their place; None is not given.

    Raises:
        ValueError: no such name, an option that the scenario has no use for, or a number out of its range.
    """
    scenario = scenario_of(name)
    row = ROWS.get(name)
    if row is None:
        return options_for(scenario, address, given)
    if row.has_passwords and address.password is None:
        raise ValueError(
            f"{name} needs a user name and a password: --url mqtt://USER:PASSWORD@HOST"
        )
    chosen = {key: value for key, value in given.items() if value is not None}
    return replace(options_for(scenario, address, {**row.values, **chosen}), name=name)
