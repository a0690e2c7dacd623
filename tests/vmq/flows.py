"""A machine that compares the core with the reference of `flow_model`.

`FlowMachine` lets several clients connect, leave, take over, subscribe, publish, acknowledge, withhold and block in any
order, and after every step compares what each client was sent, and what was dropped, with the reference.
"""

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from vmq_hooks import Message as SeenMessage
from vmq_hooks import SubscriberId

from tests.support import wire as mqtt
from tests.vmq.flow_model import Event, Item, ModelQueue, ModelSession, event_of
from tests.vmq.support import Client, House
from vmq.core.context import CoreOptions
from vmq.core.waiting import size_of
from vmq.mqtt.topics import matches

CLIENTS = st.sampled_from(["a", "b", "c"])
TOPICS = st.sampled_from(["t/0", "t/1", "u"])
FILTERS = st.sampled_from(["t/0", "t/1", "t/+", "u", "#"])
QOS = st.integers(0, 2)
#: The second is too long to stand in a queue entry of the store.
PADDING = st.sampled_from([0, 2000])
#: The first has a place for one long message, and for a short one beside it.
WINDOW_BYTES = st.sampled_from([3000, 1 << 20])


class FlowMachine(RuleBasedStateMachine):
    """Clients of a core without a store: whatever they ask for, their sessions are clean ones."""

    stored = False

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp("-flows")) if self.stored else None
        self.clients: dict[str, Client] = {}
        self.sessions: dict[str, ModelSession] = {}
        self.retained: dict[str, tuple[bytes, int]] = {}
        self.drops: dict[str, list[bytes]] = {}
        self.number = 0

    @initialize(
        window=st.integers(1, 3),
        window_bytes=WINDOW_BYTES,
        online=st.integers(-1, 4),
        offline=st.integers(-1, 4),
        oldest=st.booleans(),
        lifo=st.booleans(),
        upgrade=st.booleans(),
        step=st.sampled_from([1, 2, 100]),
    )
    def build(
        self,
        window: int,
        window_bytes: int,
        online: int,
        offline: int,
        oldest: bool,
        lifo: bool,
        upgrade: bool,
        step: int,
    ) -> None:
        if oldest:
            # Dropping what is in the store may end the draining, and with it the larger limit, in
            # the midst of a step: too fine for the reference.
            offline = online

        def change(options: CoreOptions) -> None:
            options.max_inflight_messages = window
            options.max_inflight_bytes = window_bytes
            options.max_online_messages = online
            options.max_offline_messages = offline
            options.drop_oldest = oldest
            options.lifo = lifo
            options.upgrade_outgoing_qos = upgrade
            options.max_msgs_per_drain_step = step

        self.house = House(self.folder, change=change)
        self.listen_to_drops()
        # A good deal happens to those who are there and listen.
        for name, wish in (("a", 2), ("b", 1)):
            self.connect(name, clean=False)
            self.clients[name].subscribe(("t/+", wish))
            self.sessions[name].subscriptions["t/+"] = wish

    def listen_to_drops(self) -> None:
        def dropped(who: SubscriberId, lazy: Callable[[], SeenMessage], reason: str) -> None:
            assert reason == "queue_full"
            self.drops.setdefault(who.client_id, []).append(lazy().payload)

        self.house.core.hooks.on_message_drop = dropped
        self.house.core.hooks.resolve()

    def teardown(self) -> None:
        if self.folder is not None:
            if hasattr(self, "house"):
                self.house.close()
            shutil.rmtree(self.folder)

    # Clients come and go

    @rule(name=CLIENTS, clean=st.booleans())
    def connect(self, name: str, clean: bool) -> None:
        older = self.clients.pop(name, None)
        if older is not None:
            self.model_gone(name)
        session = self.sessions.get(name)
        if clean and session is not None:
            del self.sessions[name]
            session = None
        client = Client(self.house)
        connack = client.connect(name, clean=clean)
        assert connack.session_present == (session is not None)
        assert older is None or older.is_closed()
        if session is None:
            durable = self.stored and not clean

            def draining() -> bool:
                return self.house.queue(name).backlog > 0

            session = ModelSession(ModelQueue(self.house.options, durable, draining))
            self.sessions[name] = session
        self.clients[name] = client
        session.queue.go_online()
        self.check()

    def model_gone(self, name: str) -> None:
        """What the end of a connection means for the model."""
        session = self.sessions[name]
        session.queue.go_offline()
        if not session.queue.durable:
            del self.sessions[name]

    @precondition(lambda self: self.clients)
    @rule(data=st.data(), orderly=st.booleans())
    def leave(self, data: st.DataObject, orderly: bool) -> None:
        name, client = self.any_client(data)
        del self.clients[name]
        self.model_gone(name)
        if orderly:
            client.disconnect()
        else:
            client.lose(OSError("reset by peer"))
        self.check()

    @precondition(lambda self: self.clients)
    @rule(data=st.data())
    def block_or_unblock(self, data: st.DataObject) -> None:
        name, client = self.any_client(data)
        queue = self.sessions[name].queue
        queue.blocked = not queue.blocked
        if queue.blocked:
            client.block()
        else:
            client.unblock()
            queue.run()
        self.check()

    def any_client(self, data: st.DataObject) -> tuple[str, Client]:
        name = data.draw(st.sampled_from(sorted(self.clients)))
        return name, self.clients[name]

    # Subscriptions

    @precondition(lambda self: self.clients)
    @rule(data=st.data(), topic_filter=FILTERS, qos=QOS)
    def subscribe(self, data: st.DataObject, topic_filter: str, qos: int) -> None:
        name, client = self.any_client(data)
        session = self.sessions[name]
        matched = self.house.registry.retained.match(topic_filter)
        assert {message.topic.decode() for message in matched} == {
            topic for topic in self.retained if matches(topic_filter, topic)
        }
        assert client.subscribe((topic_filter, qos)) == [qos]
        session.subscriptions[topic_filter] = qos
        items = []
        for message in matched:  # in the order of the retained store, which promises none
            payload, published = self.retained[message.topic.decode()]
            wanted = self.effective(published, qos)
            length = len(message.topic) + len(payload)
            items.append(Item(payload, wanted, length, retain=True, brought_by=topic_filter))
        session.queue.deliver_retained(topic_filter, items)
        self.check()

    @precondition(lambda self: self.clients)
    @rule(data=st.data(), topic_filter=FILTERS)
    def unsubscribe(self, data: st.DataObject, topic_filter: str) -> None:
        name, client = self.any_client(data)
        session = self.sessions[name]
        # What is left of the subscription's burst goes, and may give way to others.
        client.send(mqtt.unsubscribe_packet(client.next_id(), topic_filter))
        client.take_answer(mqtt.UNSUBACK, client.last_id)
        if session.subscriptions.pop(topic_filter, None) is not None:
            session.queue.deliver_retained(topic_filter, [])
        self.check()

    def effective(self, published: int, granted: int) -> int:
        return granted if self.house.options.upgrade_outgoing_qos else min(published, granted)

    # Publishing

    @precondition(lambda self: self.clients)
    @rule(data=st.data(), topic=TOPICS, qos=QOS, retain=st.booleans(), padding=PADDING)
    def publish(
        self, data: st.DataObject, topic: str, qos: int, retain: bool, padding: int
    ) -> None:
        name, client = self.any_client(data)
        payload = self.payload(padding)
        pid = self.free_id(client, self.sessions[name])
        number = pid if qos else None
        client.send(mqtt.publish_packet(topic, payload, qos=qos, packet_id=number, retain=retain))
        if qos == 2:
            self.sessions[name].published[pid] = payload
        self.model_publish(topic, payload, qos, retain)
        if qos:
            client.take_answer(mqtt.PUBACK if qos == 1 else mqtt.PUBREC, pid)
        self.check()

    @precondition(lambda self: self.clients)
    @rule(data=st.data(), qos=st.sampled_from([1, 2]), count=st.integers(2, 5))
    def publish_several(self, data: st.DataObject, qos: int, count: int) -> None:
        for _ in range(count):
            self.publish(data, "t/0", qos, retain=False, padding=0)

    @precondition(lambda self: self.clients)
    @rule(data=st.data(), topic=TOPICS, count=st.integers(1, 4))
    def publish_a_run(self, data: st.DataObject, topic: str, count: int) -> None:
        """QoS 0 on one topic in one chunk: the path where subscribers get the very bytes."""
        _, client = self.any_client(data)
        payloads = [self.payload(0) for _ in range(count)]
        client.send(*(mqtt.publish_packet(topic, payload) for payload in payloads))
        for payload in payloads:
            self.model_publish(topic, payload, 0, False)
        self.check()

    @precondition(lambda self: self.clients)
    @rule(data=st.data(), topic=TOPICS)
    def clear_retained(self, data: st.DataObject, topic: str) -> None:
        _, client = self.any_client(data)
        client.send(mqtt.publish_packet(topic, b"", retain=True))
        self.model_publish(topic, b"", 0, True)
        self.check()

    @precondition(lambda self: any(self.sessions[name].published for name in self.clients))
    @rule(data=st.data(), release=st.booleans())
    def go_on_publishing(self, data: st.DataObject, release: bool) -> None:
        """Sends a QoS 2 PUBLISH again, which must have no effect, or its PUBREL."""
        names = [name for name in sorted(self.clients) if self.sessions[name].published]
        name = data.draw(st.sampled_from(names))
        client, published = self.clients[name], self.sessions[name].published
        pid = data.draw(st.sampled_from(sorted(published)))
        if release:
            del published[pid]
            client.send(mqtt.pubrel_packet(pid))
            client.take_answer(mqtt.PUBCOMP, pid)
        else:
            client.send(mqtt.publish_packet("t/0", published[pid], qos=2, packet_id=pid, dup=True))
            client.take_answer(mqtt.PUBREC, pid)
        self.check()

    def payload(self, padding: int) -> bytes:
        """A payload that no other message has."""
        self.number += 1
        return b"%d" % self.number + b"." * padding

    def free_id(self, client: Client, session: ModelSession) -> int:
        while True:
            pid = client.next_id()
            if pid not in session.published:
                return pid

    def model_publish(self, topic: str, payload: bytes, qos: int, retain: bool) -> None:
        if retain and payload:
            self.retained[topic] = (payload, qos)
        elif retain:
            self.retained.pop(topic, None)
        for session in self.sessions.values():
            granted = [wish for each, wish in session.subscriptions.items() if matches(each, topic)]
            if granted:
                wanted = self.effective(qos, max(granted))
                session.queue.deliver(Item(payload, wanted, len(topic) + len(payload)))

    # Acknowledging

    @precondition(lambda self: any(self.sessions[name].ids for name in self.clients))
    @rule(data=st.data(), repeat=st.booleans())
    def acknowledge(self, data: st.DataObject, repeat: bool) -> None:
        """The next step of any unfinished exchange, or the last step again."""
        names = [name for name in sorted(self.clients) if self.sessions[name].ids]
        name = data.draw(st.sampled_from(names))
        pid = data.draw(st.sampled_from(sorted(self.sessions[name].ids)))
        self.take_next_step(name, pid, repeat)

    @precondition(lambda self: any(self.sessions[name].ids for name in self.clients))
    @rule(data=st.data(), rounds=st.integers(1, 8))
    def acknowledge_all(self, data: st.DataObject, rounds: int) -> None:
        """A client reads on: the next step of everything it has, several times."""
        names = [name for name in sorted(self.clients) if self.sessions[name].ids]
        name = data.draw(st.sampled_from(names))
        for _ in range(rounds):
            for pid in list(self.sessions[name].ids):
                self.take_next_step(name, pid, False)

    def take_next_step(self, name: str, pid: int, repeat: bool) -> None:
        client, session = self.clients[name], self.sessions[name]
        item = session.ids[pid]
        if item.qos == 1:
            del session.ids[pid]
            session.queue.acknowledge(item)
            client.send(mqtt.puback_packet(pid))
        elif not item.released or repeat:
            session.queue.received(item)
            client.send(mqtt.pubrec_packet(pid))
        else:
            del session.ids[pid]
            session.queue.acknowledge(item)
            client.send(mqtt.pubcomp_packet(pid))
        self.check()

    @precondition(lambda self: self.clients)
    @rule(data=st.data(), build=st.sampled_from([mqtt.puback_packet, mqtt.pubcomp_packet]))
    def acknowledge_what_is_not_in_flight(
        self, data: st.DataObject, build: Callable[[int], bytes]
    ) -> None:
        name, client = self.any_client(data)
        unknown = 60_000
        assert unknown not in self.sessions[name].ids
        client.send(build(unknown))
        self.check()

    # Comparing

    def check(self) -> None:
        """Everything that was sent is what the reference says, and nothing else was."""
        for name, client in self.clients.items():
            packets = client.take()
            quick = [each for each in packets if each.type == mqtt.PUBLISH and each.qos == 0]
            others = [each for each in packets if each not in quick]
            session = self.sessions[name]
            queue = session.queue
            assert [event_of(each) for each in quick] == queue.quick_events, name
            session.taken[0] += [each.payload for each in quick if each.payload and not each.retain]
            queue.quick_events = []
            assert len(others) == len(queue.events), (name, others, queue.events)
            for packet, expected in zip(others, queue.events, strict=True):
                self.take_in(session, packet, expected)
            queue.events = []
        for name, session in self.sessions.items():
            assert self.drops.pop(name, []) == session.queue.dropped, name
            session.queue.dropped = []
        self.drops.clear()

    def take_in(self, session: ModelSession, packet: mqtt.Packet, expected: Event | Item) -> None:
        """One packet of a QoS 1 or 2 exchange reaches a client."""
        assert packet.type in (mqtt.PUBLISH, mqtt.PUBREL), packet
        if not isinstance(expected, Item):  # a repeat, or a PUBREL
            assert event_of(packet) == expected
            item = session.ids[packet.packet_id]
            assert packet.type == mqtt.PUBREL or item.payload == packet.payload
            return
        wanted = ("publish", expected.payload, expected.qos, False, expected.retain)
        assert event_of(packet) == wanted
        assert packet.packet_id not in session.ids, "a packet id in use [MQTT-2.3.1-4]"
        expected.pid = packet.packet_id
        session.ids[packet.packet_id] = expected
        if packet.payload and not packet.retain:
            session.taken[expected.qos].append(packet.payload)

    @invariant()
    def promises_hold(self) -> None:
        """What follows from the reference anyway, in the words of the promises."""
        for session in self.sessions.values():
            window = self.house.options.max_inflight_messages
            assert len(session.queue.inflight) <= window
            assert len(session.ids) <= window
            assert len(set(session.taken[2])) == len(session.taken[2]), "twice at QoS 2"
            if not self.house.options.lifo:
                for taken in session.taken.values():
                    numbers = [int(payload.rstrip(b".")) for payload in taken]
                    assert numbers == sorted(numbers), "out of order"

    @invariant()
    def sizes_agree(self) -> None:
        """The queue knows how much it holds: the limits depend on it."""
        for name, session in self.sessions.items():
            real, model = self.house.queue(name), session.queue
            assert real.waiting() == model.count(), name
            assert real.inflight_is_stored or len(real.inflight) == len(model.inflight), name
            assert real.online == model.online
            assert real.pending_bytes == size_of(real.pending), name
            assert real.quick_bytes == size_of(real.quick), name
            sent = [each for each in real.inflight.values() if not each.released]
            assert real.inflight_bytes == sum(each.message.length() for each in sent), name
        subscribers = self.house.registry.subscribers.values()
        droppable = sum(each.queue.droppable_bytes() for each in subscribers)
        assert self.house.core.waiting_bytes == droppable
