"""A client's connection, as its node sees it."""

from vmq.clustering.front.connection import FrontConnection, Unanswered
from vmq.clustering.messages.fronts import MAX_DONE, SessionStep
from vmq.clustering.slots.register import SentMessage
from vmq.clustering.slots.words import PUBACK, PUBCOMP, PUBLISHED, PUBREC, PUBREL, Address

HERE: list[Address] = [(1, (5, 1), "")]


def connection(*packets: int) -> FrontConnection:
    found = FrontConnection(1, "c", 0, False, None)
    for packet in packets:
        found.unanswered.append(Unanswered(SessionStep(PUBLISHED, packet, [], b"digest")))
    return found


def packets(messages: list[Unanswered]) -> list[int]:
    return [each.step.packet for each in messages]


def test_messages_go_in_the_clients_order_whichever_answer_comes_first() -> None:
    there = connection(1, 2, 3)
    assert there.take_registered(2, HERE) == []
    assert packets(there.take_registered(1, HERE)) == [1, 2]
    assert packets(there.take_registered(3, HERE)) == [3]
    assert there.unanswered == []


def test_a_release_that_waits_holds_no_message_back() -> None:
    there = connection(1)
    there.unanswered.insert(0, Unanswered(SessionStep(PUBREL, 9)))
    assert packets(there.take_registered(1, HERE)) == [1]
    assert there.answered(PUBREL, 9)
    assert not there.answered(PUBREL, 9)


def test_acknowledgements_leave_in_order_of_their_messages() -> None:
    there = connection()
    for packet in (4, 2, 7):
        there.began(1, packet)
    there.began(2, 9)
    assert there.is_safe(1, 2) == []
    assert there.is_safe(1, 4) == [4, 2]
    assert there.is_safe(2, 9) == [9]
    assert there.is_safe(1, 7) == [7]
    # Word of one that came twice is no word of the next one with its packet id.
    assert there.is_safe(1, 4) == []
    there.began(1, 4)
    assert there.is_safe(1, 2) == []


def test_a_client_that_repeats_itself_takes_no_more_room_while_nobody_answers() -> None:
    there = connection()
    assert there.released(5)
    assert not there.released(5)
    there.came(5, is_again=False)  # another message
    assert there.released(5)
    for packet, (is_received, qos) in enumerate([(False, 1), (False, 2), (True, 2)]):
        there.table[packet] = SentMessage((5, 1), is_received, qos)
    for _ in range(9):
        for kind in (PUBREC, PUBACK, PUBCOMP):
            for packet in range(4):
                there.hold(SessionStep(kind, packet))
    held = {packet: each.kind for packet, each in there.held.items()}
    assert held == {0: PUBACK, 1: PUBREC, 2: PUBCOMP}


def test_an_acknowledgement_counts_only_where_its_packet_id_awaits_it() -> None:
    there = connection()
    there.is_attached(((1, 1), 1), is_here=False)
    for qos in (1, 2):
        there.table[qos] = SentMessage((5, qos), False, qos)
    before = dict(there.table)
    for kind, packet in ((PUBCOMP, 1), (PUBREC, 1), (PUBACK, 2), (PUBCOMP, 2)):
        there.acknowledge(SessionStep(kind, packet))
    assert (there.table, there.done()) == (before, [])
    for kind, packet in ((PUBACK, 1), (PUBREC, 2), (PUBCOMP, 2)):
        assert packet in there.table
        there.acknowledge(SessionStep(kind, packet))
    assert (there.table, there.done()) == ({}, [(5, 1)])


def test_an_owner_that_does_not_serve_it_gets_nothing() -> None:
    there = connection()
    there.send(SessionStep(PUBREL, 1))
    assert there.steps == []
    there.attached = (1, 1), 1
    there.send(SessionStep(PUBREL, 1))
    assert len(there.steps) == 1


def test_what_the_client_has_is_known_until_an_owner_has_it_safe() -> None:
    there = connection()
    there.is_attached(((1, 1), 1), is_here=False)
    for number in (1, 2, 3):
        there.is_done(5, number)
    there.done_is_safe(1)
    there.done_is_safe(0)  # nothing new
    assert there.done() == [(5, 2), (5, 3)]
    there.is_attached(((2, 2), 1), is_here=False)
    there.is_done(5, 4)
    there.done_is_safe(2)  # of what this owner was told
    assert there.done() == [(5, 4)]
    there.is_attached(((3, 3), 1), is_here=True)
    there.is_done(5, 5)
    assert not there.done()


def test_of_what_no_owner_has_safe_the_oldest_goes_first() -> None:
    there = connection()
    there.is_attached(((1, 1), 1), is_here=False)
    for number in range(MAX_DONE + 2):
        there.is_done(5, number)
    assert len(there.done()) == MAX_DONE
    assert there.done()[0] == (5, 2)
    there.done_is_safe(3)
    assert there.done()[0] == (5, 3)


def test_what_the_client_does_not_send_again_before_anything_new_is_over() -> None:
    """As when another owner answered its PUBREL, on the other side of a split."""
    there = connection()
    there.knows([1, 2, 3, 4])
    there.came(2, is_again=True)
    there.released(3)
    there.came(9, is_again=False)
    there.came(10, is_again=False)
    assert there.are_over(2) == [], "nothing new"
    assert there.are_over(9) == [1, 4]
    there.released(9)
    there.knows([2, 9, 10])  # another owner, who has not seen the PUBREL of 9
    there.came(11, is_again=False)
    assert there.are_over(11) == [9]


def test_what_the_client_sends_again_after_something_new_is_not_over() -> None:
    """As paho does where another thread publishes while it connects."""
    there = connection()
    there.knows([1, 2])
    there.came(3, is_again=False)
    there.came(1, is_again=True)
    assert there.are_over(3) == [2]


def test_what_is_not_released_comes_again_without_dup_unless_somebody_may_know_more() -> None:
    there = connection()
    there.knows([1, 2, 3], is_whole=True)
    there.released(3)
    assert [packet for packet in range(5) if there.is_unreleased(packet)] == [1, 2]
    there.came(9, is_again=False)
    there.are_over(9)
    assert not there.is_unreleased(1)
    there.knows([1, 2])
    assert not there.is_unreleased(1)
