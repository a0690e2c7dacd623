"""A broker that does to chosen messages what no broker should."""

import selectors
import socket
import threading
from collections.abc import Callable
from typing import Self

from tests.support.wire import TIMEOUT
from vmq.mqtt import encoder
from vmq.mqtt.decoder import Decoder, read_connect, read_subscribe
from vmq.mqtt.packets import Connect

Fault = Callable[[int], str]


class Peer:
    """One client of the bad broker."""

    def __init__(self, sock: socket.socket) -> None:
        self.socket = sock
        self.decoder = Decoder()
        self.last_id = 0

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)


class BadBroker:
    """Delivers each message once and in order, unless `fault(sequence number)` is one of these:

    lose, twice, swap (with the next one), damage (a bit of the payload), rename (the topic), invent (a message that
    nobody sent, behind it), again (with DUP: QoS 1 and 2), close (the subscriber's connection), stop (nothing more goes
    to anybody), chatter (a packet that no server sends).

    A context manager; it serves from a thread of its own.
    """

    def __init__(self, fault: Fault = lambda _sequence: "", refuse: int = 0) -> None:
        self.fault = fault
        self.refuse = refuse
        self.is_stopped = False
        self.connects: list[Connect] = []
        #: Set once messages flow.
        self.is_busy = threading.Event()
        self._subscribers: dict[str, tuple[Peer, int]] = {}
        self._held: dict[str, bytes] = {}
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._wake, self._end = socket.socketpair()
        self._selector.register(self._end, selectors.EVENT_READ)
        self._peers: list[Peer] = []
        self._thread = threading.Thread(target=self._serve, daemon=True)

    @property
    def url(self) -> str:
        return f"mqtt://127.0.0.1:{self._listener.getsockname()[1]}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._wake.send(b"x")
        self._thread.join(TIMEOUT)
        for peer in self._peers:
            peer.socket.close()
        for each in (self._listener, self._wake, self._end):
            each.close()
        self._selector.close()
        assert not self._thread.is_alive()

    def _serve(self) -> None:
        while True:
            for key, _ in self._selector.select():
                if key.fileobj is self._end:
                    return
                if key.fileobj is self._listener:
                    peer = Peer(self._listener.accept()[0])
                    self._peers.append(peer)
                    self._selector.register(peer.socket, selectors.EVENT_READ, peer)
                else:
                    self._read(key.data)

    def _read(self, peer: Peer) -> None:
        try:
            data = peer.socket.recv(65536)
        except OSError:
            data = b""
        if not data:
            self._drop(peer)
            return
        decoder = peer.decoder
        decoder.feed(data)
        while decoder.next():
            try:
                self._handle(peer, decoder.data[decoder.start : decoder.end], decoder)
            except OSError:
                return  # the client does not want to hear it

    def _drop(self, peer: Peer) -> None:
        if peer.socket.fileno() >= 0:
            self._selector.unregister(peer.socket)
            peer.socket.close()

    def _handle(self, peer: Peer, raw: bytes, decoder: Decoder) -> None:
        kind = raw[0] >> 4
        body = raw[decoder.body - decoder.start :]
        if kind == 1:
            self.connects.append(read_connect(decoder.data, decoder.body, decoder.end))
            peer.send(encoder.connack(False, self.refuse))
        elif kind == 8:
            packet_id, requests = read_subscribe(decoder.data, decoder.body, decoder.end)
            for request in requests:
                self._subscribers[request.topic_filter] = (peer, request.qos)
            peer.send(encoder.suback(packet_id, bytes(request.qos for request in requests)))
        elif kind == 3:
            self._publish(peer, raw[0] >> 1 & 3, body)
        elif kind == 5:
            peer.send(encoder.PUBREL_HEAD + body)
        elif kind == 6:
            peer.send(encoder.PUBCOMP_HEAD + body)
        elif kind == 12:
            peer.send(encoder.PINGRESP)

    def _publish(self, peer: Peer, qos: int, body: bytes) -> None:
        end = 2 + int.from_bytes(body[:2], "big")
        topic, rest = body[2:end].decode(), body[end:]
        if qos:
            peer.send((encoder.PUBACK_HEAD if qos == 1 else encoder.PUBREC_HEAD) + rest[:2])
            rest = rest[2:]
        self._deliver(topic, rest)

    def _deliver(self, topic: str, payload: bytes) -> None:
        self.is_busy.set()
        subscriber, qos = self._subscribers[topic]
        what = self.fault(int.from_bytes(payload[4:8], "big"))
        if what == "stop":
            self.is_stopped = True
        if self.is_stopped or what == "lose":
            return
        if what == "swap":
            self._held[topic] = payload
            return
        if what == "close":
            self._drop(subscriber)
            return
        name = topic[:-1] + "x" if what == "rename" else topic
        payload = payload[:-1] + bytes((payload[-1] ^ 1,)) if what == "damage" else payload
        self._send(subscriber, qos, name, payload)
        if what == "twice":
            self._send(subscriber, qos, name, payload)
        if what == "again":
            subscriber.last_id -= 1
            self._send(subscriber, qos, name, payload, dup=True)
        if what == "invent":
            self._send(subscriber, qos, name, b"\xff" * len(payload))
        if what == "chatter":
            subscriber.send(b"\x82\x00")
        if topic in self._held:
            self._send(subscriber, qos, topic, self._held.pop(topic))

    def _send(self, peer: Peer, qos: int, topic: str, payload: bytes, *, dup: bool = False) -> None:
        # Ids of the broker's own, unlike the publisher's.
        peer.last_id = peer.last_id % 60_000 + 1
        number = (peer.last_id * 7 + 3) % 60_013 + 1
        peer.send(encoder.publish(topic.encode(), payload, qos, number, False, dup))


def every(step: int, what: str) -> Fault:
    """Does `what` to one message of each `step`."""
    return lambda sequence: what if sequence % step == step - 2 else ""
