"""Random packets in every state of a connection, against a naive reading of the standard (`packet_oracle`)."""

from __future__ import annotations

import logging
import shutil
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from vmq_hooks import Refuse, Subscription

from tests.support import wire as mqtt
from tests.vmq.packet_oracle import LATER, LATER_FILTER, Kept, Oracle, numbered, wished
from tests.vmq.support import Client, House
from vmq.core.hook_sites import Pending
from vmq.core.ports import Claims
from vmq.core.states import AUTHENTICATING, BUSY, CLOSED, DISCONNECTED, ONLINE, STATES, WAITING
from vmq.protocol.session import PACKETS_A_PASS

IDS = st.integers(1, 4)
FLAGS = st.integers(0, 15)
#: Mostly those that a client of 3.1.1 may send, since a wrong one is the end.
GOOD_FLAGS = {kind: st.just(2 if kind in (6, 8, 10) else 0) for kind in range(16)}
KINDS = st.sampled_from([3] * 8 + [8, 10, 8, 6, 6, 4, 5, 7, 12, 12])
PING = mqtt.packet(0xC0)
#: What answers the client's packets waits for commits apart from what delivers to it, and PINGRESP for nothing.
KEPT_IN_ORDER = (
    {mqtt.CONNACK, mqtt.PUBACK, mqtt.PUBREC, mqtt.PUBCOMP, mqtt.SUBACK, mqtt.UNSUBACK},
    {mqtt.PUBREL},
    {mqtt.PINGRESP},
)
SELDOM = st.sampled_from([False] * 11 + [True])
SOMETIMES = st.sampled_from([False] * 4 + [True])


class Log(logging.Handler):
    """The lines that tell of ends of connections."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.lines: list[tuple[int, str]] = []

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        if text.startswith("closed "):
            self.lines.append((record.levelno, text))


class ClaimsOf(Claims):
    """The cluster, as the machine has it."""

    def __init__(self, machine: PacketMachine) -> None:
        self.machine = machine

    def claim(
        self, registry: Any, client_id: str, clean: bool, user: str = "", options: Any = None
    ) -> Pending | None:
        later = self.machine.claim_later and client_id == "c"
        return self.machine.later() if later else None


class PacketMachine(RuleBasedStateMachine):
    """One client of a durable session, and one that sees what the others see of it."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="vmq-states-"))
        self.house = House(self.folder / "store")
        hooks = self.house.core.hooks
        hooks.auth_on_register = self.on_register
        hooks.auth_on_publish = self.on_publish
        hooks.auth_on_subscribe = self.on_subscribe
        hooks.resolve()
        self.house.core.claims = ClaimsOf(self)
        self.login_later = self.claim_later = False
        self.pending: Pending | None = None
        self.watcher = self.house.client("watcher")
        self.watcher.subscribe(("out", 0), (f"{LATER}/#", 0), ("will", 0))
        self.kept = Kept()
        self.count = 0
        self.log = Log()
        self.logger = logging.getLogger("vmq.session")
        self.level_before = self.logger.level
        self.logger.setLevel(logging.DEBUG)
        self.logger.addHandler(self.log)

    def teardown(self) -> None:
        self.logger.removeHandler(self.log)
        self.logger.setLevel(self.level_before)
        self.house.close()
        shutil.rmtree(self.folder)

    # What plugins and the cluster say

    def later(self) -> Pending:
        assert self.pending is None, "asked twice at a time"
        self.pending = Pending(self.on_cancel)
        return self.pending

    def on_cancel(self) -> None:
        self.pending = None

    def on_register(self, *_: Any) -> Pending | None:
        return self.later() if self.login_later else None

    def on_publish(self, _user: Any, _who: Any, message: Any) -> Pending | None:
        return self.later() if message.topic == LATER else None

    def on_subscribe(self, _user: Any, _who: Any, wanted: list[Subscription]) -> Pending | None:
        return self.later() if any(each.topic_filter == LATER_FILTER for each in wanted) else None

    # The connection

    @initialize(level=st.sampled_from([4, 4, 3]), login=st.booleans(), claim=st.booleans())
    def begin(self, level: int, login: bool, claim: bool) -> None:
        self.client = Client(self.house, anonymous=False)
        self.login_later, self.claim_later = login, claim
        self.oracle = Oracle(self.kept, level, login, claim)
        self.log.lines.clear()

    @rule(
        level=st.sampled_from([4, 4, 3]), login=st.booleans(), claim=st.booleans(), anyway=SOMETIMES
    )
    def lose_and_come_again(self, level: int, login: bool, claim: bool, anyway: bool) -> None:
        if not self.oracle.is_over() and not anyway:
            return
        self.client.lose()
        self.oracle.lose()
        self.check()
        assert self.client.connection.state == CLOSED
        self.begin(level, login, claim)

    def connect_packet(self, flags: int) -> bytes:
        name = "MQTT" if self.oracle.level == 4 else "MQIsdp"
        will = mqtt.Will("will", b"will")
        data = mqtt.connect_packet(
            "c", clean=False, keep_alive=0, will=will, protocol=name, level=self.oracle.level
        )
        return bytes([data[0] | flags]) + data[1:]

    # What the client sends

    def payload(self) -> bytes:
        self.count += 1
        return b"%d" % self.count

    def make(self, data: st.DataObject, kind: int, flags: int) -> bytes:
        """A packet of this type with these flags, whose body is good."""
        first = kind << 4 | flags
        packet_id = data.draw(IDS)
        if kind == 1:
            return self.connect_packet(flags)
        if kind == 3:
            name = data.draw(st.sampled_from(["out", "out", LATER]))
            if flags & 1:  # who subscribes to a retained one has its source asked about, too
                name = "out"
            number = packet_id.to_bytes(2, "big") if flags & 6 else b""
            return mqtt.packet(first, mqtt.encode_text(name) + number + self.payload())
        if kind in (4, 5, 7) and self.kept.due and data.draw(st.integers(0, 3)):
            packet_id = data.draw(st.sampled_from(sorted(self.kept.due)))
        if kind in (4, 5, 6, 7):
            return numbered(first, packet_id)
        name = data.draw(st.sampled_from(["in", "in", LATER_FILTER]))
        if kind == 8:
            return wished(packet_id, name, data.draw(st.integers(0, 2)), first)
        if kind == 10:
            return numbered(first, packet_id, mqtt.encode_text(name))
        return mqtt.packet(first)

    def packets(self, data: st.DataObject) -> list[bytes]:
        found: list[bytes] = []
        for _ in range(data.draw(st.integers(1, 3))):
            kind = data.draw(KINDS)
            flags = data.draw(GOOD_FLAGS[kind])
            if kind == 3:
                flags = data.draw(st.sampled_from([0, 0, 1, 2, 3, 4, 5, 10, 12]))
            found.append(self.make(data, kind, flags))
        return found

    def send(self, packets: list[bytes], cut: int = 0) -> None:
        """Sends them in two chunks that are cut anywhere."""
        whole = b"".join(packets)
        for chunk in (whole[:cut], whole[cut:]):
            if chunk:
                self.client.send(chunk)
        for each in packets:
            self.oracle.take(each)
        self.check()

    @precondition(lambda self: self.oracle.where == "awaiting CONNECT")
    @rule(is_wrong=SELDOM, data=st.data())
    def send_connect(self, is_wrong: bool, data: st.DataObject) -> None:
        behind = self.packets(data) if data.draw(st.booleans()) else []
        connect = self.connect_packet(1 if is_wrong else 0)
        self.send([connect, *behind], data.draw(st.integers(0, 60)))

    @precondition(lambda self: self.oracle.where != "awaiting CONNECT")
    @precondition(lambda self: not self.oracle.is_over())
    @rule(data=st.data())
    def send_packets(self, data: st.DataObject) -> None:
        self.send(self.packets(data), data.draw(st.integers(0, 40)))

    @precondition(lambda self: not self.oracle.is_over())
    @rule(data=st.data(), does=SOMETIMES)
    def send_what_it_may_not(self, data: st.DataObject, does: bool) -> None:
        if does:
            kind = data.draw(st.integers(0, 15))
            self.send([self.make(data, kind, data.draw(FLAGS)), *self.packets(data)])

    @precondition(lambda self: self.oracle.where == "online" and "in" not in self.kept.filters)
    @rule(data=st.data(), qos=st.sampled_from([2, 2, 1]))
    def subscribe(self, data: st.DataObject, qos: int) -> None:
        self.send([wished(data.draw(IDS), "in", qos, 0x82)])

    @precondition(lambda self: self.kept.due and self.oracle.where == "online")
    @rule(data=st.data(), is_other=SELDOM)
    def acknowledge(self, data: st.DataObject, is_other: bool) -> None:
        packet_id = data.draw(st.sampled_from(sorted(self.kept.due)))
        kind = {"PUBACK": 4, "PUBREC": 5, "PUBCOMP": 7}[self.kept.due[packet_id][0]]
        if is_other:
            kind = data.draw(st.sampled_from([4, 5, 7]))
        self.send([numbered(kind << 4, packet_id)])

    @precondition(lambda self: self.oracle.where == "online")
    @rule(data=st.data(), does=SELDOM)
    def send_more_than_a_pass_handles(self, data: st.DataObject, does: bool) -> None:
        if not does:
            return
        first, second = self.packets(data), self.packets(data)
        self.house.patient = True
        self.client.send(PING * PACKETS_A_PASS, *first)
        assert self.client.connection.state == BUSY
        self.client.send(*second)
        assert self.client.connection.state == BUSY
        self.house.patient = False
        self.house.settle()
        for each in [*[PING] * PACKETS_A_PASS, *first, *second]:
            self.oracle.take(each)
        self.check()

    # What others do

    @precondition(lambda self: self.oracle.where in ("online", "waiting"))
    @precondition(lambda self: len(self.kept.due) < 10)
    @rule(qos=st.integers(0, 2))
    def deliver(self, qos: int) -> None:
        payload = self.payload()
        self.house.publish("in", payload, qos)
        self.oracle.deliver(payload, qos)
        self.check()

    @precondition(lambda self: self.pending is not None)
    @rule(is_good=st.sampled_from([True, True, True, False]))
    def answer(self, is_good: bool) -> None:
        pending, self.pending = self.pending, None
        assert pending is not None
        asked_at = self.client.connection.state
        unavailable = AUTHENTICATING < asked_at < WAITING
        pending.finish(None if is_good else Refuse("no", unavailable=unavailable))
        self.house.settle()
        self.oracle.verdict(is_good)
        self.check()

    @precondition(lambda self: not self.oracle.is_over())
    @rule(does=SELDOM)
    def end(self, does: bool) -> None:
        if does:
            self.client.connection.close("enough")
            self.house.settle()
            self.oracle.end("closing")
            self.check()

    # What there is to see

    def check(self) -> None:
        """The client was sent what the oracle says, the others saw it, and the connection is where it says."""
        oracle = self.oracle
        came = self.client.take()
        for types in KEPT_IN_ORDER:
            found = [each.raw for each in came if each.type in types]
            assert found == [each for each in oracle.answers if each[0] >> 4 in types]
        published = [each for each in came if each.type == mqtt.PUBLISH]
        assert [(each.payload, each.qos, each.dup) for each in published] == oracle.sent
        for each in published:
            if each.qos and not each.dup:
                due = "PUBACK" if each.qos == 1 else "PUBREC"
                self.kept.due[each.packet_id] = (due, each.payload, each.qos)
        assert self.watcher.take_published() == oracle.seen
        oracle.answers, oracle.sent, oracle.seen = [], [], []

    @invariant()
    def it_is_where_the_oracle_says(self) -> None:
        state = self.client.connection.state
        oracle = self.oracle
        assert STATES[state].name == oracle.where
        assert self.client.is_closed() == oracle.is_over()
        assert (self.pending is not None) == (oracle.go_on is not None)
        if state >= DISCONNECTED:
            assert not oracle.unread or self.client.connection.kept_bytes() == 0
        elif state <= ONLINE:
            assert self.client.transport.is_reading()
        if not oracle.is_over() or oracle.where == "refused":
            return
        level, line = self.log.lines[-1]
        levels = {"disconnected": logging.DEBUG, "broken": logging.WARNING}
        assert level == levels.get(oracle.where, logging.INFO), line
        assert oracle.broken == "" or f"[{oracle.broken}]" in line


TestPackets = PacketMachine.TestCase
TestPackets.settings = settings(max_examples=90, stateful_step_count=50, deadline=None)
