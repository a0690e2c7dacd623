"""A node that is alone asks a plugin where the others are."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from vmq_hooks import Plugin, hook

from tests.support.until import PATIENCE, until
from tests.vmq.clustering.nodes import address, clustering, config, together
from vmq.broker import Broker
from vmq.clustering.node.discovery import Discovery
from vmq.config.options import PluginOptions
from vmq_cluster.errors import ClusterError


class Finder(Plugin):
    """Knows addresses, or fails."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer
        self.asked = asyncio.Event()

    @hook
    async def discover_nodes(self) -> Any:
        self.asked.set()
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


class Never(Plugin):
    @hook
    def discover_nodes(self) -> Any:
        raise AssertionError("only the first is asked")


async def test_a_node_joins_whom_the_first_plugin_finds(tmp_path: Path) -> None:
    async with Broker(config(tmp_path, "a")) as a:
        seed = address(a)
        plugins = {"second": Never(), "first": Finder([seed])}
        settings = replace(config(tmp_path, "b"), plugins={"first": PluginOptions(priority=-1)})
        async with Broker(settings, plugins=plugins) as b:
            await together(a, b)
            guards = b.plugins.guards
            assert not any(each.errors for each in guards.values())


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (["tcp://"], "is no answer"),
        ("tcp://127.0.0.1:1", "is no answer"),
        ([["tcp://127.0.0.1:1"]], "is no answer"),
        (["ipc://x"] * 101, "up to 100 addresses"),
        (OSError("no name server"), "no name server"),
    ],
)
async def test_an_answer_that_is_none_is_the_plugin_s_failure_alone(
    tmp_path: Path, answer: Any, why: str, caplog: pytest.LogCaptureFixture
) -> None:
    finder = Finder(answer)
    async with Broker(config(tmp_path, "a"), plugins={"finder": finder}) as a:
        async with asyncio.timeout(PATIENCE):
            await finder.asked.wait()
        await until(lambda: a.plugins.guards["finder"].errors["discover_nodes"] == 1)
        assert why in caplog.text
        assert clustering(a).node.machine.contacts == []
        assert a.health() == []


async def test_none_is_no_failure(tmp_path: Path) -> None:
    finder = Finder(None)
    async with Broker(config(tmp_path, "a"), plugins={"finder": finder}) as a:
        async with asyncio.timeout(PATIENCE):
            await finder.asked.wait()
        assert not a.plugins.guards["finder"].errors


class Node:
    """A node that says whether it may join, and what it was told."""

    def __init__(self, may_join: bool) -> None:
        self.may_join = may_join
        self.joined: list[str] = []

    def join_nowait(self, address: str) -> None:
        if address == "bad":
            raise ClusterError("bad is no address")
        self.joined.append(address)


async def test_a_node_that_misses_none_or_was_taken_out_asks_nobody() -> None:
    async def ask() -> Sequence[str] | None:
        raise AssertionError("not asked")

    await Discovery(Node(False), ask).look()


async def test_a_bad_address_is_told_once_and_keeps_no_other_back(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def ask() -> Sequence[str] | None:
        return ["bad", "good"]

    node = Node(True)
    discovery = Discovery(node, ask)
    for _ in range(2):
        await discovery.look()
    assert node.joined == ["good", "good"]
    assert caplog.text.count("discovered address not joined: bad is no address") == 1
