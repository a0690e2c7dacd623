"""What it costs that many durable sessions are back after a restart, or end: python -m tests.bench.returning

Each session subscribes to a topic of its own and leaves; messages come for all; the broker starts anew. Then

    created     they come back in the order of their creation, and take their messages
    reversed    the same from the last to the first
    shuffled    the same in any order
    ended       each begins anew with a clean session instead, and what is left of it is deleted

each in a broker of its own with the same store. CPU is the broker's: of the event loop, and of its other threads.
Before that: by how much its resident set has grown for a message that waits, and when it is ready with that store.
"""

import argparse
import random
import re
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from time import perf_counter, sleep

import plyvel

from tests.bench.durable import Measured, Peer, Watch
from tests.support.wire import PINGREQ_BYTES, publish_packet
from vmq import is_compiled
from vmq.bench.load.usage import resident
from vmq.testing.process import BrokerProcess

ORDERS = ("created", "reversed", "shuffled", "ended")
PINGRESP = b"\xd0\x00"
PUBACK = b"\x40\x02"
PAYLOAD = b"x" * 64

#: Connections at a time.
GROUP = 100


def topic(number: int) -> str:
    return f"bench/{number:07}"


def groups(numbers: Sequence[int]) -> Iterator[Sequence[int]]:
    return (numbers[start : start + GROUP] for start in range(0, len(numbers), GROUP))


def start(folder: Path) -> BrokerProcess:
    return BrokerProcess.start(data_dir=folder, args=("--allow-anonymous",), timeout=600.0)


def prepare(folder: Path, sessions: int, messages: int) -> float:
    """Makes the sessions, and what waits for them; returns the bytes of memory that a message takes."""
    frames = [publish_packet(topic(each), PAYLOAD, qos=1, packet_id=1) for each in range(sessions)]
    with start(folder) as broker:
        for each in range(sessions):
            peer = Peer(broker.tcp, f"session-{each}", clean=False)
            peer.subscribe(topic(each))
            peer.close()
        publisher, before = Peer(broker.tcp, "publisher", clean=True), resident(broker.pid)
        for _ in range(messages):
            for numbers in groups(range(sessions)):
                publisher.socket.sendall(b"".join(frames[each] for each in numbers))
                left = len(numbers)
                while left:
                    left -= publisher.take_acks()
        publisher.close()
        return (resident(broker.pid) - before) / (sessions * messages)


def come_back(broker: BrokerProcess, numbers: Iterable[int], messages: int) -> None:
    """A group connects, takes its messages, and leaves when the broker has its acknowledgements."""
    with ExitStack() as stack:
        peers = []
        for each in numbers:
            peer = Peer(broker.tcp, f"session-{each}", clean=False)
            stack.callback(peer.close)
            peers.append((peer, publish_packet(topic(each), PAYLOAD, qos=1, packet_id=1)))
        for peer, frame in peers:
            peer.take_frames(frame, b"")
            while peer.received < messages:
                peer.take_frames(frame, peer.recv())
            peer.socket.sendall(PINGREQ_BYTES)
        for peer, _ in peers:
            answer = peer.rest
            while len(answer) < len(PINGRESP):
                answer += peer.recv()
            assert answer == PINGRESP, "nothing came twice"


def end(broker: BrokerProcess, numbers: Iterable[int]) -> None:
    for each in numbers:
        Peer(broker.tcp, f"session-{each}", clean=True).close()


def measure(folder: Path, order: str, sessions: int, messages: int) -> tuple[float, Measured]:
    """Lets all sessions of a store come back, or end; also after how many seconds the broker was ready."""
    numbers = list(range(sessions))
    if order == "reversed":
        numbers.reverse()
    elif order == "shuffled":
        random.Random(1).shuffle(numbers)
    begun = perf_counter()
    with start(folder) as broker:
        ready = perf_counter() - begun
        watch = Watch(broker.pid)
        for part in groups(numbers):
            if order == "ended":
                end(broker, part)
            else:
                come_back(broker, part, messages)
        if order == "ended":
            while not is_quiet(broker):
                pass
        return ready, watch.stop(sessions)


def is_quiet(broker: BrokerProcess) -> bool:
    """Whether the event loop has done nothing to speak of for a while."""
    watch = Watch(broker.pid)
    sleep(0.5)
    return watch.stop(1).loop < 50_000


def left_in(folder: Path) -> int:
    """Queue entries that a store holds, whose broker has stopped."""
    db = plyvel.DB(str(folder / "store"))
    try:
        return sum(
            len(key) == 17 and re.match(b"[qi]", key) is not None
            for key in db.iterator(include_value=False)
        )
    finally:
        db.close()


def main() -> None:
    """Measures and prints a table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--sessions", type=int, default=18_000)
    parser.add_argument("--messages", type=int, default=3, help="that wait for each")
    parser.add_argument("--orders", nargs="+", choices=ORDERS, default=ORDERS)
    options = parser.parse_args()
    print(
        f"{'compiled' if is_compiled() else 'interpreted'}, {options.sessions:,} sessions, "
        f"{options.messages} messages each\n"
        f"{'':<12}{'ready s':>10}{'seconds':>10}{'loop s':>10}{'others s':>10}{'µs a session':>14}{'left':>8}"
    )
    with tempfile.TemporaryDirectory() as scratch:
        stored = Path(scratch) / "stored"
        grown = prepare(stored, options.sessions, options.messages)
        print(f"{grown:.0f} bytes a message that waits", flush=True)
        for order in options.orders:
            folder = Path(scratch) / order
            shutil.copytree(stored, folder)
            ready, found = measure(folder, order, options.sessions, options.messages)
            loop, others = (each * options.sessions / 1e6 for each in (found.loop, found.others))
            print(
                f"{order:<12}{ready:>10.2f}{found.seconds:>10.2f}{loop:>10.2f}{others:>10.2f}{found.loop:>14.0f}"
                f"{left_in(folder):>8}",
                flush=True,
            )
            shutil.rmtree(folder)


if __name__ == "__main__":
    main()
