"""Broker CPU for each message over TLS, beside mosquitto in the same run.

`python -m tests.bench.tls_cpu` prints a table. Both brokers get the same certificate, the same
client and the same messages, in alternating rounds; what counts is the CPU time of the broker's
process, so that the client's own speed is of no consequence.

`burst`: pairs of a publisher and a subscriber, messages in pieces of 64 KiB, as much under way as a
window allows. `single`: one message at a time from each of 50 publishers to its subscriber.
`thousand`: one message at a time from each of 1000 connections, which comes back to it.
`connect`: a handshake and a CONNECT. `--scheme tcp` is the same without TLS.
"""

import argparse
import socket
import ssl
import statistics
import tempfile
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path

from tests.support import servers
from tests.support.byte_streams import SocketStream
from tests.support.wire import Wire, publish_packet
from vmq.testing.authority import Authority, IssuedCertificate
from vmq.testing.process import BrokerProcess

PAYLOAD = b"x" * 64
WINDOW = 2000


@contextmanager
def vmq(folder: Path, server: IssuedCertificate, scheme: str) -> Iterator[tuple[int, int]]:
    """Process id and port of a vmq with a TLS listener."""
    config = folder / "vmq.toml"
    files = f'certfile = "{server.certfile}"\nkeyfile = "{server.keyfile}"\n' * (scheme == "tls")
    config.write_text(
        f'[listeners.a]\nurl = "{scheme}://127.0.0.1:0"\n{files}'
        '[log]\nlevel = "warning"\n[queue]\nmax_online_messages = -1\n'
    )
    with BrokerProcess.start((), folder / "data", None, ("--config", str(config))) as broker:
        yield broker.pid, int(broker.urls[0].rpartition(":")[2])


def mosquitto(
    folder: Path, certificate: IssuedCertificate, scheme: str
) -> AbstractContextManager[tuple[int, int]]:
    """The same of a mosquitto."""
    files = (f"certfile {certificate.certfile}", f"keyfile {certificate.keyfile}")
    options = ("allow_anonymous true", "max_queued_messages 0", "log_type error")
    more = files if scheme == "tls" else ()
    return servers.mosquitto(folder, *more, *options, "set_tcp_nodelay true")


class Client:
    def __init__(self, port: int, context: ssl.SSLContext | None, name: str, topic: str) -> None:
        sock = socket.create_connection(("127.0.0.1", port))
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if context is not None:
            sock = context.wrap_socket(sock, server_hostname="localhost")
        self.wire = Wire(SocketStream(sock))
        self.wire.connect(name)
        if topic:
            self.wire.subscribe((topic, 0))
        sock.settimeout(60)
        self.socket = sock

    def read(self, count: int) -> None:
        while count > 0:
            count -= len(received(self.socket, min(count, 65_536)))


def received(connection: socket.socket, most: int = 1 << 20) -> bytes:
    """What came. Raises ConnectionError: the other side has closed the connection."""
    data = connection.recv(most)
    if not data:
        raise ConnectionError("the server has closed the connection: its log says why")
    return data


class Meter:
    """CPU seconds of a process, within `with` only: connecting is another scenario's business."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.spent = 0.0

    def read(self) -> float:
        threads = Path(f"/proc/{self.pid}/task").glob("*/schedstat")
        return sum(int(each.read_text().split()[0]) for each in threads) / 1e9

    def __enter__(self) -> None:
        self.spent -= self.read()

    def __exit__(self, *_error: object) -> None:
        self.spent += self.read()


Context = ssl.SSLContext | None


def burst(port: int, context: Context, messages: int, meter: Meter) -> int:
    """Pairs under full load; returns the number of messages."""
    pairs = 4
    each = messages // pairs // WINDOW * WINDOW

    def pair(number: int) -> None:
        topic = f"bench/{number:02}"
        frame = publish_packet(topic, PAYLOAD)
        with ExitStack() as stack:
            receiver = Client(port, context, f"r{number}", topic)
            stack.callback(receiver.socket.close)
            sender = Client(port, context, f"s{number}", "")
            stack.callback(sender.socket.close)
            for _ in range(each // WINDOW):
                sender.socket.sendall(frame * WINDOW)
                receiver.read(len(frame) * WINDOW)

    threads = [threading.Thread(target=pair, args=(number,)) for number in range(pairs)]
    with meter:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    return each * pairs


def single(port: int, context: Context, messages: int, meter: Meter) -> int:
    """One message at a time from each of 50 publishers to its subscriber."""
    pairs = 50
    with ExitStack() as stack:
        senders, receivers, frames = [], [], []
        for number in range(pairs):
            topic = f"bench/{number:02}"
            receivers.append(Client(port, context, f"r{number}", topic))
            senders.append(Client(port, context, f"s{number}", ""))
            stack.callback(receivers[-1].socket.close)
            stack.callback(senders[-1].socket.close)
            frames.append(publish_packet(topic, PAYLOAD))
        rounds = messages // pairs
        with meter:
            for _ in range(rounds):
                go_round(senders, receivers, frames)
    return rounds * pairs


def thousand(port: int, context: Context, messages: int, meter: Meter) -> int:
    """One message at a time from each of 1000 connections, which comes back to it."""
    with ExitStack() as stack:
        clients, frames = [], []
        for number in range(1000):
            topic = f"bench/{number:03}"
            clients.append(Client(port, context, f"t{number}", topic))
            stack.callback(clients[-1].socket.close)
            frames.append(publish_packet(topic, PAYLOAD))
        rounds = messages // len(clients)
        with meter:
            for _ in range(rounds):
                go_round(clients, clients, frames)
    return rounds * len(clients)


def go_round(senders: list[Client], receivers: list[Client], frames: list[bytes]) -> None:
    for sender, frame in zip(senders, frames, strict=True):
        sender.socket.sendall(frame)
    for receiver, frame in zip(receivers, frames, strict=True):
        receiver.read(len(frame))


def connects(port: int, context: Context, count: int, meter: Meter) -> int:
    """Connections one after the other, each with a full handshake; a message is a connection."""
    with meter:
        for number in range(count):
            Client(port, context, f"c{number}", "").socket.close()
    return count


SCENARIOS = {
    "burst": (burst, 400_000),
    "single": (single, 30_000),
    "thousand": (thousand, 30_000),
    "connect": (connects, 500),
}


def main() -> None:
    """Run every scenario and print the medians."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--scheme", choices=["tls", "tcp"], default="tls")
    parser.add_argument("--scenarios", nargs="+", choices=SCENARIOS, default=list(SCENARIOS))
    options = parser.parse_args()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="vmq-bench-")))
        authority = Authority(folder / "ca")
        server = authority.issue("localhost", ["localhost"])
        context = authority.client_context() if options.scheme == "tls" else None
        brokers = {
            "vmq": stack.enter_context(vmq(folder, server, options.scheme)),
            "mosquitto": stack.enter_context(mosquitto(folder, server, options.scheme)),
        }
        for name in options.scenarios:
            scenario, messages = SCENARIOS[name]
            spent: dict[str, list[float]] = {broker: [] for broker in brokers}
            for _ in range(options.rounds):
                for broker, (pid, port) in brokers.items():
                    meter = Meter(pid)
                    count = scenario(port, context, messages, meter)
                    spent[broker].append(meter.spent / count * 1e6)
            medians = {broker: statistics.median(values) for broker, values in spent.items()}
            ratio = medians["vmq"] / medians["mosquitto"]
            print(
                f"{options.scheme} {name:8} CPU us each: vmq {medians['vmq']:8.2f}  "
                f"mosquitto {medians['mosquitto']:8.2f}  ratio {ratio:.2f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
