"""The link between nodes: ZeroMQ, by way of aiozmq, and Unix sockets between processes of one machine. Only this
module knows of them, with its sockets and addresses.

A node has one ROUTER, to which all others send, and one DEALER to each of the others, by which it sends. So a frame
goes one way on one connection, and says itself who sent it. ZeroMQ connects, connects again with growing pauses,
and drops what it had in hand when a connection breaks, which the machines above know how to bear.

**One key for the cluster.** With a key every connection is under CurveZMQ: the key is the secret of one pair that
all nodes have. A node shows that it has it as a client (its public key must be the cluster's, which the ROUTER asks
of every client) and as a server (its clients expect no other). Who lacks it gets nowhere and leaves a line in the
log. Without a key the link only works where nobody else can listen in: on loopback, and between processes of one
machine (`unix`).

**The end of a process** closes its connections: who then finds that nobody listens there any more tells so at once
(`on_gone`). Silence is judged above.

**Patience.** A connection can die without a word: a switch forgets it, a packet is lost when the network comes back,
a handshake stops half-way. None of that ends by itself soon: the kernel repeats its SYN after 1, 3, 7, 15... seconds
and sends again at a pace that slows down as much, so what lay idle for a minute may lie for another. So whoever
connects gives each attempt and each handshake a limit, and each connection one for what is not answered: and begins
anew.

**Bounds.** A frame that is larger than `MAX_FRAME` is not read, what waits to be written to one peer is limited in
bytes and frames, and a peer that sends what is no frame is not listened to for a while.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from functools import partial
from math import inf
from typing import Any, Final

import zmq

from vmq_cluster.addresses import check_address, check_key
from vmq_cluster.errors import ClusterError, FormatError, MalformedError
from vmq_cluster.messages import MAX_FRAME, Frame, decode, encode
from vmq_cluster.transport.ends import EndMonitor
from vmq_cluster.transport.peer import Peer
from vmq_cluster.transport.sockets import (
    FRAMES,
    REFUSALS,
    SMALL_BUFFER,
    WRITE_BUFFER,
    Gatekeeper,
    Listener,
    Monitor,
    Socket,
)
from vmq_cluster.transport.traffic import STRANGERS, Traffic
from vmq_cluster.transport.unix import UnixPeer
from vmq_cluster.transport.unix_listener import UnixListener

log = logging.getLogger("vmq.cluster.link")

#: Milliseconds between attempts to connect: at first, and at most. Who comes back is heard at once, and hears soon.
_RECONNECT_MS: Final = 100
_RECONNECT_MAX_MS: Final = 500
#: Seconds that a connection is borne with when it is not answered, unless its owner says otherwise.
_PATIENCE: Final = 10.0
#: Milliseconds for what was written to leave at the end.
_LINGER_MS: Final = 500
#: Seconds until the other machine is asked whether it is there where nothing was sent, and between two such questions.
_KEEPALIVE: Final = 10
#: Seconds that a connection is not listened to after nonsense, and between two warnings of one kind.
_DEAF_SECONDS: Final = 10.0
_WARN_SECONDS: Final = 10.0
#: To this at most, as what they tell of goes on: who is not let in tries for ever.
_WARN_MOST: Final = 3600.0
#: Connections whose sender is remembered.
_MAX_CONNECTIONS: Final = 4096
#: Seconds that a connection to an address of unknown name is kept.
_CONTACT_SECONDS: Final = 15.0

#: What addresses of Unix sockets begin with, as ZeroMQ has it.
_UNIX: Final = "ipc://"

_ZAP: Final = "inproc://zeromq.zap.01"
_MONITOR: Final = "inproc://vmq.link.monitor"


class Link:
    """What one node hears and says."""

    def __init__(
        self,
        on_frame: Callable[[Frame], None],
        on_nonsense: Callable[[str, str], None],
        key: str | None = None,
        patience: float = _PATIENCE,
        speaks: int = 1,
        on_gone: Callable[[str], None] = lambda _name: None,
    ) -> None:
        """`on_nonsense` is told who sent what is no frame (nothing, if it had not said its name) and why, `on_gone` of
        members whose process has ended.

        A peer that can be reached again is linked within about `patience` seconds. `speaks` is the version of this
        node: what later ones say besides is passed over.

        Raises:
            ClusterError: the key is none.
        """
        self._on_frame = on_frame
        self._on_nonsense = on_nonsense
        self._public = None if key is None else check_key(key)
        self._key = key
        self._speaks = speaks
        self._patience = patience
        self._patience_ms = int(patience * 1000)
        self._on_gone = on_gone
        #: Told of payloads that came without a frame: from whom, in which life of his.
        self.on_payloads: Callable[[str, int, list[bytes]], None] = lambda *_: None
        #: The same of one of a reliable channel: with his life, the oldest number that he keeps, and its own.
        self.on_numbered: Callable[[str, tuple[int, int, int], bytes], None] = lambda *_: None
        self._context = zmq.Context()
        self._sockets: list[Socket | UnixListener] = []
        self._peers: dict[str, Peer | UnixPeer] = {}
        self._contacts: dict[str, Peer | UnixPeer] = {}
        #: Where the other members are.
        self._addresses: dict[str, str] = {}
        #: Where members of this machine are reached, whatever their addresses are.
        self._nearby: dict[str, str] = {}
        self._ending: set[asyncio.Task[None]] = set()
        #: Who is behind a connection, by its routing id; the oldest first.
        self._senders: dict[bytes, str] = {}
        #: Connections that are not listened to, and until when.
        self._deaf: dict[bytes, float] = {}
        #: Warnings, when each may be logged again, and the seconds between the last two.
        self._warned: dict[str, tuple[float, float]] = {}
        #: Connections that were looked after so far.
        self._watched = 0
        #: Frames that were dropped because too much waited for a peer.
        self.dropped_frames = 0
        #: Bytes of frames, by node.
        self.traffic = Traffic()

    async def start_nearby(self, own: str, others: Mapping[str, str]) -> None:
        """Listens at a Unix socket besides, and talks to members of this machine over theirs, by their names.

        Raises:
            ClusterError: it cannot.
        """
        self._nearby = {**others}
        self._start_unix(own.removeprefix(_UNIX))

    async def start(self, listen: str) -> str:
        """Listens at an address; returns it with the real port.

        Raises:
            ClusterError: it cannot.
        """
        check_address(listen, self._key)
        if listen.startswith(_UNIX):
            return self._start_unix(listen.removeprefix(_UNIX))
        if self._public is not None:
            gatekeeper = Gatekeeper(self._public, self.warn)
            self._sockets.append(gatekeeper)
            await gatekeeper.open(self._socket(zmq.REP), bind=_ZAP)
        monitor, listener = Monitor(self.warn), Listener(self.received)
        self._sockets += [monitor, listener]
        # The monitor's end must be there before it is asked to speak.
        await monitor.open(self._socket(zmq.PAIR), connect=_MONITOR)
        socket = self._socket(zmq.ROUTER)
        socket.set(zmq.MAXMSGSIZE, MAX_FRAME)
        # Only where it is asked for: an IPv4 address would be told to others as one of IPv6.
        socket.set(zmq.IPV6, "[" in listen)
        if self._key is not None:
            socket.set(zmq.CURVE_SERVER, 1)
            socket.set(zmq.CURVE_SECRETKEY, self._key.encode())
            socket.set(zmq.ZAP_DOMAIN, b"vmq")
        socket.monitor(_MONITOR, REFUSALS)
        try:
            await listener.open(socket, bind=listen)
        except OSError as error:
            raise ClusterError(
                f"cannot listen at {listen}: {zmq.strerror(error.errno or 0)}"
            ) from None
        address: str = listener.transport.getsockopt(zmq.LAST_ENDPOINT)
        return address

    def _start_unix(self, path: str) -> str:
        received = self.received, self.received_at_once, self.received_numbered
        listener = UnixListener(*received, self.warn, self._key, self._patience)
        try:
            address = listener.open(path)
        except OSError as error:
            raise ClusterError(f"cannot listen at {_UNIX}{path}: {error.strerror}") from None
        self._sockets.append(listener)
        return address

    async def stop(self) -> None:
        """Closes everything; what was written leaves within a moment, or not at all."""
        for peer in [*self._peers.values(), *self._contacts.values()]:
            self._end(peer)
        self._peers.clear()
        self._contacts.clear()
        for socket in self._sockets:
            if isinstance(socket, Listener) and socket.transport is not None:
                socket.transport.get_extra_info("zmq_socket").disable_monitor()
            socket.close()
        await asyncio.gather(*self._ending, *(socket.closed for socket in self._sockets))
        self._sockets.clear()
        # Waits for what lingers, which must not stop the loop.
        await asyncio.get_running_loop().run_in_executor(None, self._context.term)

    # --- sending

    def set_members(self, addresses: dict[str, str]) -> None:
        """Where the other members are; who is none any more is sent nothing."""
        self.traffic.keep(addresses)
        addresses = {name: self._nearby.get(name, where) for name, where in addresses.items()}
        for name in [
            name for name, peer in self._peers.items() if addresses.get(name) != peer.address
        ]:
            self._end(self._peers.pop(name))
        self._addresses = addresses
        for name in addresses:
            self._reach(name)

    def _reach(self, name: str) -> Peer | UnixPeer | None:
        """The connection to a member, begun if there is none, as no file was left for it; None: there is none."""
        peer = self._peers.get(name)
        if isinstance(peer, Peer) and peer.closed.done():
            self._end(self._peers.pop(name))
            peer = None
        address = self._addresses.get(name, "")
        if peer is None and address and self._may_connect(address):
            peer = self._connected(address, partial(self._on_gone, name))
            if peer is not None:
                self._peers[name] = peer
        return peer

    def set_up(self, name: str, is_up: bool) -> None:
        """More may wait for a member that is up."""
        peer = self._peers.get(name)
        if peer is not None:
            peer.limit = WRITE_BUFFER if is_up else SMALL_BUFFER

    def send(self, name: str, frame: Frame) -> None:
        """Sends a frame to a member, or drops it."""
        peer = self._reach(name)
        try:
            raw = b"" if peer is None else encode(frame)
            if peer is None or not peer.send(raw):
                self.dropped_frames += 1
            else:
                self.traffic.went(name, len(raw))
        except ClusterError as error:
            self.dropped_frames += 1
            self.warn(f"cannot send to {name}: {error}")

    def send_at_once(self, name: str, life: int, payload: bytes) -> bool:
        """Sends a member of this machine a payload without a frame around it, from this life of the node.

        Returns whether it went. If not, it may go in a frame.
        """
        peer = self._peers.get(name)
        if not isinstance(peer, UnixPeer) or not peer.send_at_once(life, payload):
            return False
        self.traffic.went(name, len(payload))
        return True

    def is_near(self, name: str) -> bool:
        """Whether payloads go to a member without frames: it is on this machine, and has been heard of here."""
        peer = self._peers.get(name)
        return isinstance(peer, UnixPeer) and peer.is_ready()

    def send_numbered(self, name: str, place: tuple[int, int, int], payload: bytes) -> bool | None:
        """Sends a payload of a reliable channel: the life, the oldest number that is kept, and its own.

        Returns whether the system has taken it whole: it gets there though this process ends. None: it did not go.
        """
        peer = self._peers.get(name)
        went = peer.send_numbered(place, payload) if isinstance(peer, UnixPeer) else None
        if went is not None:
            self.traffic.went(name, len(payload))
        return went

    def contact(self, address: str, frame: Frame) -> None:
        """Sends a frame to whoever listens at an address."""
        peer = self._contacts.get(address)
        if peer is None:
            if not self._may_connect(address):
                return
            peer = self._connected(address, lambda: None)
            if peer is None:
                return
            self._contacts[address] = peer
            asyncio.get_running_loop().call_later(_CONTACT_SECONDS, self._end_contact, address)
        raw = encode(frame)
        if peer.send(raw):
            self.traffic.went(STRANGERS, len(raw))

    def _end_contact(self, address: str) -> None:
        peer = self._contacts.pop(address, None)
        if peer is not None:
            self._end(peer)

    def _connected(self, address: str, on_gone: Callable[[], None]) -> Peer | UnixPeer | None:
        """A connection that is begun; None: no file is left for it."""
        if address.startswith(_UNIX):
            return UnixPeer(address, self.warn, self._key, self._patience, on_gone)
        self._watched += 1
        where = f"{_MONITOR}.{self._watched}"
        sockets: list[Any] = []
        try:
            sockets += [self._dealer()]
            sockets += [self._socket(zmq.PAIR)]
        except zmq.ZMQError as error:
            for socket in sockets:
                socket.close()
            self.warn(f"cannot connect to {address}: {error.strerror}")
            return None
        dealer, pair = sockets
        return Peer(address, dealer, self.warn, EndMonitor(address, where, pair, on_gone))

    def _end(self, peer: Peer | UnixPeer) -> None:
        task = asyncio.get_running_loop().create_task(peer.end())
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    def _may_connect(self, address: str) -> bool:
        try:
            check_address(address, self._key)
        except ClusterError as error:
            self.warn(f"does not connect: {error}")
            return False
        return True

    def _dealer(self) -> Any:
        socket = self._socket(zmq.DEALER)
        socket.set(zmq.IPV6, 1)
        socket.set(zmq.IMMEDIATE, 1)
        socket.set(zmq.RECONNECT_IVL, _RECONNECT_MS)
        socket.set(zmq.RECONNECT_IVL_MAX, _RECONNECT_MAX_MS)
        # Half of it: the pause before the next attempt may come on top.
        socket.set(zmq.CONNECT_TIMEOUT, self._patience_ms // 2)
        if self._key is not None and self._public is not None:
            socket.set(zmq.CURVE_SERVERKEY, self._public)
            socket.set(zmq.CURVE_PUBLICKEY, self._public)
            socket.set(zmq.CURVE_SECRETKEY, self._key.encode())
        return socket

    def _socket(self, kind: int) -> Any:
        socket = self._context.socket(kind)
        socket.set(zmq.LINGER, _LINGER_MS)
        socket.set(zmq.SNDHWM, FRAMES)
        socket.set(zmq.RCVHWM, FRAMES)
        socket.set(zmq.HANDSHAKE_IVL, self._patience_ms)
        # Not ZeroMQ's own heartbeats: where one is due, or comes, while more waits to be read than RCVHWM and the other
        # end is gone already, libzmq 4.3.5 aborts the process (`!_io_error`): a node that had stood still for a while.
        # The kernel finds out as well whether the other machine is there.
        socket.set(zmq.TCP_MAXRT, self._patience_ms)
        socket.set(zmq.TCP_KEEPALIVE, 1)
        socket.set(zmq.TCP_KEEPALIVE_IDLE, _KEEPALIVE)
        socket.set(zmq.TCP_KEEPALIVE_INTVL, _KEEPALIVE)
        return socket

    # --- hearing

    def received(self, parts: list[bytes]) -> None:
        """One message of a peer: the routing id of its connection, and a frame."""
        connection = parts[0]
        if connection in self._deaf:
            if asyncio.get_running_loop().time() < self._deaf[connection]:
                return
            del self._deaf[connection]
        is_new = connection not in self._senders
        try:
            frame = self._decode(parts)
        except FormatError as error:
            self._refuse(connection, str(error))
            return
        except MalformedError as error:
            self._turn_deaf(connection, str(error))
            return
        if len(self._senders) > _MAX_CONNECTIONS:
            del self._senders[next(iter(self._senders))]
        self.traffic.came(frame.sender, len(parts[1]))
        if is_new and (peer := self._peers.get(frame.sender)) is not None:
            peer.hurry()
        self._on_frame(frame)

    def received_at_once(self, connection: bytes, life: int, payloads: list[bytes]) -> None:
        """Payloads without a frame, of a connection that has had one."""
        name = self._senders.get(connection)
        if name is None or connection in self._deaf:
            return
        self.traffic.came(name, sum(map(len, payloads)))
        self.on_payloads(name, life, payloads)

    def received_numbered(
        self, connection: bytes, place: tuple[int, int, int], payload: bytes
    ) -> None:
        """One payload of a reliable channel, as above."""
        name = self._senders.get(connection)
        if name is None or connection in self._deaf:
            return
        self.traffic.came(name, len(payload))
        self.on_numbered(name, place, payload)

    def _decode(self, parts: list[bytes]) -> Frame:
        if len(parts) != 2:
            raise MalformedError(f"a message of {len(parts) - 1} parts")
        frame = decode(parts[1], self._speaks)
        if self._senders.setdefault(parts[0], frame.sender) != frame.sender:
            raise MalformedError(f"frames of {frame.sender!r} too")
        return frame

    def _refuse(self, connection: bytes, reason: str) -> None:
        """Does not listen to a connection any more: who is at its other end will not be another version."""
        self._put_deaf(connection, inf)
        self._on_nonsense(self._senders.pop(connection, ""), reason)

    def drop(self, name: str) -> None:
        """Does not listen to a peer for a while."""
        now = asyncio.get_running_loop().time()
        for connection in [each for each, sender in self._senders.items() if sender == name]:
            self._put_deaf(connection, now + _DEAF_SECONDS)

    def _turn_deaf(self, connection: bytes, reason: str) -> None:
        self._put_deaf(connection, asyncio.get_running_loop().time() + _DEAF_SECONDS)
        name = self._senders.pop(connection, "")
        hosts = [each.last_host for each in self._sockets if isinstance(each, Listener)]
        where = f"from {hosts[0]}: " if not name and hosts and hosts[0] else ""
        self._on_nonsense(name, f"{where}{reason}; it is not listened to for {_DEAF_SECONDS:g} s")

    def _put_deaf(self, connection: bytes, until: float) -> None:
        if len(self._deaf) >= _MAX_CONNECTIONS:
            del self._deaf[next(iter(self._deaf))]
        self._deaf[connection] = until

    def warn(self, text: str) -> None:
        """Logs what may happen often."""
        now = asyncio.get_running_loop().time()
        until, seconds = self._warned.get(text, (now, 0.0))
        if now < until:
            return
        if len(self._warned) >= _MAX_CONNECTIONS:
            self._warned.clear()
        seconds = min(2 * seconds, _WARN_MOST) if now - until <= seconds else 0.0
        seconds = max(seconds, _WARN_SECONDS)
        self._warned[text] = now + seconds, seconds
        log.warning(text)
