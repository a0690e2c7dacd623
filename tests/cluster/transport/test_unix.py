"""Links over Unix sockets: who gets in, what is refused, and what is known of a process that has ended."""

import asyncio
import logging
import socket
import stat
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.test_link import KEY, LOOPBACK, End, begun
from tests.support.until import until
from vmq_cluster.addresses import generate_key
from vmq_cluster.errors import ClusterError
from vmq_cluster.link import Link
from vmq_cluster.messages import MAX_FRAME, Frame, Heartbeat, encode
from vmq_cluster.transport import unix
from vmq_cluster.transport.refusals import Refusals
from vmq_cluster.transport.unix import proof_of

PATIENCE = 0.3


async def listening(ends: list[End], folder: Path, key: str | None = None) -> str:
    """The path at which one end hears."""
    inside = End("inside", key, PATIENCE)
    ends.append(inside)
    return (await inside.link.start(f"ipc://{folder}/s")).removeprefix("ipc://")


Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@asynccontextmanager
async def connection(path: str) -> AsyncIterator[Streams]:
    """A stranger's."""
    reader, writer = await asyncio.open_unix_connection(path)
    try:
        yield reader, writer
    finally:
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()


@asynccontextmanager
async def greeted(path: str) -> AsyncIterator[Streams]:
    """A stranger's that has said what a node without a key says."""
    async with connection(path) as (reader, writer):
        drawn = await reader.readexactly(32)
        writer.write(proof_of(None, b"speaks", drawn) + bytes(32))
        assert await reader.readexactly(32) == proof_of(None, b"hears", bytes(32))
        yield reader, writer


async def is_closed(reader: asyncio.StreamReader) -> bool:
    try:
        return await asyncio.wait_for(reader.read(1), 10) == b""
    except ConnectionError:
        return True


async def test_its_owner_alone_may_connect(ends: list[End], tmp_path: Path) -> None:
    path = await listening(ends, tmp_path)
    mode = (await asyncio.to_thread(Path(path).stat)).st_mode
    assert stat.S_IMODE(mode) == 0o600


async def test_a_path_that_is_in_use_is_an_error_and_one_that_is_left_over_is_none(
    ends: list[End], tmp_path: Path
) -> None:
    with socket.socket(socket.AF_UNIX) as left_over:
        left_over.bind(f"{tmp_path}/s")
    path = await listening(ends, tmp_path)
    other = End("other")
    ends.append(other)
    with pytest.raises(ClusterError, match=r"cannot listen at .*in use"):
        await other.link.start(f"ipc://{path}")
    one = await begun(ends, "one", inside=f"ipc://{path}")
    one.link.send("inside", one.frame())
    assert (await ends[0].hears()).sender == "one"


async def test_a_path_that_is_too_long_or_no_socket_is_an_error(
    ends: list[End], tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("somebody's")
    for path in (tmp_path / "file", tmp_path / ("x" * 200)):
        one = End("one")
        ends.append(one)
        with pytest.raises(ClusterError, match="cannot listen at"):
            await one.link.start(f"ipc://{path}")
    assert (tmp_path / "file").read_text() == "somebody's"


@pytest.mark.parametrize(
    "keys", [(KEY, None), (None, KEY), (KEY, generate_key())], ids=["none", "too much", "another"]
)
async def test_nodes_with_different_keys_do_not_mix(
    ends: list[End],
    tmp_path: Path,
    keys: tuple[str | None, str | None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    refused = asyncio.Event()
    path = await listening(ends, tmp_path, keys[0])
    watcher = logging.Handler()
    watcher.addFilter(lambda record: "another cluster key" in record.getMessage())
    watcher.emit = lambda record: refused.set()  # type: ignore[method-assign]
    monkeypatch.setattr(logging.getLogger("vmq.cluster.link"), "handlers", [watcher])
    outside = End("outside", keys[1], PATIENCE)
    ends.append(outside)
    await outside.link.start(LOOPBACK)
    outside.link.set_members({"inside": f"ipc://{path}"})
    outside.link.send("inside", outside.frame())
    await asyncio.wait_for(refused.wait(), 10)
    assert ends[0].frames.empty()


async def test_who_listens_must_have_the_key_as_well(ends: list[End], tmp_path: Path) -> None:
    """Somebody took the path of a node: it is told nothing."""
    heard: list[bytes] = []
    over = asyncio.Event()

    async def impostor(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(bytes(32))
        heard.append(await reader.readexactly(64))
        writer.write(bytes(32))
        heard.append(await reader.read())
        writer.close()
        over.set()

    async with await asyncio.start_unix_server(impostor, f"{tmp_path}/s"):
        one = End("one", KEY, PATIENCE)
        ends.append(one)
        await one.link.start(LOOPBACK)
        one.link.set_members({"impostor": f"ipc://{tmp_path}/s"})
        one.link.send("impostor", one.frame())
        await asyncio.wait_for(over.wait(), 10)
        await one.link.stop()
    assert heard[1] == b""


async def test_who_says_nothing_or_nonsense_is_closed(ends: list[End], tmp_path: Path) -> None:
    path = await listening(ends, tmp_path)
    async with connection(path) as (silent, _):
        await silent.readexactly(32)
        assert await is_closed(silent)
    async with connection(path) as (reader, writer):
        await reader.readexactly(32)
        writer.write(b"GET / HTTP/1.1\r\n" * 10_000)
        assert await is_closed(reader)
    assert ends[0].nonsense.empty()


async def test_a_frame_too_large_ends_the_connection_before_it_is_there(
    ends: list[End], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with greeted(await listening(ends, tmp_path)) as (reader, writer):
        writer.write(struct.pack("<I", MAX_FRAME + 1))
        assert await is_closed(reader)
    assert f"the limit is {MAX_FRAME}" in caplog.text


async def test_nonsense_in_a_frame_is_told(ends: list[End], tmp_path: Path) -> None:
    async with greeted(await listening(ends, tmp_path)) as (_, writer):
        writer.write(struct.pack("<I", 8) + b"nonsense")
        _, reason = await asyncio.wait_for(ends[0].nonsense.get(), 10)
    assert "no frame of this cluster" in reason


async def test_frames_that_come_byte_by_byte_are_heard(ends: list[End], tmp_path: Path) -> None:
    raw = encode(Frame(1, "slow", 1, 1, []))
    async with greeted(await listening(ends, tmp_path)) as (_, writer):
        for byte in struct.pack("<I", len(raw)) + raw:
            writer.write(bytes([byte]))
            await writer.drain()
        assert (await ends[0].hears()).sender == "slow"


@pytest.mark.parametrize("kind", ["tcp", "ipc"])
async def test_the_end_of_a_process_is_told(ends: list[End], tmp_path: Path, kind: str) -> None:
    """Of who never answered nothing is known."""
    gone: asyncio.Queue[str] = asyncio.Queue()
    peer = End("peer")
    ends.append(peer)
    address = await peer.link.start(LOOPBACK if kind == "tcp" else f"ipc://{tmp_path}/peer")
    link = Link(lambda _frame: None, lambda _peer, _reason: None, on_gone=gone.put_nowait)
    try:
        await link.start(LOOPBACK)
        with socket.socket() as nobody:
            nobody.bind(("127.0.0.1", 0))
            nowhere = f"tcp://127.0.0.1:{nobody.getsockname()[1]}"
            link.set_members({"peer": address, "a": nowhere, "b": f"ipc://{tmp_path}/none"})
            link.send("peer", peer.frame())
            await peer.hears()
            assert gone.empty()
            await peer.link.stop()
            assert await asyncio.wait_for(gone.get(), 10) == "peer"
    finally:
        await link.stop()
    assert {gone.get_nowait() for _ in range(gone.qsize())} <= {"peer"}


async def test_nodes_of_one_machine_talk_over_unix_sockets_whatever_their_addresses_are(
    ends: list[End], tmp_path: Path
) -> None:
    """Where they say that they are nobody hears them."""
    sockets = {name: f"ipc://{tmp_path}/{name}" for name in ("one", "other")}
    where: dict[str, str] = {}
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        nowhere = f"tcp://127.0.0.1:{nobody.getsockname()[1]}"
        for name, own in sockets.items():
            end = End(name, KEY)
            ends.append(end)
            await end.link.start_nearby(own, sockets)
            where[name] = await end.link.start(LOOPBACK)
            end.link.set_members({each: nowhere for each in sockets if each != name})
        one, other = ends
        for sender, receiver in ((one, other), (other, one)):
            sender.link.send(receiver.name, sender.frame())
            assert (await receiver.hears()).sender == sender.name
        # Others still reach it where it listens, and nobody is taken for anybody else.
        far = End("far", KEY)
        ends.append(far)
        await far.link.start(LOOPBACK)
        far.link.set_members({"one": where["one"]})
        far.link.send("one", far.frame())
        assert (await one.hears()).sender == "far"


async def test_who_comes_back_and_speaks_is_connected_to_at_once(
    ends: list[End], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not after the pause between two attempts, which is longer than any test."""
    refused = asyncio.Event()
    linked = asyncio.Event()
    monkeypatch.setattr(unix, "_RECONNECT", 1000.0)
    monkeypatch.setattr(unix, "_RECONNECT_MAX", 1000.0)
    monkeypatch.setattr(Refusals, "refused", lambda _self: refused.set())
    monkeypatch.setattr(Refusals, "linked", lambda _self: linked.set())
    one, other = End("one"), End("other")
    ends += [one, other]
    where = await one.link.start(f"ipc://{tmp_path}/one")
    one.link.set_members({"other": f"ipc://{tmp_path}/other"})
    await asyncio.wait_for(refused.wait(), 10)
    await other.link.start(f"ipc://{tmp_path}/other")
    other.link.set_members({"one": where})
    await asyncio.wait_for(linked.wait(), 10)
    other.link.send("one", other.frame())
    assert (await one.hears()).sender == "other"
    one.link.send("other", one.frame())
    assert (await other.hears()).sender == "one"


async def neighbours(ends: list[End], tmp_path: Path) -> tuple[End, End]:
    """The first one speaks to the other by its Unix socket, and has said nothing yet."""
    one, other = End("one"), End("other")
    ends += [one, other]
    where = await other.link.start(f"ipc://{tmp_path}/other")
    await one.link.start(f"ipc://{tmp_path}/one")
    one.link.set_members({"other": where})
    one.link.set_up("other", True)
    return one, other


async def test_payloads_without_a_frame_come_in_order_behind_one_that_says_whose_they_are(
    ends: list[End], tmp_path: Path
) -> None:
    """Short ones, one that comes in many pieces, and frames among them; none goes before the first frame."""
    one, other = await neighbours(ends, tmp_path)
    assert not one.link.send_at_once("other", 7, b"early")
    one.link.send("other", one.frame())
    await other.hears()
    sent = [bytes([at]) * (at + 1) for at in range(100)] + [bytes(3 * 1024 * 1024)]
    for payload in sent:
        assert one.link.send_at_once("other", 7, payload)
    one.link.send("other", one.frame())
    await other.hears()
    assert other.payloads == [("one", 7, payload) for payload in sent]
    assert one.link.traffic.sent["other"] >= sum(map(len, sent))


class Written:
    """A transport that counts what is written."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self.count = 0

    def write(self, data: bytes) -> None:
        self.count += 1
        self._transport.write(data)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


async def test_what_comes_in_bunches_is_one_write_a_turn_in_order_with_all_else(
    ends: list[End], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first turn shows that it does. Nothing waits longer than for a moment, or when it is much."""
    one, other = await neighbours(ends, tmp_path)
    one.link.send("other", one.frame())
    await other.hears()
    speaks: Any = one.link._peers["other"]
    speaks._ready.transport = written = Written(speaks._ready.transport)
    clock, sent, counts = [1.0], [], []
    monkeypatch.setattr(unix, "monotonic", lambda: clock[0])
    for size, step in ((1, 0.0), (2, 0.0), (3, 0.0), (4, 30e-6), (10_000, 0.0)):
        clock[0] += 1
        written.count = 0
        for _ in range(16):
            clock[0] += step
            sent.append(bytes(size))
            assert one.link.send_at_once("other", 7, sent[-1])
        await until(lambda: len(other.payloads) == len(sent))
        counts.append(written.count)
    assert counts == [16, 1, 1, 2, 3]
    assert one.link.send_at_once("other", 7, b"waits")
    one.link.send("other", one.frame())
    assert written.count == 4
    await other.hears()
    assert [payload for _, _, payload in other.payloads] == [*sent, b"waits"]


async def test_the_link_says_whether_the_system_has_a_payload_whole(
    ends: list[End], tmp_path: Path
) -> None:
    """Then it comes though its sender has ended; as do the others, if that has not, in order with frames."""
    one, other = await neighbours(ends, tmp_path)
    place = 7, 1, 2
    assert one.link.send_numbered("other", place, b"early") is None
    one.link.send("other", one.frame())
    await other.hears()
    assert one.link.is_near("other")
    assert not one.link.is_near("elsewhere")
    sent = [(b"short", True), (bytes(3 * 1024 * 1024), False), (b"behind that", False)]
    for payload, is_taken in sent:
        assert one.link.send_numbered("other", place, payload) is is_taken
    one.link.send("other", one.frame())
    await other.hears()
    assert other.numbered == [("one", place, payload) for payload, _ in sent]
    assert one.link.traffic.sent["other"] >= sum(len(payload) for payload, _ in sent)


async def test_payloads_without_a_frame_count_for_nobody_before_one(
    ends: list[End], tmp_path: Path
) -> None:
    path = await listening(ends, tmp_path)
    async with greeted(path) as (_, writer):
        writer.write(struct.pack("<IQ", 5 | 1 << 31, 1) + b"whose")
        writer.write(struct.pack("<IQQQ", 5 | 1 << 30, 1, 1, 1) + b"whose")
        raw = encode(Frame(1, "one", 1, 1, [Heartbeat(1)]))
        writer.write(struct.pack("<I", len(raw)) + raw)
        assert (await ends[0].hears()).sender == "one"
    assert ends[0].payloads == [] == ends[0].numbered
