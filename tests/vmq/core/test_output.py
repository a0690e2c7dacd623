"""The outbox: one write a pass for each connection, and none before the commit it waits for."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.wire import PINGREQ_BYTES, PINGRESP_BYTES
from tests.vmq.support import Client, House
from vmq.core.output import Outbox, Output, Wait


def test_the_pieces_of_a_pass_are_one_write() -> None:
    house = House()
    client = house.client("c")
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
    assert output.pieces == []
    assert output.describe() == ""


def test_flushing_with_nothing_touched_does_nothing() -> None:
    outbox = Outbox()
    outbox.flush()
    assert (outbox.touched, outbox.waiting) == ([], [])


def patient_client(house: House) -> Client:
    """A connected client of a house where the test itself flushes and releases."""
    client = house.client("c")
    house.patient = True
    return client


def test_an_output_waits_for_its_commit_and_others_do_not() -> None:
    house = House()
    waits, other = patient_client(house), Client(house)
    waits.connection.add(PINGRESP_BYTES)
    waits.connection.barrier = 1
    other.connection.add(PINGRESP_BYTES)
    house.core.outbox.flush()
    assert waits.take_bytes() == b""
    assert other.take_bytes() == PINGRESP_BYTES
    house.core.outbox.release(1)
    assert waits.take_bytes() == PINGRESP_BYTES
    assert house.core.outbox.waiting == []


def test_what_is_added_while_an_output_waits_leaves_behind_it_in_order() -> None:
    house = House()
    client = patient_client(house)
    client.connection.add(PINGRESP_BYTES)
    client.connection.barrier = 3
    house.core.outbox.flush()
    client.connection.add(b"\x40\x02\0\1")
    house.core.outbox.flush()
    house.core.outbox.release(2)
    assert client.take_bytes() == b""
    house.core.outbox.release(3)
    assert client.take_bytes() == PINGRESP_BYTES + b"\x40\x02\0\1"


def test_a_barrier_that_was_passed_holds_nothing_up() -> None:
    house = House()
    client = patient_client(house)
    house.core.outbox.release(7)
    client.connection.barrier = 7
    client.connection.add(PINGRESP_BYTES)
    house.core.outbox.flush()
    assert client.take_bytes() == PINGRESP_BYTES


def test_a_failed_commit_cuts_off_who_waits_unanswered() -> None:
    house = House()
    waits, other = patient_client(house), Client(house)
    waits.connection.add(PINGRESP_BYTES)
    waits.connection.barrier = 1
    house.core.outbox.flush()
    house.core.outbox.fail("the store cannot write")
    house.core.outbox.flush()
    assert waits.connection.closing
    assert not other.connection.closing
    house.core.outbox.release(2)
    assert waits.take_bytes() == b""
    assert waits.is_closed()


def test_who_is_cut_off_by_a_failed_commit_does_not_wait_for_the_next() -> None:
    house = House()
    waits = patient_client(house)
    waits.connection.add(PINGRESP_BYTES)
    waits.connection.barrier = 1
    house.core.outbox.flush()
    house.core.outbox.fail("the store cannot write")
    house.core.outbox.flush()
    assert waits.is_closed()


def test_an_output_with_work_in_every_commit_is_written_all_the_same() -> None:
    # As with fsync, where the next commit gathers while one is on its way to the disk.
    house = House()
    client = patient_client(house)
    outbox = house.core.outbox
    for number in range(1, 50):
        client.connection.add(b"\x40\x02" + number.to_bytes(2))
        client.connection.barrier = number
        outbox.flush()
        outbox.release(number - 1)
    assert client.take_bytes() != b""


def test_a_closing_output_is_closed_when_what_it_still_owes_is_written() -> None:
    house = House()
    client = patient_client(house)
    client.connection.add(PINGRESP_BYTES)
    client.connection.barrier = 1
    client.connection.close("enough")
    house.core.outbox.flush()
    assert not client.is_closed()
    house.core.outbox.release(1)
    assert client.take_bytes() == PINGRESP_BYTES
    assert client.is_closed()


def test_a_closing_output_waits_for_each_of_its_commits() -> None:
    house = House()
    client = patient_client(house)
    outbox = house.core.outbox
    for number in (1, 2):
        client.connection.add(b"\x40\x02\0%c" % number)
        client.connection.barrier = number
        outbox.flush()
    client.connection.close("enough")
    outbox.flush()
    outbox.release(1)
    assert client.take_bytes() == b"\x40\x02\0\1"
    assert not client.is_closed()
    outbox.release(2)
    client.expect(b"\x40\x02\0\2")
    assert client.transport.closed


Step = st.tuples(st.sampled_from(["add", "durable", "flush", "commit"]), st.integers(0, 2))


@given(st.lists(Step, max_size=40))
def test_nothing_overtakes_and_nothing_leaves_before_its_commit(
    steps: list[tuple[str, int]],
) -> None:
    house = House()
    house.patient = True
    outbox = house.core.outbox
    clients = [Client(house) for _ in range(3)]
    wanted: list[bytes] = [b"", b"", b""]
    # For each client, how long its output was when the work of each commit began.
    owed: list[dict[int, int]] = [{}, {}, {}]
    number = 1
    for kind, index in steps:
        output = clients[index].connection
        if kind == "add":
            wanted[index] += b"-"
            output.add(b"-")
        elif kind == "durable":
            owed[index].setdefault(number, len(wanted[index]))
            wanted[index] += b"%d" % (number % 10)
            output.barrier = number
            output.add(b"%d" % (number % 10))
        elif kind == "flush":
            outbox.flush()
        else:
            outbox.flush()
            outbox.release(number)
            number += 1
        for client, whole, marks in zip(clients, wanted, owed, strict=True):
            sent = bytes(client.transport.written)
            assert whole.startswith(sent)
            for commit, length in marks.items():
                assert commit < number or len(sent) <= length
    outbox.flush()
    outbox.release(number)
    assert [bytes(client.transport.written) for client in clients] == wanted


@pytest.mark.parametrize("barrier", (0, 1), ids=("at once", "released"))
def test_a_transport_that_raises_ends_its_connection_and_no_other(barrier: int) -> None:
    house = House()
    clients = [house.client(name) for name in "abc"]
    outbox = house.core.outbox

    def broken(data: bytes) -> None:
        raise OSError("no more")

    clients[1].transport.write = broken  # type: ignore[method-assign]
    for client in clients:
        client.connection.barrier = outbox.committed + barrier
        client.connection.add(PINGRESP_BYTES)
    outbox.flush()
    outbox.release(outbox.committed + barrier)
    assert clients[0].take_bytes() == PINGRESP_BYTES
    assert clients[2].take_bytes() == PINGRESP_BYTES
    assert [client.connection.closing for client in clients] == [False, True, False]


# --- two kinds of commits


def hold(house: House, client: Client, *passes: tuple[int, int, bytes]) -> None:
    """These passes go to a client, each with the commits of store and streams that it needs."""
    output = client.connection
    for barrier, stream_barrier, piece in passes:
        output.barrier = max(output.barrier, barrier)
        output.stream_barrier = max(output.stream_barrier, stream_barrier)
        output.add(piece)
        house.core.outbox.flush()


def test_a_failing_store_cuts_off_who_waits_for_it_and_nobody_else() -> None:
    house = House()
    outbox = house.core.outbox
    clients = [house.client(name) for name in ("streams", "store", "both")]
    for client in clients:
        client.take_bytes()
    streams, store, both = clients
    hold(house, streams, (0, 1, b"a"))
    hold(house, store, (1, 0, b"b"))
    hold(house, both, (0, 1, b"c"), (1, 0, b"d"))
    outbox.fail("the store cannot write")
    assert [each.connection.closing for each in clients] == [False, True, True]
    outbox.release_streams(1)
    assert [each.take_bytes() for each in clients] == [b"a", b"", b""]
    assert streams.connection.held_bytes == 0
    assert not outbox.waiting


@given(st.lists(st.tuples(st.booleans(), st.booleans(), st.booleans()), max_size=20))
def test_every_pass_leaves_in_order_once_both_its_commits_are_done(
    acts: list[tuple[bool, bool, bool]],
) -> None:
    """Each act: a pass that needs the next commit of the store or of the streams, then some of these are done."""
    house = House()
    outbox = house.core.outbox
    client = house.client("c")
    client.take_bytes()
    output = client.connection
    written = b""
    needs: list[tuple[int, int]] = []
    store = streams = 1
    for number, (durable, tapped, store_first) in enumerate(acts):
        if durable:
            output.barrier = store
        if tapped:
            output.stream_barrier = streams
        needs.append((output.barrier, output.stream_barrier))
        output.add(bytes([number]))
        outbox.flush()
        if store_first:
            outbox.release(store)
            store += 1
        elif number % 2:
            outbox.release_streams(streams)
            streams += 1
        ready = 0
        for barrier, stream_barrier in needs:
            if barrier >= store or stream_barrier >= streams:
                break
            ready += 1
        written += client.take_bytes()
        assert written == bytes(range(ready))
    outbox.release(store)
    outbox.release_streams(streams)
    assert written + client.take_bytes() == bytes(range(len(acts)))
    assert output.held_bytes == 0


# --- other nodes


def test_an_answer_waits_for_nodes_and_for_its_commit() -> None:
    house = House()
    client = patient_client(house)
    outbox = house.core.outbox
    client.connection.barrier = 1
    wait = client.connection.wait_for_nodes()
    assert client.connection.wait_for_nodes() is wait
    wait.open += 2
    client.connection.add(b"a")
    outbox.flush()
    client.connection.add(b"b")
    outbox.flush()
    wait.settle()
    outbox.release(1)
    assert client.take_bytes() == b""
    wait.settle()
    assert client.take_bytes() == b""
    outbox.flush()
    assert client.take_bytes() == b"ab"
    assert client.connection.held_bytes == 0
    assert not outbox.waiting


def test_a_node_that_answers_within_the_pass_holds_up_nothing() -> None:
    house = House()
    client = patient_client(house)
    wait = client.connection.wait_for_nodes()
    wait.open += 1
    client.connection.add(b"a")
    wait.settle()
    house.core.outbox.flush()
    assert client.take_bytes() == b"a"
    assert client.connection.wait_for_nodes() is not wait


def test_who_waits_for_a_node_is_no_work_for_the_commits_of_others() -> None:
    house = House()
    client = patient_client(house)
    outbox = house.core.outbox
    wait = client.connection.wait_for_nodes()
    wait.open += 1
    client.connection.add(b"a")
    outbox.flush()
    outbox.release(1)
    assert not outbox.waiting
    outbox.fail("the store cannot write")
    assert not client.connection.closing
    wait.settle()
    outbox.flush()
    assert client.take_bytes() == b"a"


def test_a_connection_that_ends_forgets_what_it_waited_for_and_says_nothing_of_it() -> None:
    house = House()
    client = patient_client(house)
    outbox = house.core.outbox
    waits = []
    for piece in (b"a", b"b", b"c"):
        if piece != b"a":
            waits.append(client.connection.wait_for_nodes())
            waits[-1].open += 1
        client.connection.barrier = 1
        client.connection.add(piece)
        outbox.flush()
    client.connection.close("no reason")
    outbox.release(1)
    assert client.take_bytes() == b"a"
    assert client.transport.closed
    assert client.connection.held_bytes == 0
    for wait in waits:
        wait.settle()
    outbox.flush()
    assert client.take_bytes() == b""
    assert not outbox.waiting


def test_a_connection_that_ends_in_the_pass_of_its_answers_does_not_give_them() -> None:
    house = House()
    client = patient_client(house)
    wait = client.connection.wait_for_nodes()
    wait.open += 1
    client.connection.add(b"a")
    client.connection.close("no reason")
    house.core.outbox.flush()
    assert client.take_bytes() == b""
    assert client.transport.closed
    wait.settle()
    house.core.outbox.flush()


Act = st.tuples(st.sampled_from(["pass", "node", "commit", "close"]), st.integers(0, 2))


@given(st.lists(Act, max_size=40))
def test_nothing_leaves_before_nodes_and_commits_have_it_and_nothing_overtakes(
    acts: list[tuple[str, int]],
) -> None:
    """Against an oracle that knows of each piece which commit and which nodes it needs."""
    house = House()
    house.patient = True
    outbox = house.core.outbox
    client = Client(house)
    output = client.connection
    needs: list[tuple[int, Wait | None]] = []
    number, done = 1, 0
    for kind, how in acts:
        if kind == "pass" and not output.closing:
            wait = None
            if how:
                wait = output.wait_for_nodes()
                wait.open += how
            output.barrier = number
            needs.append((number, wait))
            output.add(b"x")
            outbox.flush()
        elif kind == "node":
            for _, wait in needs[how:]:
                if wait is not None and wait.open:
                    wait.settle()
                    outbox.flush()
        elif kind == "commit":
            done = number
            outbox.release(number)
            number += 1
        elif how == 2:
            output.close("enough")
            outbox.flush()
        ready = 0
        for barrier, wait in needs:
            if barrier > done or (wait is not None and wait.open):
                break
            ready += 1
        sent = len(client.transport.written)
        assert sent == ready or (output.closing and sent <= ready)
    outbox.release(number)
    for _, wait in needs:
        while wait is not None and wait.open:
            wait.settle()
    outbox.flush()
    assert output.held_bytes == 0
    assert not outbox.waiting
    assert len(client.transport.written) == len(needs) or output.closing
