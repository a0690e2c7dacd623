"""A connection between an asyncio transport and a session."""

from collections.abc import Callable

import pytest

from tests.support import wire as mqtt
from tests.vmq.hook_sites import later_verdicts
from tests.vmq.memory_transport import MemoryTransport
from tests.vmq.support import Client, House, watcher, work_of_turns
from vmq.core.hook_sites import Pending
from vmq.core.ports import ConnectionWatch
from vmq.protocol.connection import GROWTH, Connection
from vmq.protocol.listener_context import ListenerContext
from vmq.protocol.session import PACKETS_A_PASS, WORK_A_PASS

# --- a pass


def pings_in(client: Client) -> int:
    return len(client.take_bytes()) // len(mqtt.PINGRESP_BYTES)


def test_a_pass_handles_so_many_packets_and_the_rest_goes_on_in_later_turns(
    house: House, client: Client
) -> None:
    house.patient = True
    client.send(mqtt.PINGREQ_BYTES * (2 * PACKETS_A_PASS + 5))
    counts = [pings_in(client)]
    while house.turn():
        counts.append(pings_in(client))
    assert counts == [PACKETS_A_PASS, PACKETS_A_PASS, 5]


def test_others_and_deadlines_have_their_turn_between_the_passes(house: House) -> None:
    flood, other = house.client("flood"), house.client("other")
    house.patient = True
    flood.send(mqtt.PINGREQ_BYTES * 3 * PACKETS_A_PASS)
    before = house.core.counters.mqtt_pingreq_received
    other.ask(mqtt.PINGREQ_BYTES, mqtt.PINGRESP_BYTES)
    assert house.core.counters.mqtt_pingreq_received == before + 1
    flood.connection.close("its time is over")
    house.settle()
    assert house.core.counters.mqtt_pingreq_received == before + 1


def test_what_comes_meanwhile_is_handled_behind_the_rest_and_is_bounded(house: House) -> None:
    client, reader = house.client("c"), watcher(house)
    house.patient = True
    numbers = [b"%d" % number for number in range(2 * PACKETS_A_PASS)]
    topics = ["a", "b"]  # two in turns, so that no two make a run
    packets = [mqtt.publish_packet(topics[int(each) % 2], each) for each in numbers]
    client.send(*packets)
    assert client.transport.is_reading()
    client.send(mqtt.publish_packet("c", b"later"))
    assert not client.transport.is_reading()
    house.settle()
    assert client.transport.is_reading()
    assert reader.payloads() == [*numbers, b"later"]
    assert house.core.counters.publishers_paused == 0  # not for want of anybody who could follow


def test_a_pass_hands_messages_to_so_many_queues(house: House) -> None:
    readers = [house.client(f"r{number}") for number in range(64)]
    for reader in readers:
        reader.subscribe(("t", 1))
    client = house.client("c")
    house.patient = True
    before = house.core.work
    client.send(*[mqtt.publish_packet("t", b"x", qos=1, packet_id=1 + each) for each in range(400)])
    steps = work_of_turns(house, before)
    assert sum(steps) == 400 * len(readers) + 1  # a node of the trie
    assert max(steps) <= WORK_A_PASS + len(readers)


def test_filters_that_a_new_topic_is_compared_with_count_as_work(house: House) -> None:
    reader = house.client("r")
    words = [("+" if number & 1 << bit else "a") for number in range(256) for bit in range(8)]
    filters = ["/".join(words[start : start + 8]) + "/#" for start in range(0, len(words), 8)]
    for topic_filter in filters:
        reader.subscribe((topic_filter, 0))
    client = house.client("c")
    house.patient = True
    before = house.core.work
    client.send(*[mqtt.publish_packet(f"a/a/a/a/a/a/a/a/{each}", b"x") for each in range(100)])
    steps = work_of_turns(house, before)
    assert sum(steps) >= 100 * len(filters)
    assert max(steps) <= WORK_A_PASS + 4 * len(filters)


def test_a_rest_waits_while_the_publisher_is_held_back(house: House, client: Client) -> None:
    house.patient = True
    client.send(mqtt.PINGREQ_BYTES * (PACKETS_A_PASS + 1))
    client.connection.pause()
    while house.turn():
        pass
    assert pings_in(client) == PACKETS_A_PASS
    client.connection.resume()
    house.settle()
    assert pings_in(client) == 1
    assert client.transport.is_reading()


@pytest.mark.parametrize("half_closed", [True, False])
def test_what_came_before_the_end_of_the_stream_is_handled(house: House, half_closed: bool) -> None:
    client, reader = house.client("c", will=mqtt.Will("w", b"will")), watcher(house)
    house.patient = True
    count = PACKETS_A_PASS // 2 + 7
    pairs = [
        mqtt.publish_packet("a", b"%d" % number) + mqtt.PINGREQ_BYTES for number in range(count)
    ]
    client.send(*pairs)
    taken = pings_in(client)
    if half_closed:
        assert client.connection.eof_received() is True
        house.settle()
        assert taken + pings_in(client) == count  # it may still read
        assert client.is_closed()
        assert client.ended == []
        client.lose()
    else:
        client.lose()
        assert client.ended == []
        house.settle()
    assert reader.payloads() == [*(b"%d" % number for number in range(count)), b"will"]
    assert client.ended == [client.connection]


def test_a_lost_connection_that_is_ended_before_its_rest_is_told_of_once(
    house: House, client: Client
) -> None:
    house.patient = True
    client.send(mqtt.PINGREQ_BYTES * 2 * PACKETS_A_PASS)
    client.connection.pause()
    client.lose()
    client.connection.close("taken over")
    house.settle()
    assert client.ended == [client.connection]


def test_a_rest_does_not_wait_for_who_is_gone_to_take_replies(house: House, client: Client) -> None:
    house.patient = True
    client.block()
    client.transport.buffered = client.connection.listener.reply_limit + 1
    client.send(mqtt.PINGREQ_BYTES * 2 * PACKETS_A_PASS)
    client.lose()
    house.settle()
    assert client.ended == [client.connection]


def test_a_verdict_that_comes_later_and_a_rest_keep_the_order(house: House) -> None:
    client, reader = house.client("c"), watcher(house)
    asked, later = later_verdicts()
    house.core.hooks.auth_on_subscribe = later
    house.patient = True
    client.send(mqtt.subscribe_packet(1, ("x", 0)), mqtt.PINGREQ_BYTES * 2 * PACKETS_A_PASS)
    client.send(mqtt.publish_packet("a", b"behind"))
    assert house.turn() is False
    asked[0].finish(None)
    house.settle()
    assert [each.type for each in client.take()].count(mqtt.PINGRESP) == 2 * PACKETS_A_PASS
    assert reader.payloads() == [b"behind"]


@pytest.mark.parametrize("half_closed", [True, False])
def test_what_came_behind_a_verdict_is_handled_though_the_peer_has_ended(
    house: House, half_closed: bool
) -> None:
    """Layers that frame, as TLS and WebSocket do, read the end together with what came before [MQTT-3.14.4-3]."""
    client, reader = house.client("c", will=mqtt.Will("w", b"will")), watcher(house)
    asked, later = later_verdicts()
    house.core.hooks.auth_on_publish = later
    client.send(
        mqtt.publish_packet("a", b"1", qos=1, packet_id=1),
        mqtt.publish_packet("a", b"2", qos=1, packet_id=2),
        mqtt.DISCONNECT_BYTES,
    )
    assert client.connection.eof_received()
    if not half_closed:
        client.lose()
    assert client.ended == []
    asked[0].finish(None)
    house.settle()
    asked[1].finish(None)
    house.settle()
    if half_closed:
        assert client.is_closed()
        client.lose()
    assert reader.payloads() == [b"1", b"2"]
    assert client.ended == [client.connection]


def test_whoever_subscribes_or_leaves_while_a_verdict_is_awaited_does_so_before_the_message(
    house: House,
) -> None:
    """Else an UNSUBACK is followed by a message [MQTT-3.10.4-2], and a SUBACK by none."""
    client, leaves = house.client("c"), watcher(house)
    pending = Pending(lambda: None)
    house.core.hooks.auth_on_publish = lambda *_: pending
    client.send(mqtt.publish_packet("a", b"x", qos=1, packet_id=1, retain=True))
    comes = house.client("comes")
    comes.subscribe(("a", 1))
    leaves.send(mqtt.unsubscribe_packet(1, "#"))
    leaves.take()
    pending.finish(None)
    house.settle()
    assert comes.payloads() == [b"x"]
    assert leaves.take() == []


# --- opening and closing


def test_the_listener_is_told_of_both_ends_once(house: House) -> None:
    client = Client(house)
    assert client.opened == [client.connection]
    client.connect("c")
    assert client.ended == []
    client.lose()
    client.connection.connection_lost(None)
    assert client.ended == [client.connection]


def test_a_connection_is_told_of_before_anything_is_read(house: House) -> None:
    seen: list[object] = []
    transport = MemoryTransport()
    listener = ListenerContext(
        lambda connection: seen.append(connection.transport),
        lambda connection: seen.append(connection.transport),
    )
    connection = Connection(house.registry, True, "id", listener)
    connection.connection_made(transport)
    connection.connection_lost(None)
    assert seen == [transport, None]


def test_the_end_of_the_stream_closes_the_transport(house: House, client: Client) -> None:
    assert client.connection.eof_received() is False


def test_closing_writes_what_is_there_first(house: House, client: Client) -> None:
    client.connection.add(mqtt.PINGRESP_BYTES)
    client.connection.close("enough")
    assert not client.is_closed()
    house.settle()
    assert client.take_bytes() == mqtt.PINGRESP_BYTES
    assert client.is_closed()


def test_what_is_written_to_a_lost_connection_goes_nowhere(house: House, client: Client) -> None:
    connection = client.connection
    client.lose()
    connection.add(mqtt.PINGRESP_BYTES)
    house.settle()
    assert connection.pieces is None
    assert client.take_bytes() == b""
    connection.abort()


def test_aborting_drops_the_transport_at_once(house: House, client: Client) -> None:
    client.connection.add(mqtt.PINGRESP_BYTES)
    client.connection.abort()
    assert client.transport.aborted


def test_a_loss_during_a_pass_of_another_is_written_out(house: House) -> None:
    """Nobody flushes after `connection_lost` but the connection itself."""
    house.patient = True
    watcher = house.client("w")
    watcher.send(mqtt.subscribe_packet(1, ("will", 0)))
    watcher.take()
    house.client("c", will=mqtt.Will("will", b"x")).lose()
    assert watcher.payloads() == [b"x"]


# --- the peer's name


@pytest.mark.parametrize(
    ("peer", "shown"),
    (
        (("192.0.2.1", 4711), "192.0.2.1:4711"),
        (("2001:db8::1", 4711, 0, 0), "[2001:db8::1]:4711"),
        ("embedded", "embedded"),
        (None, "None"),
    ),
)
def test_the_peer_is_shown_as_an_address(house: House, peer: object, shown: str) -> None:
    client = Client(house)
    client.transport.peer = peer
    assert client.connection.describe() == shown


def test_the_peer_is_known_after_the_end(house: House) -> None:
    client = Client(house)
    shown = client.connection.describe()
    client.lose()
    assert client.connection.describe() == shown == "192.0.2.1:4711"


# --- time


def test_bytes_from_the_peer_are_a_sign_of_life_and_bytes_to_it_are_not(
    house: House, client: Client
) -> None:
    client.subscribe(("a", 0))
    seen = client.connection.seen
    house.clock.advance(5)
    house.publish("a", b"x")
    assert client.connection.seen == seen
    client.send(mqtt.PINGREQ_BYTES)
    assert client.connection.seen == seen + 5


def drip(client: Client, data: bytes, size: int) -> list[float]:
    """Sends in pieces, a second apart; returns when the client was seen last after each."""
    seen: list[float] = []
    for start in range(0, len(data), size):
        client.house.clock.advance(1)
        client.send(data[start : start + size])
        seen.append(client.house.clock.now - client.connection.seen)
    return seen


def test_a_packet_that_drips_is_no_sign_of_life(house: House, client: Client) -> None:
    raw = mqtt.publish_packet("t", b"x" * 50)
    header = [0.0, 0.0]  # its length is known, then
    assert drip(client, raw, 1) == [*header, *range(1, len(raw) - 2), 0]


def test_a_packet_that_grows_is_a_sign_of_life(house: House, client: Client) -> None:
    raw = mqtt.publish_packet("t", b"x" * 4 * GROWTH)
    assert max(drip(client, raw, GROWTH)) == 0
    assert max(drip(client, raw, GROWTH // 2)) == 1


def test_the_next_packet_under_way_begins_anew(house: House, client: Client) -> None:
    raw = mqtt.publish_packet("t", b"x" * 50)
    client.send(raw[:9])
    assert drip(client, (raw[9:] + raw[:9]) * 3, len(raw)) == [0, 0, 0]


class Looking(ConnectionWatch):
    """Notes that it looks."""

    def __init__(self) -> None:
        super().__init__()
        self.looks: list[str] = []

    def look(self) -> None:
        self.looks.append("at once")


def test_its_watch_looks_when_connect_is_accepted_and_at_the_end(house: House) -> None:
    client = Client(house)
    client.connection.watch = watch = Looking()
    looks = watch.looks
    client.send(mqtt.connect_packet("c")[:4])
    assert looks == []
    client.send(mqtt.connect_packet("c")[4:])
    assert looks == ["at once"]
    client.send(mqtt.PINGREQ_BYTES)
    assert looks == ["at once"]
    client.disconnect()
    assert looks == ["at once"] * 2


def test_what_has_ended_is_not_left_to_the_collector_of_garbage(
    house: House, client: Client
) -> None:
    connection = client.connection
    session = connection.session
    assert session.output is connection
    client.disconnect()
    assert session.output is house.core.outbox.nowhere


# --- the rate of bytes


class Timers:
    """Stands for the event loop's timers: fires them when the house's clock is there."""

    def __init__(self, house: House) -> None:
        self.house = house
        self.due: list[tuple[float, Callable[[], None]]] = []
        house.core.call_later = self.call_later

    def call_later(self, seconds: float, call: Callable[[], None]) -> None:
        self.due.append((self.house.core.clock() + seconds, call))

    def fire(self) -> None:
        """Goes to the next one."""
        self.due.sort(key=lambda each: each[0])
        when, call = self.due.pop(0)
        self.house.clock.now = when
        call()


@pytest.mark.parametrize(
    "data",
    (
        pytest.param(mqtt.PINGREQ_BYTES * 100, id="PINGREQ"),
        pytest.param(mqtt.publish_packet("t", b"x" * 1000)[:200], id="a cut PUBLISH"),
        pytest.param(mqtt.subscribe_packet(1, ("t" * 180, 0)), id="SUBSCRIBE"),
    ),
)
def test_every_read_counts_whatever_it_is_of(house: House, data: bytes) -> None:
    house.options.max_byte_rate = 100.0
    timers = Timers(house)
    client = house.client("c")
    house.clock.advance(1)
    client.send(data)
    assert not client.transport.is_reading()
    began = house.clock.now
    while timers.due:
        timers.fire()
    assert client.transport.is_reading()
    assert house.clock.now - began == pytest.approx((len(data) - 100) / 100, abs=0.01)


def test_a_cut_connect_counts_too(house: House) -> None:
    house.options.max_byte_rate = 100.0
    Timers(house)
    client = Client(house)
    client.send(mqtt.connect_packet("c", username="u" * 500)[:200])
    assert not client.transport.is_reading()


def test_what_was_read_already_makes_the_same_wait_longer(house: House) -> None:
    """As with the records of one read through TLS."""
    house.options.max_byte_rate = 100.0
    timers = Timers(house)
    client = house.client("c")
    for _ in range(3):
        client.send(mqtt.PINGREQ_BYTES * 100)
    assert len(timers.due) == 1
    assert house.core.counters.rate_limited == 1
    began = house.clock.now
    while timers.due:
        timers.fire()
    assert client.transport.is_reading()
    assert house.clock.now - began > 5


def test_who_is_closed_meanwhile_is_not_looked_at_for_ever(house: House) -> None:
    house.options.max_byte_rate = 1.0
    timers = Timers(house)
    client = house.client("c")
    client.send(mqtt.PINGREQ_BYTES * 100)
    client.lose()
    timers.fire()
    assert timers.due == []
