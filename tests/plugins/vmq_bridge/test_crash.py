"""Our broker is killed while messages cross a bridge: nothing acknowledged is lost, and at QoS 2 none comes twice."""

import asyncio
from collections import Counter
from pathlib import Path

import aiomqtt
import pytest
from vmq_bridge import packets

from tests.plugins.vmq_bridge.far import Mosquitto, Scripted, mosquitto
from vmq.testing.process import BrokerProcess

TIMEOUT = 40.0
ROUNDS, MESSAGES, FEW = 3, 80, 20

CONFIG = """
[listeners.tcp]
url = "tcp://127.0.0.1:0"
[auth]
allow_anonymous = true
[plugins.bridge.bridges.far]
url = "mqtt://127.0.0.1:{port}"
client_id = "us"
reconnect_delay = 0.02
max_reconnect_delay = 0.1
topics = [
  {{ pattern = "o/#", qos = {qos} }},
  {{ pattern = "i/#", direction = "in", qos = {qos} }},
]
"""
#: Whether our broker is a node whose durable sessions are in slots.
IN_SLOTS = """
[cluster]
listen = "ipc://{folder}/node.socket"
slots = 8
"""


def config(folder: Path, port: int, qos: int, sessions: str) -> str:
    text = CONFIG.format(port=port, qos=qos)
    return text + IN_SLOTS.format(folder=folder) if sessions == "slots" else text


def client(port: int, name: str | None = None) -> aiomqtt.Client:
    return aiomqtt.Client("127.0.0.1", port, identifier=name, clean_session=name is None)


async def keep_subscribed(port: int, name: str, topic_filter: str) -> None:
    async with client(port, name) as subscriber:
        await subscriber.subscribe(topic_filter, qos=2)


class Topics:
    """Topics of one message each, and those whose message was acknowledged."""

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix
        self.made = 0
        self.acknowledged: list[str] = []

    def new(self) -> str:
        self.made += 1
        return f"{self.prefix}/{self.made}"


async def publish_until_cut(
    port: int, topics: Topics, qos: int, count: int, some: asyncio.Event | None = None
) -> None:
    """Publishes until the broker is gone; `some` is set after a few."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)

    async def answer(kind: int) -> None:
        while (await packets.read_packet(reader, 100)).kind != kind:
            pass

    try:
        name = topics.prefix
        hello = packets.connect(name, level=4, bridge=False, clean_session=True, keepalive=0)
        writer.write(hello)
        await packets.read_packet(reader, 100)
        for number in range(count):
            if number == FEW and some is not None:
                some.set()
            topic = topics.new()
            packet = packets.publish(topic, b"x", qos=qos, retain=False, packet_id=1)
            writer.write(packet)
            await answer(packets.PUBACK if qos == 1 else packets.PUBREC)
            topics.acknowledged.append(topic)
            if qos == 2:
                writer.write(packets.answer(packets.PUBREL, 1))
                await answer(packets.PUBCOMP)
    except ConnectionError:
        pass  # the broker is gone; what it did not acknowledge is nobody's promise
    finally:
        writer.transport.abort()


async def collect(port: int, name: str, topics: Topics, qos: int) -> None:
    """Receives until everything acknowledged has come; at QoS 2 nothing comes twice."""
    missing = set(topics.acknowledged)
    seen: list[str] = []
    try:
        async with asyncio.timeout(TIMEOUT), client(port, name) as subscriber:
            async for message in subscriber.messages:
                seen.append(str(message.topic))
                missing.discard(seen[-1])
                if not missing:
                    break
    except TimeoutError:
        raise AssertionError(
            f"{len(missing)} of {topics.made} missing: {sorted(missing)[:20]}"
        ) from None
    twice = [topic for topic, times in Counter(seen).items() if times > 1]
    assert qos == 1 or not twice, f"twice: {twice[:20]}"


@pytest.mark.parametrize("sessions", ["alone", "slots"])
@pytest.mark.parametrize("qos", [1, 2])
async def test_nothing_acknowledged_is_lost_when_our_broker_is_killed(
    tmp_path: Path, qos: int, sessions: str
) -> None:
    async with mosquitto(tmp_path) as far:
        await _rounds(tmp_path, far, qos, sessions)


async def _rounds(folder: Path, far: Mosquitto, qos: int, sessions: str) -> None:
    file = folder / "vmq.toml"
    file.write_text(config(folder, far.port, qos, sessions))
    await keep_subscribed(far.port, "there", "o/#")
    out, back = Topics("o"), Topics("i")
    for number in range(ROUNDS):
        broker = await asyncio.to_thread(
            BrokerProcess.start, (), folder / "data", None, ("--config", str(file))
        )
        try:
            if not number:
                await keep_subscribed(broker.tcp[1], "here", "i/#")
            await far.wait_log("Sending SUBACK to us")
            some = asyncio.Event()
            work = publish_until_cut(broker.tcp[1], out, qos, 50 * MESSAGES, some)
            going = asyncio.ensure_future(work)
            await publish_until_cut(far.port, back, qos, MESSAGES // (number + 1))
            await asyncio.wait_for(some.wait(), TIMEOUT)
            broker.kill()
            await going
        finally:
            await asyncio.to_thread(broker.close)
    assert len(out.acknowledged) >= ROUNDS * FEW, "the test has no publishes to look at"
    with await asyncio.to_thread(
        BrokerProcess.start, (), folder / "data", None, ("--config", str(file))
    ) as broker:
        # Behind everything else, so that what comes twice has come before.
        for port, topics in ((broker.tcp[1], out), (far.port, back)):
            await publish_until_cut(port, topics, qos, 1)
        await collect(far.port, "there", out, qos)
        await collect(broker.tcp[1], "here", back, qos)


@pytest.mark.parametrize("sessions", ["alone", "slots"])
async def test_each_half_of_qos_2_outlives_our_broker(tmp_path: Path, sessions: str) -> None:
    """It is killed when the far broker has taken one message, and has given us another."""
    far = Scripted()
    file = tmp_path / "vmq.toml"
    topics, start = Topics("o"), ((), tmp_path / "data", None, ("--config", str(file)))
    async with far.serving(), asyncio.timeout(TIMEOUT):
        file.write_text(config(tmp_path, far.port, 2, sessions))
        broker = await asyncio.to_thread(BrokerProcess.start, *start)
        try:
            await keep_subscribed(broker.tcp[1], "here", "i/#")
            await far.welcome(knows=False)
            await publish_until_cut(broker.tcp[1], topics, 2, 1)
            out = packets.read_publish(await far.expect(packets.PUBLISH)).packet_id
            far.send(packets.answer(packets.PUBREC, out))
            assert packets.read_packet_id(await far.expect(packets.PUBREL)) == out
            again = packets.publish("i/1", b"x", qos=2, retain=False, packet_id=9)
            far.send(again)
            assert packets.read_packet_id(await far.expect(packets.PUBREC)) == 9
            broker.kill()
        finally:
            await asyncio.to_thread(broker.close)
        far.close()
        broker = await asyncio.to_thread(BrokerProcess.start, *start)
        try:
            await far.welcome(knows=True)
            assert packets.read_packet_id(await far.expect(packets.PUBREL)) == out
            far.send(packets.answer(packets.PUBCOMP, out), again)
            assert packets.read_packet_id(await far.expect(packets.PUBREC)) == 9
            far.send(packets.answer(packets.PUBREL, 9))
            assert packets.read_packet_id(await far.expect(packets.PUBCOMP)) == 9
            far.send(packets.publish("i/2", b"x", qos=2, retain=False, packet_id=9))
            await far.expect(packets.PUBREC)
            await publish_until_cut(broker.tcp[1], topics, 2, 1)
            await far.expect(packets.PUBLISH)
            assert far.published == ["o/1", "o/2"]
            async with client(broker.tcp[1], "here") as here:
                found = [str((await anext(here.messages)).topic) for _ in range(2)]
            assert found == ["i/1", "i/2"]
        finally:
            far.close()
            await asyncio.to_thread(broker.close)
