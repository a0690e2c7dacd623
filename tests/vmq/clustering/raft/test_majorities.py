"""Replicas of which most cannot be reached: what is acknowledged then, and what an operator may give up."""

import asyncio
import json
from pathlib import Path
from unittest.mock import patch

import pytest

from tests.support.until import until
from tests.vmq.cli.program import here
from tests.vmq.clustering.nodes import clustering
from tests.vmq.clustering.raft import replicas
from tests.vmq.clustering.stream_nodes import stream
from vmq.admin import streams as admin
from vmq.admin.cluster import list_members
from vmq.admin.errors import RefusedError
from vmq.admin.streams import list_streams, show_stream
from vmq.broker import Broker
from vmq.clustering.raft import producer

NAMES = ("a", "b", "c")


def names_loss(broker: Broker) -> bool:
    """Whether its health says that something may be lost."""
    return any("may be lost" in each for each in broker.health())


async def test_without_a_majority_nothing_is_acknowledged(tmp_path: Path) -> None:
    async with replicas.replicated(tmp_path, *NAMES) as brokers:
        await brokers["a"].publish("s/t", b"1", qos=1)
        config = brokers["b"].config
        for name in "bc":
            await brokers.pop(name).stop()
        places = replicas.groups(brokers["a"]).places
        await until(lambda: places.standing("s", 0) is not None)  # it is looked at now and then
        assert (await show_stream(brokers["a"], "s")).partitions[0].term
        appender = replicas.groups(brokers["a"]).roads.tap(stream(brokers["a"], "s"))
        number = appender.append(b"s/t", b"2", 1, False, "x", 0)
        safe = appender.safe_of(b"s/t", "x")
        await until(lambda: not places.leaders.get(places.places["s", 0].group))
        assert safe.reached < number
        assert any("without a leader" in each for each in brokers["a"].health())
        await until(
            lambda: any("meta group has no leader" in each for each in brokers["a"].health())
        )
        assert not any(each.leads_meta for each in list_members(brokers["a"]))
        [row] = await list_streams(brokers["a"]).rows()
        assert (row.leaderless, row.under_replicated) == (1, 1)
        brokers["b"] = Broker(config)
        await brokers["b"].start()
        await until(lambda: safe.reached >= number)
        assert replicas.payloads(brokers["a"]) == [b"1", b"2"]
        await until(
            lambda: [each.leads_meta for each in list_members(brokers["a"])].count(True) == 1
        )
        assert not any("meta group" in each for each in brokers["a"].health())


@patch.object(producer, "PATIENCE", 0.05)
async def test_what_is_kept_without_a_quorum_is_acknowledged_and_there_once(tmp_path: Path) -> None:
    async with replicas.replicated(tmp_path, *NAMES, without_quorum="keep") as brokers:
        await brokers["a"].publish("s/t", b"1", qos=1)
        configs = {name: brokers[name].config for name in "ab"}
        for name in "bc":
            await brokers.pop(name).stop()
        for payload in (b"2", b"3"):
            await brokers["a"].publish("s/t", payload, qos=1)
        a = brokers.pop("a")
        assert any(
            "2 messages that are acknowledged are on this node alone" in each for each in a.health()
        )
        assert replicas.payloads(a) == [b"1"]
        await a.stop()
        brokers["a"] = a = Broker(configs["a"])
        await a.start()
        await a.publish("s/t", b"4", qos=1)
        brokers["b"] = Broker(configs["b"])
        await brokers["b"].start()
        await until(lambda: replicas.payloads(a) == [b"1", b"2", b"3", b"4"])
        kept = Path(a.config.broker.data_dir) / "streams" / ".groups" / "kept"
        await until(lambda: not list(kept.iterdir()))
        assert not replicas.groups(a).roads.backlog.size


async def test_one_copy_goes_on_where_an_operator_gives_up_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with replicas.replicated(tmp_path, *NAMES, admin=True) as brokers:
        a = brokers["a"]
        recover = ("stream", "recover", "s", "--data-dir", a.config.broker.data_dir)
        await a.publish("s/t", b"1", qos=1)
        await replicas.has(a, 1)
        assert "say --unsafe" in (await asyncio.to_thread(here, *recover)).err
        refused = await asyncio.to_thread(here, *recover, "--unsafe")
        assert "no partition of stream 's' is without a leader" in refused.err
        for name in "bc":
            await brokers.pop(name).stop()
        await until(lambda: not replicas.leader(a))
        refused = await asyncio.to_thread(here, *recover, "--unsafe")
        assert "could be reached within the last 60 s (no more: " in refused.err
        done = await asyncio.to_thread(here, *recover, "--unsafe", "--force", "--json")
        assert done.code == 0, done.err
        assert json.loads(done.out)["leaderless"] == 0
        assert "stream 's', partition 0: offsets " in caplog.text
        # The meta group goes on as well, and may give a stream places that nobody leads.
        monkeypatch.setattr(admin, "_PLACING", 0.5)
        with pytest.raises(RefusedError, match=r"without a leader.*; cannot be reached: b, c$"):
            await admin.create_stream(a, "none", {"filters": ["none/#"]})
        assert a.streaming is not None
        assert "none" not in a.streaming.catalog.streams
        await a.publish("s/t", b"2", qos=1)
        assert replicas.payloads(a) == [b"1", b"2"]
        assert names_loss(a)
        for name in "bc":
            clustering(a).node.remove(name)
        made = stream(a, "s").options
        join = clustering(a).node.address
        for name in "de":
            brokers[name] = Broker(replicas.node_config(tmp_path, name, join, made))
            await brokers[name].start()
        places = replicas.groups(a).places
        await until(lambda: sorted(places.replicas("s", 0)) == ["a", "d", "e"])
        for name in "de":
            await replicas.has(brokers[name], 2)
            assert replicas.payloads(brokers[name]) == [b"1", b"2"]
        await until(lambda: all(map(names_loss, brokers.values())))
        config = a.config
        accept = ("stream", "accept-loss", "s", "--data-dir", config.broker.data_dir)
        await brokers.pop("a").stop()
        brokers["a"] = Broker(config, admin=True)
        await brokers["a"].start()
        await until(lambda: replicas.leader(brokers["a"]) and names_loss(brokers["a"]))
        done = await asyncio.to_thread(here, *accept)
        assert done.code == 0, done.err
        await until(lambda: not any(map(names_loss, brokers.values())))
        await brokers.pop("a").stop()
        brokers["a"] = Broker(config, admin=True)
        await brokers["a"].start()
        await until(lambda: replicas.leader(brokers["a"]))
        await until(lambda: len(replicas.groups(brokers["a"]).places.here.uncertain) == 3)
        assert not names_loss(brokers["a"])
        again = await asyncio.to_thread(here, *accept)
        assert "nothing of stream 's' may be lost, as far as this node knows" in again.err
