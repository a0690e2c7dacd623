"""What docs/jobs.md shows works."""

import asyncio
import tomllib
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.support.pages import blocks, ran
from tests.vmq.jobs.serving import client_of, config_of, machine, port_of
from vmq.broker import Broker
from vmq.config.jobs import JobOptions, ScheduleOptions, schedule_problems
from vmq.config.listeners import problems_of
from vmq.config.mappings import MappingOptions, mapping_problems
from vmq.config.options import ListenerOptions
from vmq.jobs import connect
from vmq.jobs.resp.commands import COMMANDS

PAGE = Path(__file__).parents[3] / "docs" / "jobs.md"

pytestmark = pytest.mark.skipif(not PAGE.is_file(), reason="the page is in the repository only")


def test_the_options_are_valid() -> None:
    first, clock, patterns, mappings = map(tomllib.loads, blocks(PAGE, "toml"))
    found = msgspec.convert(mappings["mappings"], dict[str, MappingOptions])
    assert list(mapping_problems(found)) == []
    schedules = msgspec.convert(clock["jobs"]["schedules"], dict[str, ScheduleOptions])
    assert list(schedule_problems(schedules)) == []
    listener = msgspec.convert(first["listeners"]["jobs"], ListenerOptions)
    assert list(problems_of(listener, listener.endpoint)) == []
    options = msgspec.convert(patterns["jobs"], dict[str, JobOptions])
    assert options["mail-*"].retry == [5, 30, 300]


async def test_the_programs_run(tmp_path: Path) -> None:
    names = ran(PAGE)
    done: list[bytes] = []
    async with Broker(config_of(tmp_path)) as broker, client_of(broker) as redis:
        for number in range(3):
            await redis.execute_command("ADDJOB", "mail", f"{number}", 0)
        await asyncio.to_thread(names["work"], port_of(broker), done.append, 3)
        assert done == [b"0", b"1", b"2"]
        url = f"resp://127.0.0.1:{port_of(broker)}"
        await asyncio.to_thread(names["work_with_vmq"], url, done.append, 1)
        assert done[3:] == [b"to: ada@example.org"]
        assert await names["example"](broker) == [b"to: ada@example.org"]


class List:
    """As much of a Redis as is moved from."""

    def __init__(self, *bodies: bytes) -> None:
        self.bodies = list(bodies)
        self.moved = 0

    def lindex(self, _name: str, _place: int) -> bytes | None:
        return self.bodies[0] if self.bodies else None

    def incr(self, _name: str, by: int = 1) -> Any:
        self.moved += by
        return self if by else self.moved

    def pipeline(self) -> "List":
        return self

    def lpop(self, _name: str) -> "List":
        del self.bodies[0]
        return self

    def execute(self) -> None:
        """All of it is done already."""


async def test_what_was_elsewhere_comes_over(tmp_path: Path) -> None:
    names = ran(PAGE)
    config = config_of(tmp_path, jobs={"tasks": JobOptions(retry=[5, 30, 300])})
    async with Broker(config) as broker, client_of(broker) as redis:
        port = port_of(broker)
        source = List(b"one", b"one", b"two")
        await asyncio.to_thread(names["move"], source, port, "mail")
        assert not source.bodies
        peeked = await redis.execute_command("QPEEK", "mail", 9)
        assert [each[2] for each in peeked] == [b"one", b"one", b"two"]
        again = List(b"two")  # it was added, and its program ended
        again.moved = 2
        await asyncio.to_thread(names["move"], again, port, "mail")
        assert await redis.execute_command("QLEN", "mail") == 3

        def calls() -> list[object]:
            called: list[object] = []
            with connect(f"resp://127.0.0.1:{port}") as client:
                names["task"](client, "tasks", "fails")
                names["task"](client, "tasks", "adds", 1, 2)
                tasks = {"adds": lambda one, two: called.append(one + two)}
                names["serve"](client, "tasks", tasks, 2)
            return called

        assert await asyncio.to_thread(calls) == [3]
        [left] = [each for each in machine(broker).jobs.values() if each.queue.name == b"tasks"]
        assert left.nacks == 1, "what raised is given again"


def test_every_command_is_there() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert {name for name in COMMANDS if name.decode() not in text} == set()
