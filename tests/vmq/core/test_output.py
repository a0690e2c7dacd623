"""The outbox: one write a pass for each connection, and nothing before what it waits for is safe."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support import wire as mqtt
from tests.support.wire import PINGREQ_BYTES, PINGRESP_BYTES, connect_packet
from tests.vmq.support import Client, House
from vmq.core.output import Outbox, Output
from vmq.disk.durable import ALL, Confirmations, Durable
from vmq.mqtt.encoder import CONNACK_NEW
from vmq.mqtt.sorting import sort_packets


def answer(number: int) -> bytes:
    """A PUBACK."""
    return b"\x40\x02" + number.to_bytes(2)


def delivery(number: int) -> bytes:
    """A PUBLISH at QoS 0."""
    return b"\x30\x03\0\1%c" % number


def test_the_pieces_of_a_pass_are_one_write(client: Client) -> None:
    before = client.transport.writes
    client.send(PINGREQ_BYTES * 5)
    assert client.take_bytes() == PINGRESP_BYTES * 5
    assert client.transport.writes == before + 1


def test_an_output_is_touched_once_a_pass() -> None:
    outbox = Outbox()
    output = Output(outbox)
    output.add(b"a")
    output.add(b"b")
    output.touch()
    assert outbox.touched == [output]
    assert output.pieces == [b"a", b"b"]
    outbox.flush()
    assert outbox.touched == []
    assert not output.touched
    output.add(b"c")
    assert outbox.touched == [output]


def test_a_plain_output_leads_nowhere() -> None:
    outbox = Outbox()
    output = Output(outbox)
    output.add(b"a")
    output.close("no reason")
    outbox.flush()
    assert output.pieces is None
    assert output.describe() == ""


def patient_client(house: House) -> Client:
    """A connected client of a house where the test itself flushes and releases."""
    client = house.client("c")
    house.patient = True
    return client


def test_pings_and_deliveries_pass_answers_that_wait_and_deliveries_do_not_pass_each_other(
    house: House,
) -> None:
    client = patient_client(house)
    output, outbox = client.connection, house.core.outbox
    slot = Durable()
    output.answer_after(outbox.stored, 1)
    for piece in (answer(1), delivery(1), PINGRESP_BYTES):
        output.add(piece)
    outbox.flush()
    assert client.take_bytes() == delivery(1) + PINGRESP_BYTES
    output.deliver_after(slot, 5)
    output.add(delivery(2))
    outbox.flush()
    output.add(delivery(3))
    output.add(answer(2))
    output.add(PINGRESP_BYTES)
    outbox.flush()
    assert client.take_bytes() == PINGRESP_BYTES
    outbox.release(1)
    assert client.take_bytes() == answer(1) + answer(2)
    slot.advance(5)
    outbox.flush()
    assert client.take_bytes() == delivery(2) + delivery(3)
    output.deliver_after(outbox.stored, 2)
    output.add(delivery(4))
    outbox.flush()
    output.add(PINGRESP_BYTES)
    outbox.flush()
    assert client.take_bytes() == b"", "the disk is soon done, or fails"
    outbox.release(2)
    assert client.take_bytes() == delivery(4) + PINGRESP_BYTES


def test_a_pass_that_waits_for_nothing_keeps_its_order(house: House) -> None:
    client = patient_client(house)
    pieces = [delivery(1), answer(1), PINGRESP_BYTES, delivery(2)]
    for piece in pieces:
        client.connection.add(piece)
    house.core.outbox.flush()
    assert client.take_bytes() == b"".join(pieces)


def test_nothing_passes_a_connack_that_waits(durable: House) -> None:
    durable.patient = True
    client = Client(durable)
    client.send(connect_packet("c", clean=False) + PINGREQ_BYTES)
    client.send(PINGREQ_BYTES)
    client.connection.add(delivery(1))
    durable.core.outbox.flush()
    assert client.take_bytes() == b""
    durable.commit()
    connack, rest = client.take_bytes().split(PINGRESP_BYTES, 1)
    assert connack == b"\x20\x02\0\0"
    assert rest == PINGRESP_BYTES + delivery(1)


def test_nothing_passes_a_connack_that_waits_with_other_answers(durable: House) -> None:
    durable.subscriber("away", ("t", 1), clean=False).disconnect()
    client = Client(durable)
    message = mqtt.publish_packet("t", b"x", qos=1, packet_id=2)
    client.send(connect_packet("c"), mqtt.subscribe_packet(1, ("t", 0)), message, PINGREQ_BYTES)
    kinds = [mqtt.CONNACK, mqtt.SUBACK, mqtt.PUBACK, mqtt.PUBLISH, mqtt.PINGRESP]
    assert [each.type for each in client.take()] == kinds


def test_nothing_of_later_passes_does_whatever_it_waits_for(house: House) -> None:
    client, other_nodes = patient_client(house), Durable()
    output, outbox = client.connection, house.core.outbox
    output.write_after(outbox.stored, 1)  # it was accepted in a pass of its own
    outbox.flush()
    output.answer_after(other_nodes, 1)
    for piece in (CONNACK_NEW, delivery(1), PINGRESP_BYTES):
        output.add(piece)
        outbox.flush()
    outbox.release(1)
    assert client.take_bytes() == b""
    other_nodes.advance(1)
    outbox.flush()
    assert client.take_bytes() == CONNACK_NEW + delivery(1) + PINGRESP_BYTES


def test_a_closing_output_waits_for_each_of_its_commits(house: House) -> None:
    client = patient_client(house)
    outbox = house.core.outbox
    for number in (1, 2):
        client.connection.add(answer(number))
        client.connection.answer_after(outbox.stored, number)
        outbox.flush()
    client.connection.close("enough")
    outbox.flush()
    outbox.release(1)
    assert client.take_bytes() == answer(1)
    assert not client.is_closed()
    outbox.release(2)
    client.expect(answer(2))
    assert client.transport.closed


@pytest.mark.parametrize("ahead", (0, 1), ids=("at once", "released"))
def test_a_transport_that_raises_ends_its_connection_and_no_other(ahead: int, house: House) -> None:
    clients = [house.client(name) for name in "abc"]
    outbox = house.core.outbox
    number = outbox.stored.reached + ahead

    def broken(data: bytes) -> None:
        raise OSError("no more")

    clients[1].transport.write = broken  # type: ignore[method-assign]
    for client in clients:
        client.connection.answer_after(outbox.stored, number)
        client.connection.add(answer(1))
    outbox.flush()
    outbox.release(number)
    assert clients[0].take_bytes() == answer(1)
    assert clients[2].take_bytes() == answer(1)
    assert [client.connection.closing for client in clients] == [False, True, False]


def test_a_failing_store_cuts_off_who_waits_for_it_and_nobody_else(house: House) -> None:
    outbox = house.core.outbox
    clients = [house.client(name) for name in ("stream", "store", "stream first")]
    partition = Durable(is_near=True)
    for client, needs in zip(
        clients, ((partition,), (outbox.stored,), (partition, outbox.stored)), strict=True
    ):
        client.take_bytes()
        for durable in needs:
            client.connection.answer_after(durable, durable.reached + 1)
            client.connection.add(answer(1))
            outbox.flush()
    outbox.fail("the store cannot write")
    assert [each.connection.closing for each in clients] == [False, True, False]
    outbox.flush()
    assert clients[1].is_closed(), "who is cut off does not wait for the next commit"
    partition.advance(1)
    outbox.release(outbox.stored.reached + 1)
    assert [each.take_bytes() for each in clients] == [answer(1), b"", answer(1) * 2]
    assert not partition.parked
    assert not outbox.stored.parked


def test_a_wait_that_never_ends_holds_up_the_answers_of_its_own_connection_alone(
    house: House,
) -> None:
    outbox = house.core.outbox
    stuck, other = house.client("stuck"), house.client("other")
    without_leader, partition = Durable(), Durable()
    for client in (stuck, other):
        client.take_bytes()
    stuck.connection.answer_after(without_leader, 1)
    stuck.connection.add(answer(1))
    outbox.flush()
    for number in range(1, 50):
        stuck.connection.add(answer(number + 1))
        stuck.connection.add(delivery(number))
        stuck.connection.add(PINGRESP_BYTES)
        other.connection.answer_after(partition, number)
        other.connection.add(answer(number))
        outbox.flush()
        assert stuck.take_bytes() == delivery(number) + PINGRESP_BYTES
        assert other.take_bytes() == b""
        partition.advance(number)
        assert len(outbox.ready) == 1, "who waits for another name is no work"
        outbox.flush()
        assert other.take_bytes() == answer(number)
    stuck.connection.close("gave up")
    outbox.flush()
    assert stuck.take_bytes() == b""
    assert stuck.transport.closed
    assert not without_leader.parked, "nobody remembers who has gone"


Needs = dict[Durable, int]


class Oracle:
    """What one connection is to have got, from the passes that it was given: slow, and nothing kept."""

    def __init__(self, client: Client) -> None:
        self.client = client
        #: Of each pass what its answers need and are, and the same of its deliveries, with pings.
        self.passes: list[tuple[Needs, bytes, Needs, bytes]] = []
        #: Those that passed deliveries.
        self.pings = b""

    def add(self, answers: tuple[Needs, bytes], rest: tuple[Needs, bytes], pings: bytes) -> None:
        """One more pass; what waits for more than this machine is passed by pings."""
        self.passes.append((*answers, *rest))
        needs = [each for given in self.passes for each in given[2].items()]
        if any(number > durable.reached and not durable.is_near for durable, number in needs):
            self.pings += pings
        else:
            self.passes[-1] = (*answers, rest[0], rest[1] + pings)

    def expected(self) -> tuple[bytes, bytes, bytes]:
        """The answers, deliveries and pings that may have left."""
        found = []
        for kind in (0, 2):
            safe = b""
            for each in self.passes:
                needs, packets = each[kind], each[kind + 1]
                assert isinstance(needs, dict)
                assert isinstance(packets, bytes)
                if any(durable.reached < number for durable, number in needs.items()):
                    break
                safe += packets
            found.append(safe)
        _, deliveries, pings = sort_packets(found[1])
        return found[0], deliveries, self.pings + pings


Pass = st.tuples(
    st.just("pass"),
    st.integers(0, 2),
    st.lists(st.tuples(st.integers(0, 3), st.integers(1, 3), st.booleans()), max_size=3),
    st.lists(st.sampled_from("adp"), max_size=4),
)
Step = st.tuples(st.just("step"), st.integers(0, 3), st.integers(1, 3))


@given(st.lists(Pass | Step, max_size=40))
def test_each_lane_leaves_in_order_once_all_its_names_are_safe(
    acts: "list[tuple[str, int, list[tuple[int, int, bool]], str] | tuple[str, int, int]]",
) -> None:
    """Three connections and four names, of which the store's commits are the first, against an oracle."""
    house = House()
    house.patient = True
    outbox = house.core.outbox
    names = [outbox.stored, Durable(), Durable(), Durable(is_near=True)]
    oracles = [Oracle(Client(house)) for _ in range(3)]
    sent = 0
    for act in acts:
        if len(act) == 3:
            names[act[1]].advance(names[act[1]].reached + act[2])
        else:
            _, index, wanted, kinds = act
            output = oracles[index].client.connection
            answer_needs: Needs = {}
            delivery_needs: Needs = {}
            for which, ahead, is_answer in wanted:
                durable, number = names[which], names[which].reached + ahead
                needs = answer_needs if is_answer else delivery_needs
                needs[durable] = max(needs.get(durable, 0), number)
                (output.answer_after if is_answer else output.deliver_after)(durable, number)
            packets = {"a": b"", "d": b"", "p": b""}
            for kind in kinds:
                sent = sent % 255 + 1
                packet = {"a": answer(sent), "d": delivery(sent), "p": PINGRESP_BYTES}[kind]
                packets[kind] += packet
                output.add(packet)
            output.touch()
            oracles[index].add(
                (answer_needs, packets["a"]), (delivery_needs, packets["d"]), packets["p"]
            )
        outbox.flush()
        for oracle in oracles:
            assert sort_packets(bytes(oracle.client.transport.written)) == oracle.expected()
    for durable in names:
        durable.advance(1 << 20)
    outbox.flush()
    for oracle in oracles:
        assert sort_packets(bytes(oracle.client.transport.written)) == oracle.expected()
        assert oracle.client.connection.held_bytes == 0
    assert not any(durable.parked for durable in names)


def test_a_node_that_answers_within_the_pass_holds_up_nothing(house: House) -> None:
    client = patient_client(house)
    wait = client.connection.confirmations()
    wait.expect()
    client.connection.add(answer(1))
    wait.confirm()
    assert wait.reached == ALL
    house.core.outbox.flush()
    assert client.take_bytes() == answer(1)
    assert client.connection.confirmations() is not wait


def test_a_connection_that_ends_forgets_what_it_waited_for_and_says_nothing_of_it(
    house: House,
) -> None:
    client = patient_client(house)
    outbox = house.core.outbox
    waits = []
    for number in (1, 2, 3):
        if number != 1:
            waits.append(client.connection.confirmations())
            waits[-1].expect()
        client.connection.answer_after(outbox.stored, 1)
        client.connection.add(answer(number))
        outbox.flush()
    client.connection.close("no reason")
    outbox.release(1)
    assert client.take_bytes() == answer(1)
    assert client.transport.closed
    assert client.connection.held_bytes == 0
    for wait in waits:
        wait.confirm()
    outbox.flush()
    assert client.take_bytes() == b""
    assert not any(wait.parked for wait in waits)


def test_a_connection_that_ends_in_the_pass_of_its_answers_does_not_give_them(house: House) -> None:
    client = patient_client(house)
    wait = client.connection.confirmations()
    wait.expect()
    client.connection.add(answer(1))
    client.connection.close("no reason")
    house.core.outbox.flush()
    assert client.take_bytes() == b""
    assert client.transport.closed
    wait.confirm()
    house.core.outbox.flush()


Act = st.tuples(st.sampled_from(["pass", "node", "commit", "close"]), st.integers(0, 2))


@given(st.lists(Act, max_size=40))
def test_a_connection_that_ends_gives_what_its_own_machine_makes_safe_and_no_more(
    acts: list[tuple[str, int]],
) -> None:
    """Against an oracle that knows of each answer which commit and which nodes it needs."""
    house = House()
    house.patient = True
    outbox = house.core.outbox
    client = Client(house)
    output = client.connection
    needs: list[tuple[int, Confirmations | None]] = []
    number, done = 1, 0
    for kind, how in acts:
        if kind == "pass" and not output.closing:
            wait = None
            if how:
                wait = output.confirmations()
                for _ in range(how):
                    wait.expect()
            output.answer_after(outbox.stored, number)
            needs.append((number, wait))
            output.add(answer(1))
            outbox.flush()
        elif kind == "node":
            for _, wait in needs[how:]:
                if wait is not None and wait.open:
                    wait.confirm()
                    outbox.flush()
        elif kind == "commit":
            done = number
            outbox.release(number)
            number += 1
        elif how == 2:
            output.close("enough")
            outbox.flush()
        ready = 0
        for commit, wait in needs:
            if commit > done or (wait is not None and wait.open):
                break
            ready += 1
        sent = len(client.transport.written) // len(answer(1))
        assert sent == ready or (output.closing and sent <= ready)
    outbox.release(number)
    for _, wait in needs:
        while wait is not None and wait.open:
            wait.confirm()
    outbox.flush()
    assert output.held_bytes == 0
    assert len(client.transport.written) == len(answer(1)) * len(needs) or output.closing
