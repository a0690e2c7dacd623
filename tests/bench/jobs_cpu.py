"""Broker CPU for a whole job (added, taken, acknowledged), beside a list of Redis in the same run.

`python -m tests.bench.jobs_cpu` prints a table: microseconds of CPU a job in alternating rounds, and the median of
the ratios. The work on the list is what a queue on Redis does that loses nothing: RPUSH, LMOVE to a second list, LREM.
It is the CPU time of the server's process that counts, so the speed of this client does not matter.
"""

import argparse
import socket
import statistics
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.bench.tls_cpu import Meter, received
from tests.support.servers import redis
from vmq.testing.process import BrokerProcess

BODY = b"x" * 16
PERSISTENCE = ("off", "os")


@contextmanager
def vmq(folder: Path) -> Iterator[tuple[int, int]]:
    """Process id and port of a broker."""
    config = folder / "vmq.toml"
    queues = "".join(f'[jobs.{each}]\npersistence = "{each}"\n' for each in PERSISTENCE)
    config.write_text(
        '[listeners.a]\nurl = "tcp://127.0.0.1:0"\nallow_anonymous = true\n'
        f'[listeners.b]\nurl = "resp://127.0.0.1:0"\nallow_anonymous = true\n{queues}'
    )
    with BrokerProcess.start((), folder / "data", None, ("--config", str(config))) as broker:
        (url,) = (each for each in broker.urls if each.startswith("resp"))
        yield broker.pid, int(url.rpartition(":")[2])


def command(*words: bytes) -> bytes:
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%b\r\n" % (len(w), w) for w in words)


class Cycle:
    """A connection that has batches of jobs done."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.settimeout(60)

    def ask(self, commands: bytes, lines: int) -> list[bytes]:
        """Sends commands; the lines of their replies."""
        self.socket.sendall(commands)
        found = b""
        while found.count(b"\r\n") < lines:
            found += received(self.socket)
        assert b"-" not in (found[:1], found[-6:-5]), found[:200]
        return found.split(b"\r\n")

    def jobs(self, queue: bytes, batch: int, add: bytes = b"") -> None:
        """Of a broker: the reply to GETJOB has eight lines, the sixth is the id."""
        self.ask((add or command(b"ADDJOB", queue, BODY, b"0")) * batch, batch)
        taken = self.ask(command(b"GETJOB", b"FROM", queue) * batch, 8 * batch)
        done = b"".join(command(b"ACKJOB", each) for each in taken[5 : 8 * batch : 8])
        assert self.ask(done, batch)[:batch] == [b":1"] * batch

    def items(self, _queue: bytes, batch: int) -> None:
        """Of a list."""
        self.ask(command(b"RPUSH", b"q", BODY) * batch, batch)
        self.ask(command(b"LMOVE", b"q", b"w", b"LEFT", b"RIGHT") * batch, 2 * batch)
        assert (
            self.ask(command(b"LREM", b"w", b"1", BODY) * batch, batch)[:batch] == [b":1"] * batch
        )


def measure(pid: int, port: int, queue: str, jobs: int, batch: int) -> float:
    """Microseconds of CPU a job; without a queue those of a list."""
    cycle = Cycle(port)
    work = cycle.jobs if queue else cycle.items
    with cycle.socket:
        work(queue.encode(), batch)
        with (meter := Meter(pid)):
            for _ in range(jobs // batch):
                work(queue.encode(), batch)
    return meter.spent / jobs * 1e6


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--jobs", type=int, default=50_000)
    options = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as folder,
        vmq(Path(folder)) as broker,
        redis(Path(folder)) as other,
    ):
        for batch in (50, 1):
            jobs = options.jobs if batch > 1 else options.jobs // 5
            rounds = [
                [measure(*other, "", jobs, batch)]
                + [measure(*broker, each, jobs, batch) for each in PERSISTENCE]
                for _ in range(options.rounds)
            ]
            print(
                f"{batch} at a time: redis {statistics.median(each[0] for each in rounds):.2f} us"
            )
            for place, name in enumerate(PERSISTENCE, 1):
                cost = statistics.median(each[place] for each in rounds)
                ratio = statistics.median(each[place] / each[0] for each in rounds)
                print(f"    persistence {name}: {cost:.2f} us, {ratio:.2f} times that")


if __name__ == "__main__":
    main()
