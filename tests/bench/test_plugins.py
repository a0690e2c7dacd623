"""What plugins on auth_on_publish cost a PUBLISH, as ratios of CPU time to none, all in one run.

`python -m tests.bench.test_plugins` prints the table. A kept verdict is to cost at most 1.3 times what no plugin costs.
"""

import time
from collections.abc import Callable
from typing import Any

from vmq_hooks import Accept, Cache, Next

from tests.bench.test_session import PACKETS, PAYLOAD, pass_of, scene
from tests.support.wire import puback_packet, publish_packet
from vmq.plugins.chains import VerdictChain
from vmq.plugins.guard import PluginGuard
from vmq.plugins.steps import VerdictStep

GIVEN = ("username", "subscriber_id", "message")
CACHE = Cache(3600.0)

Work = Callable[[], None]


def chain(count: int, *, kept: bool) -> VerdictChain:
    """So many plugins, of which the last one accepts."""

    def ask_on(message: Any) -> Any:
        return Next(CACHE) if kept else None

    def accept(message: Any) -> Any:
        return Accept(cache=CACHE) if kept else True

    steps = [
        VerdictStep("auth_on_publish", PluginGuard(f"p{number}"), function, ("message",), GIVEN)
        for number, function in enumerate([ask_on] * (count - 1) + [accept])
    ]
    return VerdictChain("auth_on_publish", steps, time.monotonic)


def workload(kind: str, plugins: int, *, kept: bool = False) -> Work:
    """One pass with so many plugins."""
    qos = 1 if kind == "qos 1" else 0
    house, publisher, readers = scene(1, 0)
    if plugins:
        house.core.hooks.auth_on_publish = chain(plugins, kept=kept)
        house.core.hooks.resolve()
    if kind == "one packet":
        return pass_of(publisher, readers, publish_packet("t/a", PAYLOAD))
    if kind == "alternating topics":
        pair = publish_packet("t/a", PAYLOAD) + publish_packet("t/b", PAYLOAD)
        return pass_of(publisher, readers, pair * (PACKETS // 2))
    chunk = b"".join(
        publish_packet("t/a", PAYLOAD, qos=qos, packet_id=number + 1 if qos else None)
        for number in range(PACKETS)
    )
    return pass_of(publisher, readers, chunk)


def ratios(works: dict[str, Work], rounds: int = 15, seconds: float = 0.01) -> dict[str, float]:
    """CPU time of each, in units of the first: the best of rounds in which all take turns."""
    best: dict[str, float] = {}
    repeats: dict[str, int] = {}
    for name, work in works.items():
        work()
        begin = time.process_time()
        for _ in range(20):
            work()
        repeats[name] = max(1, round(20 * seconds / max(time.process_time() - begin, 1e-6)))
    for _ in range(rounds):
        for name, work in works.items():
            begin = time.process_time()
            for _ in range(repeats[name]):
                work()
            took = (time.process_time() - begin) / repeats[name]
            best[name] = min(best.get(name, took), took)
    first = next(iter(best.values()))
    return {name: took / first for name, took in best.items()}


KINDS = ("run", "alternating topics", "one packet", "qos 1")


def table(kind: str) -> dict[str, float]:
    works = {"none": workload(kind, 0)}
    for count in (1, 5):
        works[f"{count} kept"] = workload(kind, count, kept=True)
        works[f"{count} asked"] = workload(kind, count)
    return ratios(works)


def test_acknowledgements_are_right() -> None:
    """The workload at QoS 1 is what it says."""
    house, publisher, _ = scene(1, 0)
    house.core.hooks.auth_on_publish = chain(5, kept=True)
    house.core.hooks.resolve()
    publisher.send(publish_packet("t/a", PAYLOAD, qos=1, packet_id=1))
    publisher.expect(puback_packet(1))


if __name__ == "__main__":
    for each in KINDS:
        shown = "  ".join(f"{name} {ratio:.2f}" for name, ratio in table(each).items())
        print(f"{each:20} {shown}")
