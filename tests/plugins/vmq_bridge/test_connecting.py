"""How a bridge connects: TLS, names and passwords, far brokers that refuse, are silent, or talk rubbish."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest
from vmq_bridge import BridgePlugin, BridgesConfig, packets
from vmq_bridge.topics import Topics
from vmq_hooks import Message, SubscriberId
from vmq_hooks.testing import FakeBroker, Published

from tests.listeners.conftest import authority
from tests.plugins.vmq_bridge.far import mosquitto
from vmq.testing.authority import Authority

__all__ = ["authority"]

TIMEOUT = 20.0
OUT = {"pattern": "o/#", "qos": 1}
BACK = {"pattern": "i/#", "direction": "in", "qos": 2}
OURS = SubscriberId("vmq-bridge-far")

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def config(url: str, **more: Any) -> BridgesConfig:
    bridge = {
        "url": url,
        "topics": [OUT, BACK],
        "client_id": "us",
        "reconnect_delay": 0.02,
        "max_reconnect_delay": 0.1,
        **more,
    }
    return msgspec.convert({"bridges": {"far": bridge}}, BridgesConfig)


async def heard_line(heard: asyncio.Queue[str], text: str) -> str:
    async with asyncio.timeout(TIMEOUT):
        while text not in (line := await heard.get()):
            pass
    return line


@asynccontextmanager
async def far_broker(serve: Serve) -> AsyncIterator[str]:
    """A scripted far broker; yields its address."""
    tasks: set[asyncio.Task[Any]] = set()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        try:
            # Cancelled at the end of the test, which the streams would log.
            with suppress(ConnectionError, asyncio.CancelledError):
                await serve(reader, writer)
        finally:
            writer.transport.abort()
            tasks.discard(task)

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    try:
        yield f"mqtt://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        for task in list(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> packets.Packet:
    """CONNACK and SUBACK; returns the CONNECT."""
    found = await packets.read_packet(reader, 10_000)
    writer.write(b"\x20\x02\x00\x00")
    while (packet := await packets.read_packet(reader, 10_000)).kind != 8:
        pass
    writer.write(b"\x90\x03" + packet.body[:2] + b"\x02")
    return found


async def test_tls_with_a_certificate_on_both_sides(
    tmp_path: Path, authority: Authority, heard: asyncio.Queue[str]
) -> None:
    server = authority.issue("far", ["localhost"])
    ours = authority.issue("us")
    lines = (
        f"cafile {authority.cafile}",
        f"certfile {server.certfile}",
        f"keyfile {server.keyfile}",
        "require_certificate true",
        "use_identity_as_username true",
    )
    async with mosquitto(tmp_path, *lines) as far, FakeBroker(tmp_path) as broker:
        url = f"mqtts://localhost:{far.port}"
        files = {"cafile": "ca/ca.pem", "certfile": "ca/us.pem", "keyfile": "ca/us.key"}
        assert ours.certfile == tmp_path / "ca/us.pem"
        await BridgePlugin().start(broker, config(url, **files))
        await heard_line(heard, "bridge far: connected")
        broker.bridges[OURS].deliver(Message("o/1", b"x", 1))
        await far.wait_log("Sending PUBACK to us")
        await broker.close()
    # Without the certificate, by the wrong name, or signed by somebody else there is no connection.
    async with mosquitto(tmp_path, *lines) as far:
        stranger = Authority(tmp_path / "other")
        for host, changes, problem in (
            ("127.0.0.1", {}, "IP address mismatch"),
            ("localhost", {"cafile": str(stranger.cafile)}, "certificate verify failed"),
            ("localhost", {"certfile": None, "keyfile": None}, "no connection|closed"),
        ):
            async with FakeBroker(tmp_path) as broker:
                section = config(f"mqtts://{host}:{far.port}", **{**files, **changes})
                await BridgePlugin().start(broker, section)
                line = await heard_line(heard, "bridge far: no connection")
                assert any(each in line for each in problem.split("|")), line
        async with FakeBroker(tmp_path) as broker:
            section = config(f"mqtts://127.0.0.1:{far.port}", **files, insecure=True)
            await BridgePlugin().start(broker, section)
            await heard_line(heard, "bridge far: connected")


async def test_a_name_and_a_password(tmp_path: Path, heard: asyncio.Queue[str]) -> None:
    passwords = tmp_path / "passwords"
    process = await asyncio.create_subprocess_exec(
        "mosquitto_passwd", "-c", "-b", str(passwords), "alice", "secret"
    )
    assert await process.wait() == 0
    lines = ("allow_anonymous false", f"password_file {passwords}")
    async with mosquitto(tmp_path, *lines) as far, FakeBroker(tmp_path) as broker:
        url = f"mqtt://127.0.0.1:{far.port}"
        await BridgePlugin().start(broker, config(url, username="alice", password="wrong"))
        line = await heard_line(heard, "bridge far: no connection")
        assert "not authorised" in line
        assert "wrong" not in line
        await broker.close()
        await BridgePlugin().start(broker, config(url, username="alice", password="secret"))
        await heard_line(heard, "bridge far: connected")


async def test_a_far_broker_that_knows_no_bridges_gets_a_plain_client(
    tmp_path: Path, heard: asyncio.Queue[str]
) -> None:
    levels: list[int] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        levels.append((await packets.read_packet(reader, 1000)).body[6])
        if levels[-1] & 0x80:
            writer.write(b"\x20\x02\x00\x01")
            return
        writer.write(b"\x20\x02\x00\x00")
        await reader.read()

    async with far_broker(serve) as url, FakeBroker(tmp_path) as broker:
        await BridgePlugin().start(broker, config(url))
        await heard_line(heard, "connected")
        assert levels == [0x84, 4]


async def test_a_far_broker_that_is_away_behind_a_proxy_is_no_broker_that_knows_no_bridges(
    tmp_path: Path, heard: asyncio.Queue[str]
) -> None:
    levels: list[int] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        levels.append((await packets.read_packet(reader, 1000)).body[6])
        if len(levels) > 2:
            writer.write(b"\x20\x02\x00\x00")
            await reader.read()

    async with far_broker(serve) as url, FakeBroker(tmp_path) as broker:
        await BridgePlugin().start(broker, config(url))
        line = await heard_line(heard, "no connection")
        assert "closed the connection before CONNACK (try_private = false may help)" in line
        await heard_line(heard, "connected")
        assert levels == [0x84] * 3


@pytest.mark.parametrize(
    ("rubbish", "problem"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n" * 100, "it does not speak MQTT"),
        (b"\x20\x02\x00\x05", "not authorised"),
        (b"\xff\xff\xff\xff\xff\xff", "five digits"),
        (b"\x20\x02\x00\x00\x30\x81\x80\x80\x7f", "it sent a packet of"),
        (b"\x20\x02\x00\x00\x36\x02\x00\x00", "PUBLISH that is none"),
        (b"\x20\x02\x00\x00\x30\x04\x00\x02\xff\xff", "not UTF-8"),
        (b"\x20\x02\x00\x00\x40\x00", "without a packet id"),
        (b"\x20\x02\x00\x00\xf0\x00", "packet of type 15"),
        (b"\x20\x02\x00\x00\x90\x03\xff\xff\x80", "it refused the subscription to 'i/#'"),
    ],
)
async def test_rubbish_ends_the_connection_and_is_told(
    tmp_path: Path, heard: asyncio.Queue[str], rubbish: bytes, problem: str
) -> None:
    connects: asyncio.Queue[packets.Packet] = asyncio.Queue()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connects.put_nowait(await packets.read_packet(reader, 1000))
        beginning, rest = (rubbish[:4], rubbish[4:]) if rubbish[:1] == b"\x20" else (b"", rubbish)
        writer.write(beginning)
        if rest.startswith(b"\x90"):
            await packets.read_packet(reader, 1000)  # PINGREQ
            await packets.read_packet(reader, 1000)  # SUBSCRIBE
        writer.write(rest)
        await reader.read()

    async with far_broker(serve) as url, FakeBroker(tmp_path) as broker:
        section = config(url, max_packet_size=1024)
        await BridgePlugin().start(broker, section)
        await heard_line(heard, problem)
        async with asyncio.timeout(TIMEOUT):  # it goes on trying
            assert await connects.get()
            assert await connects.get()


async def test_a_silent_far_broker_is_left(tmp_path: Path, heard: asyncio.Queue[str]) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await accept(reader, writer)
        await reader.read()

    async with far_broker(serve) as url, FakeBroker(tmp_path) as broker:
        await BridgePlugin().start(broker, config(url, keepalive=1))
        await heard_line(heard, "it has been silent for 1 s")


async def test_a_stalled_far_broker_keeps_no_connection(
    tmp_path: Path, heard: asyncio.Queue[str]
) -> None:
    connections = 0
    came: asyncio.Queue[bytes] = asyncio.Queue()
    is_back = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        number = connections
        await accept(reader, writer)
        if number == 1:
            await is_back.wait()  # and reads nothing
            came.put_nowait(await reader.read())
        elif number == 2:
            is_back.set()
            await reader.read()

    async with far_broker(serve) as url, FakeBroker(tmp_path) as broker:
        await BridgePlugin().start(broker, config(url, keepalive=1))
        await heard_line(heard, "connected")
        for _ in range(20):  # more than the system keeps for a connection
            broker.bridges[OURS].deliver(Message("o/1", bytes(1 << 20), 1))
        async with asyncio.timeout(TIMEOUT):
            assert not (await came.get()).endswith(packets.DISCONNECT_BYTES), (
                "which was last in the line"
            )


async def test_a_mistake_in_the_bridge_is_told_and_does_not_end_it(
    tmp_path: Path, heard: asyncio.Queue[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: asyncio.Queue[packets.Packet] = asyncio.Queue()
    rightly = Topics.outgoing
    asked = 0

    def outgoing(topics: Topics, topic: str) -> tuple[str, int]:
        nonlocal asked
        asked += 1
        if asked == 1:
            raise LookupError("nobody has thought of this")
        return rightly(topics, topic)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await accept(reader, writer)
        while True:
            seen.put_nowait(await packets.read_packet(reader, 1000))

    monkeypatch.setattr(Topics, "outgoing", outgoing)
    async with far_broker(serve) as url, FakeBroker(tmp_path) as broker:
        await BridgePlugin().start(broker, config(url))
        await heard_line(heard, "bridge far: connected")
        broker.bridges[OURS].deliver(Message("o/1", b"x", 1))
        await heard_line(heard, "bridge far: a mistake in the bridge")
        line = await heard_line(heard, "bridge far: connection lost")
        assert "LookupError: nobody has thought of this" in line
        async with asyncio.timeout(TIMEOUT):
            while (await seen.get()).kind != packets.PUBLISH:
                pass


async def test_nothing_is_acknowledged_before_our_broker_has_it(
    tmp_path: Path, heard: asyncio.Queue[str]
) -> None:
    seen: asyncio.Queue[packets.Packet] = asyncio.Queue()
    taking = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await accept(reader, writer)
        writer.write(packets.publish("i/1", b"x", qos=1, retain=False, packet_id=7))
        while True:
            seen.put_nowait(await packets.read_packet(reader, 1000))

    class SlowBroker(FakeBroker):
        async def publish(self, *arguments: Any, **options: Any) -> None:
            await taking.wait()
            await super().publish(*arguments, **options)

    async with far_broker(serve) as url, SlowBroker(tmp_path) as broker:
        await BridgePlugin().start(broker, config(url))
        await heard_line(heard, "connected")
        broker.bridges[OURS].deliver(Message("o/1", b"y", 1))
        async with asyncio.timeout(TIMEOUT):
            while (packet := await seen.get()).kind != packets.PUBLISH:
                assert packet.kind != packets.PUBACK
            assert len(broker.bridges[OURS].unacknowledged) == 1
            taking.set()
            while (packet := await seen.get()).kind != packets.PUBACK:
                pass
        assert packet == packets.Packet(0x40, packets.answer(packets.PUBACK, 7)[2:])
        assert broker.published == [Published("i/1", b"x", 1)]
        # The far broker has never acknowledged ours.
        assert len(broker.bridges[OURS].unacknowledged) == 1


@pytest.mark.parametrize(
    ("section", "problem"),
    [
        ({"url": "http://x"}, "url: accepted: mqtt://HOST:PORT"),
        ({"url": "mqtt://x:99999"}, "url: accepted: mqtt://HOST:PORT"),
        ({"url": "mqtt://x", "topics": []}, "length >= 1"),
        ({"url": "mqtt://x", "topics": [{"pattern": "a/#/b"}]}, "is no topic filter"),
        ({"url": "mqtt://x", "topics": [{"pattern": "a", "local_prefix": "+/"}]}, "wildcards"),
        ({"url": "mqtt://x", "topics": [{"pattern": "$share/g/a"}]}, "shared subscription"),
        ({"url": "mqtt://x", "topics": [{"pattern": "a", "qos": 3}]}, "qos"),
        (
            {"url": "mqtt://x", "cafile": "a"},
            "cafile: it would have no effect; accepted: with a url of mqtts://",
        ),
        ({"url": "mqtts://x", "keyfile": "a"}, "keyfile without a certfile"),
        ({"url": "mqtt://x", "password": "a"}, "without a username"),
        ({"url": "mqtt://x", "username": "é" * 32_768}, "username: accepted: up to 65,535 bytes"),
        (
            {"url": "mqtt://x", "username": "a", "password": "a" * 65_536},
            "password: accepted: up to 65,535 bytes",
        ),
        ({"url": "mqtt://x", "clean": True}, "unknown field"),
    ],
)
def test_a_mistake_in_the_configuration_is_named(section: dict[str, Any], problem: str) -> None:
    bridge = {"topics": [{"pattern": "a"}], **section}
    with pytest.raises(msgspec.ValidationError, match=problem):
        msgspec.convert({"bridges": {"far": bridge}}, BridgesConfig)


async def test_a_file_that_is_not_there_stops_the_start(tmp_path: Path) -> None:
    async with FakeBroker(tmp_path) as broker:
        with pytest.raises(ValueError, match=r"bridge far: cafile: /.*/nowhere\.pem: No such file"):
            await BridgePlugin().start(broker, config("mqtts://localhost", cafile="nowhere.pem"))


async def test_of_several_workers_the_first_connects(tmp_path: Path) -> None:
    broker = FakeBroker(tmp_path, worker=2)
    plugin = BridgePlugin()
    await plugin.start(broker, config("mqtt://127.0.0.1:1"))
    assert broker.gauges == {}
    assert broker.counters == {}
    plugin.stop()
    await broker.close()
