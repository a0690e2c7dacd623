"""Sessions and streams that go from one process to several, to other nodes, and back."""

import json
import signal
from functools import partial
from pathlib import Path
from typing import Any

from pyarrow import flight

from tests.conftest import BrokerFactory
from tests.support.until import reach
from tests.support.wire import Wire
from tests.vmq.cli.program import Program, run
from tests.vmq.workers.several import ARGS, LISTEN, Several
from vmq.testing.ports import lasting_port
from vmq.testing.process import BrokerProcess


def knows_stream(several: Several, number: int) -> bool:
    return several.ask_worker(number, "GET", "/stream", name="s")[0] == 200


def read(location: str) -> list[bytes]:
    """What a plain Arrow client reads of stream s, which knows one address."""
    with flight.connect(location) as client:
        info = client.get_flight_info(flight.FlightDescriptor.for_path("s"))
        found: list[bytes] = []
        for each in info.endpoints:
            [place] = each.locations or [location]
            with flight.connect(place) as owner:
                found += owner.do_get(each.ticket).read_all().column("payload").to_pylist()
    return sorted(found)


def follow(several: Several, expected: list[bytes]) -> None:
    """Has `vmq stream tail` show the messages of all workers, the next ones, and those after a worker's death."""
    where = ("stream", "tail", "s", "--json", "--data-dir", str(several.folder))
    done = run(*where, "--from", "earliest")
    told = sorted(json.loads(line)["payload"].encode() for line in done.out.splitlines())
    assert (done.code, done.err, told) == (0, "", expected)
    folder = ("--data-dir", str(several.folder))
    done = run("sql", "select count(*) as n from s", "--csv", *folder)
    assert (done.code, done.err, done.out.split()) == (0, "", [b"n", b"%d" % len(expected)])
    done = run("sql", "select nothing from s", *folder)
    assert (done.code, "nothing" in done.err) == (2, True)
    done = run("stream", "verify", *folder)
    assert (done.code, done.err, done.out.splitlines()[-1]) == (0, "", b"ok")
    target = several.folder / "s.parquet"
    done = run("stream", "export", "s", "--parquet", str(target), *folder)
    assert (done.code, done.err, done.out) == (0, "", f"{len(expected)} messages\n".encode())
    with Program(*where, "-f", "-n", "1") as program:
        program.wait_out("payload")
        several.kill(2)
        with Wire.connected(several.broker.tcp, "after") as wire:
            for topic in range(20):
                wire.publish(f"s/{topic}", b"after", qos=1)
        program.wait_out("after", 20)
        program.signal(signal.SIGINT)
        assert program.finish().code == 130


def test_all_go_to_several_and_back(fresh_broker: BrokerFactory, tmp_path: Path) -> None:
    first = lasting_port(2)
    places = [f"grpc://127.0.0.1:{port}" for port in (first, first + 1)]
    folder = tmp_path / "d"
    with BrokerProcess.start(data_dir=folder) as alone:
        wire = Wire.connected(alone.tcp, "was-there", clean=False)
        wire.subscribe(("a", 1))
        wire.close()
        assert alone.terminate() == 0

    memory = {"VMQ_LIMITS__MAX_MEMORY": "8000000000"}
    listen = (LISTEN[0], places[0], LISTEN[2])
    broker = fresh_broker(listen=listen, data_dir=folder, env=memory, args=ARGS)
    assert broker.urls[1] == places[0]
    several = Several(broker)
    assert [memory_limit(several, number) for number in (1, 2)] == [4_000_000_000] * 2
    publish_from_second(several, "a")
    reach(lambda: several.api("GET", "/queue", client_id="was-there")[1].get("rows"))
    wire = several.client_on(2, "of-the-second", clean=False)
    wire.subscribe(("b", 1))
    wire.close()
    publish_from_second(several, "b")
    expected = fill_stream(several)
    assert read(places[0]) == read(places[1]) == expected
    follow(several, expected)
    expected = sorted([*expected, *[b"after"] * 20])
    status, answer = several.api("GET", "/stream/tail", stream="t")
    assert (status, answer["error"]) == (404, "there is no stream 't'; there are: s")
    assert broker.terminate() == 0

    # The second worker is one too many now, and they find each other where the folder is now: sessions and partitions
    # go to the first, and then one process is enough.
    moved = folder.rename(tmp_path / "m")
    broker = fresh_broker(data_dir=moved, env=memory, args=("--node-name", "n"))
    reach(lambda: not (moved / "workers" / "2").exists())
    reach(lambda: memory_limit(Several(broker), 1) == 8_000_000_000)
    members = Several(broker).api("GET", "/cluster/members")[1]["rows"]
    [address] = [row["address"] for row in members if row["node"] == "n-1"]
    assert address.startswith(f"ipc://{moved}/")
    assert broker.terminate() == 0

    broker = fresh_broker(listen=(LISTEN[0], places[0]), data_dir=moved)
    assert not (moved / "workers").exists()
    for client in ("was-there", "of-the-second"):
        assert len(Several(broker).api("GET", "/queue", client_id=client)[1]["rows"]) == 1
    assert read(places[0]) == expected


def memory_limit(several: Several, number: int) -> int:
    """The part of `limits.max_memory` that a worker has."""
    rows = several.worker_api(number, "GET", "/metrics")["rows"]
    return int(next(row["value"] for row in rows if row["name"] == "memory_limit_bytes"))


def publish_from_second(several: Several, topic: str) -> None:
    wire = several.client_on(2, "publisher")
    wire.publish(topic, b"1", qos=1)
    wire.close()


def fill_stream(several: Several) -> list[bytes]:
    """Makes stream s, has clients of both workers publish to it, and returns what must be in it."""
    given = {"filters": ["s/#"], "partitions": 8, "key": "topic"}
    assert several.api("POST", "/stream", name="s", **given)[0] == 200
    for number in (1, 2):
        reach(partial(knows_stream, several, number))
        wire = several.client_on(number, f"p{number}")
        for topic in range(20):
            wire.publish(f"s/{topic}", f"{number} {topic}".encode(), qos=1)
        wire.close()

    def row() -> dict[str, Any]:
        [found] = several.api("GET", "/streams")[1]["rows"]
        return dict(found)

    reach(lambda: row()["messages"] == 40)
    assert (row()["owned"], row()["gathered"]) == (8, 40)
    _, shown = several.api("GET", "/stream", name="s")
    assert {part["owner"] for part in shown["partitions"]} == {"n-1", "n-2"}
    return sorted(f"{number} {topic}".encode() for number in (1, 2) for topic in range(20))


def test_workers_that_leave_the_cluster_give_all_to_the_others_and_stop(
    fresh_broker: BrokerFactory, tmp_path: Path
) -> None:
    def node(name: str, *more: str) -> tuple[str, ...]:
        return ("--node-name", name, "--cluster-listen", f"ipc://{tmp_path}/{name}", *more)

    other = fresh_broker(data_dir=tmp_path / "od", args=node("o"))
    args = ("--workers", "2", *node("n", "--join", f"ipc://{tmp_path}/o"))
    several = Several(fresh_broker(data_dir=tmp_path / "nd", args=args))

    def is_linked() -> bool:
        _, members = several.api("GET", "/cluster/members")
        return {row["node"] for row in members["rows"] if row["is_up"]} == {"n-1", "n-2", "o"}

    reach(is_linked)
    for number in (1, 2):
        wire = several.client_on(number, f"durable-{number}", clean=False)
        wire.subscribe(("a", 1))
        wire.close()
    elsewhere = Wire.connected(other.tcp, "elsewhere")

    def rows(**parameters: Any) -> list[tuple[str, str]]:
        found = several.api("GET", "/sessions", sort="client_id", **parameters)[1]["rows"]
        return [(row["client_id"], row["node"]) for row in found]

    reach(lambda: [client for client, _ in rows()] == ["durable-1", "durable-2", "elsewhere"])
    # Slots may go to where they are to be meanwhile.
    reach(lambda: rows(local="true") == [each for each in rows() if each[1] != "o"])
    assert several.api("GET", "/session", client_id="elsewhere")[1]["node"] == "o"
    assert several.api("GET", "/session", client_id="durable-2")[1]["is_online"] is False
    elsewhere.close()
    assert several.api("POST", "/cluster/leave")[1] == {"node": "n-1 n-2", "complete": True}
    assert several.broker.wait() == 0
    _, found = Several(other).api("GET", "/sessions")
    assert {row["client_id"] for row in found["rows"]} == {"durable-1", "durable-2"}
