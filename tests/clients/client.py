"""The face that every client has for a test, whichever program is behind it."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from queue import Empty, Queue
from time import monotonic

from vmq.testing.process import BrokerProcess

TIMEOUT = 60.0


@dataclass(frozen=True)
class Message:
    """A message as the client library gave it to the application.

    `dup` is None where the library does not show the flag.
    """

    topic: str
    payload: bytes
    qos: int
    retain: bool
    dup: bool | None


@dataclass(frozen=True)
class Will:
    """The last will that a client connects with."""

    topic: str
    payload: str
    qos: int = 1
    retain: bool = False


@dataclass(frozen=True)
class Kind:
    """A client program, and how it talks to the broker."""

    name: str
    program: str  # "paho", "aiomqtt", "amqtt", "mosquitto" or "mqttjs"
    websocket: bool = False
    version: int = 4  # protocol level: 3 is MQTT 3.1, 4 is MQTT 3.1.1

    def url(self, broker: BrokerProcess) -> str:
        host, port = broker.tcp
        return broker.ws if self.websocket else f"tcp://{host}:{port}"

    def __str__(self) -> str:
        return self.name


KINDS = (
    Kind("paho", "paho"),
    Kind("paho-31", "paho", version=3),
    Kind("paho-ws", "paho", websocket=True),
    Kind("paho-ws-31", "paho", websocket=True, version=3),
    Kind("aiomqtt", "aiomqtt"),
    Kind("amqtt", "amqtt"),
    Kind("amqtt-ws", "amqtt", websocket=True),
    Kind("mosquitto", "mosquitto"),
    Kind("mosquitto-31", "mosquitto", version=3),
    Kind("mqttjs", "mqttjs"),
    Kind("mqttjs-31", "mqttjs", version=3),
    Kind("mqttjs-ws", "mqttjs", websocket=True),
)
BY_NAME = {kind.name: kind for kind in KINDS}
#: Each at one QoS, and each QoS by several: for what a QoS has no part in.
AT_ONE_QOS = [(kind, at % 3) for at, kind in enumerate(KINDS)]


class Inbox:
    """What has happened to one client and was not looked at yet."""

    def __init__(self) -> None:
        self._messages: Queue[Message | None] = Queue()

    def put(self, message: Message) -> None:
        self._messages.put(message)

    def put_end(self) -> None:
        """Note that the connection, or the program, ended."""
        self._messages.put(None)

    def next(self, timeout: float) -> Message | None:
        """The next message, or None for the end. Raises queue.Empty when the time is up."""
        return self._messages.get(timeout=max(timeout, 0.001))


class Client(ABC):
    """One client, connected and subscribed. Sequences of messages are as the program printed them."""

    def __init__(self, kind: Kind, client_id: str) -> None:
        self.kind = kind
        self.client_id = client_id
        self.session_present: bool | None = None
        self.inbox = Inbox()

    @abstractmethod
    def publish(
        self,
        topic: str,
        *payloads: bytes,
        qos: int = 0,
        retain: bool = False,
        timeout: float = TIMEOUT,
    ) -> None:
        """Publish the payloads in order; return when all are acknowledged."""

    @abstractmethod
    def close(self) -> None:
        """Disconnect cleanly, so that no will is published. Harmless when already closed."""

    @abstractmethod
    def kill(self) -> None:
        """End the program that runs this client with SIGKILL."""

    def receive(self, count: int, timeout: float = TIMEOUT) -> list[Message]:
        """The next `count` messages; fails when the connection ends or the time is up first."""
        deadline = monotonic() + timeout
        messages: list[Message] = []
        while len(messages) < count:
            try:
                message = self.inbox.next(deadline - monotonic())
            except Empty:
                got = f"{len(messages)} of {count} messages"
                raise AssertionError(f"{self.client_id} got {got} in {timeout} s") from None
            assert message is not None, f"{self.client_id} lost its connection: {messages[-1:]}"
            messages.append(message)
        return messages

    def receive_until(self, payload: bytes, timeout: float = TIMEOUT) -> list[Message]:
        """The messages before the one with this payload, which is dropped."""
        deadline = monotonic() + timeout
        messages: list[Message] = []
        while True:
            [message] = self.receive(1, deadline - monotonic())
            if message.payload == payload:
                return messages
            messages.append(message)

    def wait_closed(self, timeout: float = TIMEOUT) -> list[Message]:
        """Wait until the connection has ended; return the messages that came before."""
        deadline = monotonic() + timeout
        messages: list[Message] = []
        while True:
            try:
                message = self.inbox.next(deadline - monotonic())
            except Empty:
                raise AssertionError(f"{self.client_id} still connected") from None
            if message is None:
                return messages
            messages.append(message)
