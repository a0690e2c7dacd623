"""What a broker holds, and whether it grows."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Final

from tests.support.wire import TIMEOUT
from tests.vmq.http.conftest import get
from vmq.testing.process import BrokerProcess

KIB: Final = 1024
MIB: Final = 1024 * KIB


@dataclass(frozen=True)
class Figures:
    """What the broker holds between two rounds, by its own account and the system's."""

    connections: int
    sessions: int
    subscriptions: int
    retained: int
    uncommitted: int
    sockets: int
    files: int
    memory: int  # bytes, without what is mapped from files
    disk: int  # bytes


@dataclass(frozen=True)
class Rule:
    """What a figure may do: be what it was, or grow by this much at most."""

    name: str
    allowance: int
    show: Callable[[int], str] = str


def _mib(size: int) -> str:
    return f"{size / MIB:.2f} MiB"


#: Memory may creep by what the allocator keeps; a connection that leaks takes several KiB, and the
#: suite's part of a round has about a hundred.
RULES: Final = (
    Rule("connections", 0),
    Rule("sessions", 0),
    Rule("subscriptions", 0),
    Rule("retained", 0),
    Rule("uncommitted", 0),
    Rule("sockets", 0),
    Rule("files", 8),  # tables of the store, which come and go
    Rule("memory", 3 * MIB // 2, _mib),
    Rule("disk", 4 * MIB, _mib),
)


def measure(broker: BrokerProcess) -> Figures:
    folder = Path(f"/proc/{broker.pid}/fd")
    links = [_target(each) for each in folder.iterdir()]
    gauges = _gauges(broker)  # behind it: its own socket may be closed late
    # That of a listener has a second descriptor while uvloop's server takes its clients: it counts with the files.
    sockets = len({link for link in links if link.startswith("socket:")})
    status = Path(f"/proc/{broker.pid}/status").read_text()
    found = re.search(r"^RssAnon:\s+(\d+) kB$", status, re.MULTILINE)
    assert found is not None
    return Figures(
        connections=gauges["total_active_connections"],
        sessions=gauges["queue_processes"],
        subscriptions=gauges["router_subscriptions"],
        retained=gauges["retain_messages"],
        uncommitted=gauges["store_uncommitted_writes"],
        sockets=sockets,
        files=len(links) - sockets,
        memory=int(found[1]) * KIB,
        disk=sum(_size(each) for each in broker.data_dir.rglob("*")),
    )


def _gauges(broker: BrokerProcess) -> dict[str, int]:
    """The broker's metrics that have no labels."""
    text = get(broker.http, "/metrics").body.decode()
    return {
        name: int(float(value)) for name, value in re.findall(r"^(\w+) (\S+)$", text, re.MULTILINE)
    }


def _target(link: Path) -> str:
    try:
        return str(link.readlink())
    except OSError:
        return ""  # closed meanwhile


def _size(file: Path) -> int:
    try:
        return file.stat().st_size
    except OSError:
        return 0


def settled(broker: BrokerProcess, before: Figures | None) -> Figures:
    """The figures once the last round's connections are gone, or as they are when that takes long."""
    deadline = monotonic() + TIMEOUT
    while True:
        found = measure(broker)
        rest = (found.connections, found.sessions, found.subscriptions, found.uncommitted)
        sockets = found.sockets if before is None else before.sockets
        if (not any(rest) and found.sockets <= sockets) or monotonic() > deadline:
            return found


def growth(values: Sequence[int]) -> int:
    """How much a figure grew: between the lowest of the first and of the last third.

    The lowest, since buffers fill and empty; a leak raises that as well.
    """
    third = max(1, len(values) // 3)
    return min(values[-third:]) - min(values[:third])


def leaks(history: Sequence[Figures]) -> list[str]:
    """What grew by more than its rule allows."""
    found = []
    for rule in RULES:
        values = [getattr(each, rule.name) for each in history]
        grown = growth(values)
        if grown > rule.allowance:
            found.append(
                f"{rule.name} grew by {rule.show(grown)} in {len(values)} rounds, "
                f"from {rule.show(values[0])} to {rule.show(values[-1])}"
            )
    return found
