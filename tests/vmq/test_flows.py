"""Sessions and queues against the reference of `flow_model`: without a store, and with one that is
killed and opened again."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.support.present import present
from tests.support.wire import PUBACK, PUBLISH, PUBREC, publish_packet
from tests.vmq.flows import PADDING, QOS, TOPICS, WINDOW_BYTES, FlowMachine
from tests.vmq.test_store_model import check_sizes
from vmq.mqtt.topics import matches
from vmq.store.lines import is_end


class DurableFlowMachine(FlowMachine):
    """With a store: sessions outlive connections, and the broker's own end."""

    stored = True

    @rule()
    def crash(self) -> None:
        """The broker is killed with everything committed, and started again."""
        self.house.restart()
        self.after_restart()

    @precondition(lambda self: self.clients)
    @rule(data=st.data(), topic=TOPICS, qos=QOS, retain=st.booleans(), padding=PADDING)
    def crash_before_the_commit(
        self, data: st.DataObject, topic: str, qos: int, retain: bool, padding: int
    ) -> None:
        """The broker is killed between a publish and its commit: the publisher was acknowledged nothing durable.

        A client that is there may have the message at QoS 1, which may come twice, and nothing else.
        """
        name, client = self.any_client(data)
        payload = self.payload(padding)
        pid = self.free_id(client, self.sessions[name])
        number = pid if qos else None
        self.house.patient = True
        client.send(publish_packet(topic, payload, qos=qos, packet_id=number, retain=retain))
        stored = (qos == 2 and self.sessions[name].queue.durable) or retain
        for other, session in self.sessions.items():
            granted = [wish for each, wish in session.subscriptions.items() if matches(each, topic)]
            wanted = self.effective(qos, max(granted)) if granted else 0
            if session.queue.durable and wanted > 0:
                stored = stored or session.queue.would_take(len(topic) + len(payload))
                if other in self.clients:
                    sent = [each for each in self.clients[other].take() if each.type == PUBLISH]
                    early = [payload] if wanted == 1 and not self.house.options.lifo else []
                    assert [each.payload for each in sent] in ([], early)
        if stored and qos:
            answers = [each for each in client.take() if each.type in (PUBACK, PUBREC)]
            assert answers == [], "acknowledged before it was stored"
        self.house.restart()
        self.house.patient = False
        self.after_restart()

    def after_restart(self) -> None:
        for name in list(self.clients):
            del self.clients[name]
            self.model_gone(name)
        for session in self.sessions.values():
            session.queue.dropped = []
        self.drops.clear()
        self.listen_to_drops()
        kept = {topic: payload for topic, (payload, _) in self.retained.items()}
        assert self.house.retained() == kept
        assert set(self.house.registry.subscribers) == set(self.sessions)


class DrainMachine(RuleBasedStateMachine):
    """The same, made for one thing: a subscriber that comes and goes while messages pile up."""

    def __init__(self) -> None:
        super().__init__()
        self.flows = DurableFlowMachine()
        self.crashes = 0

    @initialize(
        window=st.integers(1, 3),
        window_bytes=WINDOW_BYTES,
        lifo=st.booleans(),
        step=st.sampled_from([1, 3, 100]),
    )
    def build(self, window: int, window_bytes: int, lifo: bool, step: int) -> None:
        options = {"oldest": False, "lifo": lifo, "upgrade": False, "step": step}
        self.flows.build(window, window_bytes, -1, -1, **options)
        self.flows.connect("b", clean=True)  # who publishes when the subscriber is away

    @rule(data=st.data(), qos=st.sampled_from([1, 2, 2]), count=st.integers(1, 4), padding=PADDING)
    def publish(self, data: st.DataObject, qos: int, count: int, padding: int) -> None:
        for _ in range(count):
            self.flows.publish(data, "t/0", qos, retain=False, padding=padding)

    @rule(steps=st.integers(1, 3))
    def acknowledge(self, steps: int) -> None:
        """Next steps of exchanges, the oldest first."""
        for _ in range(steps):
            ids = list(self.flows.sessions["a"].ids)
            if ids and "a" in self.flows.clients:
                self.flows.take_next_step("a", ids[0], False)

    @rule()
    def acknowledge_the_newest(self) -> None:
        ids = list(self.flows.sessions["a"].ids)
        if ids and "a" in self.flows.clients:
            self.flows.take_next_step("a", ids[-1], False)

    @rule()
    def come_or_go(self) -> None:
        client = self.flows.clients.pop("a", None)
        if client is None:
            self.flows.connect("a", clean=False)
        else:
            self.flows.model_gone("a")
            client.lose()
            self.flows.check()

    @rule()
    def crash(self) -> None:
        self.crashes += 1
        self.flows.crash()
        self.flows.connect("b", clean=True)

    @invariant()
    def all_is_well(self) -> None:
        self.flows.promises_hold()
        self.flows.sizes_agree()
        check_sizes(present(self.flows.house.store), self.crashes)

    def teardown(self) -> None:
        """In the end the subscriber gets everything, and nothing of it stays in the store."""
        flows = self.flows
        try:
            if "a" not in flows.clients:
                flows.connect("a", clean=False)
            while flows.sessions["a"].ids:
                flows.take_next_step("a", next(iter(flows.sessions["a"].ids)), False)
            queue = flows.sessions["a"].queue
            assert (queue.waiting, queue.inflight) == ([], [])
            assert flows.house.queue("a").waiting() == 0
            flows.clients.pop("a").lose()
            flows.house.settle()
            records = [key for key, _ in present(flows.house.store).db.iterator()]
            assert [key for key in records if key[:1] in b"qijmc" and not is_end(key)] == []
        finally:
            flows.teardown()


#: One bug at a time: telling several apart takes minutes.
SETTINGS = settings(max_examples=80, stateful_step_count=40, report_multiple_bugs=False)
FlowMachine.TestCase.settings = SETTINGS
DurableFlowMachine.TestCase.settings = SETTINGS
DrainMachine.TestCase.settings = settings(SETTINGS, stateful_step_count=25)

TestFlowsOfCleanSessions = FlowMachine.TestCase
TestFlowsOfDurableSessions = DurableFlowMachine.TestCase
TestDraining = DrainMachine.TestCase
