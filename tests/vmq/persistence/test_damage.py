"""What a broker tells of its damaged store, and whom it cuts off for it."""

import logging
from pathlib import Path
from typing import Any

import pytest

from tests.support.present import present
from tests.support.until import until
from tests.support.wire import CONNACK, connect_packet, publish_packet
from tests.vmq.damaged_store import hurt, make, q
from tests.vmq.sockets import peer_of
from vmq import Broker
from vmq.config.options import BrokerOptions, Config, ListenerOptions
from vmq.persistence.damage import DamageReport
from vmq.store.damage import Damage, LostKeys
from vmq.store.store import Store


def config(data: Path) -> Config:
    return Config(
        broker=BrokerOptions(data_dir=str(data)),
        listeners={"tcp": ListenerOptions(url="tcp://127.0.0.1:0", allow_anonymous=True)},
    )


async def code_of(broker: Broker, client: str, clean: bool = False) -> int:
    async with peer_of(broker) as peer:
        answer = await peer.ask(connect_packet(client, clean=clean))
        assert answer.type == CONNACK
        return answer.body[1]


@pytest.mark.parametrize("place", (1, 100), ids=("seen-at-the-start", "seen-when-it-is-read"))
async def test_the_session_is_named_and_refused_until_the_store_is_mended(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, place: int
) -> None:
    make(tmp_path)
    hurt(tmp_path, q(2, place))
    caplog.set_level(logging.INFO)
    async with Broker(config(tmp_path)) as broker:
        store = present(broker.registry().core.store)
        async with peer_of(broker) as other:
            await other.ask(connect_packet("bystander"))
            if store.damage is None:
                # Its client comes, and is cut off where it could not be given its message.
                async with peer_of(broker) as peer:
                    peer.send(connect_packet("dev-1", clean=False))
                    await until(lambda: store.damage is not None)
            assert store.damage is not None
            await until(lambda: bool(broker.health()))
            (reason, *_) = broker.health()
            assert "stored sessions are refused" in reason
            assert "dev-1" in reason
            assert "vmq store repair" in reason
            assert broker.condition().status == "degraded"
            assert any("client=dev-1 is refused" in each.getMessage() for each in caplog.records)
            assert await code_of(broker, "dev-1") == 3
            assert await code_of(broker, "dev-2") == 0
            assert await code_of(broker, "new") == 0
            # What is published for it is kept, as for any session that is away.
            assert (await other.ask(publish_packet("t", b"x", qos=1, packet_id=1))).packet_id == 1
            # Who begins anew wants nothing of what was there.
            assert await code_of(broker, "dev-1", clean=True) == 0


async def test_a_session_in_use_is_cut_off_when_damage_is_found(tmp_path: Path) -> None:
    make(tmp_path)
    async with Broker(config(tmp_path)) as broker, peer_of(broker) as one, peer_of(broker) as two:
        for peer, client in ((one, "dev-0"), (two, "dev-1")):
            assert (await peer.ask(connect_packet(client, clean=False))).type == CONNACK
        store = present(broker.registry().core.store)
        store.damage = Damage([LostKeys("1.ldb", q(2, 3), q(2, 4))])
        broker.parts.damage.tell()
        subscribers = broker.registry().subscribers
        await until(lambda: subscribers["dev-1"].output is None)
        assert subscribers["dev-0"].output is not None


class NoStore:
    def __init__(self) -> None:
        self.damage: Any = None
        self.refused: set[bytes] = set()


def test_what_no_session_is_concerned_of_is_told_too() -> None:
    store = NoStore()
    report = DamageReport(store, {})  # type: ignore[arg-type]
    assert report.reasons() == []
    store.damage = Damage([LostKeys("1.ldb", b"rtopic/a", b"s\0mp\0client")])
    topics, clients = report.reasons()[::-1]
    assert "from 'topic/a' to the last are lost" in topics
    assert "from the first to 'client' at mountpoint 'mp' are refused" in clients
    store.damage = Damage([*store.damage.lost, LostKeys("1.ldb", b"g", b"g1")])
    assert len(report.reasons()) == 2
    store = NoStore()
    store.damage = Damage([LostKeys("1.ldb", b"g", b"g1")])
    (reason,) = DamageReport(store, {}).reasons()  # type: ignore[arg-type]
    assert "no session needs" in reason


def test_the_store_itself_fits() -> None:
    """`NoStore` has what the report reads of one."""
    store = Store(None, "os", lambda: None)
    assert (store.damage, store.refused) == (None, set())
