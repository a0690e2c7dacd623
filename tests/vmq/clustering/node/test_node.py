"""A broker's cluster node: start, stop, health, figures."""

import threading
from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.support.until import until
from tests.support.wire import connect_packet
from tests.vmq.clustering.device import Device
from tests.vmq.clustering.nodes import address, clustering, config, knows, pair, together
from tests.vmq.clustering.running.slotted import slotted
from tests.vmq.sockets import peer_of
from vmq.broker import Broker, StartError
from vmq.clustering.node.node import node_name
from vmq.config.options import ClusterOptions, StoreOptions
from vmq_cluster.errors import StorageError
from vmq_cluster.leveldb import LevelStorage


def figures(broker: Broker) -> dict[str, float]:
    return {
        each.name: sum(sample.value for sample in each.samples)
        for each in clustering(broker).families()
    }


def test_the_machine_names_the_node_that_nobody_named() -> None:
    assert node_name(ClusterOptions(node_name="a")) == "a"
    assert node_name(ClusterOptions())


async def test_without_an_address_there_is_no_node(tmp_path: Path) -> None:
    alone = replace(config(tmp_path, "a"), cluster=ClusterOptions())
    async with Broker(alone) as broker:
        assert broker.clustering is None
        assert not any(each.name.startswith("cluster_") for each in broker.metrics.families())
    assert not (tmp_path / "a" / "cluster").exists()


async def test_a_configured_node_joins_and_both_know(tmp_path: Path) -> None:
    async with pair(tmp_path) as (a, b):
        await until(lambda: a.health() == b.health() == [])
        for each in (a, b):
            assert sorted(clustering(each).node.members) == ["a", "b"]
            found = figures(each)
            assert found["cluster_nodes"] == found["cluster_nodes_up"] == 2
            assert found["cluster_bytes_sent"] > 0
            assert found["cluster_bytes_received"] > 0
            assert found["netsplit_detected"] == 0
            labels = [
                label
                for family in each.metrics.families()
                for sample in family.samples
                for label in sample.labels
            ]
            assert ("peer", "(no member)") in labels
            assert ("peer", "") not in labels
        names = [family.name for family in a.metrics.families()]
        assert "cluster_bytes_dropped" in names


async def test_a_stopped_member_is_missed_and_comes_back_by_itself(tmp_path: Path) -> None:
    async with Broker(config(tmp_path, "a")) as a:
        a.set_option("cluster.allow_register_during_netsplit", "false")
        core = a.registry().core
        async with Broker(config(tmp_path, "b", [address(a)])) as b:
            await together(a, b)
            there = address(b)
            await until(lambda: not core.cluster_is_split)
            await until(lambda: not a.health())  # it has heard which slots the other has, too
        await until(lambda: figures(a)["netsplit_detected"] == 1)
        assert figures(a)["netsplit_resolved"] == 0
        assert figures(a)["cluster_nodes_up"] == 1
        # Nobody is stopped by it, but where the options say so.
        assert a.health() == ["members of the cluster that cannot be reached: b"]
        assert a.condition().status == "degraded"
        async with peer_of(a) as peer:
            await peer.ask(connect_packet("c"), b"\x20\x02\x00\x03")
        # It knows the cluster: nobody tells it to join.
        async with Broker(config(tmp_path, "b", listen=there)) as b:
            await together(a, b)
            await until(lambda: figures(a)["netsplit_resolved"] == 1)
            assert not core.cluster_is_split
            async with peer_of(a) as peer:
                await peer.connect("c")


async def test_a_node_that_starts_alone_knows_whom_it_misses(tmp_path: Path) -> None:
    async with Broker(config(tmp_path, "a")) as a, Broker(config(tmp_path, "b", [address(a)])) as b:
        await together(a, b)
    async with Broker(config(tmp_path, "b")) as b:
        assert b.registry().core.cluster_is_split


async def test_a_node_that_can_write_no_more_has_no_others_for_its_jobs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with pair(tmp_path) as (a, _):
        node, links = clustering(a).node, clustering(a).job_links
        assert links.others() == links.up() == ["b"]

        def fail(*_: object, **__: object) -> None:
            raise StorageError("no space left")

        monkeypatch.setattr(node._storage, "write", fail)
        node.put("p", b"k", b"v")
        node.flush()
        with pytest.raises(StorageError, match="no space left"):
            node.check_stored()
        assert not node.is_running
        assert links.others() == links.up() == []
        monkeypatch.undo()


async def test_a_node_whose_storage_fails_turns_clients_away_and_lets_them_in_when_it_is_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (
        slotted(tmp_path) as nodes,
        Device("clean", clean=True) as there,
        Device("d") as late,
    ):
        a, b = nodes["a"], nodes["b"]
        await there.connect(a, ("t", 1))
        await until(lambda: knows(b, "clean", "a"))
        node = clustering(a).node

        def fail(*_: object, **__: object) -> None:
            raise StorageError("no space left")

        with monkeypatch.context() as patch:
            patch.setattr(node._storage, "write", fail)
            node.put("p", b"k", b"v")
            await there.until(lambda: not there.is_connected)
            assert await late.refusal(a) == 3
            reason = "the cluster node does not run: no space left"
            assert reason in a.health()
            await until(lambda: clustering(b).node.up == [])
        await until(lambda: a.health() == [] and clustering(b).node.up == ["a"])
        await until(lambda: not knows(b, "clean", "a"))
        await late.connect(a, ("t", 1))
        await b.publish("t", b"1", 1)
        await late.until(lambda: late.log == ["1"])


async def test_a_folder_of_another_node_is_refused(tmp_path: Path) -> None:
    first = config(tmp_path, "a")
    async with Broker(first):
        pass
    other = replace(first, cluster=replace(first.cluster, node_name="b"))
    with pytest.raises(StartError, match="cluster: the storage is that of node 'a', not of 'b'"):
        await Broker(other).start()
    # Nothing is left of the attempt.
    async with Broker(first):
        pass


async def test_a_key_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    first = config(tmp_path, "a")
    keyed = replace(first, cluster=replace(first.cluster, key_file=str(tmp_path / "key")))
    with pytest.raises(StartError, match="cluster: cannot read the key"):
        await Broker(keyed).start()


async def test_a_broker_that_was_no_node_for_a_while_loses_nothing(tmp_path: Path) -> None:
    """What was retained meanwhile is the cluster's once it is a node again, and nothing before."""
    async with Broker(config(tmp_path, "b")) as b:
        node = config(tmp_path, "a", [address(b)], listen=f"ipc://{tmp_path}/a.socket")
        async with Broker(node) as a:
            await together(a, b)
            await a.publish("t", b"before", retain=True)
            await until(lambda: b.registry().retained.get("t") is not None)
        alone = replace(config(tmp_path, "a"), cluster=ClusterOptions(node_name="a"))
        async with Broker(alone) as a:
            await a.publish("t", b"meanwhile", retain=True)
            await a.publish("u", b"meanwhile", retain=True)
        async with Broker(node) as a:
            await together(a, b)
            for topic in ("t", "u"):
                await until(
                    lambda topic=topic: (  # type: ignore[misc]
                        (found := b.registry().retained.get(topic)) is not None
                        and found.payload == b"meanwhile"
                    )
                )


async def test_with_fsync_the_metadata_are_on_the_disk_before_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And in a thread: the loop is not kept waiting for the disk."""
    threads: list[threading.Thread] = []
    sync = LevelStorage.sync

    def seen(storage: LevelStorage) -> None:
        threads.append(threading.current_thread())
        sync(storage)

    monkeypatch.setattr(LevelStorage, "sync", seen)
    durable = replace(config(tmp_path, "a"), store=StoreOptions(durability="fsync"))
    async with Broker(durable) as a:
        begun = len(threads)
        await a.publish("t", b"x", retain=True)
        await until(lambda: len(threads) > begun)
    assert threading.main_thread() not in threads
