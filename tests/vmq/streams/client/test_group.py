"""Programs that are members of groups: what they get, what they commit, and what becomes of it when they go."""

import asyncio
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyarrow import flight

import vmq.streams
from tests.support.present import present
from tests.support.until import until
from tests.vmq.sockets import peer_of
from tests.vmq.streamed import config_in, streams_of
from tests.vmq.streams.groups.test_members import Taker, broker_of, group_of, numbers, publish
from tests.vmq.streams.replay.test_port import reading
from tests.vmq.streams.support import options
from vmq.broker import Broker
from vmq.streams.client.aio import AsyncStreamGroup
from vmq.streams.client.errors import GroupError
from vmq.streams.client.group import StreamGroup
from vmq.streams.flight.access import Access, Anybody
from vmq.streams.flight.service import StreamServer
from vmq.streams.groups.coordinator import WAIT
from vmq.streams.replay import group as module


class Rules(Anybody):
    """Each may read one branch, and join one group."""

    def __init__(self) -> None:
        self.filters = {"s/1"}
        self.asked: list[tuple[Sequence[str], str]] = []

    def may_read(self, _user: str | None, filters: Sequence[str], group: str = "") -> bool:
        self.asked.append((filters, group))
        return set(filters) <= self.filters


@contextmanager
def served(broker: Broker, access: Access | None = None) -> Iterator[str]:
    """The address of a Flight server, without the process that stands before it."""
    streaming = streams_of(broker)
    parts = {"groups": streaming.programs, "sink": streaming.sinks}
    server = StreamServer(streaming.catalog, access=access, **parts)  # type: ignore[arg-type]
    try:
        yield f"grpc://127.0.0.1:{server.port}"
    finally:
        server.close()


@asynccontextmanager
async def serving(folder: Path, partitions: int = 2) -> AsyncIterator[tuple[Broker, str]]:
    async with broker_of(folder, partitions) as broker:
        with served(broker) as server:
            yield broker, server


@asynccontextmanager
async def filled(
    serving: AbstractAsyncContextManager[tuple[Broker, str]],
    count: int,
    topics: int = 4,
    **asked: Any,
) -> AsyncIterator[tuple[Broker, vmq.streams.group]]:
    """A broker with so many rows, and a group whose members read them from the first."""
    async with serving as (broker, server):
        await publish(broker, range(count), topics)
        yield broker, vmq.streams.group("s", "g", server=server, start="earliest", **asked)


def payloads(rows: Any) -> list[int]:
    return [int(each) for each in rows.column("payload").to_pylist()]


async def take(member: AsyncStreamGroup, count: int) -> list[int]:
    """So many rows."""
    found: list[int] = []
    async with asyncio.timeout(30):
        while len(found) < count:
            rows = present(await member.read())
            found += payloads(rows)
    return found


async def test_a_program_reads_in_order_and_goes_on_where_it_was(tmp_path: Path) -> None:
    async with filled(serving(tmp_path), 40, rows=7) as (broker, group):
        async with group as member:
            found = await take(member, 40)
            assert sorted(found) == list(range(40))
            for at in range(4):
                assert [each for each in found if each % 4 == at] == list(range(at, 40, 4))
            await member.commit()
            assert await member.read(0.0) is None
        async with group as member:
            await publish(broker, range(40, 45))
            assert sorted(await take(member, 5)) == list(range(40, 45))
        async with group as member:  # they were not committed
            assert sorted(await take(member, 5)) == list(range(40, 45))


async def test_a_stream_that_is_deleted_and_made_anew(tmp_path: Path) -> None:
    async with serving(tmp_path) as (broker, server):
        catalog = streams_of(broker).catalog
        await catalog.create("t", options(filters=["s/#"]))
        await publish(broker, range(5))
        group = vmq.streams.group("t", "g", server=server, start="earliest")
        async with group as member:
            assert await take(member, 5) == [0, 1, 2, 3, 4]
            await member.commit()
            await asyncio.wrap_future(catalog.delete("t"))
            with pytest.raises(GroupError, match="there is no stream 't'"):
                await member.read()
        await catalog.create("t", options(filters=["s/#"]))
        await publish(broker, range(5, 8))
        async with group as member:
            assert await take(member, 3) == [5, 6, 7]


@pytest.mark.parametrize("policy", [{"retention_age": "1h"}, {"retention_bytes": 1}])
async def test_what_retention_took_is_passed_over_and_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, policy: dict[str, Any]
) -> None:
    """To programs, to members over MQTT, and, with what there is, to whoever asks for the offset."""
    async with Broker(config_in(tmp_path, s=options(filters=["s/#"], **policy))) as broker:
        (partition,) = streams_of(broker).catalog.get("s").partitions
        with served(broker) as server:
            await publish(broker, range(6))
            first, second = (
                vmq.streams.group("s", name, server=server, start="earliest", rows=2)
                for name in "gh"
            )
            for group in (first, second):
                async with group as member:
                    await take(member, 2)
                    await member.commit()
            streams_of(broker).commits.writer.call(partition.roll).result(30)
            clock = partition.clock
            partition.clock = lambda: clock() + 7200
            assert partition.retain()
            partition.clock = clock
            await publish(broker, range(6, 8))
            async with first as member:
                assert await take(member, 2) == [6, 7]
            assert "group=g stream=s partition=0 goes on at offset=6 instead of 2" in caplog.text
            async with peer_of(broker) as peer:
                await reading(peer, "$share/h/$stream/s/#", client_id="m")
                taker = Taker(peer)
                await until(lambda: numbers(taker) == [6, 7])
                await taker.stop()
            assert "goes on at offset=6 instead of 2: retention has deleted" in caplog.text
            ticket = flight.Ticket(b'{"stream": "s", "start": 2}')
            with (
                flight.connect(server) as client,
                pytest.raises(flight.FlightError, match="out of range; accepted: 6 to 8"),
            ):
                await asyncio.to_thread(lambda: client.do_get(ticket).read_all())


async def test_who_gives_up_while_it_joins_is_no_member(tmp_path: Path) -> None:
    async with serving(tmp_path) as (broker, server):
        joined, goes_on = threading.Event(), threading.Event()

        def join() -> StreamGroup:
            member = vmq.streams.group("s", "g", server=server).join()
            joined.set()
            goes_on.wait()
            return member

        joining = asyncio.create_task(AsyncStreamGroup(join).__aenter__())
        await until(joined.is_set)
        assert streams_of(broker).programs.members
        joining.cancel()
        with pytest.raises(asyncio.CancelledError):
            await joining
        goes_on.set()
        await until(lambda: not streams_of(broker).programs.members)


async def test_programs_and_clients_of_mqtt_share_the_partitions(tmp_path: Path) -> None:
    async with (
        serving(tmp_path, 4) as (broker, server),
        peer_of(broker) as peer,
        vmq.streams.group("s", "g", server=server) as member,
    ):
        assert member.partitions == [0, 1, 2, 3]
        await reading(peer, "$share/g/$stream/s/#", client_id="m")
        group = group_of(broker)
        await until(lambda: len(member.partitions) == 2 and not group.machine.standing_by())
        assert sorted(group.clients().values()) == ["flight:", "m"]
        await publish(broker, range(64), topics=16)
        taker = Taker(peer)
        found: list[int] = []
        while len(found) + len(taker.found) < 64:
            rows = await member.read(0.05)
            found += payloads(rows) if rows is not None else []
        assert sorted(found + numbers(taker)) == list(range(64))
        assert found
        assert taker.found
        await taker.stop()


async def test_what_a_program_is_handed_it_may_finish(tmp_path: Path) -> None:
    """A partition that is asked back stays until what was handed over is committed."""
    async with filled(serving(tmp_path), 20, topics=8) as (broker, group), group as first:
        await take(first, 20)
        async with group as second:
            await until(lambda: len(first.partitions) == 2)
            await until(lambda: any(m.leaving for m in group_of(broker).members.values()))
            assert second.partitions == []
            await first.commit()
            await until(lambda: len(second.partitions) == 1)
            await publish(broker, range(20, 60), topics=8)
            here, there = await asyncio.gather(take(first, 1), take(second, 1))
            assert min(here + there) >= 20


async def test_what_is_not_committed_in_time_is_fenced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SETTLING", 0.0)
    async with filled(serving(tmp_path), 20, topics=8) as (broker, group), group as first:
        found = await take(first, 20)
        async with group as second:
            again: list[int] = []
            while not again:
                again = await take(second, 1)
            await until(lambda: len(first.partitions) == 1)
            with pytest.raises(
                vmq.streams.FencedError, match="was not this member's any more"
            ) as raised:
                await first.commit()
            assert len(raised.value.partitions) == 1
            assert set(again) < set(found)
            await first.commit()  # it is told once; the other partition is committed
        assert sum(group_of(broker).place().positions.values()) == 20 - len(again)


async def test_a_program_that_is_silent_is_a_member_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It hands nothing over without a lease, comes back as another member, and hears what counts for nothing."""
    async with serving(tmp_path, 1) as (broker, server):
        await publish(broker, range(3))
        programs = streams_of(broker).programs
        async with vmq.streams.group("s", "g", server=server, start="earliest") as member:
            await take(member, 3)
            inner = member._member()
            with inner._asking:  # its thread says nothing
                inner.lease_until = 0.0
                (known,) = programs.members.values()
                await publish(broker, range(3, 4))
                assert await member.read(0.2) is None
                known.heard -= WAIT + 1
                programs.look_at_all()
                assert programs.members == {}
            assert "says nothing" in caplog.text
            await until(lambda: member.partitions == [0])
            with pytest.raises(vmq.streams.FencedError):
                await member.commit()
            assert await take(member, 4) == [0, 1, 2, 3]
            await member.commit()


async def test_a_row_that_no_program_can_take_is_a_dead_letter(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Rows before it are not passed over with it: they are handed over one by one in the end."""
    async with filled(serving(tmp_path, 1), 4, topics=1) as (broker, group):
        programs, machine = streams_of(broker).programs, broker.jobs.open().machine
        handed: list[list[int]] = []
        for _ in range(module.MAX_DELIVERIES * 2):
            async with group as member:
                rows: list[int] = []
                while 2 not in rows:  # it dies of it
                    rows += await take(member, 1)
                    if 2 not in rows:
                        await member.commit()
                handed.append(rows)
            if "passes over" in caplog.text:
                break
        assert programs.members == {}
        assert "passes over offset=2 of partition=0" in caplog.text
        assert handed[0] == [0, 1, 2, 3]
        assert [0, 1, 2, 3] not in handed[-module.MAX_DELIVERIES // 2 :]
        await until(lambda: machine.jobs)
        (job,) = machine.jobs.values()
        assert job.body == b"2"
        async with group as member:
            assert await take(member, 1) == [3]


async def test_rights_are_those_of_what_is_read(tmp_path: Path) -> None:
    rules = Rules()
    async with broker_of(tmp_path, 1) as broker:
        await publish(broker, range(8))
        with served(broker, rules) as server:
            with pytest.raises(vmq.streams.GroupError, match="may not join group 'g'") as raised:
                async with vmq.streams.group("s", "g", server=server, start="earliest"):
                    pass
            assert raised.value.code == "no_permission"
            assert (["s/#"], "g") in rules.asked
            own = vmq.streams.group("s", "g", server=server, start="earliest", filter="s/1")
            async with own as member:
                assert await take(member, 2) == [1, 5]
                rules.filters.clear()
                (judged,) = streams_of(broker).programs.judged.values()
                judged.at = -1e9
                with pytest.raises(vmq.streams.GroupError, match="may not"):
                    async with asyncio.timeout(30):
                        await member.read()
            assert streams_of(broker).programs.members == {}


async def test_conditions_and_columns(tmp_path: Path) -> None:
    async with serving(tmp_path, 1) as (broker, server):
        await publish(broker, range(8))
        group = vmq.streams.group(
            "s",
            "g",
            server=server,
            start="earliest",
            where=[("topic", "=", "s/1")],
            columns=["payload"],
        )
        async with group as member:
            rows = present(await member.read())
            assert rows.schema.names == ["payload"]
            assert payloads(rows) == [1, 5]
            await member.commit()
            assert group_of(broker).place().positions == {0: 8}


async def test_whoever_gives_up_waiting_loses_no_row(tmp_path: Path) -> None:
    async with (
        serving(tmp_path, 1) as (broker, server),
        vmq.streams.group("s", "g", server=server, start="earliest") as member,
    ):
        waiting = asyncio.create_task(member.read())
        await asyncio.sleep(0)
        waiting.cancel()
        await publish(broker, range(3))
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await member.commit()
        assert await take(member, 3) == [0, 1, 2]


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ({"stream": "none"}, "there is no stream 'none'"),
        ({"filter": "t/#"}, "stream 's' keeps no topic of t/#; it keeps: s/#"),
        ({"filter": "a/#/b"}, "no topic filter"),
        ({"start": "tomorrow"}, "FROM is earliest"),
        ({"where": [("nothing", "=", 1)]}, "there is no column 'nothing'"),
        ({"name": "g" * 101}, "length <= 100"),
    ],
)
async def test_what_cannot_be_joined_says_why(
    tmp_path: Path, asked: dict[str, Any], says: str
) -> None:
    async with serving(tmp_path, 1) as (_, server):
        with pytest.raises(vmq.streams.GroupError, match=says):
            async with vmq.streams.group(**{"stream": "s", "name": "g", "server": server, **asked}):
                pass


async def test_nobody_speaks_for_the_member_of_another(tmp_path: Path) -> None:
    async with (
        serving(tmp_path, 1) as (broker, server),
        vmq.streams.group("s", "g", server=server) as member,
    ):
        (known,) = streams_of(broker).programs.members.values()
        known.user = "anna"
        ask = member._member().connection.ask
        with pytest.raises(vmq.streams.GroupError) as raised:
            await asyncio.to_thread(ask, "group-beat", {"member": known.name}, 0.0)
        assert raised.value.code == "unknown_member"
        known.user = None


def test_a_program_without_asyncio(tmp_path: Path) -> None:
    async def run() -> list[int]:
        async with serving(tmp_path, 1) as (broker, server):
            await publish(broker, range(5))

            def read() -> list[int]:
                found: list[int] = []
                with vmq.streams.group("s", "g", server=server, start="earliest", rows=2) as member:
                    assert isinstance(member, StreamGroup)
                    for rows in member:
                        found += payloads(rows)
                        member.commit()
                        if len(found) == 5:
                            break
                return found

            return await asyncio.to_thread(read)

    assert asyncio.run(run()) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("server", ["127.0.0.1:8815", "grpc://a", "http://a:1", "grpc://a:x", []])
def test_what_is_no_server_is_said_before_anybody_is_asked(server: str | list[str]) -> None:
    with pytest.raises(ValueError, match=r"server is .*; accepted: grpc://HOST:PORT"):
        vmq.streams.group("s", "g", server=server)


def test_without_pyarrow_it_says_what_to_install() -> None:
    program = "import sys; sys.modules['pyarrow'] = None; import vmq.streams; vmq.streams.group"
    found = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert found.stderr.splitlines()[-1] == (
        "ImportError: vmq.streams.group needs pyarrow: pip install 'vmq[streams]'"
    )
