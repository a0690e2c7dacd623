"""Programs in groups beside plain gets of the same rows: `python -m tests.bench.groups [--rows 1000000]`.

One broker, one run: what counts are the ratios. All of it is read first, by gets, so that the files are in memory.
"""

import argparse
import tempfile
import threading
import time
from pathlib import Path

import pyarrow as pa
from pyarrow import flight

import vmq.streams
from tests.bench.putting import put
from tests.vmq.streams.flight_support import ticket
from vmq.testing.process import BrokerProcess

STREAMS = """
[streams.s]
filters = ["s/#"]
partitions = 4
key = "topic"
[streams.out]
filters = ["out/#"]
"""
#: Rows of a put, and of what a member is handed at once.
_PUT = 20_000
_STEP = 2000


def fill(server: str, rows: int) -> None:
    """Rows of 100 bytes and 100 topics."""
    table = pa.record_batch(
        {
            "topic": [f"s/{number % 100}" for number in range(_PUT)],
            "payload": [
                b'{"temp": %9d, "pad": "%s"}' % (number, b"." * 70) for number in range(_PUT)
            ],
        }
    )
    put(server, "s", table, rows)


def by_gets(server: str) -> int:
    """All rows, one partition after the other."""
    with flight.connect(server) as client:
        return sum(
            client.do_get(ticket("s", partition=number)).read_all().num_rows for number in range(4)
        )


def by_members(server: str, rows: int, members: int) -> None:
    """All rows, committed as they come, by so many members."""
    done, left = threading.Event(), [rows]
    lock = threading.Lock()

    def run() -> None:
        group = vmq.streams.group("s", f"g{members}", server=server, start="earliest", rows=_PUT)
        with group as member:
            while not done.is_set():
                found = member.read(0.2)
                if found is None:
                    continue
                member.commit()
                with lock:
                    left[0] -= found.num_rows
                    if left[0] <= 0:
                        done.set()

    threads = [threading.Thread(target=run) for _ in range(members)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()


def exactly_once(server: str, rows: int) -> None:
    """Each row is published again, in steps."""
    with vmq.streams.group("s", "once", server=server, start="earliest", rows=_STEP) as member:
        while rows > 0:
            found = member.read()
            assert found is not None
            member.commit([("out/1", each) for each in found.column("payload").to_pylist()])
            rows -= found.num_rows


def main() -> None:
    """Measures, and prints rows a second."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    rows = parser.parse_args().rows // _PUT * _PUT
    with tempfile.TemporaryDirectory() as name:
        config = Path(name) / "vmq.toml"
        config.write_text(STREAMS)
        args = ("--config", str(config), "--allow-anonymous")
        listen = ("tcp://127.0.0.1:0", "grpc://127.0.0.1:0")
        with BrokerProcess.start(listen, Path(name) / "data", args=args) as broker:
            server = broker._url("grpc")
            fill(server, rows)
            assert by_gets(server) == rows
            began = time.perf_counter()
            by_gets(server)
            base = rows / (time.perf_counter() - began)
            print(f"gets              {base:12,.0f} rows a second")
            for members in (1, 4):
                began = time.perf_counter()
                by_members(server, rows, members)
                rate = rows / (time.perf_counter() - began)
                print(
                    f"{members} members         {rate:12,.0f} rows a second, {rate / base:.2f} of gets"
                )
            part = min(rows, 20 * _STEP)
            began = time.perf_counter()
            exactly_once(server, part)
            rate = part / (time.perf_counter() - began)
            print(f"published as well {rate:12,.0f} rows a second, {_STEP} a step")


if __name__ == "__main__":
    main()
