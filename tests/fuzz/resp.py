"""Attacks on the listener of jobs of a live broker, each made from its number.

`python -m tests.fuzz.resp --seconds 600` runs for that long; `--first N --count M` replays.
"""

import argparse
import contextlib
import socket
from itertools import pairwise
from random import Random
from time import monotonic
from typing import Any, Final
from urllib.parse import urlsplit

import redis

from tests.fuzz.sockets import Failed
from vmq.bench.load.usage import resident
from vmq.testing.process import BrokerProcess

LISTEN: Final = ("resp://127.0.0.1:0",)
#: Little memory for jobs, so that it is used up.
ENV: Final = {
    "VMQ_LIMITS__MAX_JOB_MEMORY": str(8 << 20),
    "VMQ_LIMITS__MAX_JOB_SIZE": str(1 << 20),
    "VMQ_LIMITS__MAX_JOB_QUEUES": "2000",
    "VMQ_LOG__FLOOD_LIMIT": "0",
    "VMQ_LOG__LEVEL": "warning",
}
#: What the broker may grow by: jobs up to their limit, replies that nobody reads, and what the allocator keeps.
GROWTH: Final = 64 << 20
#: Where the others work; no attack names it.
HEALTHY: Final = "healthy-7f3a"

NAMES: Final = (
    *(b"ADDJOB", b"ADDJOBS", b"GETJOB", b"ACKJOB", b"FASTACK", b"NACK", b"WORKING", b"ENQUEUE"),
    *(b"DEQUEUE", b"DELJOB", b"SHOW", b"QLEN", b"QPEEK", b"QSTAT", b"QSCAN", b"JSCAN", b"PAUSE"),
    *(b"HELLO", b"INFO", b"AUTH", b"PING", b"ECHO", b"CLIENT", b"COMMAND", b"CONFIG", b"CLUSTER"),
    *(b"SELECT", b"DEBUG", b"SHUTDOWN", b"QUIT", b"bogus", b""),
)
WORDS: Final = (
    *(b"q", b"q2", b"q!dead", b"$delayed", b"x\0y", b"0", b"1", b"-1", b"99999999999999999999"),
    *(b"FROM", b"COUNT", b"NOHANG", b"TIMEOUT", b"WITHCOUNTERS", b"JOBS", b"REPLICATE", b"DELAY"),
    *(b"RETRY", b"TTL", b"MAXLEN", b"ASYNC", b"PRIORITY", b"KEY", b"STATE", b"queued", b"REPLY"),
    *(b"all", b"in", b"out", b"none", b"bcast", b"GET", b"SET", b"*" * 60, b"LIST", b"NODES"),
    b"D-00000000-LYyQMK4fgYJLigrQnwiD1GW2-05a1",
)
#: Headers that say more than ever comes.
HUGE: Final = (
    b"*1000000000\r\n",
    b"*2\r\n$4\r\nECHO\r\n$536870912\r\n",
    b"*3\r\n$6\r\nADDJOB\r\n$1\r\nq\r\n$1048576\r\n",
    b"*1024\r\n" + b"$1048576\r\n",
    b"*1024\r\n" + b"$1\r\nx\r\n" * 1023,
    b"*-5\r\n$-5\r\n",
    b"x" * 70_000,
    b'ADDJOB q "' + b"\\x41" * 5000,
)


def command(random: Random) -> bytes:
    """A command of any words, by lengths or as a line."""
    words = [random.choice(NAMES)]
    for _ in range(min(int(random.expovariate(0.2)), 1200)):
        size = random.choice((0, 1, 30, 2000))
        words.append(random.choice(WORDS) if random.random() < 0.8 else random.randbytes(size))
    if random.random() < 0.2:
        return b" ".join(words).replace(b"\n", b" ") + b"\r\n"
    found = b"*%d\r\n" % len(words)
    return found + b"".join(b"$%d\r\n%b\r\n" % (len(each), each) for each in words)


def attack(number: int) -> list[bytes]:
    """What one connection sends, in its pieces."""
    random = Random(number)
    data = b"".join(command(random) for _ in range(random.randrange(1, 30)))
    how = random.randrange(6)
    if how == 0:
        data += random.choice(HUGE)
    elif how == 1:
        at = random.randrange(len(data))
        data = data[:at] + random.randbytes(random.randrange(1, 20)) + data[at:]
    elif how == 2:
        data = data[: random.randrange(len(data) + 1)]
    elif how == 3:
        data = b"QPEEK q 1000\r\n" * random.randrange(500) + data
    cuts = sorted(random.randrange(len(data) + 1) for _ in range(random.randrange(4)))
    places = [0, *cuts, len(data)]
    return [data[a:b] for a, b in pairwise(places)]


class Campaign:
    """A broker, a client that works on it, and attacks one after the other."""

    def __init__(self, broker: BrokerProcess, first: int) -> None:
        self.broker = broker
        self.first = self.number = first
        self.port = urlsplit(broker.urls[0]).port or 0
        self.healthy: Any = redis.Redis(port=self.port, socket_timeout=30)  # no types for commands
        self.works()
        self.before = resident(broker.pid)
        #: Connections that stay open, and read nothing.
        self.open: list[socket.socket] = []

    def run(self) -> None:
        """One attack, after which all is as it was for the others."""
        sock = socket.create_connection(("127.0.0.1", self.port), timeout=30)
        self.open.append(sock)
        with contextlib.suppress(OSError):
            sock.setblocking(False)
            for piece in attack(self.number):
                sock.send(piece)
        if len(self.open) > 20:
            self.open.pop(0).close()
        self.number += 1
        if self.number % 20 == 0:
            self.works()
            self.check_memory()

    def works(self) -> None:
        """Somebody else adds, gets and acknowledges; where memory is used up he is told so."""
        do = self.healthy.execute_command
        try:
            try:
                job_id = do("ADDJOB", HEALTHY, "x", 0)
            except redis.exceptions.OutOfMemoryError:
                for queue in do("QSCAN", 0, "BUSYLOOP", "MINLEN", 1)[1]:
                    while found := do("GETJOB", "NOHANG", "COUNT", 1000, "FROM", queue):
                        do("FASTACK", *[each[1] for each in found])
                    do("PAUSE", queue, "none")
                job_id = do("ADDJOB", HEALTHY, "x", 0)
            ((_, found_id, body),) = do("GETJOB", "NOHANG", "FROM", HEALTHY)
            assert (found_id, body) == (job_id, b"x")
            assert do("ACKJOB", job_id) == 1
        except (redis.RedisError, AssertionError, ValueError) as error:
            raise Failed(self.recipe(f"nobody is served any more: {error!r}")) from error

    def check_memory(self) -> None:
        grown = resident(self.broker.pid) - self.before
        if grown > GROWTH:
            raise Failed(self.recipe(f"memory grew by {grown >> 20} MiB"))

    def recipe(self, what: str) -> str:
        count = self.number - self.first
        return f"{what}: python -m tests.fuzz.resp --first {self.first} --count {count}"

    def end(self) -> None:
        """All is as it was for the others, and the broker stops in order."""
        self.works()
        self.check_memory()
        for sock in self.open:
            sock.close()
        self.healthy.close()
        assert self.broker.terminate() == 0
        assert "Traceback" not in self.broker.stderr_text()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument("--count", type=int, default=1 << 60)
    parser.add_argument("--seconds", type=float, default=float("inf"))
    options = parser.parse_args()
    end = monotonic() + options.seconds
    with BrokerProcess.start(LISTEN, env=ENV) as broker:
        campaign = Campaign(broker, options.first)
        while campaign.number < options.first + options.count and monotonic() < end:
            campaign.run()
        grown = (resident(broker.pid) - campaign.before) >> 20
        campaign.end()
    print(f"{campaign.number - options.first} attacks, {grown} MiB more at the end")


if __name__ == "__main__":
    main()
