"""What a node has of the machine that it runs on."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Final

from vmq_cluster.link import Link
from vmq_cluster.ticks import next_tick

_BOOT: Final = Path("/proc/sys/kernel/random/boot_id")


def this_boot() -> bytes:
    """What tells boots of this machine apart; nothing where the system does not say."""
    try:
        return _BOOT.read_bytes().strip()
    except OSError:
        return b""


def _wall() -> int:
    return time.time_ns() // 1_000_000


@dataclass
class Surroundings:
    """What a node has of its machine: a simulator brings its own."""

    #: Makes the link, with the arguments of `Link`.
    link: Callable[..., Link] = Link
    random: Random = field(default_factory=Random)
    #: Milliseconds since 1970.
    wall: Callable[[], int] = _wall
    #: What tells boots of the machine apart.
    boot: bytes = field(default_factory=this_boot)
    #: When who looks every so often does so next, by the loop's clock.
    next_tick: Callable[[float, float], float] = next_tick
