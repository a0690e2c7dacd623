"""Durable sessions in slots: processes that are killed, wiped and stopped under strict clients."""

from contextlib import closing

import pytest

from tests.cluster_processes.cluster import LinkedCluster, say
from tests.cluster_processes.slots import ENV, WITHIN, Ward


@pytest.mark.timeout(120)
def test_whoever_dies_nobody_notices() -> None:
    """Each node once: one for ever lost with its disk, one killed, one stopped in order."""
    with LinkedCluster("abc", ENV) as cluster, closing(Ward(cluster, "abc")) as ward:
        for name, fault in zip("abc", ("wipe", "kill", "stop"), strict=True):
            took = ward.fail(name, fault)
            say(f"{fault} of {name}: {took:.2f} s")
            assert took < WITHIN
        assert ward.finish() == {}
