"""What sessions do that no client sees in one exchange: limits, commits, other nodes, and defects of ours.

Which packet may come when, and what it does, tests/conformance asks a broker, and `test_packet_states` a model.
"""

import logging
from collections.abc import Callable
from pathlib import Path

import pytest
from vmq_hooks.verdicts import Refuse

from tests.support import wire as mqtt
from tests.support.present import present
from tests.vmq.support import Client, House, stored_house
from vmq.config.options import LARGEST_CONNECT
from vmq.core.context import CoreOptions
from vmq.core.hook_sites import Answer, Pending
from vmq.core.ports import Claims
from vmq.core.registry import Registry
from vmq.mqtt.message import Message


def test_a_connect_of_any_size_the_standard_allows_is_read_and_nothing_larger_is_kept(
    house: House,
) -> None:
    huge = 65_535
    will = mqtt.Will("w" * huge, b"x" * huge)
    house.options.max_client_id_size = huge
    house.options.max_connect_size = LARGEST_CONNECT
    raw = mqtt.connect_packet("c" * huge, will=will, username="u" * huge, password=b"p" * huge)
    client = Client(house)
    client.send(raw)
    assert client.take_one(mqtt.CONNACK).return_code == 0
    other = Client(house)
    other.send(mqtt.packet(0x10, b"x" * (LARGEST_CONNECT + 1))[:5])
    assert other.is_closed()


def test_a_durable_session_is_refused_while_the_store_cannot_write(durable: House) -> None:
    present(durable.store).failing = True
    client = Client(durable)
    client.ask(mqtt.connect_packet("c", clean=False), b"\x20\x02\x00\x03")
    assert client.is_closed()
    durable.client("c", clean=True).ping()


def test_of_an_unknown_client_no_more_is_kept_than_a_connect_may_have(house: House) -> None:
    limit = house.options.max_connect_size
    raw = mqtt.connect_packet("c", username="u", password=b"p" * (limit - 21))
    assert len(raw) == limit
    client = Client(house)
    client.send(raw)
    assert client.take_one(mqtt.CONNACK).return_code == 0
    other = Client(house)
    other.send(mqtt.connect_packet("c", username="u", password=b"p" * (limit - 20))[:4])
    assert other.is_closed()


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"\x16\x03\x01\x02\x00\x01\x00", "TLS instead of MQTT [MQTT-3.1.0-1]"),
        (b"GET / HTTP/1.0\r\n", "HTTP instead of MQTT [MQTT-3.1.0-1]"),
        (b"PROXY TCP4 192.0.2.1", "a PROXY header instead of MQTT [MQTT-3.1.0-1]"),
        (b"\r\n\r\n\0\r\nQUIT\n", "a PROXY header instead of MQTT [MQTT-3.1.0-1]"),
        (b"SSH-2.0-", "PUBREC as the first packet [MQTT-3.1.0-1]"),
    ],
)
def test_what_does_not_begin_with_connect_is_named_and_not_waited_for(
    house: House, data: bytes, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    client = Client(house)
    client.send(data)
    assert client.is_closed()
    assert f'reason="protocol error: {reason}"' in caplog.text


Act = tuple[str, Callable[[Client], bytes], int]
DURABLE_ACTS: tuple[Act, ...] = (
    (
        "a publish that a durable session gets",
        lambda c: mqtt.publish_packet("d", qos=1, packet_id=9),
        4,
    ),
    (
        "a retained one",
        lambda c: mqtt.publish_packet("x", b"x", qos=1, packet_id=9, retain=True),
        4,
    ),
    ("QoS 2 from a durable session", lambda c: mqtt.publish_packet("x", qos=2, packet_id=9), 5),
    ("its PUBREL", lambda c: mqtt.pubrel_packet(8), 7),
    ("a subscription", lambda c: mqtt.subscribe_packet(9, ("x", 0)), 9),
    ("the end of one", lambda c: mqtt.unsubscribe_packet(9, "d"), 11),
)


@pytest.mark.parametrize("act", DURABLE_ACTS, ids=lambda act: act[0])
@pytest.mark.parametrize("durability", ("os", "fsync", "memory"))
def test_the_answer_to_durable_work_leaves_after_the_commit(
    tmp_path: Path, act: Act, durability: str
) -> None:
    with stored_house(tmp_path, durability=durability) as house:
        reader = house.subscriber("reader", ("d", 1), clean=False)
        reader.lose()
        client = house.subscriber("c", ("d", 0), clean=False)
        client.send(mqtt.publish_packet("x", qos=2, packet_id=8))
        client.take()
        house.patient = True
        client.send(act[1](client))
        if durability != "memory":  # what it gets of its own message waits for nothing
            assert act[2] not in [each.type for each in client.take()]
        house.commit()
        assert act[2] in [each.type for each in client.take()]


def test_a_message_at_qos_2_is_not_sent_to_a_durable_session_before_its_id_is_stored(
    durable: House,
) -> None:
    client = durable.subscriber("c", ("a", 2), clean=False)
    durable.patient = True
    durable.publish("a", b"x", 2)
    durable.core.outbox.flush()
    client.expect()
    durable.commit()
    assert client.payloads() == [b"x"]


def test_what_needs_no_store_is_answered_at_once(durable: House) -> None:
    clean = durable.subscriber("clean", ("a", 2))
    durable.patient = True
    clean.send(
        mqtt.publish_packet("a", b"1", qos=1, packet_id=1),
        mqtt.publish_packet("a", qos=2, packet_id=2),
    )
    assert {each.type for each in clean.take()} == {mqtt.PUBACK, mqtt.PUBREC, mqtt.PUBLISH}
    assert not present(durable.store).has_work()


def test_a_defect_of_ours_ends_one_connection_only(
    house: House, caplog: pytest.LogCaptureFixture
) -> None:
    other = house.client("other")
    client = house.client("c")

    def broken(_count: int) -> int:
        raise ZeroDivisionError("a bug")

    for member in ("m", "n"):
        house.client(member).subscribe(("$share/g/a", 0))
    house.core.choose = broken
    client.send(mqtt.publish_packet("a", b"x"), mqtt.PINGREQ_BYTES)
    client.expect_end()
    other.ping()
    [error] = [each for each in caplog.records if each.levelno >= logging.ERROR]
    assert error.exc_info is not None


@pytest.mark.parametrize(
    ("end", "level", "reason"),
    (
        (lambda client: client.disconnect(), "DEBUG", "client disconnected"),
        (lambda client: client.lose(), "INFO", "connection lost"),
        (lambda client: client.lose(OSError("reset")), "INFO", "connection lost: reset"),
        (lambda client: client.send(b"\xc1\0"), "WARNING", "MQTT-2.2.2-2"),
    ),
)
def test_the_end_of_a_connection_is_logged_once(
    caplog: pytest.LogCaptureFixture,
    end: Callable[[Client], None],
    level: str,
    reason: str,
    client: Client,
) -> None:
    with caplog.at_level(logging.DEBUG, "vmq.session"):
        end(client)
        client.lose()
    [record] = caplog.records
    assert record.levelname == level
    assert reason in record.getMessage()


def test_a_message_object_is_made_once_for_all_targets(house: House) -> None:
    for index in range(3):
        house.client(str(index)).subscribe(("a", 1))
    queues = [house.queue(str(index)) for index in range(3)]
    house.client("p").send(mqtt.publish_packet("a", b"x", qos=1, packet_id=1))
    messages: list[Message] = [
        delivery.message for queue in queues for delivery in queue.inflight.values()
    ]
    assert len(messages) == 3
    assert all(each is messages[0] for each in messages)


class OtherNode(Claims):
    """Another node, which gives sessions up when it is told to."""

    def __init__(self, house: House) -> None:
        super().__init__()
        self.asked: list[tuple[str, bool]] = []
        self.cancelled = 0
        self.pending: Pending | None = None
        house.core.claims = self

    def claim(
        self,
        registry: Registry,
        client_id: str,
        clean: bool,
        user: str = "",
        options: CoreOptions | None = None,
    ) -> Pending:
        self.asked.append((client_id, clean))
        self.pending = Pending(self.on_cancel)
        return self.pending

    def on_cancel(self) -> None:
        self.cancelled += 1

    def finish(self, answer: Answer = None) -> None:
        present(self.pending).finish(answer)


@pytest.fixture
def elsewhere(house: House) -> OtherNode:
    return OtherNode(house)


def test_a_connect_waits_for_its_session(house: House, elsewhere: OtherNode) -> None:
    client = Client(house)
    client.send(mqtt.connect_packet("c", clean=False, will=mqtt.Will("gone", b"x", 1)))
    assert elsewhere.asked == [("c", False)]
    client.expect()
    assert house.registry.subscribers == {}
    elsewhere.finish()
    client.expect(b"\x20\x02\x00\x00")
    house.core.claims = Claims()
    reader = house.subscriber("reader", ("gone", 0))
    client.lose()
    assert reader.payloads() == [b"x"]


def is_read(client: Client) -> bool:
    return client.transport.reading


def test_what_is_sent_behind_the_connect_waits_unread(house: House, elsewhere: OtherNode) -> None:
    client = Client(house)
    client.send(mqtt.connect_packet("c"), mqtt.PINGREQ_BYTES)
    assert is_read(client)  # its end would not be seen
    client.send(mqtt.PINGREQ_BYTES)
    assert not is_read(client)  # but no more is kept than came with that
    client.expect()
    elsewhere.finish()
    client.expect(b"\x20\x02\x00\x00", mqtt.PINGRESP_BYTES, mqtt.PINGRESP_BYTES)
    assert is_read(client)
    client.ping()


def test_a_client_that_goes_away_cancels_its_claim(house: House, elsewhere: OtherNode) -> None:
    client = Client(house)
    client.send(mqtt.connect_packet("c"))
    client.lose()
    assert elsewhere.cancelled == 1
    elsewhere.finish()
    assert house.registry.subscribers == {}


def test_a_claim_that_another_connect_overtakes_ends_without_an_answer(
    house: House, elsewhere: OtherNode
) -> None:
    client = Client(house)
    client.send(mqtt.connect_packet("c"))
    elsewhere.finish(Refuse("taken over"))
    client.expect_end()
