"""A node whose sessions are nodes' and one whose sessions are in slots do not go together, and both say so."""

import logging
from pathlib import Path

import pytest

from tests.support.until import until
from tests.vmq.clustering.house import durable
from tests.vmq.clustering.nodes import address, clustering
from tests.vmq.clustering.running.slotted import SLOTS
from vmq.broker import Broker

WHAT_TO_DO = "give both nodes the same cluster.sessions"


@pytest.mark.parametrize("first", ["nodes", "slots"])
async def test_both_kinds_of_nodes_refuse_each_other_and_say_what_to_do(
    first: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    second = "slots" if first == "nodes" else "nodes"
    caplog.set_level(logging.WARNING, "vmq_cluster")
    async with Broker(durable(tmp_path, "a", [], sessions=first, slots=SLOTS)) as a:
        config = durable(tmp_path, "b", [address(a)], sessions=second, slots=SLOTS)
        async with Broker(config) as b:
            await until(lambda: len(told(caplog)) >= 2)
            assert list(clustering(a).node.members) == ["a"]
            assert list(clustering(b).node.members) == ["b"]
            await until(lambda: "cluster.sessions" in clustering(b).admission.reason)
    assert {text.partition(":")[0] for text in told(caplog)} == {
        "refused node a",
        "refused node b",
    }


def told(caplog: pytest.LogCaptureFixture) -> set[str]:
    return {text for each in caplog.records if WHAT_TO_DO in (text := each.getMessage())}
