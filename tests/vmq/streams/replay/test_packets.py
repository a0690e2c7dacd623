"""Packets that a process makes are those that are made here; and whatever becomes of it, reading goes on."""

import os
import signal
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from vmq_hooks import DeliverModifiers, Message

from tests.support.present import present
from tests.support.until import reach, until
from tests.support.wire import publish_packet, unsubscribe_packet
from tests.vmq.sockets import peer_of, session_of
from tests.vmq.streamed import streams_of
from tests.vmq.streams.replay.test_port import broker_of, payload_of, readers, reading, subscribe
from tests.vmq.streams.support import make, make_with, put, row, rows_from
from vmq.broker import Broker
from vmq.core.window import LAST_ID
from vmq.mqtt.encoder import publish
from vmq.mqtt.topics import matches
from vmq.streams.log.partition import Partition
from vmq.streams.logs import LogsHere
from vmq.streams.places import PageQuery
from vmq.streams.replay import packets as module
from vmq.streams.replay.duty_cycle import LiveTraffic
from vmq.streams.replay.packet_process import ANSWER, LARGE, PACKETS, SLOT, SLOTS, PacketMaker
from vmq.streams.replay.packets import PacketPage, PacketProcess, Packets, PacketSource, page_of
from vmq.streams.replay.reading import ReplayReader

#: Ends at once.
FAILS = (sys.executable, "-c", "raise SystemExit(1)")
#: Says that it can be asked, and answers nothing until its input ends.
SILENT = (
    sys.executable,
    "-c",
    (
        "import sys; from vmq.streams.replay.packet_process import ANSWER, READY; "
        "sys.stdout.buffer.write(ANSWER.pack(READY, 0, 0, 0)); sys.stdout.flush(); sys.stdin.buffer.read()"
    ),
)


class AlwaysLive(LiveTraffic):
    """Others have messages all the time, also while a slow machine asks seldom."""

    def __init__(self) -> None:
        super().__init__(lambda: 0)

    def is_on(self, now: float) -> bool:
        return True


@pytest.fixture
def process() -> Iterator[PacketProcess]:
    found = PacketProcess(AlwaysLive())
    yield found
    found.close()


#: Bytes of a page.
SIZES = st.sampled_from([1, 300, 1 << 20])


def begin(process: PacketProcess) -> int:
    """Has it run; its process id."""
    reach(process.can_answer, "the process does not begin")
    return present(process.process).pid


def source_of(process: PacketProcess, qos: int = 0, prefix: bytes = b"") -> PacketSource:
    found = PacketSource(process, "s", prefix, True, lambda: (7, 1), lambda _count: None)
    found.qos = qos
    return found


def wanted_of(partition: Partition, start: int = 0, topics: str = "#") -> PageQuery:
    return PageQuery(start, partition.end, 1 << 20, 1 << 20, topics)


def content(rows: Packets) -> list[tuple[int, bytes, bytes, bool]]:
    offsets = list(rows.frames.offsets)
    return [
        (offset, each.topic, each.payload, each.retain)
        for offset, each in zip(offsets, rows.messages(), strict=True)
    ]


def wanted_rows(rows: Sequence[dict[str, Any]], start: int, prefix: bytes) -> list[Any]:
    return [
        (at, prefix + each["topic"].encode(), each["payload"], each["retain"])
        for at, each in enumerate(rows)
        if at >= start
    ]


@settings(max_examples=40, deadline=None)
@given(
    st.lists(
        st.lists(
            st.tuples(st.sampled_from(["a", "a/b", "c"]), st.binary(max_size=200)), min_size=1
        ),
        min_size=1,
        max_size=6,
    ),
    st.sets(st.integers(0, 5)),
    st.sampled_from(["#", "a/#", "c", "x"]),
    st.sampled_from([b"", b"old/"]),
    st.sampled_from([0, 1, LAST_ID - 2]),
    st.data(),
)
def test_the_very_rows(
    tmp_path_factory: pytest.TempPathFactory,
    batches: list[list[tuple[str, bytes]]],
    rolls: set[int],
    topics: str,
    prefix: bytes,
    first: int,
    data: st.DataObject,
) -> None:
    """Page by page, over sealed segments and the active one, from any offset on."""
    partition = make(tmp_path_factory.mktemp("s"))
    rows: list[dict[str, Any]] = []
    for number, each in enumerate(batches):
        made = [row(len(rows) + at, name, what) for at, (name, what) in enumerate(each)]
        put(partition, made)
        rows += made
        if number in rolls:
            partition.roll()
    start = data.draw(st.integers(0, len(rows) - 1))
    logs, maker = LogsHere([partition]), PacketMaker(memory := memoryview(bytearray(SLOT)))
    source = PacketSource(PacketProcess(AlwaysLive()), "s", prefix, True, lambda: (first, 1), print)
    source.qos = int(first > 0)
    found: list[Any] = []
    at = start
    while at < partition.end:
        wanted = wanted_of(partition, at, topics)._replace(rows=20, size=data.draw(SIZES))
        order = source.order(0, wanted, logs.locate(0, at, wanted.end))
        kind, many, following, _ = ANSWER.unpack(maker.carry_out(order))
        assert kind == PACKETS
        page = page_of(memoryview(bytes(memory)), many, following, order)
        assert page.next > at
        at = page.next
        said = content(page.rows)
        cut = data.draw(st.integers(0, many))
        assert content(page.rows.slice(0, cut)) + content(page.rows.slice(cut, many - cut)) == said
        assert page.rows.times.to_pylist() == [rows[each[0]]["timestamp"] for each in said]
        packet_ids = [*range(first, LAST_ID + 1), *range(1, 500)] if first else [0] * many
        ends = page.rows.frames.ends
        for number, (_, topic, payload, retain) in enumerate(said):
            whole = publish(topic, payload, source.qos, packet_ids[number], retain, False)
            assert page.rows.frames.data[ends[number] : ends[number + 1]] == whole
        found += said
    partition.close()
    assert found == [
        each for each in wanted_rows(rows, start, prefix) if matches(topics, rows[each[0]]["topic"])
    ]


def read_all(reader: ReplayReader) -> tuple[list[tuple[int, bytes, bytes, bool]], int]:
    """All rows, and how many came as packets."""
    found: list[tuple[int, bytes, bytes, bool]] = []
    packed = 0
    more = True
    while more:
        slabs, more = reader.read()
        for slab in slabs:
            if isinstance(slab.rows, Packets):
                found += content(slab.rows)
                packed += slab.rows.num_rows
            else:
                columns = (
                    slab.rows.column(name).to_pylist()
                    for name in ("offset", "topic", "payload", "retain")
                )
                found += [(o, t.encode(), p, r) for o, t, p, r in zip(*columns, strict=True)]
    return found, packed


def filled(
    folder: Path, batches: int = 4, **options: Any
) -> tuple[Partition, list[dict[str, Any]]]:
    """With 1,000 rows a batch."""
    partition = make(folder, **options)
    rows = rows_from(0, 1000 * batches)
    for first in range(0, len(rows), 1000):
        put(partition, rows[first : first + 1000])
        if first == 1000:
            partition.roll()
    return partition, rows


def reader_of(partition: Partition, source: PacketSource) -> ReplayReader:
    reader = ReplayReader(LogsHere([partition]), "s", "#")
    reader.begin("earliest")
    reader.source = source
    return reader


@pytest.mark.parametrize(("qos", "compression"), [(0, "none"), (1, "none"), (1, "zstd")])
def test_a_replay_reads_by_it(
    tmp_path: Path, process: PacketProcess, qos: int, compression: str
) -> None:
    partition, rows = filled(tmp_path, compression=compression)
    begin(process)
    found, packed = read_all(reader_of(partition, source_of(process, qos)))
    assert found == wanted_rows(rows, 0, b"")
    assert packed == len(rows)
    # Where little is to be read it is not asked.
    pages = process.pages
    put(partition, rows_from(0, 10))
    reader = reader_of(partition, source_of(process, qos))
    reader.begin("earliest", {0: len(rows)})
    assert read_all(reader)[1] == 0
    assert process.pages == pages


def test_one_that_is_killed_is_started_again(
    tmp_path: Path, process: PacketProcess, caplog: pytest.LogCaptureFixture
) -> None:
    partition, rows = filled(tmp_path)
    pid = begin(process)
    os.kill(pid, signal.SIGKILL)
    found, packed = read_all(reader_of(partition, source_of(process)))
    assert (found, packed) == (wanted_rows(rows, 0, b""), 0)
    assert "the process that reads history ended" in caplog.text
    assert begin(process) != pid
    assert read_all(reader_of(partition, source_of(process))) == (found, len(rows))


@pytest.mark.parametrize("command", [FAILS, SILENT])
def test_one_that_does_not_answer_is_ended(
    tmp_path: Path, command: tuple[str, ...], caplog: pytest.LogCaptureFixture
) -> None:
    partition, rows = filled(tmp_path)
    process = PacketProcess(AlwaysLive(), command, patience=0.2)
    try:

        def is_over() -> bool:
            found = read_all(reader_of(partition, source_of(process)))
            assert found == (wanted_rows(rows, 0, b""), 0)
            return "the process that reads history ended" in caplog.text

        reach(is_over)
        assert process.process is None
        assert not process.is_ready
    finally:
        process.close()
        partition.close()


def test_it_ends_when_nobody_has_asked_for_long() -> None:
    process = PacketProcess(AlwaysLive(), idle=0.5)
    pid = begin(process)
    reach(lambda: process.process is None)
    assert not process.is_ready
    assert begin(process) != pid
    process.close()
    assert not process.can_answer()


def test_large_messages_are_left_to_who_asks(tmp_path: Path, process: PacketProcess) -> None:
    partition = make(tmp_path)
    rows = [row(at, payload=bytes(20_000 if at == 2500 else 10)) for at in range(5000)]
    put(partition, rows)
    begin(process)
    source = source_of(process, 1)
    located = LogsHere([partition]).locate(0, 0, 5000)
    asked = source.order(0, wanted_of(partition), located)
    assert process.ask(asked) == LARGE
    asked = source.order(0, wanted_of(partition)._replace(end=2000), located)
    assert isinstance(process.ask(asked), PacketPage)
    assert read_all(reader_of(partition, source)) == (wanted_rows(rows, 0, b""), 0)
    assert source.resting == {0: module._REST}


def test_what_is_not_there_any_more_is_left_to_who_asks(
    tmp_path: Path, process: PacketProcess
) -> None:
    partition, _ = filled(tmp_path)
    begin(process)
    located = LogsHere([partition]).locate(0, 0, 4000)
    gone, partition.sealed = partition.sealed, ()
    partition._unlink(gone)
    assert process.ask(source_of(process).order(0, wanted_of(partition), located)) is None
    found, packed = read_all(reader_of(partition, source_of(process)))
    assert [each[0] for each in found] == list(range(2000, 4000))
    assert packed in (0, 2000)


def test_what_another_node_owns_is_not_read_here(tmp_path: Path, process: PacketProcess) -> None:
    partition, _ = filled(tmp_path)
    begin(process)

    class Moved(LogsHere):
        """It is another node's as soon as somebody has looked."""

        looks = 0

        def locate(self, number: int, start: int, until: int) -> Any:
            self.looks += 1
            return super().locate(number, start, until)

        def owner(self, _number: int) -> str:
            return "n2" if self.looks else ""

    assert source_of(process).page(Moved([partition]), 0, wanted_of(partition)) is None
    page = source_of(process).page(LogsHere([partition]), 0, wanted_of(partition))
    assert isinstance(page, PacketPage)


def test_what_it_says_of_an_order_that_it_cannot_carry_out(
    tmp_path: Path, process: PacketProcess
) -> None:
    partition, _ = filled(tmp_path)
    begin(process)
    located = LogsHere([partition]).locate(0, 0, 4000)
    order = source_of(process).order(0, wanted_of(partition, topics="a/#/b"), located)
    assert process.ask(order) is None
    assert process.is_ready  # and can be asked again
    order = source_of(process).order(0, wanted_of(partition), located)
    assert isinstance(process.ask(order), tuple)


@asynccontextmanager
async def broker_with(folder: Path, many: int, width: int = 1) -> AsyncIterator[Broker]:
    """A broker whose stream has so many messages, which are their numbers, in so many digits."""
    async with broker_of(folder) as broker, session_of(broker, "filler") as peer:
        for number in range(many):
            peer.send(publish_packet("s/x", b"%0*d" % (width, number)))
        await peer.ask(b"\xc0\x00", b"\xd0\x00")
        await streams_of(broker).commits.wait()
        yield broker


async def test_a_client_gets_all_of_it_whenever_the_process_is_killed(tmp_path: Path) -> None:
    many = 30_000
    async with broker_with(tmp_path, many, 100) as broker, peer_of(broker) as peer:
        packets = readers(broker).packets
        packets.live = AlwaysLive()
        await until(packets.can_answer)
        assert packets.process is not None
        killed = packets.process.pid
        await reading(peer, "$replay/earliest/s/#", qos=1)
        for number in range(many):
            if number == 100:
                assert packets.pages > 0
                os.kill(killed, signal.SIGKILL)
            assert int(await payload_of(peer)) == number
        await until(packets.can_answer)
        assert packets.process is not None
        assert packets.process.pid != killed


@pytest.mark.parametrize("qos", [0, 1])
async def test_a_plugin_that_comes_meanwhile_sees_what_packets_were_made_of(
    tmp_path: Path, qos: int
) -> None:
    def change(_user: str | None, _who: object, message: Message) -> Any:
        return DeliverModifiers(payload=b"<" + message.payload + b">")

    many = 30_000
    async with broker_with(tmp_path, many, 100) as broker, peer_of(broker) as peer:
        packets = readers(broker).packets
        packets.live = AlwaysLive()
        await until(packets.can_answer)
        await reading(peer, "$replay/earliest;prefetch=100/s/#", qos=qos)
        await until(lambda: packets.pages)
        broker.parts.core.hooks.on_deliver = change
        found = [await payload_of(peer) for _ in range(many)]
        assert [int(each.strip("<>")) for each in found] == list(range(many))
        assert found[-1][0] == "<"


def test_a_memory_without_a_free_slot(tmp_path: Path, process: PacketProcess) -> None:
    """Who holds pages has them as they were, and who finds no slot reads by himself."""
    partition, rows = filled(tmp_path)
    begin(process)
    located = LogsHere([partition]).locate(0, 0, 4000)
    order = source_of(process).order(0, wanted_of(partition), located)
    pages = [process.ask(order) for _ in range(SLOTS)]
    assert process.ask(order) is None
    assert read_all(reader_of(partition, source_of(process))) == (wanted_rows(rows, 0, b""), 0)
    for each in pages:
        assert isinstance(each, PacketPage)
        assert content(each.rows) == wanted_rows(rows, 0, b"")[: each.rows.num_rows]
    last = pages[-1]
    pages.clear()
    del each
    assert isinstance(process.ask(order), PacketPage)
    process.close()
    assert isinstance(last, PacketPage)
    assert content(last.rows) == wanted_rows(rows, 0, b"")[: last.rows.num_rows]


def test_what_is_kept_for_the_next_page_is_of_the_same_file(tmp_path: Path) -> None:
    partition = make_with(3000, tmp_path / "0")
    partition.roll()
    logs, memory = LogsHere([partition]), memoryview(bytearray(SLOT))
    maker, source = PacketMaker(memory), source_of(PacketProcess(AlwaysLive()))
    small = wanted_of(partition)._replace(size=10_000)
    order = source.order(0, small, logs.locate(0, 0, 3000))
    maker.carry_out(order)
    ((*_, following),) = maker.kept
    small = small._replace(start=following)
    again = source.order(0, small, logs.locate(0, following, 3000))
    before = present(maker.take(again))
    assert before.rows.num_rows == 3000 - following
    assert not maker.kept
    maker.carry_out(order)
    (path,) = [each.path for each in partition.sealed]
    copy = path.with_name("copy")
    copy.write_bytes(path.read_bytes())
    copy.replace(path)
    again = source.order(0, small, logs.locate(0, following, 3000))
    assert maker.take(again) is None
    kind, _, behind, _ = ANSWER.unpack(maker.carry_out(again))
    assert (kind, behind > following) == (PACKETS, True)
    for key in list(maker.kept):
        maker.drop(key)


async def test_it_is_for_the_sake_of_others(tmp_path: Path) -> None:
    """While nobody publishes threads read."""
    many = 5000
    async with (
        broker_with(tmp_path, many) as broker,
        peer_of(broker) as peer,
        peer_of(broker) as other,
    ):
        packets = readers(broker).packets
        assert not packets.can_answer()
        await reading(peer, "$replay/earliest/s/#")
        for number in range(many):
            assert int(await payload_of(peer)) == number
        assert packets.process is None
        await other.connect("other")

        def can_answer() -> bool:
            other.send(publish_packet("elsewhere", b""))
            return packets.can_answer()

        await until(can_answer)
        packets.live = AlwaysLive()
        await peer.ask(unsubscribe_packet(2, "$replay/earliest/s/#"), b"\xb0\x02\x00\x02")
        await subscribe(peer, "$replay/earliest/s/#")
        for number in range(many):
            assert int(await payload_of(peer)) == number
        assert packets.pages > 0
