"""Our broker is killed while messages cross a bridge: nothing that was acknowledged is lost."""

from __future__ import annotations

import asyncio
from pathlib import Path

import aiomqtt
from vmq_bridge import packets

from tests.plugins.vmq_bridge.far import Mosquitto, mosquitto
from tests.support.broker_process import BrokerProcess

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
  {{ pattern = "o/#", qos = 1 }},
  {{ pattern = "i/#", direction = "in", qos = 1 }},
]
"""


def client(port: int, name: str | None = None) -> aiomqtt.Client:
    return aiomqtt.Client("127.0.0.1", port, identifier=name, clean_session=name is None)


async def keep_subscribed(port: int, name: str, topic_filter: str) -> None:
    """Makes a durable session."""
    async with client(port, name) as subscriber:
        await subscriber.subscribe(topic_filter, qos=1)


async def publish_until_cut(
    port: int, prefix: str, sent: list[str], count: int, some: asyncio.Event | None = None
) -> None:
    """Publishes; `sent` gets what was acknowledged, `some` is set after a few."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        hello = packets.connect(prefix, level=4, bridge=False, clean_session=True, keepalive=0)
        writer.write(hello)
        await packets.read_packet(reader, 100)
        for number in range(count):
            if number == FEW and some is not None:
                some.set()
            topic = f"{prefix}/{len(sent)}"
            packet = packets.publish(topic, b"x", qos=1, retain=False, packet_id=1)
            writer.write(packet)
            while (await packets.read_packet(reader, 100)).kind != packets.PUBACK:
                pass
            sent.append(topic)
    except ConnectionError:
        pass  # the broker is gone; what it did not acknowledge is nobody's promise
    finally:
        writer.transport.abort()


async def collect(port: int, name: str, wanted: list[str]) -> None:
    """Receives until everything wanted has come."""
    missing = set(wanted)
    try:
        async with asyncio.timeout(TIMEOUT), client(port, name) as subscriber:
            async for message in subscriber.messages:
                missing.discard(str(message.topic))
                if not missing:
                    return
    except TimeoutError:
        raise AssertionError(
            f"{len(missing)} of {len(wanted)} missing: {sorted(missing)[:20]}"
        ) from None


async def test_nothing_acknowledged_is_lost_when_our_broker_is_killed(tmp_path: Path) -> None:
    async with mosquitto(tmp_path) as far:
        await _rounds(tmp_path, far)


async def _rounds(folder: Path, far: Mosquitto) -> None:
    file = folder / "vmq.toml"
    file.write_text(CONFIG.format(port=far.port))
    await keep_subscribed(far.port, "there", "o/#")
    out: list[str] = []
    back: list[str] = []
    for number in range(ROUNDS):
        broker = await asyncio.to_thread(
            BrokerProcess.start, (), folder / "data", None, ("--config", str(file))
        )
        try:
            if not number:
                await keep_subscribed(broker.tcp[1], "here", "i/#")
            await far.wait_log("Sending SUBACK to us")
            some = asyncio.Event()
            work = publish_until_cut(broker.tcp[1], "o", out, 50 * MESSAGES, some)
            going = asyncio.ensure_future(work)
            await publish_until_cut(far.port, "i", back, MESSAGES // (number + 1))
            await asyncio.wait_for(some.wait(), TIMEOUT)
            broker.kill()
            await going
        finally:
            await asyncio.to_thread(broker.close)
    assert len(out) >= ROUNDS * FEW, "the test has no publishes to look at"
    with await asyncio.to_thread(
        BrokerProcess.start, (), folder / "data", None, ("--config", str(file))
    ) as broker:
        await collect(far.port, "there", out)
        await collect(broker.tcp[1], "here", back)
