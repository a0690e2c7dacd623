"""What messages cost that many durable sessions get while they are away: python -m tests.bench.offline_fanout

All sessions are subscribed to one topic, and leave. Then a publisher sends at QoS 1, each burst after the PUBACKs of
the one before: a message has one body in the store and a place in the queue of each session. CPU is the broker's, of
the event loop and of its other threads, for each place. On the disk counts what the store's folder has once the broker
has ended, against the entries that it holds: their keys and values.
"""

import argparse
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from pathlib import Path

import plyvel

from tests.bench.durable import Measured, Peer, Watch
from tests.support.wire import publish_packet
from vmq import is_compiled
from vmq.testing.process import BrokerProcess

TOPIC = "bench/all"
#: Connections at a time.
GROUP = 100
#: Messages of a burst.
BURST = 20


def groups(numbers: Sequence[int]) -> Iterator[Sequence[int]]:
    return (numbers[start : start + GROUP] for start in range(0, len(numbers), GROUP))


def away(broker: BrokerProcess, sessions: int) -> None:
    """Makes the sessions, and has them leave."""
    for numbers in groups(range(sessions)):
        with ExitStack() as stack:
            for number in numbers:
                peer = Peer(broker.tcp, f"session-{number}", clean=False)
                stack.callback(peer.close)
                peer.subscribe(TOPIC)


def publish(broker: BrokerProcess, messages: int, payload: int, places: int) -> Measured:
    """Sends all messages; they are done with their PUBACKs."""
    publisher = Peer(broker.tcp, "publisher", clean=True)
    watch = Watch(broker.pid)
    for first in range(0, messages, BURST):
        count = min(BURST, messages - first)
        frames = [
            publish_packet(TOPIC, b"%0*d" % (payload, first + each), qos=1, packet_id=1 + each)
            for each in range(count)
        ]
        publisher.socket.sendall(b"".join(frames))
        left = count
        while left:
            left -= publisher.take_acks()
    measured = watch.stop(places)
    publisher.close()
    return measured


def sizes(folder: Path) -> tuple[int, int, int]:
    """Of a store whose broker has ended: bytes on the disk, bytes of its entries, queued messages."""
    disk = sum(each.stat().st_size for each in folder.rglob("*") if each.is_file())
    content = queued = 0
    with closing(plyvel.DB(str(folder / "store"))) as db:
        for key, value in db.iterator():
            content += len(key) + len(value)
            queued += len(key) == 17 and key[:1] == b"q"
    return disk, content, queued


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--sessions", type=int, default=1_000)
    parser.add_argument("--messages", type=int, default=1_000, help="that each session gets")
    parser.add_argument("--payload", type=int, default=256, help="bytes")
    parser.add_argument("--durability", default="os", metavar="HOW")
    options = parser.parse_args()
    assert options.sessions >= GROUP
    folder = Path(tempfile.mkdtemp())
    env = {"VMQ_STORE__DURABILITY": options.durability, "VMQ_QUEUE__MAX_OFFLINE_MESSAGES": "-1"}
    places = options.sessions * options.messages
    try:
        with BrokerProcess.start(env=env, data_dir=folder, args=("--allow-anonymous",)) as broker:
            away(broker, options.sessions)
            measured = publish(broker, options.messages, options.payload, places)
        disk, content, queued = sizes(folder)
    finally:
        shutil.rmtree(folder)
    assert queued == places, f"{queued} of {places} messages are queued"
    copies = places * (len(TOPIC) + options.payload)
    print(
        f"{'compiled' if is_compiled() else 'interpreted'}, {options.messages:,} messages for "
        f"{options.sessions:,} sessions, payload {options.payload} B, durability {options.durability}\n"
        f"{measured.rate:,.0f} places a second, CPU of each: loop {measured.loop:.2f} µs, "
        f"others {measured.others:.2f} µs\n"
        f"on disk {disk / places:.1f} B a place, {disk / content:.2f} times the entries, "
        f"{disk / copies:.3f} times what as many copies had"
    )


if __name__ == "__main__":
    main()
