"""Who takes part in an episode: devices that publish and subscribe throughout, and what each of them is to get."""

import subprocess
import tempfile
from collections.abc import Collection, Iterable, Sequence
from contextlib import closing
from pathlib import Path
from random import Random
from time import monotonic, sleep, time
from typing import Any, Final, Protocol

import paho.mqtt.client as mqtt

from tests.cluster_processes.cluster import Node
from tests.cluster_processes.devices import (
    TIMEOUT,
    Device,
    Message,
    Publisher,
    Reader,
    Subscriber,
    faults_of,
    message_of,
)
from tests.support.tools import find_tool

#: Seconds for what was late: nodes that were away have much to tell each other.
LATEST: Final = 90.0


class Listener(Subscriber):
    """A subscriber that knows when it got what."""

    def __init__(self, client_id: str, nodes: Sequence[Node], topic_filter: str, qos: int) -> None:
        super().__init__(client_id, nodes, topic_filter, qos)
        self.times: list[float] = []
        self.wills: list[bytes] = []

    def _on_message(self, client: Any, data: Any, message: mqtt.MQTTMessage) -> None:
        if message.topic.endswith("/will"):
            self.wills.append(bytes(message.payload))
            return
        self.times.append(time())
        super()._on_message(client, data, message)


class Mosquitto:
    """mosquitto_sub with a durable session at one node. It gives up when it is refused, and is begun anew then."""

    def __init__(self, client_id: str, node: Node, topic_filter: str, qos: int, folder: Path):
        self.client_id = client_id
        self._lines = folder / client_id
        self._output = self._lines.open("wb")
        where = ["-h", node.host, "-p", str(node.port), "-i", client_id, "-c", "-k", "5"]
        program = find_tool("mosquitto_sub")
        assert program is not None, "mosquitto_sub is not installed"
        what = ["-q", str(qos), "-t", topic_filter, "-d"]
        self._command = ["stdbuf", "-oL", program, *where, *what]
        self._process = self._begin()

    def _begin(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            self._command, stdin=subprocess.DEVNULL, stdout=self._output, stderr=subprocess.DEVNULL
        )

    def text(self) -> list[str]:
        return self._lines.read_text(errors="replace").splitlines()

    @property
    def got(self) -> list[Message]:
        if self._process.poll() is not None:
            self._process = self._begin()
        found = []
        for line in self.text():
            words = line.split()
            if len(words) == 3 and words[1] in "12" and "-pub-" in words[0]:
                found.append(message_of(line.encode()))
        return found

    def close(self) -> None:
        self._process.terminate()
        self._process.wait(TIMEOUT)
        self._output.close()


class Nodes(Protocol):
    """Where devices may connect; each is something like a `Node`."""

    @property
    def running(self) -> Sequence[Any]: ...

    def __getitem__(self, name: str) -> Any: ...


class Cast:
    """The devices of one episode.

    `stay` are subscribers that never leave their node, `roam` those that may be moved, `away` those that sleep,
    `group` the members of a share group.
    """

    def __init__(self, cluster: Nodes, topic: str, random: Random, faulty: bool) -> None:
        self.topic = topic
        self._cluster = cluster
        self._random = random
        self._is_closed = False
        names = sorted(each.name for each in cluster.running)
        nodes = {name: cluster[name] for name in names}
        self.devices: list[Device] = []
        self.publishers: list[Publisher] = []
        self.roving: list[Publisher] = []
        self.stay: list[Listener] = []
        self.roam: list[Listener] = []
        self.away: list[Listener] = []
        self.group: list[Listener] = []
        self.kept: dict[str, bytes] = {}
        self.wills: set[bytes] = set()
        #: Publishers whose node was out of the cluster for a while, and a broker of its own.
        self.apart: set[str] = set()
        everything = f"{topic}/#"
        # Packet ids of sessions on two sides mean different messages: roamers ask for QoS 2 where there is no split.
        qos_of_roamers = 1 if faulty else 2
        for name in names[:3]:
            self._listen(self.stay, f"stay-{name}", [nodes[name]], everything, 2)
        one = random.choice(names)
        self._listen(self.stay, f"one-{one}", [nodes[one]], f"{topic}/+/1", random.choice((1, 2)))
        for number in range(2):
            order = random.sample(names, len(names))
            way = [nodes[each] for each in order]
            self._listen(self.roam, f"roam{number}", way, everything, qos_of_roamers)
            self._listen(self.away, f"away{number}", way[:1], everything, 2)
        for name in random.sample(names, min(3, len(names))):
            self._listen(self.group, f"share-{name}", [nodes[name]], f"$share/g/{everything}", 2)
        self._folder = tempfile.TemporaryDirectory(prefix="vmq-chaos-")
        at = nodes[random.choice(names)]
        # At QoS 1: libmosquitto 2.0 keeps a second PUBLISH of QoS 2 that comes again, and takes it for a later one.
        self.mosquitto = Mosquitto(f"{topic}-mosquitto", at, everything, 1, Path(self._folder.name))
        deadline = monotonic() + TIMEOUT
        while not any("SUBACK" in line or "Subscribed" in line for line in self.mosquitto.text()):
            assert monotonic() < deadline, "mosquitto_sub is not subscribed"
        for name in names[:3]:
            self._publish(f"{topic}-pub-{name}", [nodes[name]])
        order = random.sample(names, len(names))
        self.roving.append(self._publish(f"{topic}-pub-roving", [nodes[each] for each in order]))

    def _listen(
        self, into: list[Listener], what: str, nodes: list[Node], topic_filter: str, qos: int
    ) -> None:
        device = Listener(f"{self.topic}-{what}", nodes, topic_filter, qos)
        self.devices.append(device)
        device.open()
        into.append(device)

    def _publish(self, client_id: str, nodes: list[Node]) -> Publisher:
        device = Publisher(client_id, nodes, self.topic)
        self.devices.append(device)
        device.open()
        self.publishers.append(device)
        return device

    def start(self) -> None:
        for each in self.publishers:
            each.start()

    def sent(self) -> set[Message]:
        return {message for each in self.publishers for message in each.sent()}

    def flow(self, messages: int, names: Collection[str]) -> None:
        """So many more messages are acknowledged to the publishers at these nodes."""
        for each in self.publishers:
            if each.client_id.rsplit("-", 1)[1] in names:
                each.wait_more(messages)

    def retain(self, name: str) -> None:
        """Writes or deletes something that is retained, at a node that runs."""
        at = [each for each in self.publishers if each.client_id.endswith(f"-pub-{name}")]
        if not at:
            return
        topic = f"{self.topic}-kept/{self._random.randrange(4)}"
        payload = self._random.choice(("", f"{name} {time()}"))
        at[0].retain(topic, payload)
        self.kept.pop(topic, None)
        if payload:
            self.kept[topic] = payload.encode()

    def leave_a_will(self, name: str) -> None:
        """A client with a will loses its connection at a node that runs."""
        device = Device(f"{self.topic}-dying{len(self.wills)}", [self._cluster[name]], clean=True)
        payload = f"will of {device.client_id}".encode()
        device.client.will_set(f"{self.topic}/x/will", payload, 1)
        device.open()
        device.pause()
        device.close()
        self.wills.add(payload)

    def expected(self, device: Listener | Mosquitto, sent: Iterable[Message]) -> set[Message]:
        """What one device is to get of all that was sent."""
        only = 1 if "-one-" in device.client_id else 0
        return {
            each
            for each in sent
            if (not only or each.qos == only) and each.publisher not in self.apart
        }

    def finish(self) -> None:
        """Ends the publishers once all of theirs is acknowledged."""
        for each in self.publishers:
            each.finish()

    def come_back(self) -> None:
        """Whoever is away is not any more."""
        for each in self.away:
            each.wake()
        for each in (*self.roam, *self.away):
            each.wait_connected()

    def verdict(self, exact: bool, roamed_exactly: bool, wills: bool) -> list[str]:
        """What is wrong with what came, once all has come or time is up."""
        sent = self.sent()
        wrong: list[str] = []
        deadline = monotonic() + LATEST
        everybody: list[Listener | Mosquitto] = [*self.stay, *self.roam, *self.away]
        for device in (*everybody, self.mosquitto):
            wrong += self._lacks(device.client_id, self.expected(device, sent), [device], deadline)
        together = {each for each in sent if each.publisher not in self.apart}
        wrong += self._lacks("the share group", together, self.group, deadline)
        judged: list[tuple[str, list[Message]]] = []
        roving = {each.client_id for each in self.roving}
        if exact:
            judged = [(each.client_id, each.got) for each in (*self.stay, *self.away)]
            if not roamed_exactly:
                judged = [
                    (who, [each for each in got if each.publisher not in roving])
                    for who, got in judged
                ]
        if roamed_exactly:
            judged += [(each.client_id, each.got) for each in self.roam]
        for who, got in judged:
            wrong += [f"{who} {each}" for each in faults_of(got)[:8]]
        if exact:
            shared = [each for member in self.group for each in member.got if each.qos == 2]
            twice = {each for each in shared if shared.count(each) > 1}
            if not roamed_exactly:
                twice = {each for each in twice if each.publisher not in roving}
            wrong += [f"the share group got twice: {each}" for each in sorted(twice)[:8]]
        if wills:
            for each in self.stay:
                if "-stay-" in each.client_id:
                    missing = self.wills - set(each.wills)
                    wrong += [f"{each.client_id} lacks {text.decode()}" for text in missing]
        return wrong

    def _lacks(
        self,
        who: str,
        wanted: set[Message],
        devices: Sequence[Listener | Mosquitto],
        deadline: float,
    ) -> list[str]:
        while True:
            missing = wanted - {message for each in devices for message in list(each.got)}
            if not missing:
                return []
            if monotonic() > deadline:
                few = ", ".join(map(str, sorted(missing)[:6]))
                return [f"{who} lacks {len(missing)} of {len(wanted)} messages: {few}"]
            sleep(0.1)

    def retained_wrong(self, judge_values: bool) -> list[str]:
        """What the nodes disagree about."""
        deadline = monotonic() + LATEST
        while True:
            found = {node.name: self._retained(node) for node in self._cluster.running}
            different = len({tuple(sorted(each.items())) for each in found.values()}) > 1
            if not different and (not judge_values or self.kept in found.values()):
                return []
            if monotonic() > deadline:
                return [f"retained: {found}; last written {self.kept}"]

    def _retained(self, node: Node) -> dict[str, bytes]:
        with closing(Reader(node)) as reader:
            reader.open()
            return reader.read(f"{self.topic}-kept/#")

    def tell(self, folder: Path) -> None:
        """Writes down what came to each, and when."""
        folder.mkdir(parents=True, exist_ok=True)
        for each in (*self.stay, *self.roam, *self.away, *self.group):
            lines = [
                f"{when:.3f} {message.payload.decode()}"
                for when, message in zip(each.times, each.got, strict=False)
            ]
            (folder / each.client_id).write_text("\n".join([f"{each.sessions}", *lines]))
        (folder / self.mosquitto.client_id).write_text("\n".join(self.mosquitto.text()))

    def client_ids(self) -> list[str]:
        return [each.client_id for each in self.devices] + [self.mosquitto.client_id]

    def close(self) -> None:
        """Ends all devices, if that is not done yet; the sessions stay."""
        if self._is_closed:
            return
        self._is_closed = True
        self.mosquitto.close()
        for each in self.devices:
            each.close()
        self._folder.cleanup()

    def forget(self) -> None:
        """Ends the sessions, each at any node, and what is retained."""
        nodes = self._cluster.running
        for client_id in self.client_ids():
            device = Device(client_id, [self._random.choice(nodes)], clean=True)
            device.open()
            device.close()
        janitor = Publisher(f"{self.topic}-janitor", nodes[:1], self.topic)
        janitor.open()
        for topic in self._retained(nodes[0]):
            janitor.retain(topic, "")
        janitor.close()
        last = Device(janitor.client_id, nodes[:1], clean=True)
        last.open()
        last.close()
