"""What a client, a subscription and a retained message take of the interpreter's memory, to the byte.

Counted with tracemalloc in the compiled core: no allocator's rounding up to pages, no socket and no transport of
uvloop, which has 1.4 KiB of its own. Each bound leaves room for a few attributes more than there were when it was
counted.
"""

import gc
import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest

from tests.support.wire import connect_packet, publish_packet, subscribe_packet
from tests.vmq.support import House
from vmq import is_compiled
from vmq.protocol.connection import Connection
from vmq.protocol.listener_context import ListenerContext

pytestmark = pytest.mark.skipif(not is_compiled(), reason="interpreted objects have a dict each")

#: As many are counted, after as many that let dicts and caches grow to the size that they keep.
COUNT = 1000


class NoTransport:
    """Takes everything and keeps nothing."""

    __slots__ = ()

    def write(self, data: bytes) -> None:
        """Forgets it."""

    def get_write_buffer_size(self) -> int:
        """Never anything."""
        return 0

    def get_extra_info(self, _name: str) -> Any:
        """No peer."""
        return None


def nothing(_connection: Connection) -> None:
    """What a listener does with a connection."""


LISTENER = ListenerContext(nothing, nothing)


def client(house: House, number: int, *packets: bytes) -> Connection:
    connection = Connection(house.registry, True, f"generated-{number:06}", LISTENER)
    connection.connection_made(NoTransport())
    connection.data_received(connect_packet(f"client-{number:06}"))
    for each in packets:
        connection.data_received(each)
    return connection


def bytes_each(make: Callable[[int], object]) -> float:
    """Bytes that stay of each thing made, in the mean."""
    kept = [make(number) for number in range(COUNT)]
    kept.extend([None] * COUNT)
    gc.collect()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for number in range(COUNT, 2 * COUNT):
            kept[number] = make(number)
        gc.collect()
        return (tracemalloc.get_traced_memory()[0] - before) / COUNT
    finally:
        tracemalloc.stop()


def test_an_idle_client() -> None:
    house = House()
    assert bytes_each(lambda number: client(house, number)) < 1650


def test_a_client_with_one_subscription() -> None:
    house = House()

    def make(number: int) -> Connection:
        return client(house, number, subscribe_packet(1, (f"devices/{number:06}/cmd", 1)))

    assert bytes_each(make) < 1780


@pytest.mark.parametrize(
    ("packet", "routes", "most"),
    [
        pytest.param(lambda at: subscribe_packet(1, (at + "/cmd", 1)), 2, 380, id="subscription"),
        pytest.param(lambda at: subscribe_packet(1, (at + "/#", 1)), 2, 380, id="subscription #"),
        # Its topic and its payload are counted with it.
        pytest.param(
            lambda at: publish_packet(at + "/state", b"x" * 16, retain=True),
            2,
            230,
            id="retained message",
        ),
        # What the cache of routes keeps of a topic that nobody wants, how many messages it had included.
        pytest.param(lambda at: publish_packet(at + "/state", b"x"), 2 * COUNT, 420, id="topic"),
    ],
)
def test_what_a_client_leaves(packet: Callable[[str], bytes], routes: int, most: int) -> None:
    house = House()
    house.registry.routes.resize(routes)
    one = client(house, 1)

    def make(number: int) -> None:
        one.data_received(packet(f"devices/{number:06}"))

    assert bytes_each(make) < most
