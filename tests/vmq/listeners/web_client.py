"""A WebSocket client whose transport is memory, against the sans-I/O client of the `websockets` library."""

from websockets.client import ClientProtocol
from websockets.frames import Close, Frame, Opcode
from websockets.http11 import Response
from websockets.typing import Subprotocol
from websockets.uri import parse_uri

from tests.support.present import present
from tests.support.wire import Packet, split_packets
from tests.vmq.memory_transport import MemoryTransport
from tests.vmq.mqtt.strategies import cut
from tests.vmq.support import House
from vmq.listeners.websocket import WebSocket
from vmq.protocol.connection import Connection
from vmq.protocol.listener_context import ListenerContext

MAX_SIZE = 10_000


class WebClient:
    """A WebSocket client whose transport is memory."""

    def __init__(
        self,
        house: House,
        *,
        url: str = "ws://broker/mqtt",
        offers: tuple[str, ...] = ("mqtt",),
        path: str = "/mqtt",
    ) -> None:
        self.house = house
        self.transport = MemoryTransport()
        self.ended: list[Connection] = []
        self.connection = Connection(
            house.registry, True, "auto-1", ListenerContext(print, self.ended.append)
        )
        self.socket = WebSocket(self.connection, path, MAX_SIZE)
        self.socket.connection_made(self.transport)
        self.protocol = ClientProtocol(
            parse_uri(url), subprotocols=[Subprotocol(each) for each in offers] or None
        )
        self.frames: list[Frame] = []
        self.close_codes: list[int] = []
        self.response: Response | None = None
        self.protocol.send_request(self.protocol.connect())
        self.push()

    def push(self, places: list[int] | None = None) -> None:
        """Carries the client's bytes over and the answer back."""
        data = b"".join(self.protocol.data_to_send())
        for chunk in cut(data, places or []):
            if not self.transport.closed:
                self.socket.data_received(chunk)
                self.house.settle()
        self.pull()

    def pull(self) -> None:
        """Reads what the broker wrote."""
        self.protocol.receive_data(bytes(self.transport.written))
        self.transport.written.clear()
        for event in self.protocol.events_received():
            if isinstance(event, Response):
                self.response = event
            elif isinstance(event, Frame) and event.opcode is Opcode.CLOSE:
                self.close_codes.append(Close.parse(bytes(event.data)).code)
            elif isinstance(event, Frame):
                self.frames.append(event)

    def send(self, *frames: bytes) -> None:
        """Sends each of these as a binary frame."""
        for frame in frames:
            self.protocol.send_binary(frame)
        self.push()

    def take(self) -> list[Packet]:
        """The MQTT packets in the binary frames that came."""
        frames, self.frames = self.frames, []
        assert all(each.opcode in (Opcode.BINARY, Opcode.CONT) for each in frames), frames
        buffer = bytearray(b"".join(bytes(each.data) for each in frames))
        packets = list(split_packets(buffer))
        assert not buffer
        return packets

    @property
    def status(self) -> int:
        return present(self.response).status_code
