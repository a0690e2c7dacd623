"""The processes of the demo: brokers and a pipeline of Spark, each of which may be killed and comes back."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

from vmq.cli.spark import require_spark
from vmq.cli.terminal.console import CliError

#: What a broker is told. Every port is a free one, on loopback, and stays the same when the broker is started anew.
CONFIG: Final = """\
[broker]
data_dir = "{folder}"

[listeners.mqtt]
url = "tcp://127.0.0.1:{mqtt}"

[listeners.http]
url = "http://127.0.0.1:{http}"

[log]
level = "warning"
"""
STREAMS: Final = """
[listeners.flight]
url = "grpc://127.0.0.1:{flight}"

[plugins.vmq_spark]
interval = 1.0

[plugins.vmq_spark.streams.sensors]
filters = ["sensors/#"]
partitions = 2

[streams.chat]
filters = ["chat/#"]
"""
CLUSTER: Final = """
[cluster]
node_name = "{name}"
listen = "tcp://127.0.0.1:{cluster}"
key_file = "{key}"
join = {join}
"""
#: A small job of a few minutes: one task a step, and of Java's compilers the quick one, which leaves more of the cores.
CONF: Final = (
    "spark.sql.shuffle.partitions=1",
    "spark.driver.extraJavaOptions=-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
)
#: What errors in the log of the parts begin with.
ERROR: Final = "vmq: error: "
#: Seconds that a broker may take to start, that each part may take to stop, and that a killed broker stays away.
START_TIMEOUT: Final = 60.0
STOP_TIMEOUT: Final = 45.0
AWAY: Final = 1.5
#: Starts that may fail one after the other before the demo gives up.
TRIES: Final = 5
READY: Final = b"vmq ready: "


class DemoNode:
    """One broker, at ports that stay."""

    def __init__(self, name: str, folder: Path, ports: dict[str, int], config: str) -> None:
        self.name = name
        self.ports = ports
        self.folder = folder
        folder.mkdir(mode=0o700)
        self.file = folder / "vmq.toml"
        self.file.write_text(config)
        self.process: asyncio.subprocess.Process | None = None
        self.is_up = False
        #: Monotonic second since when it is away, or up.
        self.since = time.monotonic()
        self.kills = 0

    @property
    def http(self) -> str:
        """Where its page is."""
        return f"http://127.0.0.1:{self.ports['http']}"

    @property
    def chat(self) -> str:
        """Where browsers speak MQTT with it."""
        return f"ws://127.0.0.1:{self.ports['http']}/mqtt"

    def kill(self) -> bool:
        """SIGKILL; whether there was something to kill."""
        if self.process is None or not self.is_up:
            return False
        self.kills += 1
        self.process.send_signal(signal.SIGKILL)
        return True


class DemoParts:
    """All processes of a demo.

    Args:
        folder: what they keep.
        nodes: brokers.
        window: over which Spark averages.
    """

    def __init__(self, folder: Path, nodes: int, window: str) -> None:
        self.folder = folder
        self.window = window
        self.log = folder / "demo.log"
        names = ["data"] if nodes == 1 else [chr(ord("a") + number) for number in range(nodes)]
        ports = free_ports(4 * nodes)
        self.nodes: list[DemoNode] = []
        for number, name in enumerate(names):
            mine = dict(
                zip(("mqtt", "http", "flight", "cluster"), ports[4 * number :], strict=False)
            )
            config = self._config(name, mine, nodes, ports[3] if number else 0)
            self.nodes.append(DemoNode(name, folder / name, mine, config))
        #: Why there is no Spark; empty: there is.
        self.no_spark = _missing_spark(nodes)
        self.pipeline: asyncio.subprocess.Process | None = None
        self.spark_kills = 0

    def _config(self, name: str, ports: dict[str, int], nodes: int, first: int) -> str:
        folder = self.folder / name
        text = CONFIG.format(folder=folder, **ports)
        if nodes == 1:
            return text + STREAMS.format(**ports)
        key = self.folder / "cluster.key"
        join = [f"tcp://127.0.0.1:{first}"] if first else []
        return text + CLUSTER.format(name=name, key=key, join=join, **ports)

    async def start(self) -> None:
        """Starts the brokers; returns when all of them serve.

        Raises:
            CliError: one does not.
        """
        if len(self.nodes) > 1:
            done = await self._spawn("cluster", "keygen", str(self.folder / "cluster.key"))
            await done.wait()
        for node in self.nodes:
            await self._start(node)

    async def _start(self, node: DemoNode) -> None:
        process = await self._spawn("start", "--config", str(node.file), stdout=subprocess.PIPE)
        node.process = process
        assert process.stdout is not None
        try:
            async with asyncio.timeout(START_TIMEOUT):
                line = await process.stdout.readline()
                while line and not line.startswith(READY):
                    line = await process.stdout.readline()
        except TimeoutError:
            late = f"the broker is not ready after {START_TIMEOUT:.0f} s"
            raise CliError(f"{late}; its log ends with:\n{self.last_lines()}") from None
        if not line:
            raise CliError(f"the broker did not start:\n{self.last_lines()}")
        node.is_up, node.since = True, time.monotonic()

    async def keep(self, node: DemoNode) -> None:
        """Has a broker come back whenever it has ended, until cancelled.

        Raises:
            CliError: it does not start any more.
        """
        tries = 0
        while True:
            assert node.process is not None and node.process.stdout is not None
            await node.process.stdout.read()
            await node.process.wait()
            node.is_up, node.since = False, time.monotonic()
            await asyncio.sleep(AWAY)
            try:
                await self._start(node)
                tries = 0
            except CliError:
                tries += 1
                if tries == TRIES:
                    raise

    async def start_pipeline(self) -> None:
        """Starts Spark, if it can be had."""
        if self.no_spark:
            return
        self.pipeline = await self._spawn(
            *("spark", "run", "sensors", "--data-dir", str(self.nodes[0].folder)),
            *("--server", f"grpc://127.0.0.1:{self.nodes[0].ports['flight']}", "--trigger", "1s"),
            *("-o", f"window={self.window}", "-o", f"watermark={self.window}"),
            *(word for setting in CONF for word in ("--conf", setting)),
        )

    @property
    def pipeline_folder(self) -> Path:
        """Where the pipeline keeps what it says of itself."""
        return self.nodes[0].folder / "plugins" / "vmq_spark" / "pipelines" / "sensors"

    def spark(self) -> tuple[str, int, int | None]:
        """What Spark does, how often it was started anew, and messages that it has not read yet."""
        from vmq_spark import status

        if self.pipeline is None:
            return self.no_spark or "starting", 0, None
        if self.pipeline.returncode is not None:
            return f"ended: {self.last_lines()}", 0, None
        found = status.read(self.pipeline_folder)
        readings = found.progress.queries.get("readings")
        state = found.state if found.runner.pid else "starting"
        return state, found.runner.restarts, None if readings is None else readings.total_lag

    def kill_spark(self) -> bool:
        """SIGKILL for the driver, which is another process than its runner; whether there was one."""
        from vmq_spark import status

        if self.pipeline is None:
            return False
        driver = status.read(self.pipeline_folder).runner.driver
        if not driver:
            return False
        try:
            os.kill(driver, signal.SIGKILL)
        except ProcessLookupError:
            return False
        self.spark_kills += 1
        return True

    async def _spawn(self, *command: str, stdout: int | None = None) -> asyncio.subprocess.Process:
        with self.log.open("ab") as log:
            return await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "vmq", *command),
                stdin=subprocess.DEVNULL,
                stdout=log if stdout is None else stdout,
                stderr=log,
                # Ctrl-C is for us: they end in their order, the pipeline first.
                start_new_session=True,
            )

    def last_lines(self) -> str:
        """What the parts said last: their errors, if they did call something one."""
        lines = self.log.read_text(errors="replace").splitlines()[-10:]
        errors = [each.removeprefix(ERROR) for each in lines if each.startswith(ERROR)]
        return "\n".join(errors or lines)

    async def close(self) -> None:
        """Ends everything: first who reads, then who is read from."""
        for process in (self.pipeline, *(each.process for each in self.nodes)):
            if process is None or process.returncode is not None:
                continue
            process.terminate()
            try:
                async with asyncio.timeout(STOP_TIMEOUT):
                    await process.wait()
            except TimeoutError:
                process.kill()
                await process.wait()


def _missing_spark(nodes: int) -> str:
    """Why there is no Spark; empty if there can be one."""
    if nodes > 1:
        return "not with several nodes: the demo keeps its streams on one"
    try:
        require_spark()
    except CliError as problem:
        return str(problem)
    return ""


def free_ports(count: int) -> list[int]:
    """Ports of loopback that nobody has now, below those that the system gives to whoever asks for any."""
    found: list[int] = []
    held: list[socket.socket] = []
    try:
        for port in range(20_000 + time.time_ns() // 1000 % 10_000, 32_000):
            sock = socket.socket()
            try:
                sock.bind(("127.0.0.1", port))
            except OSError:
                sock.close()
                continue
            held.append(sock)
            found.append(port)
            if len(found) == count:
                return found
    finally:
        for sock in held:
            sock.close()
    raise CliError("the demo finds no free ports on this machine")
