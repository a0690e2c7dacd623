"""What it costs two nodes together that a client subscribes, and how that grows with what there is.

    python -m tests.bench.cluster_subscriptions 10000 100000

Both nodes run in this process; the CPU time is that of all, from the first subscription until the other node routes to
the last one. A row a way to subscribe: one client with one filter a SUBSCRIBE, one client with 100, clients with 100
filters each made one by one.
"""

import asyncio
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from tests.support.until import until
from tests.vmq.clustering.nodes import pair
from vmq.broker import Broker
from vmq.core.registry import Registry

#: Filters of a SUBSCRIBE that has many, and of a client where there are many clients.
MANY = 100


def _registry(broker: Broker) -> Registry:
    return broker.registries[""]


def _steps(count: int, per_client: int, per_step: int) -> Iterator[tuple[str, list[str]]]:
    """Clients and the filters of each SUBSCRIBE."""
    for first in range(0, count, per_step):
        client = f"client{first // per_client}"
        yield client, [f"{client}/t/{number}" for number in range(first, first + per_step)]


async def measure(count: int, per_client: int, per_step: int) -> float:
    """Seconds of CPU time."""
    with tempfile.TemporaryDirectory() as folder:
        async with pair(Path(folder)) as (a, b):
            registry = _registry(a)
            began = time.process_time()
            topic = b""
            for client, filters in _steps(count, per_client, per_step):
                subscriber = registry.subscribers.get(client) or registry.create(client, True)
                for each in filters:
                    registry.subscribe(subscriber, each, 1)
                topic = filters[-1].encode()
                await asyncio.sleep(0)
            await until(lambda: bool(_registry(b).route(topic).nodes))
            return time.process_time() - began


def main() -> None:
    for word in sys.argv[1:] or ("10000",):
        count = int(word)
        for per_client, per_step in ((count, 1), (count, MANY), (MANY, 1)):
            seconds = asyncio.run(measure(count, per_client, per_step))
            print(
                f"{count} subscriptions, {per_client} a client, {per_step} a SUBSCRIBE:"
                f" {seconds:.1f} s, {seconds / count * 1e6:.0f} us each",
                flush=True,
            )


if __name__ == "__main__":
    main()
