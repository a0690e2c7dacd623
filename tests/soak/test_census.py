"""After a round, none of the broker's own objects is left: counted one by one, in its process."""

import asyncio
import gc
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from time import monotonic

from tests.soak.traffic import Round
from tests.support.wire import TIMEOUT
from vmq.broker import Broker
from vmq.config.options import BrokerOptions, Config, ListenerOptions, NetworkOptions

#: What a connection or a session is made of.
KINDS = ("Connection", "Session", "SessionWatch", "Subscriber", "Delivery", "WebSocket")
ROUNDS = 3


@dataclass(frozen=True)
class Addresses:
    """Where a round finds the broker."""

    tcp: tuple[str, int]
    ws: str


def is_ours(kind: type) -> bool:
    """Whether a class is the broker's."""
    module: object = kind.__module__  # not everybody's is a text
    return isinstance(module, str) and module.startswith("vmq.")


def census() -> Counter[str]:
    """How many objects of each kind live, and tasks."""
    gc.collect()
    found = Counter(type(each).__name__ for each in gc.get_objects() if is_ours(type(each)))
    counted = Counter({kind: found[kind] for kind in KINDS})
    # The route of a topic knows the queues of its last message until the topic is routed again.
    counted["queues"] = found["Queue"]
    counted["tasks"] = len(asyncio.all_tasks())
    return counted


async def settled(done: Callable[[Counter[str]], bool]) -> Counter[str]:
    """The census once it is as it should be, or as it is after a long while."""
    deadline = monotonic() + TIMEOUT
    while not done(found := census()) and monotonic() < deadline:  # noqa: ASYNC110 - nothing tells of it
        await asyncio.sleep(0.01)
    return found


def config(folder: Path) -> Config:
    urls = {"tcp": "tcp://127.0.0.1:0", "ws": "ws://127.0.0.1:0/mqtt"}
    listeners = {name: ListenerOptions(url=url) for name, url in urls.items()}
    return Config(
        broker=BrokerOptions(data_dir=str(folder)),
        listeners=listeners,
        network=NetworkOptions(topic_cache=1),
    )


async def test_no_object_of_a_round_is_left(tmp_path: Path) -> None:
    strangers = census()  # of other tests in this process
    async with Broker(config(tmp_path / "data")) as broker:
        host, _, port = broker.listeners["tcp"].url.partition("://")[2].rpartition(":")
        addresses = Addresses((host, int(port)), broker.listeners["ws"].url)
        await asyncio.to_thread(Round(addresses, -1).play)

        def nobody(found: Counter[str]) -> bool:
            return not any(found[kind] > strangers[kind] for kind in KINDS)

        before = await settled(nobody)
        assert nobody(before), before
        for number in range(ROUNDS):
            await asyncio.to_thread(Round(addresses, number).play)
        assert await settled(lambda found: found <= before) <= before
