"""What is imported before anybody waits for the broker."""

import subprocess
import sys

#: A node that starts in a fresh interpreter, and tells which modules came while its loop was watched.
PROGRAM = """
import asyncio, concurrent.futures.thread, sys, tempfile
import vmq.broker
from msgspec.structs import replace
from vmq.config.options import Config, ListenerOptions

ahead = set()

class Noting(vmq.broker.Watchdog):
    def start(self):
        ahead.update(sys.modules)
        super().start()

async def main(folder):
    config = Config(listeners={"tcp": ListenerOptions(url="tcp://127.0.0.1:0")})
    config = replace(
        config,
        broker=replace(config.broker, data_dir=folder),
        cluster=replace(config.cluster, listen=f"ipc://{folder}/node", node_name="a"),
    )
    async with vmq.broker.Broker(config, admin=True):
        print("started", *(name for name in sys.modules if name not in ahead))

vmq.broker.Watchdog = Noting
with tempfile.TemporaryDirectory() as folder:
    asyncio.run(main(folder))
"""


def test_a_node_imports_nothing_while_its_loop_is_watched() -> None:
    """Without .pyc files that took 1.6 s, for which the log blamed the loop, and others a node that had just begun."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], check=True, capture_output=True, text=True, timeout=60
    )
    assert done.stdout.split() == ["started"]
