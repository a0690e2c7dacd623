"""A bridge in the configuration of all nodes of a cluster: one has it, and another takes it over."""

import asyncio
from pathlib import Path

import pytest
from vmq_bridge import BridgePlugin, BridgesConfig
from vmq_hooks import SubscriberId
from vmq_hooks.testing import FakeBroker

from tests.cluster_processes.cluster import ENV
from tests.plugins.vmq_bridge.far import mosquitto
from tests.plugins.vmq_bridge.test_connecting import OURS, accept, config, far_broker, heard_line
from tests.plugins.vmq_bridge.test_crash import (
    CONFIG,
    FEW,
    TIMEOUT,
    Topics,
    collect,
    keep_subscribed,
    publish_until_cut,
)
from vmq.testing.ports import lasting_port
from vmq.testing.process import BrokerProcess

CONNECTED, STANDS_BY = "bridge far: connected to", "this one stands by"


class Nodes:
    """Three brokers on one configuration; the third one has no bridge."""

    def __init__(self, folder: Path, config: str) -> None:
        self._folder = folder
        self._file = folder / "vmq.toml"
        self._file.write_text(config)
        self._addresses = {name: f"tcp://127.0.0.1:{lasting_port()}" for name in "abc"}
        self.running: dict[str, BrokerProcess] = {}

    async def start(self, name: str) -> BrokerProcess:
        arguments = ["--node-name", name, "--cluster-listen", self._addresses[name]]
        for each in self.running:
            arguments += ["--join", self._addresses[each]]
        if name == "c":
            arguments += ["--allow-anonymous"]
        else:
            arguments += ["--config", str(self._file)]
        self.running[name] = await asyncio.to_thread(
            BrokerProcess.start, ("tcp://127.0.0.1:0",), self._folder / name, ENV, arguments
        )
        return self.running[name]

    async def wait(self, name: str, text: str) -> None:
        """Waits until the node has said so in this life."""
        await asyncio.to_thread(self.running[name].wait_log, text, TIMEOUT)

    async def end(self, name: str, how: str = "kill") -> None:
        process = self.running.pop(name)
        await asyncio.to_thread(getattr(process, how))
        await asyncio.to_thread(process.close)


@pytest.mark.parametrize("qos", [1, 2])
async def test_another_node_takes_it_over_and_nothing_is_lost(tmp_path: Path, qos: int) -> None:
    async with mosquitto(tmp_path) as far:
        nodes = Nodes(tmp_path, CONFIG.format(port=far.port, qos=qos))
        out, back = Topics("o"), Topics("i")
        try:
            for name in "cab":
                await nodes.start(name)
            here = nodes.running["c"].tcp[1]
            await nodes.wait("a", CONNECTED)
            await nodes.wait("b", STANDS_BY)
            await keep_subscribed(here, "here", "i/#")
            await keep_subscribed(far.port, "there", "o/#")
            for name, other, how in (
                ("a", "b", "kill"),
                ("b", "a", "terminate"),
                ("a", "b", "kill"),
            ):
                going = []
                for port, topics in ((here, out), (far.port, back)):
                    some = asyncio.Event()
                    work = publish_until_cut(port, topics, qos, 10 * FEW, some)
                    going.append(asyncio.ensure_future(work))
                    await asyncio.wait_for(some.wait(), TIMEOUT)
                await nodes.end(name, how)
                await nodes.wait(other, CONNECTED)
                await asyncio.gather(*going)
                await nodes.start(name)
                await nodes.wait(name, STANDS_BY)
            for port, topics in ((here, out), (far.port, back)):
                await publish_until_cut(port, topics, qos, 1)
            assert len(out.acknowledged) == len(back.acknowledged) == 30 * FEW + 1
            await collect(far.port, "there", out, qos)
            await collect(here, "here", back, qos)
        finally:
            for name in list(nodes.running):
                await nodes.end(name)


class Looking(FakeBroker):
    """Another node has the bridge when it is first asked for, and none later."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.looks: asyncio.Queue[None] = asyncio.Queue()
        self.elsewhere[OURS] = "other"

    async def connected_elsewhere(self, subscriber_id: SubscriberId) -> str:
        self.looks.put_nowait(None)
        if self.looks.qsize() > 2:
            self.elsewhere.clear()
        return await super().connected_elsewhere(subscriber_id)


@pytest.mark.parametrize(
    ("more", "takes_over"),
    [({}, True), ({"client_id": None}, False), ({"client_id": None, "clean_session": True}, True)],
)
async def test_who_has_no_client_id_for_all_nodes_says_so_and_takes_nothing_over(
    tmp_path: Path, heard: asyncio.Queue[str], more: dict[str, object], takes_over: bool
) -> None:
    """The far broker has a session for one node then, which another would leave behind."""
    connects: list[None] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connects.append(None)
        await accept(reader, writer)
        await reader.read()

    async with far_broker(serve) as url, Looking(tmp_path) as broker:
        await BridgePlugin().start(broker, config(url, **more))
        if takes_over:
            await heard_line(heard, "bridge far: node other has it, and this one stands by")
            await heard_line(heard, "bridge far: connected")
            assert not broker.problems
            return
        line = await heard_line(heard, "bridge far: not started: node other has it too")
        assert line.endswith(f": {broker.problems['bridge far']}")
        assert "accepted: a client_id, the same on all nodes" in line
        for _ in range(6):
            await asyncio.wait_for(broker.looks.get(), TIMEOUT)
        assert not connects


async def test_a_session_that_another_node_has_outlives_the_bridge_here(
    tmp_path: Path, heard: asyncio.Queue[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vmq_bridge.plugin.PATIENCE", 0.01)
    async with FakeBroker(tmp_path) as broker:
        await BridgePlugin().start(broker, config("mqtt://127.0.0.1:1"))
    async with FakeBroker(tmp_path) as broker:
        broker.elsewhere[OURS] = "other"
        await BridgePlugin().start(broker, BridgesConfig())
        await heard_line(heard, "session vmq-bridge-far is node other's")
        assert not broker.disconnected
