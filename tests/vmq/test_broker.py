"""The broker as a whole: how it starts and stops, and what it does with its options."""

import asyncio
import socket
from pathlib import Path

import msgspec
import pytest

from tests.support import wire as mqtt
from tests.support.until import until
from tests.vmq.sockets import TIMEOUT, config_in, login, peer_of, session_of, take
from vmq.admin.paths import socket_of
from vmq.broker import Broker, StartError
from vmq.config.core import options_of
from vmq.config.options import Config, ConfigError, ListenerOptions, QueueOptions, SessionOptions
from vmq.config.values import Endpoint
from vmq.runtime.client_ids import new_client_id
from vmq.runtime.watchdog import Watchdog
from vmq.testing.ports import lasting_port


async def test_every_listener_is_named_with_its_real_port(tmp_path: Path) -> None:
    listeners = {
        "one": ListenerOptions(url="tcp://127.0.0.1:0"),
        "two": ListenerOptions(url="tcp://[::1]:0"),
        "three": ListenerOptions(url="ws://127.0.0.1:0/mqtt"),
    }
    async with Broker(config_in(tmp_path, listeners)) as broker:
        one, two, three = broker.addresses
        assert one.startswith("tcp://127.0.0.1:")
        assert two.startswith("tcp://[::1]:")
        assert three.startswith("ws://127.0.0.1:")
        assert three.endswith("/mqtt")
        assert not any(address.endswith(":0") for address in broker.addresses)
        for index in range(2):
            assert await login(broker, listener=index) == 0


async def test_libraries_are_loaded_before_the_loop_is_watched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Loading them holds it for longer than a plugin may, which nobody has to be told."""
    seen = []
    monkeypatch.setattr("vmq.broker.import_ahead", lambda *_, **__: seen.append("loaded"))
    monkeypatch.setattr(Watchdog, "start", lambda _: seen.append("watched"))
    async with Broker(config_in(tmp_path, {"one": ListenerOptions(url="tcp://127.0.0.1:0")})):
        assert seen == ["loaded", "watched"]


async def test_a_port_that_is_taken_is_an_error_that_leaves_nothing_open(tmp_path: Path) -> None:
    # An address that nobody else uses: the port is still free when the broker wants it.
    host = "127.11.7.4"
    with socket.create_server((host, 0)) as probe:
        port = probe.getsockname()[1]
    with socket.create_server(("127.0.0.1", 0)) as taken:
        url = f"tcp://127.0.0.1:{taken.getsockname()[1]}"
        good = ListenerOptions(url=f"tcp://{host}:{port}")
        listeners = {"good": good, "bad": ListenerOptions(url=url)}
        broker = Broker(config_in(tmp_path, listeners))
        with pytest.raises(StartError, match=r"listeners\.bad: cannot listen on .*in use"):
            await broker.start()
        assert broker.addresses == []
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection(host, port)
    assert is_empty(tmp_path), "it is told before anything is opened"


def is_empty(folder: Path) -> bool:
    return not list(folder.iterdir())


async def test_nobody_connects_before_the_broker_can_serve(tmp_path: Path) -> None:
    refused: list[str] = []
    listeners = {
        "tcp": ListenerOptions(url="tcp://127.0.0.1:0"),
        "unix": ListenerOptions(url=f"unix://{tmp_path}/s.sock"),
        "ws": ListenerOptions(url="ws://127.0.0.1:0/mqtt"),
    }

    def look() -> None:
        for name, listener in broker.listeners.items():
            is_unix = listener.endpoint.scheme == "unix"
            address = (
                listener.endpoint.path
                if is_unix
                else ("127.0.0.1", Endpoint.parse(listener.url).port)
            )
            family = socket.AF_UNIX if is_unix else socket.AF_INET
            with socket.socket(family) as sock, pytest.raises(ConnectionRefusedError):
                sock.connect(address)
            refused.append(name)

    broker = Broker(config_in(tmp_path, listeners), before_clients=look)
    async with broker:
        assert refused == ["tcp", "unix", "ws"]
        assert await login(broker) == 0


async def test_a_store_that_another_broker_has_is_an_error(embedded: Broker) -> None:
    other = Broker(embedded.config)
    with pytest.raises(StartError, match="in use by another process"):
        await other.start()
    await other.stop()


def test_a_configuration_that_is_not_safe_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="allow_anonymous"):
        Broker(config_in(tmp_path, {"open": ListenerOptions(url="tcp://0.0.0.0:0")}))


async def test_stopping_ends_connections_publishes_wills_and_keeps_what_is_durable(
    tmp_path: Path,
) -> None:
    config = config_in(tmp_path)
    async with (
        Broker(config) as broker,
        session_of(broker, "w", clean=False) as watcher,
        peer_of(broker) as peer,
    ):
        await watcher.ask(mqtt.subscribe_packet(1, ("will", 1)))
        await peer.connect("c", will=mqtt.Will("will", b"gone", 1))
        peer.send(mqtt.publish_packet("kept", b"x", retain=True))
        await peer.ask(mqtt.PINGREQ_BYTES)
        await broker.stop()
        assert await peer.rest() == b""
        await watcher.rest()
    async with Broker(config) as broker, peer_of(broker) as watcher:
        assert (await watcher.connect("w", clean=False)).session_present == 1
        received = await watcher.packet()
        assert (received.topic, received.payload) == ("will", b"gone")
        watcher.send(mqtt.subscribe_packet(2, ("kept", 0)))
        await watcher.expect(b"\x90\x03\0\2\0", mqtt.publish_packet("kept", b"x", retain=True))


async def test_stopping_twice_does_nothing_more(embedded: Broker) -> None:
    await embedded.stop()
    await embedded.stop()


async def test_a_stop_goes_on_though_who_waits_for_it_is_cancelled(tmp_path: Path) -> None:
    broker = Broker(config_in(tmp_path))
    await broker.start()
    stopping = asyncio.create_task(broker.stop())
    await asyncio.sleep(0)
    stopping.cancel()
    with pytest.raises(asyncio.CancelledError):
        await stopping
    await until(lambda: not broker.is_started)
    async with Broker(config_in(tmp_path)) as next_one:
        await asyncio.gather(next_one.stop(), next_one.stop())


async def test_stopping_with_a_client_that_never_reads(embedded: Broker) -> None:
    async with session_of(embedded, "c") as peer:
        await peer.ask(mqtt.subscribe_packet(1, ("a", 0)))
        for _ in range(50):
            await embedded.publish("a", b"x" * 100_000)
        async with asyncio.timeout(TIMEOUT):
            await embedded.stop()


async def test_two_brokers_in_one_process_share_nothing(tmp_path: Path) -> None:
    first = Broker(config_in(tmp_path / "first"))
    second = Broker(config_in(tmp_path / "second"))
    async with first, second, first.subscribe("a") as of_first, second.subscribe("a") as of_second:
        await first.publish("a", b"1", retain=True)
        await second.publish("a", b"2")
        assert await take(of_first, 1) == [b"1"]
        assert await take(of_second, 1) == [b"2"]
        assert first.addresses != second.addresses
        async with second.subscribe("a") as later:
            await second.publish("a", b"3")
            assert await take(later, 1) == [b"3"]


async def test_a_broker_can_be_started_again(tmp_path: Path) -> None:
    broker = Broker(config_in(tmp_path))
    for _ in range(2):
        async with broker:
            async with session_of(broker, "c") as peer:
                await broker.publish("a", b"x", qos=1)
                assert len(broker.addresses) == 1
                await broker.stop()
                await peer.rest()
            assert broker.addresses == []


async def test_a_start_that_is_cancelled_leaves_nothing(tmp_path: Path) -> None:
    listen = [f"{kind}://127.0.0.1:{lasting_port()}" for kind in ("tcp", "http")]
    broker = Broker(listen=listen, data_dir=tmp_path, admin=True)
    turns = 0
    while True:
        starting = asyncio.create_task(broker.start())
        for _ in range(turns):
            await asyncio.sleep(0)
        if starting.done():
            break
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting
        assert not socket_of(tmp_path).exists()
        turns += 1
    await starting  # it has its addresses, which those before have given back
    assert broker.addresses == listen
    await broker.stop()


def test_every_option_reaches_the_core() -> None:
    config = Config(
        session=SessionOptions(
            max_client_id_size=30,
            max_connect_size=2000,
            max_packet_size=1000,
            max_control_packet_size=3000,
            upgrade_outgoing_qos=True,
            retry_interval=7.5,
            shared_subscription_policy="random",
            suppress_lwt_on_session_takeover=True,
            persistent_client_expiration="2h",
        ),
        queue=QueueOptions(
            max_inflight_messages=1,
            max_online_messages=2,
            max_offline_messages=3,
            queue_type="lifo",
            drop="oldest",
            max_msgs_per_drain_step=4,
        ),
        network=msgspec.structs.replace(Config().network, topic_cache=5),
    )
    options = options_of(config)
    spans = {"persistent_client_expiration", "max_age"}
    for section in (config.session, config.queue, config.network):
        for name in set(section.__struct_fields__) - spans:
            if hasattr(options, name):
                assert getattr(options, name) == getattr(section, name), name
    assert options.persistent_client_expiration == 7200
    assert options.lifo
    assert options.drop_oldest


async def test_the_write_buffer_is_the_configured_one(tmp_path: Path) -> None:
    config = config_in(tmp_path)
    network = msgspec.structs.replace(config.network, write_buffer=4096)
    config = msgspec.structs.replace(config, network=network)
    async with Broker(config) as broker, session_of(broker, "c"):
        assert broker.connections is not None
        [connection] = broker.connections
        assert connection.transport.get_write_buffer_limits()[1] == 4096
        assert connection.listener.reply_limit == 4 * 4096


def test_client_ids_that_the_broker_gives_are_unique() -> None:
    ids = {new_client_id() for _ in range(100)}
    assert len(ids) == 100
    assert all(each.startswith("auto-") for each in ids)
