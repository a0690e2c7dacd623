"""What docs/jobs.md shows works."""

import asyncio
import re
import tomllib
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.vmq.jobs.serving import client_of, config_of, port_of
from vmq.broker import Broker
from vmq.config.jobs import JobOptions, ScheduleOptions, schedule_problems
from vmq.config.listeners import problems_of
from vmq.config.mappings import MappingOptions, mapping_problems
from vmq.config.options import ListenerOptions
from vmq.jobs.resp.commands import COMMANDS

PAGE = Path(__file__).parents[3] / "docs" / "jobs.md"

pytestmark = pytest.mark.skipif(not PAGE.is_file(), reason="the page is in the repository only")


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)


def test_the_options_are_valid() -> None:
    first, clock, patterns, mappings = map(tomllib.loads, blocks("toml"))
    found = msgspec.convert(mappings["mappings"], dict[str, MappingOptions])
    assert list(mapping_problems(found)) == []
    schedules = msgspec.convert(clock["jobs"]["schedules"], dict[str, ScheduleOptions])
    assert list(schedule_problems(schedules)) == []
    listener = msgspec.convert(first["listeners"]["jobs"], ListenerOptions)
    assert list(problems_of(listener, listener.endpoint)) == []
    options = msgspec.convert(patterns["jobs"], dict[str, JobOptions])
    assert options["mail-*"].retry == [5, 30, 300]


async def test_the_programs_run(tmp_path: Path) -> None:
    names: dict[str, Any] = {}
    for block in blocks("python"):
        exec(block, names)
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


def test_every_command_is_there_and_what_is_said_to_test_it_exists() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert {name for name in COMMANDS if name.decode() not in text} == set()
    here = Path(__file__).parents[2]
    rooms = (here / "vmq", here / "cluster_processes", here / "simulator")
    tests = "".join(path.read_text() for room in rooms for path in room.rglob("test_*.py"))
    named = re.findall(r"`(test_\w+)`", text)
    assert named
    assert [name for name in named if f"def {name}(" not in tests] == []
