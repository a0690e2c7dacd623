"""Whatever a peer sends, a node takes or refuses it, goes on, and has nothing that it cannot keep or tell of."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from struct import Struct
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.simulator.jobs.node import PILE, QUEUE, SimNode
from tests.simulator.jobs.world import JobWorld
from vmq.jobs.queue import DEAD, QUEUED
from vmq.jobs.sharing import messages
from vmq.jobs.sharing.messages import AnyEntry, Copies, Done, QueuedAll, WillQueueAll, decode

LENGTH = Struct("<I")
NEW = [b"D-%08x-%s-05a%d" % (each, b"wrongwrongwrongwrongwron", each % 10) for each in range(6)]
_LONGEST = 2_000 * 0xFFFF_FFFF
KINDS: list[Any] = list(AnyEntry.__args__)


@contextmanager
def nodes() -> Iterator[tuple[SimNode, SimNode, list[bytes]]]:
    """A node that has jobs of all kinds, and the peer that is wrong; ids of those jobs."""
    with tempfile.TemporaryDirectory() as folder:
        yield from nodes_in(Path(folder))


def nodes_in(folder: Path) -> Iterator[tuple[SimNode, SimNode, list[bytes]]]:
    """The same, in a folder."""
    world = JobWorld(1, folder, ["a", "b"])
    world.is_idle = True
    for _ in range(30):
        world.step(adds=False)
    one, other = world.nodes.values()
    ids: list[bytes] = []
    for number in range(12):
        for node in (one, other):
            queue = node.machine.queue(PILE if number > 9 else QUEUE, node.clock_now)
            is_once = number == 3
            token = b"%s%02d%020d" % (node.name.encode(), number, 0)
            job = node.machine.add(
                queue,
                b"x" * number,
                node.clock_now,
                retry=0 if is_once else -1,
                delay=100 if number == 4 else 0,
                key=b"key" if number == 5 else b"",
                replicate=1 if is_once or number == 10 else 2,
                job_id=b"D-00000000-%s-05a%d" % (token, 0 if is_once else 1),
            )
            ids.append(job.id)
            world._send(node.name)
    for _ in range(10):
        world.step(adds=False)
    queue = one.machine.queue(QUEUE, one.clock_now)
    for job in one.machine.take_some([queue], 2, one.clock_now)[1:]:
        one.machine.acknowledge(job.id)
    world.cut.add(frozenset((one.name, other.name)))  # what the peer says comes from here alone
    try:
        yield one, other, ids
    finally:
        for node in (one, other):
            node.segments.close()


def numbers() -> st.SearchStrategy[int]:
    edges = [0, 1, 40, 0xFFFF, 0x1_0000, 1 << 31, 0xFFFF_FFFF, 1 << 32, (1 << 62) - 1, 1 << 62]
    edges += [(1 << 63) - 1, (1 << 64) - 1, -1, -2, 2_000 * 0xFFFF_FFFF]
    return st.sampled_from(edges) | st.integers(0, 1000)


def values(ids: list[bytes], members: list[int]) -> st.SearchStrategy[Any]:
    one_id = st.sampled_from([*ids, *NEW])
    cut_off = st.sampled_from([b"", b"D-", ids[0][:39], ids[0] + b"D", b"\xff" * 40, b"z" * 40])
    joined = st.lists(one_id | cut_off, max_size=4).map(b"".join)
    names = st.sampled_from([QUEUE, QUEUE + DEAD, PILE, b"$own", b"", b"q\0$r", b"n" * 4096])
    nodes_of = st.lists(st.sampled_from(members) | st.integers(1, 9), max_size=4)
    texts = st.sampled_from(["", "127.0.0.1", "max_deliveries", "a\r\nb", "x" * 600])
    lists = nodes_of | st.lists(numbers() | joined, max_size=4)
    single = one_id | joined | names | texts | numbers() | st.booleans()
    return single | lists | st.floats() | st.none()


def likely(field: msgspec.structs.FieldInfo, ids: list[bytes], members: list[int]) -> Any:
    """Values that a field may have, so that some messages are taken."""
    name = field.name
    if name in ("job", "known"):
        return st.sampled_from([*ids, *NEW])
    if name in ("jobs", "busy"):
        return st.lists(st.sampled_from([*ids, *NEW]), max_size=4).map(b"".join)
    if name in ("queue", "key"):
        return st.sampled_from([QUEUE, QUEUE + DEAD, PILE, b"key", b""])
    if name == "nodes":
        return st.lists(st.sampled_from(members) | st.integers(1, 9), max_size=3)
    if name in ("created", "bodies", "keys"):
        each = numbers().filter(lambda number: 0 <= number < 1 << 62)
        return st.lists(each if name == "created" else st.binary(max_size=50), max_size=4)
    if name.startswith(("is_", "asks", "serves")):
        return st.booleans()
    if name in ("reason", "schedule", "host", "address"):
        return st.sampled_from(["", "127.0.0.1", "max_deliveries"])
    if name == "name":
        return st.sampled_from([b"%040x" % each for each in range(3)])
    if name == "tick":
        return st.floats(0, 1e12)
    edges = {"priority": [9], "wanted": [0xFFFF], "retry": [-1, 0x7FFF_FFFF], "lives": [_LONGEST]}
    edges |= {"wake": [_LONGEST], "ttl": [0xFFFF_FFFF], "delay": [0xFFFF_FFFF]}
    return st.sampled_from([0, 1, *edges.get(name, [0xFFFF])])


@st.composite
def entries(draw: st.DrawFn, ids: list[bytes], members: list[int]) -> bytes:
    """A message, or what is nearly one."""
    kind = draw(st.sampled_from(KINDS))
    fields = msgspec.structs.fields(kind)
    told = [draw(likely(each, ids, members)) for each in fields]
    if kind is Copies and draw(st.booleans()):
        count = len(told[0]) // messages.ID
        told[-3:] = [[1] * count, [b"body"] * count, [b"key"] * count]
    for _ in range(draw(st.sampled_from([0, 0, 1, 2]))):
        told[draw(st.integers(0, len(told) - 1))] = draw(values(ids, members))
    if draw(st.integers(0, 20)) == 20:
        told = told[:-1]
    raw = msgspec.msgpack.encode([kind.__struct_config__.tag, *told])
    return raw[:-1] if draw(st.integers(0, 20)) == 20 else raw


def check(node: SimNode) -> None:
    machine = node.machine
    for job_id, job in machine.jobs.items():
        assert job.id == job_id
        assert not job.is_gone
        assert job.queue is machine.queues[job.queue.name]
        assert job.body is None or job.size == len(job.body)
    for queue in machine.queues.values():
        queued = sum(job.queue is queue and job.state == QUEUED for job in machine.jobs.values())
        paged = sum(each.count for each in machine.pager.pages if each.lane.queue is queue)
        assert queue.depth >= queued
        assert queue.jobs >= sum(job.queue is queue for job in machine.jobs.values())
        assert queue.jobs <= len(machine.jobs) + paged


@given(data=st.data())
@settings(max_examples=40, deadline=None)
def test_a_node_goes_on_whatever_a_peer_sends(data: st.DataObject) -> None:
    with nodes() as (node, peer, ids):
        members = [node.number, peer.number]
        for _ in range(data.draw(st.integers(1, 6))):
            some = data.draw(st.lists(entries(ids, members), min_size=1, max_size=3))
            payload = b"".join(LENGTH.pack(len(each)) + each for each in some)
            node.post.receive(peer.name, payload, node.clock_now)
            node.end_pass()
            check(node)
            for _ in range(data.draw(st.sampled_from([1, 1, 30]))):
                node.set_time(node.clock_now - node.offset + 0.1)
                node.tick()
                node.end_pass()
            check(node)
        had = set(node.machine.jobs)
        done_at_once = {each for each in had if int(each[39:], 16) % 2 == 0}
        node.crash()
        node.start(node.clock_now - node.offset, [node.name, peer.name])
        assert had - done_at_once <= {*node.machine.jobs, *all_ids(node)}, "it is all on disk"


def all_ids(node: SimNode) -> list[bytes]:
    return [each for page in node.machine.pager.pages for each in node.machine.pager.ids(page)]


ONE = NEW[1]
NODES: list[int] = [1, 2]


@pytest.mark.parametrize(
    "entry",
    [
        [8, ONE[:39], b"q", 0, NODES],
        [8, ONE + b"D", b"q", 0, NODES],
        [8, b"z" * 40, b"q", 0, NODES],
        [9, ONE[1:], NODES],
        [3, ONE * 2 + b"D-"],
        [20, ONE[:-1], 1, b"q", 0, 0, 0, 0, 0, NODES],
        [21, ONE, 1, b"q", 0, 0, 0, 0, 0, ONE[2:]],
        [2, ONE, b"q", *[0] * 9, "", 1, NODES, False, False, [1, 2], [b"x"], []],
        [2, ONE, b"q", *[0] * 9, "", 1, NODES, False, False, [1], [b"x"] * 2, []],
        [2, ONE, b"q", *[0] * 9, "", 1, NODES, False, False, [1], [b"x"], [b"k"] * 2],
        [2, ONE, b"q", 1 << 61, *[0] * 8, "", 1, NODES, False, False, [1], [b"x"], []],
        [2, NEW[0], b"q", *[0] * 9, "", 1, NODES, False, False, [1], [b"x"], []],
        [18, ONE, b"q", b"k", b"-ERR\r\n", True],
        [1, 1, b"no name", "h", "a", 1, 1, False, True],
    ],
)
def test_what_is_cut_off_or_out_of_bounds_is_no_message(entry: list[Any]) -> None:
    with pytest.raises(ValueError, match="no message about jobs"):
        decode(msgspec.msgpack.encode(entry))


def test_what_is_as_it_should_be_is_a_message() -> None:
    for entry in (
        Copies(ONE, b"q", 0, 0, 0, 0, 0, 0, 0, 0, 0, "", 1, NODES, False, False, [1], [b"x"], []),
        Done(ONE * 3, b"q", 0, NODES),
        WillQueueAll(ONE * 2, 1, b"q", 0, 0, 0, 0, 0, NODES),
        QueuedAll(b"", 1, b"q", 0, 0, 0, 0, 0, ONE),
    ):
        assert decode(msgspec.msgpack.encode(entry)) == entry


def test_a_member_is_nobody_else() -> None:
    with nodes() as (node, peer, ids):
        first = node.machine.jobs[ids[0]]
        told = node.replicas.present(False)
        payload = messages.encode(told)
        node.post.receive(peer.name, LENGTH.pack(len(payload)) + payload, node.clock_now)
        assert node.replicas.peers.all[node.number].host == "a"
        assert node.number not in node.replicas.peers.up
        assert node.machine.jobs[ids[0]] is first
