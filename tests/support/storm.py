"""Many clients that connect at once: `python -m tests.support.storm PORT COUNT`.

Obeys lines on stdin: `connect` opens every connection and sends every CONNECT as fast as it goes,
`drop` closes all of them without a word. Each is answered with a line of JSON. Ends with stdin.

One thread and one epoll: thousands of clients cost less than the broker does.
"""

import json
import resource
import select
import socket
import sys
import time
from typing import Final

from tests.support.wire import connect_packet

CONNACK: Final = b"\x20\x02\x00\x00"
#: Connections from one address: there are about 28,000 ports.
EACH_ADDRESS: Final = 10_000
#: Of Linux; not in the socket module before Python 3.12.
IP_BIND_ADDRESS_NO_PORT: Final = 24
#: Seconds for everybody to get in. The kernel repeats a SYN that found the backlog full after 1, 3, 7, 15 s.
PATIENCE: Final = 60.0


class Storm:
    """Clients `storm-0`, `storm-1` ... of one broker."""

    def __init__(self, port: int, count: int) -> None:
        self.port = port
        self.count = count
        self.poll = select.epoll()
        self.sockets: dict[int, socket.socket] = {}
        self.numbers: dict[int, int] = {}
        self.entered = 0
        self.lost: list[str] = []

    def connect(self) -> dict[str, object]:
        """Brings everybody in; says how many got there, and what became of the others."""
        self.entered, self.lost = 0, []
        for number in range(self.count):
            sock = socket.socket()
            sock.setblocking(False)
            # Not a port yet: bind would search for one that no destination has.
            sock.setsockopt(socket.IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, 1)
            sock.bind((f"127.0.0.{2 + number // EACH_ADDRESS}", 0))
            sock.connect_ex(("127.0.0.1", self.port))
            file = sock.fileno()
            self.sockets[file], self.numbers[file] = sock, number
            self.poll.register(file, select.EPOLLOUT)
            if number % 100 == 99:
                self.handle(0)  # whoever is through says CONNECT at once, as a client would
        deadline = time.monotonic() + PATIENCE
        while self.entered + len(self.lost) < self.count and time.monotonic() < deadline:
            self.handle(1.0)
        return {"entered": self.entered, "lost": self.lost[:5]}

    def handle(self, seconds: float) -> None:
        """Takes what happens within so many seconds."""
        for file, events in self.poll.poll(seconds):
            sock = self.sockets[file]
            try:
                if events & select.EPOLLOUT:
                    sock.sendall(connect_packet(f"storm-{self.numbers[file]}", keep_alive=0))
                    self.poll.modify(file, select.EPOLLIN)
                    continue
                data = sock.recv(100)
            except OSError as error:
                data = str(error).encode()
            if data == CONNACK:
                self.entered += 1
            else:
                self.lost.append(f"storm-{self.numbers[file]}: {data!r}")
                self.forget(file)

    def forget(self, file: int) -> None:
        self.poll.unregister(file)
        self.sockets.pop(file).close()
        del self.numbers[file]

    def drop(self) -> dict[str, object]:
        """Closes all; says how many were still there, and who had been dropped meanwhile."""
        self.lost = []
        self.handle(0)
        held = len(self.sockets)
        for file in list(self.sockets):
            self.forget(file)
        return {"held": held, "lost": self.lost[:5]}


def main() -> None:
    """Obey stdin."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    storm = Storm(int(sys.argv[1]), int(sys.argv[2]))
    for line in sys.stdin:
        answer = storm.connect() if line == "connect\n" else storm.drop()
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
