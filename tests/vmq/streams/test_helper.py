"""Processes beside the broker, each by its command: other tests have them forked (`vmq.testing.forks`)."""

import os
import subprocess

import pytest

from vmq.streams import column_writer
from vmq.streams.replay import packets, where
from vmq.streams.replay.packet_process import SLOT, SLOTS
from vmq.streams.sql import running


@pytest.mark.parametrize("module", [column_writer, packets, where, running])
def test_one_whose_broker_is_gone_ends_without_a_word(module: object) -> None:
    memory = os.memfd_create("memory")
    os.ftruncate(memory, SLOT * SLOTS)
    command = (*vars(module)["COMMAND"], str(memory))
    source, sink = os.pipe()
    os.close(source)
    done = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        stdout=sink,
        stderr=subprocess.PIPE,
        pass_fds=(memory,),
        timeout=60,
        check=False,
    )
    os.close(sink)
    os.close(memory)
    assert (done.returncode, done.stderr) == (0, b"")
