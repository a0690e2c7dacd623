"""What a session in a slot is held to: its user, its queue's limits, its age; and what it gets besides."""

from pathlib import Path
from typing import Literal

import pytest
from msgspec.structs import replace
from vmq_bridge import BridgePlugin

from tests.support.until import until
from tests.vmq.clustering.device import Device
from tests.vmq.clustering.running.slotted import named, owner_of, owners_of, slotted
from vmq.broker import Broker, StartError
from vmq.config.options import QueueOptions, SessionOptions

BAD_ID = 2


async def test_another_user_neither_takes_nor_ends_it(tmp_path: Path) -> None:
    async with slotted(tmp_path) as nodes:
        name = named(nodes, "b", "s")
        async with Device(name, username="alice") as alice:
            await alice.connect(nodes["a"])
            for clean in (False, True):
                async with Device(name, username="bob", clean=clean) as bob:
                    assert await bob.refusal(nodes["b"]) == BAD_ID
            assert alice.is_connected


async def test_the_next_owner_knows_since_when_a_client_is_away(tmp_path: Path) -> None:
    session = SessionOptions(persistent_client_expiration="1h")
    async with (
        slotted(tmp_path, session=session) as nodes,
        Device(named(nodes, "b", "s")) as device,
    ):
        name = device.client_id
        await device.connect(nodes["a"])
        [owner] = owners_of(nodes, name).values()
        away, register = owner.attachments.away, owner.state.registers[name]
        await device.disconnect()
        await until(lambda: name in away.left)
        assert register.left == away.left[name]
        await device.connect(nodes["a"])
        assert register.left == 0
        await device.disconnect()
        await until(lambda: name in away.left)
        since = away.left[name]
        await nodes.brokers.pop("b").stop()
        await until(lambda: owner_of(nodes, name) == "a")
        [heir] = owners_of(nodes, name).values()
        await until(lambda: name in heir.attachments.away.left)
        assert heir.attachments.away.left[name] == since


@pytest.mark.parametrize("drops", ["newest", "oldest"])
async def test_a_queue_has_its_limit(tmp_path: Path, drops: Literal["newest", "oldest"]) -> None:
    queue = QueueOptions(max_offline_messages=2, drop=drops)
    async with slotted(tmp_path, queue=queue) as nodes, Device(named(nodes, "b", "s")) as device:
        await device.connect(nodes["a"])
        await device.subscribe(("t", 1))
        await device.disconnect()
        [owner] = owners_of(nodes, device.client_id).values()
        await until(lambda: device.client_id not in owner.attachments.serving)
        for each in range(4):
            await nodes["a"].publish("t", b"%d" % each, 1)
        await device.connect(nodes["b"])
        wanted = ["0", "1"] if drops == "newest" else ["2", "3"]
        await device.until(lambda: device.log == wanted)


async def test_retained_messages_come_at_their_qos(tmp_path: Path) -> None:
    async with slotted(tmp_path) as nodes:
        await nodes["a"].publish("t/0", b"0", 0, retain=True)
        await nodes["a"].publish("t/1", b"1", 1, retain=True)
        await until(lambda: nodes["b"].registry().retained.count == 2)
        async with Device(named(nodes, "a", "s")) as device:
            await device.connect(nodes["b"])
            await device.subscribe(("t/+", 2))
            await device.until(lambda: sorted(device.log) == ["0", "1"])
            found = {each.payload: (each.qos, each.retain) for each in device.found(3)}
            assert found == {b"0": (0, True), b"1": (1, True)}


async def test_a_bridge_ends_the_start_and_leaves_nothing_behind(tmp_path: Path) -> None:
    async with slotted(tmp_path, "a") as nodes:
        config = nodes["a"].config
    far = {"url": "mqtt://127.0.0.1:1", "topics": [{"pattern": "t/#", "qos": 1}]}
    bridging = replace(config, plugins={"vmq_bridge": {"bridges": {"far": far}}})
    with pytest.raises(StartError, match=r"bridge far: bridges do not go with cluster.sessions"):
        await Broker(bridging, plugins={"vmq_bridge": BridgePlugin()}).start()
    async with Broker(config) as broker:
        assert not broker.registry().subscribers


async def test_a_data_directory_keeps_to_its_kind_of_sessions(tmp_path: Path) -> None:
    async with slotted(tmp_path, "a") as nodes:
        config = nodes["a"].config
    other = replace(config, cluster=replace(config.cluster, sessions="nodes"))
    with pytest.raises(StartError, match=r'cluster.sessions is "nodes", and .* set it to "slots"'):
        await Broker(other).start()
    more = replace(config, cluster=replace(config.cluster, slots=9))
    with pytest.raises(StartError, match=r"cluster.slots is 9, and this store's cluster has 8"):
        await Broker(more).start()
