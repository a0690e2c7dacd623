"""What a client may do while a member of the cluster cannot be reached, by the options or by a plugin's word."""

from pathlib import Path
from typing import Any

import pytest
from vmq_hooks import Plugin, RegisterModifiers, hook

from tests.support import wire as mqtt
from tests.vmq.plugins.support import peer_of, serving
from tests.vmq.sockets import session_of
from tests.vmq.support import Client, House
from vmq import is_compiled
from vmq.broker import Broker
from vmq.core.registry import Registry
from vmq.core.source import Source
from vmq.mqtt.message import Message
from vmq.mqtt.packets import LEVEL_3_1

SWITCHES = ("register", "publish", "subscribe", "unsubscribe")


def split(**forbidden: bool) -> House:
    """A cluster in two halves, with these switches off."""
    house = House()
    for name in SWITCHES:
        setattr(house.options, f"allow_{name}_during_netsplit", not forbidden.get(name, False))
    house.core.cluster_is_split = True
    return house


@pytest.mark.parametrize("in_reach", [False, True])
def test_by_default_and_with_all_members_in_reach_everything_goes_on(in_reach: bool) -> None:
    house = split(**dict.fromkeys(SWITCHES, in_reach))
    house.core.cluster_is_split = not in_reach
    client = house.client("c")
    assert client.subscribe(("t", 1)) == [1]
    for qos in (1, 2):
        client.publish("t", b"x", qos)
        assert client.payloads() == [b"x"]
    client.unsubscribe("t")


def test_no_register_is_code_3_and_takes_nobody_over(house: House) -> None:
    first = house.client("c")
    house.core.cluster_is_split = True
    house.options.allow_register_during_netsplit = False
    second = Client(house)
    second.ask(mqtt.connect_packet("c"), b"\x20\x02\x00\x03")
    assert second.is_closed()
    first.ping()
    house.core.cluster_is_split = False
    house.client("c")


def test_no_publish_drops_qos_0_and_ends_the_connection_at_1_and_2() -> None:
    house = split(publish=True)
    watcher = house.subscriber("w", ("#", 2))
    publisher = house.client("p")
    for retain in (False, True):
        publisher.send(*[mqtt.publish_packet("t", b"x", retain=retain)] * 3)
    publisher.ping()
    for qos in (1, 2):
        publisher = house.client("p")
        publisher.send(mqtt.publish_packet("t", b"x", qos=qos, packet_id=7))
        publisher.expect_end()  # unacknowledged: it comes again
        publisher.lose()
    assert watcher.take() == []
    assert house.registry.retained.count == 0
    assert house.core.counters.mqtt_publish_error == 8
    assert house.core.counters.mqtt_publish_auth_error == 0


def test_what_was_taken_before_is_finished(house: House, client: Client) -> None:
    client.ask(mqtt.publish_packet("t", b"x", qos=2, packet_id=7), b"\x50\x02\x00\x07")
    house.core.cluster_is_split = True
    house.options.allow_publish_during_netsplit = False
    client.ask(mqtt.publish_packet("t", b"x", qos=2, packet_id=7, dup=True), b"\x50\x02\x00\x07")
    client.ask(b"\x62\x02\x00\x07", b"\x70\x02\x00\x07")


@pytest.mark.parametrize("with_hook", [False, True])
def test_a_will_is_lost(with_hook: bool) -> None:
    house = split(publish=True)
    if with_hook:
        house.core.hooks.auth_on_publish = lambda *_: None
        house.core.hooks.resolve()
    watcher = house.subscriber("w", ("#", 0))
    house.client("p", will=mqtt.Will("will", b"x")).lose()
    assert watcher.take() == []
    assert house.core.counters.mqtt_publish_error == 1


def test_no_subscribe_is_the_failure_code() -> None:
    house = split(subscribe=True)
    client = house.client("c")
    assert client.subscribe(("a", 0), ("b", 2)) == [128, 128]
    client.publish("a", b"x")
    client.ping()
    old = house.client("old", level=LEVEL_3_1)
    old.send(mqtt.subscribe_packet(1, ("a", 0)))
    old.expect_end()  # MQTT 3.1 has no such code
    assert house.core.counters.mqtt_subscribe_error == 2
    assert house.registry.trie.count == 0


def test_no_unsubscribe_ends_the_connection() -> None:
    house = split(unsubscribe=True)
    client = house.subscriber("c", ("a", 0))
    client.send(mqtt.unsubscribe_packet(2, "a"))
    client.expect_end()
    assert house.core.counters.mqtt_unsubscribe_error == 1


class Special(Plugin):
    """Says for some clients what they may do."""

    @hook
    def auth_on_register(self, username: str | None) -> Any:
        if username == "bound":
            return RegisterModifiers(
                allow_register=True, allow_publish=False, allow_subscribe=False
            )
        if username == "free":
            return RegisterModifiers(allow_register=True, allow_publish=True)
        return True


async def test_a_plugin_says_otherwise_for_a_session(tmp_path: Path) -> None:
    async with serving(tmp_path, {"special": Special()}, anonymous=False) as broker:
        broker.set_option("cluster.allow_register_during_netsplit", "false")
        core = broker.registry().core
        core.cluster_is_split = True
        async with peer_of(broker) as peer:
            await peer.ask(mqtt.connect_packet("nobody"), b"\x20\x02\x00\x03")
        async with peer_of(broker) as bound, peer_of(broker) as free:
            await bound.connect("bound", username="bound")
            await free.connect("free", username="free")
            await free.ask(mqtt.subscribe_packet(1, ("t", 0)), b"\x90\x03\x00\x01\x00")
            bound.send(
                mqtt.subscribe_packet(1, ("t", 0)),
                mqtt.publish_packet("t", b"no"),
                mqtt.PINGREQ_BYTES,
            )
            await bound.expect(b"\x90\x03\x00\x01\x80")
            await bound.expect(mqtt.PINGRESP_BYTES)
            broker.set_option("cluster.allow_publish_during_netsplit", "false")
            await free.ask(mqtt.publish_packet("t", b"yes"), mqtt.publish_packet("t", b"yes"))


async def test_the_broker_s_own_clients_go_on(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker:
        for name in SWITCHES:
            broker.set_option(f"cluster.allow_{name}_during_netsplit", "false")
        broker.registry().core.cluster_is_split = True
        async with broker.subscribe("t", qos=1) as messages:
            await broker.publish("t", b"x", qos=1)
            assert (await anext(messages)).payload == b"x"


class Policy(Plugin):
    @hook
    def auth_on_register(self, username: str | None) -> Any:
        return RegisterModifiers(shared_subscription_policy="random") if username else True


@pytest.mark.skipif(is_compiled(), reason="looks into a method of the core")
async def test_the_publisher_s_policy_goes_with_its_messages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[bytes, str]] = []
    deliver = Registry.deliver_to_member

    def spy(self: Registry, group: Any, message: Message, source: Source) -> bool:
        seen.append((message.payload, source.policy()))
        return deliver(self, group, message, source)

    monkeypatch.setattr(Registry, "deliver_to_member", spy)

    async def publish(broker: Broker, username: str | None, payload: bytes) -> None:
        async with session_of(
            broker, "p", username=username, will=mqtt.Will("t", payload + b"!")
        ) as peer:
            for qos in (0, 1, 2):
                packet_id = qos or None
                peer.send(mqtt.publish_packet("t", payload, qos=qos, packet_id=packet_id))
            peer.send(mqtt.PINGREQ_BYTES)
            while (await peer.packet()).raw != mqtt.PINGRESP_BYTES:
                pass
            peer.send(b"\x00\x00")  # breaks the protocol: the will goes out
            await peer.rest()

    async with (
        serving(tmp_path, {"policy": Policy()}, anonymous=False) as broker,
        broker.subscribe("$share/g/t", qos=0),
    ):
        await publish(broker, "u", b"own")
        await publish(broker, None, b"plain")
    wanted = [(b"own", "random")] * 3 + [(b"own!", "random")]
    wanted += [(b"plain", "prefer_local")] * 3 + [(b"plain!", "prefer_local")]
    assert seen == wanted
