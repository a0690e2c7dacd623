"""What lies in a bucket is read by each reader as what lies here; the bucket is moto's."""

import json
import os
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from pyarrow import flight, fs
from pyspark_vmq.client import Client
from pyspark_vmq.options import Connection

import vmq.streams
from tests.clients.client import BY_NAME
from tests.clients.mosquitto import MosquittoClient
from tests.support.until import reach
from tests.support.wire import PUBACK, Wire, publish_packet
from tests.vmq.streams.flight_support import act
from tests.vmq.streams.support import Clock, make, put, read_all, rows_from
from vmq.cli.main import main
from vmq.streams.log.archive import RecallingError, in_a_hurry
from vmq.streams.tidying.janitor import Janitor
from vmq.testing.process import BrokerProcess

MANY = 60
AWS = {
    "AWS_ACCESS_KEY_ID": "testing",
    "AWS_SECRET_ACCESS_KEY": "a-secret-of-the-bucket",
    "AWS_EC2_METADATA_DISABLED": "true",
}


@pytest.fixture(scope="module")
def bucket() -> Iterator[str]:
    """The address of a server of S3 that has the bucket `history`."""
    from moto.server import ThreadedMotoServer  # slow

    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    before = {name: os.environ.get(name) for name in AWS}
    os.environ.update(AWS)
    try:
        store_of(f"{host}:{port}").create_dir("history")
        yield f"{host}:{port}"
    finally:
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})
        server.stop()


def store_of(address: str) -> fs.S3FileSystem:
    return fs.S3FileSystem(
        endpoint_override=address, scheme="http", region="us-east-1", allow_bucket_creation=True
    )


def objects(address: str) -> list[str]:
    found = store_of(address).get_file_info(fs.FileSelector("history", recursive=True))
    return sorted(each.path for each in found if each.is_file)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory, bucket: str) -> Iterator[BrokerProcess]:
    """Most of a stream's segments are in the bucket, and were deleted here."""
    folder = tmp_path_factory.mktemp("archive")
    config = folder / "vmq.toml"
    config.write_text(
        f"""
        [streams.s]
        filters = ["s/#"]
        segment_bytes = 65536
        retention_bytes = 65536
        compression = "none"
        archive = "s3://history/vmq?region=us-east-1&endpoint=http://{bucket}"
        """
    )
    args = ("--config", str(config), "--allow-anonymous")
    listen = ("tcp://127.0.0.1:0", "grpc://127.0.0.1:0")
    with BrokerProcess.start(listen, folder / "data", args=args, env=AWS) as broker:
        with Wire.connected(broker.tcp, "devices") as wire:
            for number in range(MANY):
                payload = b"%04d" % number + b"." * 8000
                wire.ask(publish_packet(f"s/{number % 3}", payload, qos=1, packet_id=1), PUBACK)
        broker.wait_count(6, r"archived .* to s3://history/vmq$")
        yield broker


def test_segments_are_in_the_bucket(broker: BrokerProcess, bucket: str) -> None:
    assert len(objects(bucket)) >= 6
    assert all(each.startswith("history/vmq/stream=s/date=2") for each in objects(bucket))
    with flight.connect(broker._url("grpc")) as client:
        assert act(client, "earliest", stream="s") == {"0": 0}
        assert act(client, "latest", stream="s") == {"0": MANY}
    folder = broker.data_dir / "streams" / "s" / "0"
    reach(lambda: len(list(folder.glob("*.arrows"))) < 5)  # each goes once it is archived


def numbers(payloads: list[bytes]) -> list[int]:
    return [int(each[:4]) for each in payloads]


def test_flight(broker: BrokerProcess) -> None:
    with flight.connect(broker._url("grpc")) as client:
        ticket = flight.Ticket(json.dumps({"stream": "s"}).encode())
        table = client.do_get(ticket).read_all()
        assert numbers(table.column("payload").to_pylist()) == list(range(MANY))
        moment = table.column("timestamp").cast("int64")[10].as_py()
        assert act(client, "by-timestamp", stream="s", time=moment) == {"0": 10}


def test_history_over_mqtt(broker: BrokerProcess) -> None:
    with closing(MosquittoClient(BY_NAME["mosquitto"], "history", broker.tcp)) as client:
        topic = "$replay/earliest/s/#"
        assert client.open(((topic, 1),), clean=True, keepalive=60, will=None) == [1]
        assert numbers([each.payload for each in client.receive(MANY)]) == list(range(MANY))


def test_a_group(broker: BrokerProcess) -> None:
    server = broker._url("grpc")
    found: list[bytes] = []
    with vmq.streams.group("s", "g", server=server, start="earliest", rows=7) as member:
        while len(found) < MANY:
            rows = member.read()
            assert rows is not None
            found += rows.column("payload").to_pylist()
    assert numbers(found) == list(range(MANY))


def test_sql(broker: BrokerProcess, capsys: pytest.CaptureFixture[str]) -> None:
    query = "select topic, count(*) as n from s group by topic order by topic"
    assert main(["sql", query, "--json", "--data-dir", str(broker.data_dir)]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert rows == [{"topic": f"s/{at}", "n": MANY // 3} for at in range(3)]


def test_tail(broker: BrokerProcess, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["stream", "tail", "s", "--from", "earliest", "-n", "5", "--json"]
    assert main([*command, "--data-dir", str(broker.data_dir)]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [each["offset"] for each in rows] == list(range(5))


def test_spark_reads_the_files_that_were_fetched(broker: BrokerProcess) -> None:
    """As Spark's source does it, without Spark: gets, and files of the broker's machine."""
    client = Client(Connection(broker._url("grpc")))
    found: list[bytes] = []
    for rows, _ in client.read({"stream": "s", "partition": 0, "start": 0}):
        found += rows.column("payload").to_pylist()
    assert numbers(found) == list(range(MANY))


def test_credentials_stand_nowhere(broker: BrokerProcess, tmp_path: Path) -> None:
    secret = AWS["AWS_SECRET_ACCESS_KEY"]
    assert secret not in broker.stderr_text()
    for path in (broker.data_dir / "streams").rglob("*.json"):
        assert secret not in path.read_text()
    (tmp_path / "vmq.toml").write_text(
        '[streams.s]\nfilters = ["s"]\narchive = "s3://key:word@history/vmq"\n'
    )
    assert main(["config", "check", "--config", str(tmp_path / "vmq.toml")]) != 0


def test_what_a_rule_of_the_bucket_deletes_is_out_of_range(bucket: str, tmp_path: Path) -> None:
    clock = Clock()
    url = f"s3://history/ruled?region=us-east-1&endpoint=http://{bucket}"
    partition = make(tmp_path / "ruled" / "0", clock, retention_age="1h", archive=url)
    for first in (0, 5, 10):
        put(partition, rows_from(first, 5))
        partition.roll()
    janitor = Janitor(lambda: [partition])
    clock.now += 7200
    janitor.tidy()
    oldest = next(each for each in objects(bucket) if each.startswith("history/ruled/"))
    store_of(bucket).delete_file(oldest)
    with in_a_hurry(), pytest.raises(RecallingError, match="try again"):
        read_all(partition, 3)
    janitor.tidy()
    assert partition.earliest == 5
    assert read_all(partition) == rows_from(5, 10)
