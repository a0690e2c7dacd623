"""Flight listeners of a broker, as programs see them."""

import asyncio
import json
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import psutil
import pyarrow as pa
import pytest
import vmq_acl
import vmq_passwd
from pyarrow import flight
from vmq_passwd import editing

from tests.spark.support import stream_environment
from tests.support.present import present
from tests.support.until import until
from tests.support.wire import PUBACK, Wire, publish_packet
from tests.vmq.streamed import config_in
from tests.vmq.streams.flight_support import act, basic, ticket
from vmq.admin.streams import create_stream
from vmq.broker import Broker, StartError
from vmq.config.options import ListenerOptions
from vmq.streams.serving.listener import FlightListener, location_of
from vmq.streams.serving.process import COMMAND, FlightProcess
from vmq.streams.staging.parts import MESSAGE
from vmq.testing.authority import Authority
from vmq.testing.process import BrokerProcess

T = TypeVar("T")

TCP = "tcp://127.0.0.1:0"
GRPC = "grpc://127.0.0.1:0"


async def beside(function: Callable[[], T]) -> T:
    """Runs what blocks."""
    async with asyncio.timeout(30):
        return await asyncio.to_thread(function)


def read(client: flight.FlightClient, stream: str, options: Any = None) -> list[bytes]:
    table = client.do_get(ticket(stream, partition=0), options).read_all()
    return [bytes(each) for each in table.column("payload").to_pylist()]


def stage(client: flight.FlightClient, topic: str, *payloads: bytes, options: Any = None) -> None:
    command = json.dumps({"query": "q", "batch": 0, "part": 0, "attempt": 0}).encode()
    plain = [{"topic": topic, "payload": each, "qos": 1, "retain": False} for each in payloads]
    descriptor = flight.FlightDescriptor.for_command(command)
    writer, _ = client.do_put(descriptor, MESSAGE, options)
    with writer:
        writer.write_batch(pa.RecordBatch.from_pylist(plain, schema=MESSAGE))


async def test_what_is_published_is_read_and_what_is_staged_is_published(tmp_path: Path) -> None:
    async with Broker(config_in(tmp_path, TCP, GRPC, s="s/#")) as broker:
        url = broker.addresses[1]
        assert url.startswith("grpc://127.0.0.1:")
        assert not url.endswith(":0")
        await broker.publish("s/a", b"x", qos=1)

        def use() -> None:
            with flight.connect(url) as client:
                assert act(client, "streams") == {"s": ["s/#"]}
                assert read(client, "s") == [b"x"]
                stage(client, "s/b", b"y", b"z")
                for count in (2, 0):
                    answer = act(client, "publish", query="q", batch=0, parts=[[0, 0]])
                    assert answer == {"published": count}
                assert read(client, "s") == [b"x", b"y", b"z"]

        await beside(use)
        broker.close_listener("l1")
        assert list(broker.listeners) == ["l0"]


async def test_an_address_that_is_taken_is_an_error(tmp_path: Path) -> None:
    async with Broker(config_in(tmp_path / "a", TCP, GRPC, s="s/#")) as broker:
        with pytest.raises(StartError, match="in use"):
            await Broker(config_in(tmp_path / "b", TCP, broker.addresses[1], s="s/#")).start()


async def test_the_first_stream_may_be_made_while_programs_are_served(tmp_path: Path) -> None:
    async with Broker(config_in(tmp_path, TCP, GRPC)) as broker:

        def look() -> Any:
            with flight.connect(broker.addresses[1]) as client:
                return act(client, "streams")

        assert await beside(look) == {}
        await create_stream(broker, "s", {"filters": ["s/#"]})
        assert await beside(look) == {"s": ["s/#"]}


async def test_a_listener_with_tls(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    issued = authority.issue("localhost", ["localhost", "127.0.0.1"])
    options = ListenerOptions(
        url="grpc+tls://127.0.0.1:0", certfile=str(issued.certfile), keyfile=str(issued.keyfile)
    )
    plain = config_in(tmp_path, s="s/#")
    config = msgspec.structs.replace(plain, listeners={**plain.listeners, "tls": options})
    async with Broker(config) as broker:
        await broker.publish("s/a", b"x", qos=1)
        url = broker.addresses[1]
        assert url.startswith("grpc+tls://")

        def use() -> None:
            with flight.connect(url, tls_root_certs=authority.cafile.read_bytes()) as client:
                assert read(client, "s") == [b"x"]
            with (
                flight.connect(url.replace("+tls", "")) as client,
                pytest.raises(flight.FlightError),
            ):
                act(client, "streams")

        await beside(use)


async def test_a_certificate_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    issued = authority.issue("localhost")
    options = ListenerOptions(
        url="grpc+tls://127.0.0.1:0", certfile=str(issued.certfile), keyfile=str(issued.keyfile)
    )
    issued.keyfile.unlink()
    plain = config_in(tmp_path, s="s/#")
    config = msgspec.structs.replace(plain, listeners={**plain.listeners, "tls": options})
    with pytest.raises(StartError, match=f"keyfile.*{issued.keyfile}"):
        await Broker(config).start()


ACL = """\
user ann
topic a/#
user bob
topic b/#
"""


def test_users_and_rules_of_mqtt_hold_for_flight(tmp_path: Path) -> None:
    for user in ("ann", "bob"):
        editing.add(tmp_path / "passwd", user, b"secret-" + user.encode())
    (tmp_path / "acl").write_text(ACL)
    config = tmp_path / "vmq.toml"
    config.write_text(
        f"""
[listeners.tcp]
url = "tcp://127.0.0.1:0"
[listeners.flight]
url = "{GRPC}"
[streams.a]
filters = ["a/#"]
[streams.b]
filters = ["b/#"]
[plugins.vmq_passwd]
path = "{Path(vmq_passwd.__file__).parent}"
file = "{tmp_path}/passwd"
[plugins.vmq_acl]
path = "{Path(vmq_acl.__file__).parent}"
file = "{tmp_path}/acl"
"""
    )
    ann, bob = basic("ann", b"secret-ann"), basic("bob", b"secret-bob")
    with BrokerProcess.start([], tmp_path / "data", args=["--config", str(config)]) as broker:
        (url,) = (each for each in broker.urls if each.startswith("grpc://"))
        with Wire.connected(broker.tcp, "c", username="ann", password=b"secret-ann") as wire:
            wire.ask(publish_packet("a/x", b"x", qos=1, packet_id=1), PUBACK)
        with flight.connect(url) as client:
            assert act(client, "streams", ann) == {"a": ["a/#"]}
            assert read(client, "a", ann) == [b"x"]
            for stream, options in (("b", ann), ("a", bob)):
                with pytest.raises(flight.FlightUnauthorizedError, match="may not read stream"):
                    read(client, stream, options)
            with pytest.raises(flight.FlightUnauthorizedError, match="may not publish to 'b/x'"):
                stage(client, "b/x", b"x", options=ann)
            stage(client, "a/y", b"y", options=ann)
            act(client, "publish", ann, query="q", batch=0, parts=[[0, 0]])
            assert read(client, "a", ann) == [b"x", b"y"]
            for options in (None, basic("ann", b"wrong"), basic("eve", b"secret-ann")):
                with pytest.raises(flight.FlightUnauthenticatedError):
                    act(client, "streams", options)


def front_of(broker: Broker) -> FlightProcess:
    (listener,) = (each for each in broker.listeners.values() if isinstance(each, FlightListener))
    return present(listener.process)


async def test_a_process_that_dies_comes_back_at_its_address(tmp_path: Path) -> None:
    async with Broker(config_in(tmp_path, TCP, GRPC, s="s/#")) as broker:
        url = broker.addresses[1]
        for _ in range(3):
            await broker.publish("s/a", b"x" * 100_000, qos=1)
        front = front_of(broker)
        first = present(front.process)

        def use() -> None:
            with flight.connect(url) as client:
                reader = client.do_get(ticket("s"))
                reader.read_chunk()
                first.kill()
                # Who reads is told that he may try again, as when a broker restarts.
                with pytest.raises(flight.FlightUnavailableError):
                    act(client, "latest", stream="s", after={0: 3}, wait=30)
                client.wait_for_available(timeout=60)
                assert read(client, "s") == [b"x" * 100_000] * 3

        await beside(use)
        assert front.restarts == 1
        assert broker.addresses[1] == url
        await until(lambda: not broker.health())
        (found,) = (
            each for each in broker.metrics.families() if each.name == "flight_process_restarts"
        )
        assert [sample.value for sample in found.samples] == [1]


async def test_while_there_is_no_process_health_says_so(tmp_path: Path) -> None:
    async with Broker(config_in(tmp_path, TCP, GRPC, s="s/#")) as broker:
        front = front_of(broker)
        front.command = ("/nonexistent",)
        present(front.process).kill()
        await until(lambda: not front.is_serving)
        assert any("l1" in each for each in broker.health())
        front.command = COMMAND
        await until(lambda: not broker.health())


async def test_no_process_outlives_its_broker(tmp_path: Path) -> None:
    config = config_in(tmp_path, TCP, GRPC, s="s/#")
    env, folder = stream_environment({"s": 1}), Path(config.broker.data_dir)
    with BrokerProcess.start([TCP, GRPC], folder, env, ["--allow-anonymous"]) as killed:
        # What forks it, and the process itself.
        (_, front) = psutil.Process(killed.pid).children(recursive=True)
        killed.kill()
        await beside(lambda: front.wait(30))
    # What it has left behind is in nobody's way.
    async with Broker(config) as broker:
        with flight.connect(broker.addresses[1]) as client:
            assert await beside(lambda: act(client, "streams")) == {"s": ["s/#"]}
        process = present(front_of(broker).process)
    assert process.returncode == 0


@pytest.mark.parametrize(
    ("url", "advertise", "location"),
    [
        (GRPC, "", "grpc://127.0.0.1:8815"),
        ("grpc://0.0.0.0:0", "", f"grpc://{socket.gethostname()}:8815"),
        ("grpc://0.0.0.0:0", "grpc://broker.example.com:1234", "grpc://broker.example.com:1234"),
    ],
)
def test_readers_are_told_an_address_that_they_can_reach(
    url: str, advertise: str, location: str
) -> None:
    assert location_of(ListenerOptions(url=url, advertise=advertise), 8815) == location
