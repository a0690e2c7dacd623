"""A bridge between a broker in the test's process and a real mosquitto."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiomqtt
import pytest
from vmq_bridge import BridgePlugin

from tests.plugins.vmq_bridge.far import Mosquitto, link, mosquitto
from tests.support.until import until
from vmq import Broker
from vmq.broker import StartError
from vmq.config.load import load

TIMEOUT = 30.0
#: Limits of our broker.
DEPTH = 20
LONGEST = 1000


def options(port: int, *topics: dict[str, Any], **more: Any) -> dict[str, Any]:
    """The section of a plugin with one bridge, that comes back fast."""
    bridge = {
        "url": f"mqtt://127.0.0.1:{port}",
        "client_id": "us",
        "topics": list(topics),
        "reconnect_delay": 0.02,
        "max_reconnect_delay": 0.1,
        **more,
    }
    return {"bridges": {"far": bridge}}


#: Of the brokers: in no cluster, or nodes whose durable sessions are in slots.
CLUSTER: dict[str, Any] = {}


@pytest.fixture(params=["alone", "slots"])
def _cluster(request: pytest.FixtureRequest) -> Iterator[None]:
    """For what depends on where the session is."""
    if request.param == "slots":
        CLUSTER.update({"cluster.slots": 8})
    yield
    CLUSTER.clear()


def where_the_session_is(folder: Path) -> dict[str, Any]:
    """The options of a broker for it."""
    listen = {"cluster.listen": f"ipc://{folder}/node.socket"} if CLUSTER else {}
    return {**CLUSTER, **listen}


@asynccontextmanager
async def bridged(folder: Path, section: dict[str, Any]) -> AsyncIterator[Any]:
    loaded = load(
        overrides={
            **where_the_session_is(folder),
            "broker.data_dir": str(folder / "broker"),
            "auth.allow_anonymous": True,
            "listeners": ["tcp://127.0.0.1:0"],
            "limits.topic_max_depth": DEPTH,
            "limits.max_message_size": LONGEST,
            "plugins": {"vmq_bridge": section},
        }
    )
    async with Broker(loaded.config, plugins={"vmq_bridge": BridgePlugin()}) as broker:
        yield broker


def client(far: Mosquitto, name: str | None = None, *, clean: bool = True) -> aiomqtt.Client:
    return aiomqtt.Client("127.0.0.1", far.port, identifier=name, clean_session=clean)


async def receive(messages: Any, count: int = 1) -> list[tuple[str, bytes]]:
    async with asyncio.timeout(TIMEOUT):
        found = [await anext(messages) for _ in range(count)]
    return [(str(each.topic), bytes(each.payload)) for each in found]


def is_cut(broker: Broker) -> bool:
    """Whether `/health` says that the bridge is, as its figure does."""
    found = [each for each in broker.condition().degraded if "a problem with bridge far" in each]
    assert count(broker, "connected") == (not found)
    return bool(found)


def count(broker: Any, what: str) -> int:
    name = f"vmq_plugin_bridge_{what}"
    for family in broker.metrics.families():
        if family.name == name:
            (sample,) = family.samples
            assert sample.labels == (("plugin", "vmq_bridge"), ("bridge", "far"))
            return int(sample.value)
    raise AssertionError(name)


@asynccontextmanager
async def between(
    folder: Path, heard: str, *rules: dict[str, Any]
) -> AsyncIterator[tuple[Any, aiomqtt.Client, Any]]:
    """Our broker, a client of mosquitto, and what ours hears of a filter, once it gets what is for it."""
    async with (
        mosquitto(folder) as far,
        bridged(folder, options(far.port, *rules)) as broker,
        client(far) as there,
        broker.subscribe(heard, qos=2) as here,
    ):
        await far.wait_log("Sending SUBACK to us")
        yield broker, there, here


async def test_messages_go_out_and_come_in_under_their_names(tmp_path: Path) -> None:
    out = {"pattern": "#", "qos": 1, "local_prefix": "up/", "remote_prefix": "site/"}
    back = {"pattern": "+/set", "direction": "in", "qos": 2, "local_prefix": "down/"}
    async with between(tmp_path, "down/#", out, back) as (broker, there, here):
        await there.subscribe("site/#", qos=1)
        await broker.publish("up/a/b", b"1", qos=1)
        assert await receive(there.messages) == [("site/a/b", b"1")]
        for qos in (0, 1, 2):
            await there.publish("lamp/set", b"%d" % qos, qos=qos)
        assert await receive(here, 3) == [("down/lamp/set", b"%d" % qos) for qos in (0, 1, 2)]
        await until(lambda: (count(broker, "out"), count(broker, "in")) == (1, 3))


async def test_what_came_over_the_bridge_does_not_go_back(tmp_path: Path) -> None:
    both = {"pattern": "#", "direction": "both", "qos": 1}
    async with between(tmp_path, "#", both) as (broker, there, here):
        await there.subscribe("#", qos=1)
        await broker.publish("a", b"ours", qos=1)
        assert await receive(there.messages) == [("a", b"ours")]
        await there.publish("a", b"theirs", qos=1)
        assert await receive(here, 2) == [("a", b"ours"), ("a", b"theirs")]
        await broker.publish("end", b"", qos=1)
        # Mosquitto's client got its own message, and got it once.
        assert await receive(there.messages, 2) == [("a", b"theirs"), ("end", b"")]
        assert await receive(here) == [("end", b"")]
        # What goes out counts once the far side has acknowledged it.
        await until(lambda: (count(broker, "out"), count(broker, "in")) == (2, 1))


@pytest.mark.usefixtures("_cluster")
async def test_retained_stays_retained_in_both_directions(tmp_path: Path) -> None:
    out, back = {"pattern": "o/#", "qos": 1}, {"pattern": "i/#", "direction": "in", "qos": 1}
    async with mosquitto(tmp_path) as far, client(far) as there:
        await there.publish("i/before", b"1", qos=1, retain=True)
        async with bridged(tmp_path, options(far.port, out, back)) as broker:
            await far.wait_log("Sending SUBACK to us")
            await there.subscribe("o/#", qos=1)
            await there.publish("i/after", b"2", qos=1, retain=True)
            await there.publish("i/plain", b"3", qos=1)
            await broker.publish("o/kept", b"4", qos=1, retain=True)
            await broker.publish("o/quick", b"5", qos=0, retain=True)
            await broker.publish("o/plain", b"6", qos=1)
            await receive(there.messages, 3)
            await until(lambda: count(broker, "in") == 3)
            async with broker.subscribe("i/#", qos=1) as here:
                assert sorted(await receive(here, 2)) == [("i/after", b"2"), ("i/before", b"1")]
            async with client(far) as late:
                await late.subscribe("o/#", qos=1)
                found = sorted(await receive(late.messages, 2))
                assert found == [("o/kept", b"4"), ("o/quick", b"5")]
            # An empty retained message erases, over there too.
            await broker.publish("o/kept", b"", qos=1, retain=True)
            await receive(there.messages)
            async with client(far) as later:
                await later.subscribe("o/#", qos=1)
                assert await receive(later.messages) == [("o/quick", b"5")]


@pytest.mark.usefixtures("_cluster")
@pytest.mark.parametrize("version", [3, 4])
async def test_no_message_is_lost_when_the_link_is_cut(tmp_path: Path, version: int) -> None:
    """At QoS 2 none comes twice, either: not out there, and not in here."""
    rules = {"pattern": "o/#", "qos": 2}, {"pattern": "i/#", "direction": "in", "qos": 2}
    wanted = [b"%d" % number for number in range(200)]
    async with (
        mosquitto(tmp_path) as far,
        link(far.port) as wire,
        bridged(
            tmp_path, options(wire.port, *rules, max_inflight_messages=7, protocol_version=version)
        ) as broker,
        client(far, "there", clean=False) as there,
        broker.subscribe("i/#", qos=2) as here,
    ):
        await there.subscribe("o/#", qos=2)
        await far.wait_log("Sending SUBACK to us")
        for number, payload in enumerate(wanted):
            if number % 20 == 0:
                wire.budget = 50 + 37 * number  # in the middle of some packet
            await broker.publish("o/x", payload, qos=2)
            await there.publish("i/x", payload, qos=2)
        assert await receive(there.messages, 200) == [("o/x", each) for each in wanted]
        assert await receive(here, 200) == [("i/x", each) for each in wanted]
        assert count(broker, "reconnects") > 0
        wire.budget = None
        await broker.publish("o/x", b"end", qos=2)
        await there.publish("i/x", b"end", qos=2)
        assert await receive(there.messages) == [("o/x", b"end")]
        assert await receive(here) == [("i/x", b"end")]


@pytest.mark.usefixtures("_cluster")
async def test_no_message_is_lost_when_the_far_broker_restarts(tmp_path: Path) -> None:
    rules = {"pattern": "o/#", "qos": 1}, {"pattern": "i/#", "direction": "in", "qos": 1}
    async with mosquitto(tmp_path) as far, bridged(tmp_path, options(far.port, *rules)) as broker:
        async with client(far, "there", clean=False) as there:
            await there.subscribe("o/#", qos=1)
        await broker.publish("o/1", b"", qos=1)
        await until(lambda: count(broker, "out") == 1)
        await far.wait_log("Sending SUBACK to us")
        async with client(far) as other, broker.subscribe("i/#", qos=1) as here:
            await other.publish("i/1", b"", qos=1)
            assert await receive(here) == [("i/1", b"")]
        assert not is_cut(broker)
        await far.stop()
        for number in range(2, 200):
            await broker.publish(f"o/{number}", b"", qos=1)
        await until(lambda: is_cut(broker))
        await far.start()
        await until(lambda: not is_cut(broker))
        async with client(far, "there", clean=False) as there:
            got = [topic for topic, _ in await receive(there.messages, 199)]
        assert got == [f"o/{number}" for number in range(1, 200)]


@pytest.mark.usefixtures("_cluster")
async def test_what_waits_outlives_a_restart_of_our_broker(tmp_path: Path) -> None:
    rule = {"pattern": "o/#", "qos": 1}
    async with mosquitto(tmp_path) as far:
        async with client(far, "there", clean=False) as there:
            await there.subscribe("o/#", qos=1)
        async with link(far.port) as wire:
            await wire.close()
            section = options(wire.port, rule)
            async with bridged(tmp_path, section) as broker:
                for number in range(100):
                    payload = b"%d" % number
                    await broker.publish(f"o/{number}", payload, qos=1, retain=number == 7)
            await wire.open()
            async with bridged(tmp_path, section) as broker:
                await until(lambda: count(broker, "out") == 100)
        async with client(far, "there", clean=False) as there:
            got = [topic for topic, _ in await receive(there.messages, 100)]
            assert got == [f"o/{number}" for number in range(100)]
        async with client(far) as late:
            await late.subscribe("o/#", qos=1)
            assert await receive(late.messages) == [("o/7", b"7")]


@pytest.mark.usefixtures("_cluster")
@pytest.mark.parametrize("version", [3, 4])
async def test_what_is_no_longer_configured_ends(
    tmp_path: Path, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vmq_bridge.plugin.PATIENCE", 0.01)
    first = [{"pattern": each, "direction": "in", "qos": 1} for each in ("a", "b")]
    first.append({"pattern": "o", "qos": 1})
    async with mosquitto(tmp_path) as far, client(far) as there:
        section = options(far.port, *first, protocol_version=version)
        async with bridged(tmp_path, section):
            await far.wait_log("Sending SUBACK to us")
        section = options(far.port, first[1], protocol_version=version)
        async with bridged(tmp_path, section) as broker:
            async with broker.subscribe("+", qos=1) as here:
                await far.wait_log("Sending UNSUBACK to us")
                await there.publish("a", b"2", qos=1)
                await there.publish("b", b"3", qos=1)
                assert await receive(here) == [("b", b"3")]
                await broker.publish("o", b"", qos=1)
                await broker.publish("end", b"", qos=1)
                assert await receive(here, 2) == [("o", b""), ("end", b"")]
            assert count(broker, "out") == 0
            registry = broker.registry("")
            assert set(registry.subscribers["vmq-bridge-far"].subscriptions) == set()
        async with bridged(tmp_path, {"bridges": {}}) as broker:
            await until(lambda: "vmq-bridge-far" not in broker.registry("").subscribers)
            slots = None if broker.clustering is None else broker.clustering.slots
            await until(lambda: slots is None or slots.status.figures("vmq-bridge-far") is None)


async def test_a_subscription_that_our_broker_does_not_take_ends_the_start(tmp_path: Path) -> None:
    rule = {"pattern": "/".join("a" * (DEPTH + 1)), "qos": 1}
    with pytest.raises(StartError, match=r"bridge far: subscription to 'a/a/.*' was refused"):
        async with bridged(tmp_path, options(1, rule)):
            pass


@pytest.mark.usefixtures("_cluster")
async def test_a_full_disk_queue_drops_and_counts(tmp_path: Path) -> None:
    rule = {"pattern": "o/#", "qos": 1}
    async with mosquitto(tmp_path) as far, link(far.port) as wire:
        await wire.close()
        section = options(wire.port, rule, max_offline_messages=10)
        async with bridged(tmp_path, section) as broker:
            for number in range(25):
                await broker.publish(f"o/{number}", b"", qos=1)
            assert count(broker, "dropped") == 15
            await wire.open()
            await until(lambda: count(broker, "out") == 10)


async def test_what_our_broker_does_not_take_is_dropped_and_the_rest_goes_on(
    tmp_path: Path,
) -> None:
    rule = {"pattern": "#", "direction": "in", "qos": 1}
    async with between(tmp_path, "#", rule) as (broker, there, here):
        await there.publish("/".join("a" * (DEPTH + 1)), b"", qos=1)
        await there.publish("long", b"x" * (LONGEST + 1), qos=1)
        await there.publish("fine", b"", qos=1)
        assert await receive(here) == [("fine", b"")]
        await until(lambda: count(broker, "dropped") == 2)
        assert count(broker, "reconnects") == 0


@pytest.mark.parametrize(
    ("prefixes", "topic"),
    [
        ({"local_prefix": "sensors/"}, "sensors"),  # it would be empty there [MQTT-4.7.3-1]
        ({"local_prefix": "sensors/"}, "sensors/a\tb"),  # mosquitto closes the connection
        ({"local_prefix": "sensors/", "remote_prefix": "our/sensors/"}, "sensors/" + "t" * 65_527),
    ],
)
async def test_a_topic_that_has_no_name_there_is_dropped_and_the_rest_goes_on(
    tmp_path: Path, prefixes: dict[str, str], topic: str
) -> None:
    rule = {"pattern": "#", "qos": 2, **prefixes}
    async with (
        mosquitto(tmp_path) as far,
        bridged(tmp_path, options(far.port, rule)) as broker,
        client(far) as there,
    ):
        await there.subscribe("#", qos=1)
        for qos in (1, 2):
            await broker.publish(topic, b"", qos=qos)
        await broker.publish("sensors/fine", b"", qos=1)
        name = prefixes.get("remote_prefix", "") + "fine"
        assert await receive(there.messages) == [(name, b"")]
        assert count(broker, "dropped") == 2
        assert count(broker, "reconnects") == 0


@pytest.mark.usefixtures("_cluster")
async def test_two_of_us(tmp_path: Path) -> None:
    """We are a far broker, too: no echo, and RETAIN as it was published."""
    both = {"pattern": "#", "direction": "both", "qos": 2}
    (tmp_path / "b").mkdir()
    async with bridged(tmp_path / "b", {"bridges": {}}) as there:
        port = int(there.addresses[0].rpartition(":")[2])
        async with (
            bridged(tmp_path, options(port, both)) as broker,
            broker.subscribe("#", qos=2) as ours,
            there.subscribe("#", qos=2) as theirs,
        ):
            await until(lambda: "us" in there.registry("").subscribers)
            await until(lambda: there.registry("").subscribers["us"].subscriptions)
            await broker.publish("a", b"1", qos=2, retain=True)
            assert await receive(theirs) == [("a", b"1")]
            await there.publish("b", b"2", qos=1, retain=True)
            assert await receive(ours, 2) == [("a", b"1"), ("b", b"2")]
            await broker.publish("end", b"", qos=1)
            assert await receive(theirs, 2) == [("b", b"2"), ("end", b"")]
            assert await receive(ours) == [("end", b"")]
            async with there.subscribe("a") as late, broker.subscribe("b") as later:
                assert await receive(late) == [("a", b"1")]
                assert await receive(later) == [("b", b"2")]


async def test_a_bridge_of_mosquitto_is_no_echo(tmp_path: Path) -> None:
    async with bridged(tmp_path, {"bridges": {}}) as broker:
        port = broker.addresses[0].rpartition(":")[2]
        lines = ["connection to_us", f"address 127.0.0.1:{port}", "remote_clientid them"]
        lines += ["topic # both 1", "notifications false", "cleansession false"]
        async with (
            mosquitto(tmp_path, *lines) as far,
            client(far) as there,
            broker.subscribe("#", qos=1) as here,
        ):
            await until(lambda: "them" in broker.registry("").subscribers)
            await until(lambda: broker.registry("").subscribers["them"].subscriptions)
            await there.subscribe("#", qos=1)
            await there.publish("a", b"1", qos=1)
            assert await receive(here) == [("a", b"1")]
            await broker.publish("b", b"2", qos=1, retain=True)
            assert await receive(there.messages, 2) == [("a", b"1"), ("b", b"2")]
            async with client(far) as late:
                await late.subscribe("b", qos=1)
                assert await receive(late.messages) == [("b", b"2")]


@pytest.mark.usefixtures("_cluster")
async def test_a_reload_under_traffic_loses_nothing(tmp_path: Path) -> None:
    """The new one takes the sessions over from the old one, here and there."""
    rules = {"pattern": "o/#", "qos": 1}, {"pattern": "i/#", "direction": "in", "qos": 1}
    async with mosquitto(tmp_path) as far, client(far, "there") as there:
        await there.subscribe("o/#", qos=1)
        loaded = load(
            overrides={
                "broker.data_dir": str(tmp_path / "broker"),
                "auth.allow_anonymous": True,
                "listeners": ["tcp://127.0.0.1:0"],
                # By this name it is found as a package, installed or not.
                "plugins": {"bridge": options(far.port, *rules)},
            }
        )
        async with Broker(loaded.config) as broker, broker.subscribe("i/#", qos=1) as here:
            await far.wait_log("Sending SUBACK to us")
            for number in range(60):
                await broker.publish(f"o/{number}", b"", qos=1)
                await there.publish(f"i/{number}", b"", qos=1)
                if number % 20 == 5:
                    await broker.plugins.reload("bridge")
                if number % 20 == 10:
                    await broker.plugins.disable("bridge")
                if number % 20 == 15:
                    await broker.plugins.enable("bridge")
            wanted_out = {f"o/{number}" for number in range(60)}
            while wanted_out:
                wanted_out -= {topic for topic, _ in await receive(there.messages)}
            wanted_in = {f"i/{number}" for number in range(60)}
            while wanted_in:
                wanted_in -= {topic for topic, _ in await receive(here)}
