"""A worker as a process of its own, with its supervisor's view of it."""

import asyncio
import sys
from pathlib import Path

from msgspec.structs import replace

from tests.support.until import until
from vmq.config.options import BrokerOptions, Config, LogOptions
from vmq.config.overrides import LiveConfig
from vmq.runtime.share import Share
from vmq.workers.control import BeginWorker, WorkerSettings
from vmq.workers.process import Worker

#: Sends itself what the supervisor alone answers, once it loads the broker.
SIGNALLED = """
import os, signal, sys
class Signals:
    def find_spec(self, name, *_):
        if name == "vmq.broker":
            os.kill(os.getpid(), signal.SIGHUP)
            os.kill(os.getpid(), signal.SIGUSR1)
sys.meta_path.insert(0, Signals())
from vmq.cli.start.worker import run
sys.exit(run(*map(int, sys.argv[1:])))
"""


async def test_requests_during_its_start_end_it_not_and_a_rotation_is_not_lost(
    tmp_path: Path,
) -> None:
    log = tmp_path / "vmq.log"
    config = replace(
        Config(), broker=BrokerOptions(data_dir=str(tmp_path)), log=LogOptions(file=str(log))
    )
    share = Share(number=1, listeners=frozenset(), folder=str(tmp_path))
    begin = BeginWorker(WorkerSettings.of(LiveConfig.of(config)), share)
    worker = Worker(1, lambda: begin, (sys.executable, "-c", SIGNALLED))
    worker.start()
    try:
        await until(lambda: worker.begun.is_set() or log.exists())
        worker.rotate()
        await asyncio.wait_for(worker.begun.wait(), 60)
        assert worker.problem() is None
        await until(lambda: "log opened anew" in log.read_text())
    finally:
        await worker.stop()
