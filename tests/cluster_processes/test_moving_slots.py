"""A broker that is killed while its sessions come into slots, or back out of them, loses and doubles nothing."""

import signal
import sys
from pathlib import Path

import pytest

from tests.conftest import BrokerFactory
from tests.support.wire import PUBLISH, Wire
from vmq.config.cluster import slots_folder
from vmq.testing.process import BrokerProcess, BrokerStartError

DYING = Path(__file__).with_name("dying_moves.py")
SLOTS = {"VMQ_CLUSTER__SLOTS": "4"}
ARGS = ("--allow-anonymous",)
CLIENTS = ("c1", "c2", "c3", "c4", "c5")

INTO = (
    "when they are in slots",
    "when the store is about to forget them",
    "when the store has forgotten them",
)
BACK = ("when some are in the store", "when all are in the store", "when slots are put away")


def clustered(folder: Path) -> tuple[str, ...]:
    return (*ARGS, "--node-name", "n", "--cluster-listen", f"ipc://{folder}/n")


def fill(broker: BrokerProcess) -> None:
    """Each client has three messages that wait."""
    for name in CLIENTS:
        with Wire.connected(broker.tcp, name, clean=False) as wire:
            wire.subscribe(("t", 2))
    with Wire.connected(broker.tcp, "publisher") as publisher:
        for payload in (b"1", b"2", b"3"):
            publisher.publish("t", payload, qos=2)


def come_back(broker: BrokerProcess, payloads: list[bytes]) -> None:
    """Each client finds its session, with these and no others."""
    for name in CLIENTS:
        with Wire.connect_tcp(broker.tcp) as wire:
            assert wire.connect(name, clean=False).body == b"\1\0"
            got = []
            for _ in payloads:
                packet = wire.recv_packet()
                assert packet.type == PUBLISH
                got.append(packet.payload)
                wire.acknowledge(packet)
            assert got == payloads
            wire.ping()


def dies(folder: Path, step: str, args: tuple[str, ...]) -> None:
    launcher = (sys.executable, str(DYING), step)
    with pytest.raises(BrokerStartError) as caught:
        BrokerProcess.start((), folder, SLOTS, args, launcher=launcher)
    assert caught.value.returncode == -signal.SIGKILL


@pytest.mark.parametrize("steps", [INTO, BACK], ids=["into slots", "back"])
def test_killed_at_each_step_of_a_move_no_session_loses_or_doubles_anything(
    fresh_broker: BrokerFactory, tmp_path: Path, steps: tuple[str, ...]
) -> None:
    folder = tmp_path / "data"
    before, after = (ARGS, clustered(tmp_path))[:: 1 if steps is INTO else -1]
    broker = fresh_broker(data_dir=folder, env=SLOTS, args=before)
    fill(broker)
    assert broker.terminate() == 0
    for step in steps:
        dies(folder, step, after)
    come_back(fresh_broker(data_dir=folder, env=SLOTS, args=after), [b"1", b"2", b"3"])
    if steps is BACK:
        assert list(slots_folder(folder).parent.glob("slots*")) == []
