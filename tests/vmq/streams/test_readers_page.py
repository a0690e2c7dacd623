"""What docs/readers.md shows works: the same hour of data, read in each of its ways."""

import asyncio
import re
import tomllib
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from tests.clients.client import BY_NAME
from tests.clients.mosquitto import MosquittoClient
from tests.support.pages import blocks, ran
from tests.support.wire import PUBACK, PUBLISH, SUBACK, Wire, publish_packet, subscribe_packet
from vmq.cli.main import main
from vmq.config.listeners import problems_of
from vmq.config.options import ListenerOptions, StreamOptions
from vmq.testing.process import BrokerProcess

PAGE = Path(__file__).parents[3] / "docs" / "readers.md"
MANY = 40

pytestmark = pytest.mark.skipif(not PAGE.is_file(), reason="the page is in the repository only")


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """The configuration of the page, and readings of four devices."""
    folder = tmp_path_factory.mktemp("readers")
    config = folder / "vmq.toml"
    config.write_text("\n".join(blocks(PAGE, "toml")).replace(":8815", ":0"))
    args = ("--config", str(config), "--allow-anonymous")
    listen = ("tcp://127.0.0.1:0", "grpc://127.0.0.1:0")
    with BrokerProcess.start(listen, folder / "data", args=args) as broker:
        with Wire.connected(broker.tcp, "devices") as wire:
            for number in range(MANY):
                payload = b'{"temp": %d}' % number
                wire.send(publish_packet(f"sensors/d{number % 4}", payload, qos=1, packet_id=1))
                wire.expect(PUBACK)
        yield broker


MEANS = [(f"d{at}", sum(range(at, MANY, 4)) / 10, 10) for at in range(4)]


def test_the_configuration_is_valid() -> None:
    found = tomllib.loads(blocks(PAGE, "toml")[0])
    stream = msgspec.convert(found["streams"]["sensors"], StreamOptions)
    assert [each.name for each in stream.typed] == ["device", "temp"]
    listener = msgspec.convert(found["listeners"]["flight"], ListenerOptions)
    assert list(problems_of(listener, listener.endpoint)) == []


@pytest.mark.parametrize("block", [0, 1, 2])
def test_mqtt(broker: BrokerProcess, block: int) -> None:
    """The filters of the commands, by mosquitto_sub."""
    (topic,) = re.findall(r"-t '([^']+)'", blocks(PAGE, "sh")[block])
    with closing(MosquittoClient(BY_NAME["mosquitto"], f"page-{block}", broker.tcp)) as client:
        assert client.open(((topic, 1),), clean=True, keepalive=60, will=None) == [1]
        found = client.receive(MANY)
    assert sorted(int(each.payload[9:-1]) for each in found) == list(range(MANY))
    for at in range(4):
        of_device = [each.payload for each in found if each.topic == f"sensors/d{at}"]
        assert of_device == [b'{"temp": %d}' % number for number in range(at, MANY, 4)]


def test_python(broker: BrokerProcess) -> None:
    found = ran(PAGE, "last_hour")["last_hour"](broker._url("grpc"))
    assert sorted(found.column("temp").to_pylist()) == [float(number) for number in range(MANY)]
    assert found.schema.names == ["device", "temp"]


def test_groups(broker: BrokerProcess) -> None:
    names = ran(PAGE, "streams.group(")
    server = broker._url("grpc")
    found = names["consume"](server, MANY)
    payloads = [each for rows in found for each in rows.column("payload").to_pylist()]
    assert sorted(int(each[9:-1]) for each in payloads) == list(range(MANY))
    with Wire.connected(broker.tcp, "alarmed") as alarmed:
        alarmed.ask(subscribe_packet(1, ("alarms/#", 0)), SUBACK)
        names["alarms"](server, MANY)
        hot = [int(alarmed.expect(PUBLISH).payload[9:-1]) for _ in range(MANY - 30)]
    assert sorted(hot) == list(range(30, MANY))


def test_mapping(broker: BrokerProcess) -> None:
    """What is hot is a job, once."""
    with Wire.connected(broker.tcp, "worker") as worker:
        worker.ask(subscribe_packet(1, ("$jobs/inspect;prefetch=50", 1)), SUBACK)
        hot = [int(worker.expect(PUBLISH).payload[9:-1]) for _ in range(MANY - 30)]
    assert sorted(hot) == list(range(30, MANY))


def test_sql(broker: BrokerProcess, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    query = blocks(PAGE, "sql")[0]
    assert main(["sql", query, "--json", "--data-dir", str(broker.data_dir)]) == 0
    rows = [msgspec.json.decode(line) for line in capsys.readouterr().out.splitlines()]
    assert [(row["device"], row["mean"], row["n"]) for row in rows] == MEANS
    for line in blocks(PAGE, "sh")[3].splitlines():
        found = re.match(r'vmq sql "([^"]+)" ?(.*)', line)
        assert found is not None
        rest = [
            str(tmp_path / each) if each.endswith(".parquet") else each for each in found[2].split()
        ]
        assert main(["sql", found[1], *rest, "--data-dir", str(broker.data_dir)]) == 0
    assert (tmp_path / "sensors.parquet").is_file()


def test_flight_sql(broker: BrokerProcess) -> None:
    found = ran(PAGE, "adbc")["rates"](broker._url("grpc"), "anybody", "")
    assert found.to_pylist() == [{"device": f"d{at}", "n": 10} for at in range(4)]


def test_groups_with_asyncio(broker: BrokerProcess) -> None:
    """The last one: it publishes."""
    names = ran(PAGE, "async with", {'"reports"': '"others"'})
    server = broker._url("grpc")

    async def run() -> int:
        consuming = asyncio.create_task(names["consume_async"](server, 1))
        # A group that is new begins with what comes.
        with Wire.connected(broker.tcp, "other-device") as wire:
            while not consuming.done():
                wire.ask(publish_packet("sensors/late", b"{}", qos=1, packet_id=1), PUBACK)
                await asyncio.sleep(0.01)
        return int(await consuming)

    assert asyncio.run(run()) >= 1
