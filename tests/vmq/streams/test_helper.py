"""Processes beside the broker."""

import os
import subprocess
from collections.abc import Sequence

import pytest

from vmq.streams import column_writer, helper
from vmq.streams.replay import packets, where
from vmq.streams.replay.packet_process import SLOT, SLOTS
from vmq.streams.sql import running


@pytest.mark.parametrize("module", [column_writer, packets, where, running])
def test_each_is_started_by_its_command_and_ends_with_who_asks(
    module: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other tests have them forked (`vmq.testing.forks`)."""
    monkeypatch.setattr(helper, "subprocess", subprocess)
    command: Sequence[str] = vars(module)["COMMAND"]
    memory = os.memfd_create("memory")
    os.ftruncate(memory, SLOT * SLOTS)
    process = helper.HelperProcess((*command, str(memory)), (memory,))
    os.close(memory)
    assert process._process.args == (*command, str(memory))
    assert process._process.stdin is not None
    process._process.stdin.close()
    assert process._process.wait(60) == 0
    process.end()
