"""Durable sessions in slots with several processes: of each slot there is one copy, on the disk of one of them."""

from pathlib import Path
from typing import Any

from tests.conftest import BrokerFactory
from tests.support.until import reach
from tests.support.wire import Wire
from tests.vmq.workers.several import ARGS, LISTEN, Several
from vmq.config.cluster import slots_folder

SLOTS = 16
ENV = {"VMQ_CLUSTER__SLOTS": str(SLOTS)}
CLIENTS = "abcdefgh"


def tallies(several: Several, *numbers: int) -> list[dict[str, Any]]:
    """What workers say of their own slots."""
    rows = [several.worker_api(each, "GET", "/cluster/members")["rows"] for each in numbers]
    return [row for each in rows for row in each if row["is_self"]]


def are_spread(several: Several) -> bool:
    """Whether both workers have slots, and serve them all, none with a copy at the other."""
    found = tallies(several, 1, 2)
    owned = [each["slots_owned"] for each in found]
    rest = [each["slots_waiting"] or each["slots_followed"] for each in found]
    return all(owned) and sum(owned) == SLOTS and not any(rest)


def come_back(several: Several, expected: list[bytes]) -> None:
    """Each of the clients finds its session, and what waits in it."""
    for name in CLIENTS:
        with Wire.connect_tcp(several.broker.tcp) as wire:
            assert wire.connect(name, clean=False).body == b"\1\0"
            for payload in expected:
                got = wire.recv_packet()
                assert got.payload == payload
                wire.acknowledge(got)


def publish(several: Several, payload: bytes) -> None:
    with Wire.connected(several.broker.tcp, "publisher") as wire:
        wire.publish("t", payload, qos=1)


def test_sessions_are_served_at_any_worker_and_outlive_them(
    fresh_broker: BrokerFactory, tmp_path: Path
) -> None:
    folder = tmp_path / "d"
    several = Several(fresh_broker(listen=LISTEN, data_dir=folder, env=ENV, args=ARGS))
    reach(lambda: are_spread(several))
    for name in CLIENTS:
        with Wire.connected(several.broker.tcp, name, clean=False) as wire:
            wire.subscribe(("t", 1))
    publish(several, b"1")
    several.kill(2)
    publish(several, b"2")
    come_back(several, [b"1", b"2"])
    publish(several, b"3")
    assert several.broker.terminate() == 0

    # The second one is too many now: its slots go to the first, which is a broker by itself at its next start.
    several = Several(
        fresh_broker(listen=LISTEN, data_dir=folder, env=ENV, args=ARGS[:1] + ARGS[3:])
    )
    reach(lambda: not (folder / "workers" / "2").exists())
    assert [each["slots_owned"] for each in tallies(several, 1)] == [SLOTS]
    come_back(several, [b"3"])
    publish(several, b"4")
    assert several.broker.terminate() == 0
    alone = Several(fresh_broker(listen=LISTEN, data_dir=folder, args=ARGS[:1]))
    come_back(alone, [b"4"])
    assert not slots_folder(folder).exists()
