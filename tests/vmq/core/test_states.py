"""The tables of states: the rows for reading and the bytes that run say one and the same thing.

What the rows are to say is written down here once more, from the standard and not from them.
"""

import pytest

from tests.conformance.table import read_statements
from vmq.core import states
from vmq.mqtt.packets import PACKET_NAMES, PUBACK, PUBCOMP, PUBREC

HEADS = range(256)
TABLES = (states.FIRST, states.UNDER_3_1_1, states.UNDER_3_1)

#: The first bytes that a client of 3.1.1 may send once it is online (table 2.2).
GOOD = {
    *(0x30, 0x31),
    *(0x32, 0x33, 0x3A, 0x3B),
    *(0x34, 0x35, 0x3C, 0x3D),
    *(0x40, 0x50, 0x62, 0x70, 0x82, 0xA2, 0xC0, 0xE0),
}
#: The packet types that only a server sends, and those that nobody does.
NOT_A_CLIENTS = {0, 2, 9, 11, 13, 15}


def test_each_first_byte_has_one_row() -> None:
    for head in HEADS:
        found = [row for row in states.PACKETS if states.is_of(row, head, False)]
        assert found == [states.row_of(head)], head
        assert found[0].packet.startswith(PACKET_NAMES[head >> 4])


@pytest.mark.parametrize("table", TABLES)
def test_what_runs_is_what_the_rows_say(table: int) -> None:
    assert len(states.ACTIONS) == 256 * len(TABLES)
    for head in HEADS:
        entry = states.entry_of(head, table)
        action = states.ACTIONS[table + head]
        assert (action == states.BREAKS) == entry.startswith("MQTT-"), (head, entry)
        assert action in (states.BREAKS, head >> 4)
        if action == states.BREAKS:
            assert str(states.broken_by(head, table)).endswith(f"[{entry}]")


def test_before_connect_nothing_else_is_good() -> None:
    assert {head for head in HEADS if states.ACTIONS[states.FIRST + head]} == set(range(0x10, 0x20))
    assert {states.entry_of(head, states.FIRST) for head in HEADS if head >> 4 != 1} == {
        "MQTT-3.1.0-1"
    }


def test_online_a_client_of_3_1_1_sends_what_the_flags_allow() -> None:
    assert {head for head in HEADS if states.ACTIONS[states.UNDER_3_1_1 + head]} == GOOD


def test_online_a_client_of_3_1_may_set_any_flags() -> None:
    good = {head for head in HEADS if states.ACTIONS[states.UNDER_3_1 + head]}
    assert good == {h for h in HEADS if h >> 4 not in NOT_A_CLIENTS | {1} and h & 0xF6 != 0x36}


def test_the_statement_that_a_wrong_first_byte_breaks() -> None:
    for head in set(HEADS) - GOOD:
        kind = head >> 4
        wanted = {
            1: "MQTT-3.1.0-2",
            3: "MQTT-3.3.1-4" if head & 6 == 6 else "MQTT-3.3.1-2",
            6: "MQTT-3.6.1-1",
            8: "MQTT-3.8.1-1",
            10: "MQTT-3.10.1-1",
            14: "MQTT-3.14.1-1",
        }.get(kind, "MQTT-4.8.0-1" if kind in NOT_A_CLIENTS else "MQTT-2.2.2-2")
        assert states.entry_of(head, states.UNDER_3_1_1) == wanted, hex(head)


def test_a_first_packet_with_wrong_flags() -> None:
    assert str(states.wrong_flags(0x11)) == "wrong flags in CONNECT [MQTT-2.2.2-2]"


def test_what_breaks_is_a_statement_of_the_standard() -> None:
    known = set(read_statements())
    entries = {text for row in states.PACKETS for text in (row.flags, row.first, row.online)}
    entries |= {str(text) for row in states.ACKNOWLEDGEMENTS for text in row[1:]}
    assert {text for text in entries if text.startswith("MQTT-")} <= known
    named = [state.meaning for state in states.STATES if "[" in state.meaning]
    assert {text[text.index("[") + 1 : -1] for text in named} <= known


def test_an_acknowledgement_of_the_kind_that_is_due_alone_is_good() -> None:
    due = {
        states.AWAITING_PUBACK: {PUBACK},
        states.AWAITING_PUBREC: {PUBREC},
        states.AWAITING_PUBCOMP: {PUBCOMP, PUBREC},  # PUBREC again has PUBREL again
        states.UNKNOWN: {PUBACK, PUBREC, PUBCOMP},
    }
    for state, kinds in due.items():
        for row in states.ACKNOWLEDGEMENTS:
            action = states.ANSWERS[row.packet << 2 | state]
            assert (action != states.BREAKS) == (row.packet in kinds), (row, state)
            assert (action == states.BREAKS) == str(row[1 + state]).startswith("MQTT-")


def test_pubrec_is_answered_whatever_it_is_for() -> None:
    answered = {
        row.packet for row in states.ACKNOWLEDGEMENTS for text in row[1:] if "PUBREL" in str(text)
    }
    assert answered == {PUBREC}
    row = next(row for row in states.ACKNOWLEDGEMENTS if row.packet == PUBREC)
    assert all("PUBREL" in text or text.startswith("MQTT-") for text in row[1:])


def test_no_other_packet_is_an_acknowledgement() -> None:
    for kind in set(range(8)) - {row.packet for row in states.ACKNOWLEDGEMENTS}:
        assert set(states.ANSWERS[kind << 2 : (kind << 2) + 4]) == {states.BREAKS}


def test_states_are_in_the_order_that_comparisons_rely_on() -> None:
    treated = [state.packets for state in states.STATES]
    assert treated[: states.ONLINE + 1] == [states.LOOKED_AT] * 2
    assert treated[states.ONLINE + 1 : states.DISCONNECTED] == [states.KEPT] * 5
    assert set(treated[states.DISCONNECTED :]) == {states.PASSED_OVER}
    assert len(states.STATES) == states.CLOSED + 1
    waits = (states.AUTHENTICATING, states.TAKING_OVER, states.OPENING, states.WAITING)
    assert waits == tuple(range(states.AUTHENTICATING, states.WAITING + 1))


def test_every_state_can_be_reached_and_left() -> None:
    numbers = range(len(states.STATES))
    reached = {states.AWAITING_CONNECT}
    while True:
        further = {
            after for before in reached for after in numbers if states.may_follow(before, after)
        }
        if further <= reached:
            break
        reached |= further
    assert reached == set(numbers)
    for before in numbers:
        assert states.may_follow(before, states.CLOSED)
        if before >= states.DISCONNECTED:
            assert not any(states.may_follow(before, after) for after in range(states.CLOSED))


def test_nobody_is_online_without_a_connect() -> None:
    assert not states.may_follow(states.AWAITING_CONNECT, states.ONLINE)
    assert not states.may_follow(states.AUTHENTICATING, states.ONLINE)
