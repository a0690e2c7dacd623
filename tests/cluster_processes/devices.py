"""Clients that we did not write (paho), in use throughout: what they were promised, and what they got."""

import socket
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from itertools import count
from time import monotonic
from typing import Any, Final, Protocol

import paho.mqtt.client as mqtt
from paho.mqtt.enums import CallbackAPIVersion, MessageState, MQTTErrorCode

from tests.cluster_processes.cluster import Node

#: Seconds for anything that a device waits for.
TIMEOUT: Final = 40.0
#: Messages of a publisher that may be unacknowledged; and seconds between two of its messages: paho is slow.
WINDOW: Final = 20
PACE: Final = 0.04
#: A port that nobody listens at.
NOBODY: Final = 1
#: Seconds until a device whose connection broke tries again, at first and at most. paho says int, and takes these.
RETRY: Final[tuple[Any, Any]] = (0.05, 0.2)


@dataclass(frozen=True, order=True)
class Message:
    """The `number`-th message of a publisher at a QoS."""

    publisher: str
    qos: int
    number: int

    @property
    def payload(self) -> bytes:
        return f"{self.publisher} {self.qos} {self.number}".encode()


def message_of(payload: bytes) -> Message:
    publisher, qos, number = payload.decode().split()
    return Message(publisher, int(qos), int(number))


class Client(mqtt.Client):
    """paho, which forgets at its second attempt to connect that it has released a message, and publishes it anew.

    It also sends what is published while it connects at once, and only then repeats what is older: the order of a
    publisher that changes its node is judged here, so this one waits for the CONNACK.
    """

    def _messages_reconnect_reset_out(self) -> None:
        # A session of ours releases it again [MQTT-4.4.0-1]: by a new PUBLISH the broker would take it for another.
        released = [
            each
            for each in self._out_messages.values()
            if each.state == MessageState.MQTT_MS_RESEND_PUBREL
        ]
        super()._messages_reconnect_reset_out()
        for each in released:
            if each.state == MessageState.MQTT_MS_PUBLISH:
                each.state = MessageState.MQTT_MS_RESEND_PUBREL

    def _handle_connack(self) -> Any:
        # Nothing comes between the CONNACK and what is to be repeated.
        with self._out_message_mutex:
            return super()._handle_connack()

    def _send_publish(self, *args: Any, **kwargs: Any) -> Any:
        if not self.is_connected():
            return MQTTErrorCode.MQTT_ERR_NO_CONN
        return super()._send_publish(*args, **kwargs)


class Device:
    """A durable session that connects again by itself: to the next of its nodes, if it has several."""

    def __init__(self, client_id: str, nodes: Sequence[Node], clean: bool = False) -> None:
        self.client_id = client_id
        self._nodes = list(nodes)
        self._turn = 0
        self.changed = threading.Condition()
        self.sessions: list[bool] = []
        self._granted: set[int] = set()
        self._is_closing = False
        self._is_paused = False
        self.client = Client(
            CallbackAPIVersion.VERSION2,
            client_id=client_id,
            clean_session=clean,
            transport=nodes[0].transport,
        )
        self.client.reconnect_delay_set(*RETRY)
        self.client.on_connect = self._on_connect
        self.client.on_connect_fail = lambda *_: self._turn_to_next()
        self.client.on_disconnect = lambda *_: self._turn_to_next()
        self.client.on_subscribe = self._on_subscribe

    def open(self) -> None:
        self.client.connect(self._nodes[0].host, self._nodes[0].port or 1)
        self.client.loop_start()
        self.wait(lambda: bool(self.sessions), "connected")

    def pause(self) -> None:
        """Loses its connection, and finds no other until `resume`."""
        self._is_paused = True
        connection = self.client.socket()
        assert isinstance(connection, socket.socket)
        connection.shutdown(socket.SHUT_RDWR)

    @property
    def is_paused(self) -> bool:
        """Whether it is away since `pause` or `sleep`."""
        return self._is_paused

    def lose(self) -> None:
        """Loses its connection, if it has one, and does not wait for the next."""
        connection = self.client.socket()
        if isinstance(connection, socket.socket):
            with suppress(OSError):  # it is being closed just now
                connection.shutdown(socket.SHUT_RDWR)

    def sleep(self) -> None:
        """As `pause`, whether it is connected or not."""
        self._is_paused = True
        self.lose()

    def wake(self) -> None:
        """Lets it connect again, and does not wait until it has."""
        self._is_paused = False

    def wait_connected(self) -> None:
        self.wait(self.client.is_connected, "connected")

    def resume(self) -> None:
        """Returns when it has a connection to the next of its nodes."""
        times = len(self.sessions)
        self._is_paused = False
        self.wait(lambda: len(self.sessions) > times, "connected again")

    def subscribe(self, topic_filter: str, qos: int) -> None:
        """Subscribes, and returns when that is acknowledged."""
        _, mid = self.client.subscribe(topic_filter, qos)
        self.wait(lambda: mid in self._granted, f"subscribed to {topic_filter}")

    def close(self) -> None:
        self._is_closing = True
        self.client.disconnect()
        self.client.loop_stop()

    def wait(self, holds: Callable[[], bool], what: str) -> None:
        """Waits for something that a callback brings about."""
        with self.changed:
            if not self.changed.wait_for(holds, TIMEOUT):
                raise AssertionError(f"{self.client_id} is not {what} after {TIMEOUT} s")

    def _turn_to_next(self) -> None:
        if self._is_closing:
            return
        if self._is_paused:
            self.client.connect_async("127.0.0.1", NOBODY)
        elif len(self._nodes) > 1 or self.client.port == NOBODY:
            self._turn += 1
            node = self._nodes[self._turn % len(self._nodes)]
            self.client.connect_async(node.host, node.port or 1)

    def _on_connect(self, _client: Any, _data: Any, flags: Any, code: Any, _more: Any) -> None:
        if not code.is_failure:
            with self.changed:
                self.sessions.append(flags.session_present)
                self.changed.notify_all()

    def _on_subscribe(self, _client: Any, _data: Any, mid: int, _codes: Any, _more: Any) -> None:
        with self.changed:
            self._granted.add(mid)
            self.changed.notify_all()


class Publisher(Device):
    """Publishes on and on, at QoS 1 and 2 in turns, from `start` to `finish`."""

    def __init__(
        self, client_id: str, nodes: Sequence[Node], topic: str, pace: float = PACE
    ) -> None:
        super().__init__(client_id, nodes)
        self._topic = topic
        self._pace = pace
        self._sent: dict[int, Message] = {}
        self._acknowledged: set[int] = set()
        self._waiting: set[int] = set()
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.client.on_publish = self._on_publish

    def start(self) -> None:
        self._thread.start()

    def finish(self) -> set[Message]:
        """Stops, and returns all messages once each of them is acknowledged."""
        self._is_over.set()
        self._thread.join(TIMEOUT)
        self.wait(lambda: not self._waiting, "told that all is taken")
        return self.sent()

    @property
    def acknowledged(self) -> int:
        with self.changed:
            return len(self._sent) - len(self._waiting)

    def sent(self) -> set[Message]:
        """All messages so far, acknowledged or not."""
        with self.changed:
            return set(self._sent.values())

    def wait_more(self, messages: int) -> None:
        """Waits until so many more messages are acknowledged."""
        enough = self.acknowledged + messages
        self.wait(lambda: self.acknowledged >= enough, f"acknowledged {messages} more messages")

    def sent_and_acknowledged(self) -> set[Message]:
        """Those that were taken for good."""
        with self.changed:
            return {each for mid, each in self._sent.items() if mid in self._acknowledged}

    def retain(self, topic: str, payload: str) -> None:
        """Publishes a message to be retained, apart from the others, and returns when it is taken."""
        sent = self.client.publish(topic, payload, 1, retain=True)
        self.wait(lambda: sent.mid in self._acknowledged, f"told that {topic} is taken")

    def _run(self) -> None:
        for number in count():
            if self._is_over.wait(self._pace):
                return
            self._publish(Message(self.client_id, 1 + number % 2, number // 2))
            with self.changed:
                self.changed.wait_for(
                    lambda: len(self._waiting) < WINDOW or self._is_over.is_set(), TIMEOUT
                )

    def _publish(self, message: Message) -> None:
        topic = f"{self._topic}/{self.client_id}/{message.qos}"
        # No lock is held here: paho holds one of its own when it calls back. Packet ids are not used again so soon.
        sent = self.client.publish(topic, message.payload, message.qos)
        with self.changed:
            assert sent.mid not in self._sent
            self._sent[sent.mid] = message
            if sent.mid not in self._acknowledged:
                self._waiting.add(sent.mid)

    def _on_publish(self, _client: Any, _data: Any, mid: int, _code: Any, _more: Any) -> None:
        with self.changed:
            self._acknowledged.add(mid)
            self._waiting.discard(mid)
            self.changed.notify_all()


class Subscriber(Device):
    """Takes what comes, and remembers it in order."""

    def __init__(
        self, client_id: str, nodes: Sequence[Node], topic_filter: str, qos: int = 2
    ) -> None:
        super().__init__(client_id, nodes)
        self._filter = topic_filter
        self._qos = qos
        self.got: list[Message] = []
        self.probed: set[bytes] = set()
        self.client.on_message = self._on_message

    def open(self) -> None:
        super().open()
        self.subscribe(self._filter, self._qos)

    def wait_for(self, messages: Iterable[Message]) -> None:
        """Waits until it has all of these."""
        wanted = set(messages)
        missing, looked_at = set(wanted), 0

        def has_all() -> bool:
            nonlocal looked_at  # it is asked after each message: what was there before is not looked at again
            missing.difference_update(self.got[looked_at:])
            looked_at = len(self.got)
            return not missing

        try:
            self.wait(has_all, "complete")
        except AssertionError:
            few = ", ".join(map(str, sorted(missing)[:5]))
            text = f"{self.client_id} lacks {len(missing)} of {len(wanted)} messages: {few}"
            raise AssertionError(text) from None

    def _on_message(self, _client: Any, _data: Any, message: mqtt.MQTTMessage) -> None:
        with self.changed:
            if message.topic.endswith("/probe"):
                self.probed.add(bytes(message.payload))
            else:
                self.got.append(message_of(bytes(message.payload)))
            self.changed.notify_all()


class Reader(Device):
    def __init__(self, node: Node) -> None:
        super().__init__("", [node], clean=True)
        self.found: dict[str, bytes] = {}
        self._answers: set[str] = set()
        self.client.on_message = self._on_message

    def read(self, topic_filter: str) -> dict[str, bytes]:
        """All retained messages of a filter, by topic."""
        self.subscribe(topic_filter, 0)
        # It comes behind all of them.
        self.subscribe("answer", 0)
        self.client.publish("answer")
        self.wait(lambda: "answer" in self._answers, "answered")
        return self.found

    def _on_message(self, _client: Any, _data: Any, message: mqtt.MQTTMessage) -> None:
        with self.changed:
            if message.retain:
                self.found[message.topic] = bytes(message.payload)
            else:
                self._answers.add(message.topic)
            self.changed.notify_all()


def retained_at(node: Node, topic_filter: str) -> dict[str, bytes]:
    """What a node has retained."""
    with closing(Reader(node)) as reader:
        reader.open()
        return reader.read(topic_filter)


def wait_retained(nodes: Iterable[Node], topic_filter: str, expected: dict[str, bytes]) -> None:
    """Waits until each of the nodes has retained just this."""
    deadline = monotonic() + TIMEOUT
    for node in nodes:
        while (found := retained_at(node, topic_filter)) != expected:
            assert monotonic() < deadline, f"{node.name} has {found}"


def faults_of(got: Sequence[Message]) -> list[str]:
    """What must not be: QoS 2 twice, and a first arrival that comes behind a later message of its publisher."""
    found = [
        f"twice: {each}" for each, times in Counter(got).items() if each.qos == 2 and times > 1
    ]
    last: dict[tuple[str, int], int] = {}
    for message in dict.fromkeys(got):
        stream = message.publisher, message.qos
        if message.number < last.get(stream, -1):
            found.append(f"late: {message} behind {last[stream]}")
        last[stream] = max(last.get(stream, -1), message.number)
    return found


class Nodes(Protocol):
    """Where devices may connect, by name; each is something like a `Node`."""

    def __getitem__(self, name: str) -> Any: ...


class Traffic:
    """Devices that publish and subscribe throughout."""

    def __init__(self, cluster: Nodes, topic: str, pace: float) -> None:
        self.publishers: list[Publisher] = []
        #: Those that are to get everything.
        self.subscribers: list[Subscriber] = []
        self._cluster = cluster
        self._topic = topic
        self._pace = pace
        self._devices: list[Device] = []

    def open(self, publish: Iterable[str], subscribe: Iterable[str]) -> None:
        for names in subscribe:
            self.subscribers.append(self.subscribe_at(names, "sub"))
        for names in publish:
            self.publishers.append(self._publisher(names))
        self._wait_routed(self.subscribers)
        for publisher in self.publishers:
            publisher.start()

    def publish_at(self, names: str) -> Publisher:
        """One more publisher, which starts at once."""
        publisher = self._publisher(names)
        self.publishers.append(publisher)
        publisher.start()
        return publisher

    def join_in(
        self, names: str, qos: int = 2, what: str = "more"
    ) -> tuple[Subscriber, set[Message]]:
        """One more subscriber, and what was published before it was known everywhere."""
        subscriber = self.subscribe_at(names, what, qos)
        self._wait_routed([subscriber])
        return subscriber, self.sent()

    def sent(self) -> set[Message]:
        """All that was published so far, acknowledged or not."""
        return {message for each in self.publishers for message in each.sent()}

    def subscribe_at(self, names: str, what: str = "late", qos: int = 2) -> Subscriber:
        """A subscriber to everything that is published where it is known."""
        nodes = [self._cluster[each] for each in names]
        client_id = f"{self._topic}-{what}-{names[0]}"
        subscriber = Subscriber(client_id, nodes, f"{self._topic}/#", qos)
        self._devices.append(subscriber)
        subscriber.open()
        return subscriber

    def _publisher(self, names: str) -> Publisher:
        nodes = [self._cluster[each] for each in names]
        publisher = Publisher(f"{self._topic}-pub-{names[0]}", nodes, self._topic, self._pace)
        self._devices.append(publisher)
        publisher.open()
        return publisher

    def flow(self, messages: int = 10, *names: str) -> None:
        """Waits until so many more messages are acknowledged to each publisher, or to those that are named."""
        for publisher in self.publishers:
            if not names or publisher.client_id in names:
                publisher.wait_more(messages)

    def at(self, node: str) -> Publisher:
        """The publisher at a node."""
        (found,) = (each for each in self.publishers if each.client_id.endswith(f"-{node}"))
        return found

    def retain(self, topic: str, payload: str, node: str) -> None:
        """Has the publisher at a node publish a message to be retained; an empty one deletes."""
        self.at(node).retain(topic, payload)

    def settle(self, is_exact: bool = True) -> None:
        """Ends the publishers; all that was acknowledged is there, if it is to be exact at QoS 2 once and in order."""
        for publisher in self.publishers:
            publisher.finish()
        sent = self.sent()
        for subscriber in self.subscribers:
            subscriber.wait_for(sent)
            found = faults_of(subscriber.got) if is_exact else []
            assert not found, f"{subscriber.client_id}: {len(found)} faults: {'; '.join(found[:8])}"

    def close(self) -> None:
        for device in self._devices:
            device.close()

    def _wait_routed(self, subscribers: Sequence[Subscriber]) -> None:
        """Waits until what each publisher publishes reaches each of these subscribers."""
        deadline = monotonic() + TIMEOUT
        wanted = {each.client_id.encode() for each in self.publishers}
        while waiting := [each for each in subscribers if not wanted <= each.probed]:
            assert monotonic() < deadline, f"not routed: {[each.client_id for each in waiting]}"
            for publisher in self.publishers:
                publisher.client.publish(f"{self._topic}/probe", publisher.client_id.encode())
            with waiting[0].changed:
                waiting[0].changed.wait(0.05)


@contextmanager
def traffic(
    cluster: Nodes, topic: str, publish: Iterable[str], subscribe: Iterable[str], pace: float = PACE
) -> Iterator[Traffic]:
    """Traffic below a topic: `["a", "bc"]` are two devices, one at `a`, one that goes from `b` to `c` and back.

    A publisher is called `TOPIC-pub-NODE` and a subscriber `TOPIC-sub-NODE`, by the first of its nodes.
    """
    with closing(Traffic(cluster, topic, pace)) as found:
        found.open(publish, subscribe)
        yield found
