"""The sending end: how much it sends at once, and what it does with the answers."""

import pytest

from tests.vmq.bench.support import SilentPublisher
from vmq.bench.load.frames import packet_id_of
from vmq.bench.load.loop import Loop
from vmq.bench.load.publisher import Schedule


def publisher_of(loop: Loop, qos: int = 0, **values: int) -> SilentPublisher:
    publisher = SilentPublisher(loop, 0, qos)
    publisher.is_up = True
    publisher.fan = 1
    publisher.limit = 1_000_000
    for name, value in values.items():
        setattr(publisher, name, value)
    return publisher


def feed(publisher: SilentPublisher, data: bytes) -> None:
    publisher.loop.buffer[: len(data)] = data
    assert publisher.take(publisher.loop.buffer, len(data)) == len(data)
    publisher.on_taken()


def pump_all(publisher: SilentPublisher) -> None:
    """As the loop does, until it has nothing more to send."""
    before = -1
    while publisher.sent != before:
        before = publisher.sent
        publisher.pump()


def answers(head: int, *sequences: int) -> bytes:
    return b"".join(
        bytes((head, 2)) + packet_id_of(sequence).to_bytes(2, "big") for sequence in sequences
    )


def test_credit_limits_what_is_under_way(loop: Loop) -> None:
    publisher = publisher_of(loop, credit=10, fan=2)
    pump_all(publisher)
    assert publisher.sent == 10
    publisher.on_passed(5)
    is_kicked = [publisher.kicked]  # more than half is under way
    publisher.on_passed(5)
    is_kicked.append(publisher.kicked)
    assert is_kicked == [False, True]
    pump_all(publisher)
    assert publisher.sent == 15


@pytest.mark.parametrize("qos", [1, 2])
def test_the_window_limits_what_is_unacknowledged(loop: Loop, qos: int) -> None:
    publisher = publisher_of(loop, qos, window=4)
    pump_all(publisher)
    assert publisher.sent == 4
    publisher.written.clear()
    if qos == 2:
        feed(publisher, answers(0x50, 0, 1))
        assert publisher.written == answers(0x62, 0, 1)
        feed(publisher, answers(0x70, 0, 1))
    else:
        feed(publisher, answers(0x40, 0, 1))
    assert publisher.acknowledged == 2
    assert publisher.sent == 6
    assert loop.protocol_errors == 0


def test_answers_and_messages_leave_in_one_write(loop: Loop) -> None:
    publisher = publisher_of(loop, 2, window=2)
    pump_all(publisher)
    publisher.written.clear()
    feed(publisher, answers(0x50, 0, 1) + answers(0x70, 0))
    messages = publisher.frames.numbered(0)
    length = publisher.frames.length
    assert publisher.written == answers(0x62, 0, 1) + messages[2 * length : 3 * length]


def test_answers_to_nothing_are_noticed(loop: Loop) -> None:
    publisher = publisher_of(loop, 1, window=4)
    pump_all(publisher)
    feed(publisher, answers(0x40, 0, 0, 9))
    assert loop.protocol_errors == 2
    publisher = publisher_of(loop, 2, window=4)
    pump_all(publisher)
    feed(publisher, answers(0x70, 0))  # PUBCOMP before PUBREC
    assert loop.protocol_errors == 3
    feed(publisher, answers(0x40, 0))  # PUBACK at QoS 2
    assert loop.protocol_errors == 4


def test_nothing_goes_out_while_the_socket_is_full(loop: Loop) -> None:
    publisher = publisher_of(loop)
    publisher.pending = b"x"
    publisher.pump()
    assert publisher.sent == 0


def test_a_schedule_gives_publishers_their_turns() -> None:
    schedule = Schedule(1000, 2, start=5_000_000)
    found = [schedule.due_at(index, sequence) for sequence in (0, 1) for index in (0, 1)]
    assert found == [5_000_000, 6_000_000, 7_000_000, 8_000_000]
    schedule.given = 3
    assert schedule.next_due() == 8_000_000


def test_what_was_held_back_counts_from_when_it_was_due(loop: Loop) -> None:
    publisher = publisher_of(loop)
    publisher.schedule = Schedule(1000, 1, start=0)
    loop.now = 3_500_000
    publisher.due = 4
    pump_all(publisher)
    assert publisher.sent == 4
    # Due at 0, 1, 2 and 3 ms: three were held back for more than 1 ms.
    assert publisher.timeline._stamps == [0, 1_000_000, 2_000_000, 3_500_000]
