"""Nodes in processes, with uvloop's loop: killed, frozen, restarted."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

import vmq_cluster
from tests.support.present import present
from vmq.testing.ports import lasting_port
from vmq_cluster.addresses import generate_key

LOOPBACK = "tcp://127.0.0.1:0"
KEY = generate_key()
#: Seconds that a test waits for something that comes within a moment.
PATIENCE = 30.0


class Process:
    """A node in a process of its own."""

    def __init__(self, name: str, listen: str, folder: Path) -> None:
        self.name = name
        self.listen = listen
        self.folder = folder
        self.process: asyncio.subprocess.Process | None = None
        self.address = ""
        #: Everything that it told, in all its lives.
        self.events: list[dict[str, Any]] = []

    async def start(self) -> None:
        package = Path(vmq_cluster.__file__).parent.parent
        paths = [str(Path(__file__).parent.parent.parent), str(package)]
        self.process = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-m", "tests.cluster.program", self.name, self.listen, str(self.folder), KEY),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        )
        ready = await self.told(lambda event: event["event"] == "ready", fresh=True)
        self.address = self.listen = ready["address"]

    def say(self, *words: object) -> None:
        assert self.process is not None
        present(self.process.stdin).write(
            json.dumps([str(word) for word in words]).encode() + b"\n"
        )

    async def told(
        self, wanted: Callable[[dict[str, Any]], bool], fresh: bool = False
    ) -> dict[str, Any]:
        """Waits until it has told something; with `fresh` what it told before does not count."""
        assert self.process is not None
        assert self.process.stdout is not None
        if not fresh:
            for event in self.events:
                if wanted(event):
                    return event
        async with asyncio.timeout(PATIENCE):
            while True:
                line = await self.process.stdout.readline()
                assert line, f"{self.name} ended"
                self.events.append(json.loads(line))
                if wanted(self.events[-1]):
                    return self.events[-1]

    async def until(self, question: str, *words: object, **wanted: object) -> None:
        """Asks until the answer is as wanted; each answer to a question comes after a pass of its loop."""
        async with asyncio.timeout(PATIENCE):
            while True:
                self.say(question, *words)
                answer = await self.told(lambda event: event["event"] == question, fresh=True)
                if wanted.items() <= answer.items():
                    return

    async def kill(self) -> None:
        assert self.process is not None
        if self.process.returncode is None:
            self.process.kill()
        await self.process.wait()

    async def end(self) -> int:
        assert self.process is not None
        present(self.process.stdin).close()
        return await asyncio.wait_for(self.process.wait(), PATIENCE)


@pytest.fixture
async def three(tmp_path: Path) -> AsyncIterator[list[Process]]:
    """A cluster of three processes: two on TCP, one on a socket of this machine."""
    ports = [f"tcp://127.0.0.1:{lasting_port()}" for _ in range(2)]  # those who die come back there
    listens = [*ports, f"ipc://{tmp_path}/socket"]
    found = [
        Process(name, listen, tmp_path / name) for name, listen in zip("abc", listens, strict=True)
    ]
    try:
        for each in found:
            await each.start()
        for each in found[1:]:
            each.say("join", found[0].address)
        await together(found)
        yield found
    finally:
        for each in found:
            if each.process is not None:
                await each.kill()


async def together(nodes: list[Process]) -> None:
    names = sorted(node.name for node in nodes)
    for node in nodes:
        others = [name for name in names if name != node.name]
        await node.until("members", members=names, up=others)


def changed(key: str, value: str | None) -> Callable[[dict[str, Any]], bool]:
    return lambda event: event == {"event": "changed", "key": key, "value": value}


async def test_three_processes_one_of_which_is_killed(three: list[Process]) -> None:
    a, b, c = three
    a.say("put", "k", "1")
    for node in three:
        await node.told(changed("k", "1"))
    a.say("fill", 2000)
    await c.until("items", "fill", count=2000)
    a.say("send", "b", "before")
    await a.told(lambda event: event == {"event": "acknowledged", "tickets": ["before"]})
    await b.told(lambda event: event["event"] == "arrived")
    await b.kill()
    for node in (a, c):
        await node.told(lambda event: event == {"event": "down", "peer": "b"})
    # Nobody is stopped by it.
    c.say("delete", "k")
    await a.told(changed("k", None))
    a.say("put", "later", "2")
    a.say("send", "b", "meanwhile")
    a.say("broadcast", "to all who live")
    await c.told(lambda event: event == {"event": "broadcast", "payload": "to all who live"})
    await b.start()
    await together(three)
    await b.told(changed("k", None))
    await b.told(changed("later", "2"))
    await b.told(
        lambda event: event == {"event": "arrived", "peer": "a", "payloads": ["meanwhile"]}
    )
    await b.until("items", "fill", count=2000)
    arrived = [event["payloads"] for event in b.events if event["event"] == "arrived"]
    assert arrived == [["before"], ["meanwhile"]]


async def test_all_processes_are_killed_and_nothing_is_lost(three: list[Process]) -> None:
    for number, node in enumerate(three):
        node.say("put", f"k{number}", "v")
        await node.told(changed(f"k{number}", "v"))
    for node in three:
        await node.kill()
    for node in three:
        await node.start()
    await together(three)
    for node in three:
        await node.until("items", "p", count=3)


async def test_a_frozen_process_is_down_and_comes_back(three: list[Process]) -> None:
    a, b, c = three
    assert b.process is not None
    b.process.send_signal(signal.SIGSTOP)
    try:
        for node in (a, c):
            await node.told(lambda event: event == {"event": "down", "peer": "b"})
        a.say("put", "k", "1")
        await c.told(changed("k", "1"))
    finally:
        b.process.send_signal(signal.SIGCONT)
    await together(three)
    await b.told(changed("k", "1"))


async def test_a_process_leaves_in_order_and_a_dead_one_is_removed(three: list[Process]) -> None:
    a, b, c = three
    b.say("put", "k", "last words")
    b.say("leave")
    await b.told(lambda event: event == {"event": "left", "complete": True})
    assert await b.end() == 0
    await together([a, c])
    await a.told(changed("k", "last words"))
    await c.kill()
    await a.told(lambda event: event == {"event": "down", "peer": "c"})
    a.say("remove", "c")
    await a.until("members", members=["a"])
    assert await a.end() == 0
