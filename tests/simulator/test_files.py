"""The groups of the simulator with their logs in real segments: the same promises hold."""

from dataclasses import replace
from unittest.mock import patch

import pytest

from tests.simulator.compacted import CompactedLog, CompactedUpheaval
from tests.simulator.files import FileLog
from tests.simulator.groups import OPTIONS, Groups
from tests.simulator.seeds import over_seeds, seeds
from tests.simulator.upheaval import Upheaval

SEEDS = 1
#: A real segment is some kilobytes where the simulator's own has some hundred bytes: it comes in as many pieces.
LARGE_PIECES = replace(OPTIONS, piece_bytes=2000)


@pytest.mark.parametrize("durability", ["memory", "os", "fsync"])
@patch.object(Groups, "make_log", FileLog)
@patch.object(Upheaval, "options", LARGE_PIECES)
@over_seeds(SEEDS)
def test_whatever_happens_acknowledged_rows_are_in_the_files_once(
    durability: str, seed: int
) -> None:
    upheaval = Upheaval(seed, durability, flip=0.0)
    try:
        upheaval.go(100)
        upheaval.end()
        for node in upheaval.sim.nodes.values():
            for log in node.logs.values():
                assert isinstance(log, FileLog)
                log._reload()
                assert log.batches[-1].end == log.real.end if log.batches else True
    finally:
        for node in upheaval.sim.nodes.values():
            for log in node.logs.values():
                assert isinstance(log, FileLog)
                log.close()


@patch.object(Groups, "make_log", CompactedLog)
def test_all_replicas_are_compacted_to_the_same(subtests: pytest.Subtests) -> None:
    gone = 0
    for seed in seeds(1):
        with subtests.test(seed=seed):
            CompactedLog.known.clear()
            faults = {"flip": 0.0, "keep": 0.01, "decide": 0.1, "tidy": 0.15}
            upheaval = CompactedUpheaval(seed, "fsync", **faults)
            try:
                upheaval.go(60)
                upheaval.end()
                gone += upheaval.check_left()
            finally:
                for node in upheaval.sim.nodes.values():
                    for log in node.logs.values():
                        assert isinstance(log, CompactedLog)
                        log.close()
    assert gone
