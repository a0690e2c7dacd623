"""Mountpoints: separate topic trees, sessions and client ids on one broker."""

from collections.abc import Mapping
from pathlib import Path

from tests.listeners.conftest import ListenerFactory
from tests.support.byte_streams import SocketStream
from tests.support.streams import connect_tcp
from tests.support.wire import Wire
from vmq.broker import Broker
from vmq.config.options import BrokerOptions, Config, ListenerOptions
from vmq.store.tools import check

LISTENERS: Mapping[str, Mapping[str, object]] = {
    "plain": {"url": "tcp://127.0.0.1:0"},
    "a": {"url": "tcp://127.0.0.1:0", "mountpoint": "tenant a"},
    "also-a": {"url": "tcp://127.0.0.1:0", "mountpoint": "tenant a"},
    "b": {"url": "tcp://127.0.0.1:0", "mountpoint": "tenant/ö"},
}


def wire_to(url: str) -> Wire:
    return Wire(SocketStream(connect_tcp(url)))


def test_tenants_share_nothing(start: ListenerFactory) -> None:
    broker = start(LISTENERS)
    wires = [wire_to(url) for url in broker.urls]
    plain, a, _, b = wires
    try:
        # One client id, three clients: nobody is taken over but within a mountpoint.
        for wire in (plain, a, b):
            wire.connect("same")
            wire.subscribe(("#", 1), ("$share/g/#", 1))
            wire.unsubscribe("$share/g/#")
        also_a = wires[2]
        also_a.connect("other")
        for wire, payload in ((plain, b"plain"), (also_a, b"a"), (b, b"b")):
            wire.publish("t", payload, qos=1, retain=True)
        for wire, payload in ((plain, b"plain"), (a, b"a"), (b, b"b")):
            wire.acknowledge(wire.expect_publish("t", payload))
            wire.expect_nothing()
            wire.subscribe(("t", 1))
            wire.acknowledge(wire.expect_publish("t", payload, retain=True))
            wire.expect_nothing()
        with wire_to(broker.urls[2]) as taker:
            taker.connect("same")
            a.expect_closed()
            plain.ping()
            b.ping()
    finally:
        for wire in wires:
            wire.close()


def test_each_tenant_has_its_own_back_after_a_restart(
    start: ListenerFactory, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    broker = start(LISTENERS, data)
    for number, url in enumerate(broker.urls):
        if number == 2:
            continue
        with wire_to(url) as wire:
            wire.connect("same", clean=False)
            wire.subscribe(("t/#", 1))
        with wire_to(url) as wire:
            wire.connect("publisher")
            wire.publish("t/1", b"%d" % number, qos=1, retain=True)
            wire.publish("gone", b"x", qos=1, retain=True)
            wire.publish("gone", b"", qos=1, retain=True)
    broker.kill()
    report = check(data)
    assert report.ok, report.problems
    assert (report.sessions, report.retained) == (3, 3)
    # A mountpoint without a listener keeps what it has.
    start({"plain": LISTENERS["plain"]}, data).terminate()
    broker = start(LISTENERS, data)
    for number, url in enumerate(broker.urls):
        if number == 2:
            continue
        with wire_to(url) as wire:
            assert wire.connect("same", clean=False).session_present
            wire.acknowledge(wire.expect_publish("t/1", b"%d" % number, retain=False))
            wire.expect_nothing()
            wire.subscribe(("#", 0))
            wire.expect_publish("t/1", b"%d" % number, retain=True)
            wire.expect_nothing()
            wire.disconnect()
        with wire_to(url) as wire:
            wire.connect("same", clean=True)
    broker.terminate()
    assert check(data).sessions == 0


async def test_the_embedding_program_chooses_a_mountpoint(tmp_path: Path) -> None:
    config = Config(
        broker=BrokerOptions(data_dir=str(tmp_path)),
        listeners={"a": ListenerOptions(url="tcp://127.0.0.1:0", mountpoint="a")},
    )
    async with (
        Broker(config) as broker,
        broker.subscribe("#", mountpoint="a") as inside,
        broker.subscribe("#") as outside,
    ):
        await broker.publish("t", b"outside", qos=1)
        await broker.publish("t", b"inside", qos=1, mountpoint="a")
        assert (await anext(inside)).payload == b"inside"
        assert (await anext(outside)).payload == b"outside"
