"""`vmq demo`: the command, and what happens while somebody looks."""

import asyncio
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from vmq.cli.terminal.console import FAILURE, CliError, UsageError

if TYPE_CHECKING:
    from vmq.cli.demo.parts import DemoNode

#: Seconds between two looks, and that the end waits for what is still on its way.
STEP: Final = 0.25
DRAIN: Final = 20.0
DEFAULT_WINDOW: Final = "10s"

DevicesOption = Annotated[
    int, typer.Option("--devices", metavar="N", min=40, max=2000, help="Simulated devices.")
]
NodesOption = Annotated[
    int, typer.Option("--nodes", metavar="N", min=1, max=5, help="Brokers; several are a cluster.")
]
SecondsOption = Annotated[
    float | None,
    typer.Option("--seconds", metavar="N", min=1, help="End after so long, instead of at Ctrl-C."),
]
WindowOption = Annotated[
    str, typer.Option("--window", metavar="TIME", help="What Spark averages over, as in 10s.")
]
KeepOption = Annotated[
    Path | None,
    typer.Option(
        "--keep",
        metavar="DIR",
        help="A new folder for the data, that stays; otherwise nothing is left.",
    ),
]
BrowserOption = Annotated[
    bool, typer.Option("--browser/--no-browser", help="Open the page, where there is a screen.")
]
SelfTestOption = Annotated[
    bool,
    typer.Option(
        "--self-test",
        help="Press the buttons, check the sums, and end: exit code 1 if they differ.",
    ),
]


def demo(
    devices: DevicesOption = 200,
    nodes: NodesOption = 1,
    seconds: SecondsOption = None,
    window: WindowOption = DEFAULT_WINDOW,
    keep: KeepOption = None,
    browser: BrowserOption = True,
    self_test: SelfTestOption = False,
) -> int:
    """Show what vmq does when it is killed, on this machine.

    Starts a broker, simulated devices that publish over TCP at QoS 2, and a
    page with a map, a count of what is lost, and a button that kills the
    broker. Where there is Java, Spark computes alerts, which come back as
    messages. Ctrl-C ends all of it.

    \b
    Examples:
      vmq demo
      vmq demo --nodes 3
      vmq demo --self-test
    """
    _check_window(window)
    with _folder(keep) as folder:
        show = Show(folder, devices, nodes, window)
        try:
            return asyncio.run(show.run(seconds, browser=browser, self_test=self_test))
        except* CliError as problems:
            raise CliError(str(problems.exceptions[0])) from None


def _check_window(window: str) -> None:
    from vmq_spark.errors import PipelineError
    from vmq_spark.options import interval

    try:
        interval(window)
    except PipelineError as problem:
        raise UsageError(f"--window: {problem}") from None


class Show:
    """One demo."""

    def __init__(self, folder: Path, devices: int, nodes: int, window: str) -> None:
        from vmq.cli.demo.fleet import Fleet
        from vmq.cli.demo.parts import DemoParts
        from vmq.cli.demo.server import DemoServer

        self.parts = DemoParts(folder, nodes, window)
        self.fleet = Fleet(devices, self._address)
        self.server = DemoServer(self.act)
        self.began = time.monotonic()

    def _address(self, number: int) -> Any:
        nodes = self.parts.nodes
        turn = number

        def address() -> tuple[str, int]:
            """The node that it has by turns; another one while that is away."""
            nonlocal turn
            for _ in nodes:
                node = nodes[turn % len(nodes)]
                if node.is_up:
                    return "127.0.0.1", node.ports["mqtt"]
                turn += 1
            return "127.0.0.1", nodes[number % len(nodes)].ports["mqtt"]

        return address

    async def run(self, seconds: float | None, *, browser: bool, self_test: bool) -> int:
        """Runs until it is stopped.

        Raises:
            CliError: a part does not start.
        """
        stopping = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, stopping.set)
        code = 0
        try:
            await self.server.start()
            await self.parts.start()
            print(f"vmq demo: {self.server.url}", flush=True)
            if seconds is None and not self_test:
                print("Open it in a browser. Ctrl-C ends the demo.", flush=True)
            if browser and not self_test:
                _open(self.server.url)
            async with asyncio.TaskGroup() as group:
                work = [group.create_task(self.parts.keep(node)) for node in self.parts.nodes]
                work += [group.create_task(self.fleet.run()), group.create_task(self._tell())]
                await self.parts.start_pipeline()
                if self.parts.no_spark:
                    print(f"no Spark: {self.parts.no_spark}", flush=True)
                if self_test:
                    from vmq.cli.demo.self_test import self_tested

                    code = await self_tested(self.server.url, self.parts.no_spark)
                elif seconds is not None:
                    loop.call_later(seconds, stopping.set)
                if not self_test:
                    await stopping.wait()
                await self._drain()
                for each in work:
                    each.cancel()
        finally:
            await self.server.stop()
            await self.parts.close()
        print(f"demo: {self.summary()}", flush=True)
        tally = self.fleet.tally
        return FAILURE if code or tally.lost or (tally.repeated and not self.may_repeat) else 0

    @property
    def may_repeat(self) -> bool:
        """With several nodes clients move off those that are killed: docs/cluster.md says what may then come twice."""
        return len(self.parts.nodes) > 1

    async def _drain(self) -> None:
        """Has nobody read any more, and waits until what was sent has arrived."""
        self.fleet.is_reading = False
        deadline = time.monotonic() + DRAIN
        while self.on_its_way and time.monotonic() < deadline:  # noqa: ASYNC110 - messages come from many
            await asyncio.sleep(STEP)

    @property
    def on_its_way(self) -> int:
        """Readings that were made and have neither arrived nor are known to be lost."""
        return self.fleet.sent - self.fleet.tally.received - self.fleet.tally.lost

    def summary(self) -> str:
        """One line."""
        tally = self.fleet.tally
        kills = sum(node.kills for node in self.parts.nodes)
        return (
            f"{len(self.fleet.devices)} devices, sent {self.fleet.sent}, received {tally.received}, "
            f"lost {tally.lost}, repeated {tally.repeated}; {self.fleet.alert_count} alerts; "
            f"broker killed {kills} times, Spark {self.parts.spark_kills} times"
        )

    # The page

    async def _tell(self) -> None:
        while True:
            await self.server.show(self.state())
            await asyncio.sleep(STEP)

    def state(self) -> dict[str, Any]:
        """All that the page shows."""
        fleet, tally, parts = self.fleet, self.fleet.tally, self.parts
        now = time.monotonic()
        said, restarts, lag = parts.spark()
        return {
            "seconds": round(now - self.began, 2),
            "devices": len(fleet.devices),
            "up": fleet.up,
            "sent": fleet.sent,
            "received": tally.received,
            "lost": tally.lost,
            "repeated": tally.repeated,
            "heard": tally.heard(),
            "alerts": [[each.topic, each.average, each.at] for each in fleet.alerts],
            "alert_count": fleet.alert_count,
            "nodes": [
                {
                    "name": each.name,
                    "up": each.is_up,
                    "kills": each.kills,
                    "for": round(now - each.since, 1),
                    "chat": each.chat,
                }
                for each in parts.nodes
            ],
            "spark": {
                "state": said,
                "missing": bool(parts.no_spark),
                "restarts": restarts,
                "lag": lag,
                "kills": parts.spark_kills,
            },
        }

    def act(self, what: str) -> str:
        """Does what a button says."""
        if what == "kill-spark":
            return "Spark was killed." if self.parts.kill_spark() else "Spark is not up."
        for node in self.parts.nodes:
            if what == f"kill-{node.name}":
                return "The broker was killed." if node.kill() else "It is away already."
            if what == f"open-{node.name}":
                return _link(node)
        return "There is no such button."


def _link(node: "DemoNode") -> str:
    """A link to the live page of a broker; empty while it is away."""
    from vmq.cli.admin.client import AdminClient

    try:
        answer = AdminClient(node.file, None).post("/live/token", scope="all")
    except CliError:
        return ""
    return str(answer["urls"][0])


def _open(url: str) -> None:
    """Opens a browser, where somebody would see it."""
    import os
    import sys
    import webbrowser

    has_screen = os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    if sys.stdout.isatty() and (has_screen or sys.platform == "darwin"):
        webbrowser.open(url)


@contextmanager
def _folder(keep: Path | None) -> Iterator[Path]:
    """Where everything lies; a temporary folder goes away again."""
    if keep is None:
        made = Path(tempfile.mkdtemp(prefix="vmq-demo-"))
        try:
            yield made
        finally:
            shutil.rmtree(made, ignore_errors=True)
        return
    try:
        keep.mkdir(mode=0o700, parents=True)
    except FileExistsError:
        raise UsageError(f"--keep {keep}: is there already; accepted: a new folder") from None
    except OSError as problem:
        raise CliError(f"--keep {keep}: {problem.strerror}", FAILURE) from None
    yield keep.absolute()
