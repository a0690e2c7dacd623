"""`vmq demo`: a broker, devices, and the pipeline `sensors`, on this machine for as long as somebody looks."""

import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from time import monotonic
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Final

import typer

from vmq.cli.spark import require_spark
from vmq.cli.terminal.console import FAILURE, CliError, UsageError

if TYPE_CHECKING:
    from vmq.cli.demo_devices import Field
    from vmq.cli.demo_screen import DemoState

#: What the broker is told. Every port is a free one, on loopback.
CONFIG: Final = """\
[listeners.mqtt]
url = "tcp://127.0.0.1:0"

[listeners.flight]
url = "grpc://127.0.0.1:0"

[listeners.http]
url = "http://127.0.0.1:0"

[plugins.vmq_spark]
interval = 1.0

[plugins.vmq_spark.streams.sensors]
filters = ["sensors/#"]
partitions = 2
"""
#: Seconds that the broker may take to start, and that each of both may take to stop.
START_TIMEOUT: Final = 30.0
STOP_TIMEOUT: Final = 45.0
#: A small job of a few minutes: one task a step, and of Java's compilers the quick one, which leaves more of the cores.
CONF: Final = (
    "spark.sql.shuffle.partitions=1",
    "spark.driver.extraJavaOptions=-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
)
#: What errors in the log of the parts begin with.
ERROR: Final = "vmq: error: "
#: Seconds between two looks at what the pipeline has done.
STEP: Final = 0.25

DevicesOption = Annotated[
    int, typer.Option("--devices", metavar="N", min=40, max=5000, help="Simulated devices.")
]
SecondsOption = Annotated[
    float | None,
    typer.Option(
        "--seconds",
        metavar="N",
        min=0,
        help="End so long after the first window and the first alert, instead of at Ctrl-C.",
    ),
]
WindowOption = Annotated[
    str, typer.Option("--window", metavar="TIME", help="What is averaged over, as in 10s.")
]
KeepOption = Annotated[
    Path | None,
    typer.Option(
        "--keep",
        metavar="DIR",
        help="A new folder for the data, that stays; otherwise nothing is left.",
    ),
]


def demo(
    devices: DevicesOption = 200,
    seconds: SecondsOption = None,
    window: WindowOption = "10s",
    keep: KeepOption = None,
) -> int:
    """Show what vmq and Spark do together, on this machine.

    Starts a broker, simulated devices that publish their temperatures over
    TCP, and the pipeline "sensors"; shows its averages, and the alerts that it
    publishes. Ctrl-C ends all of it.

    \b
    Examples:
      vmq demo
      vmq demo --devices 1000 --window 5s
      vmq demo --seconds 10 --keep /tmp/demo
    """
    require_spark()
    from vmq_spark.errors import PipelineError
    from vmq_spark.options import interval

    try:
        interval(window)
    except PipelineError as problem:
        raise UsageError(f"--window: {problem}") from None
    stopping = threading.Event()
    with _signals(stopping), _folder(keep) as folder, ExitStack() as stack:
        shown = Demo(folder, devices, window)
        stack.callback(shown.close)
        code = shown.run(stopping, seconds)
    print(f"demo: {shown.state.summary()}" if shown.state else "demo: stopped", flush=True)
    return code


class Demo:
    """The parts, each a process of its own but the devices."""

    def __init__(self, folder: Path, devices: int, window: str) -> None:
        self.folder = folder
        self.devices = devices
        self.window = window
        self.log = folder / "demo.log"
        self.broker: subprocess.Popen[bytes] | None = None
        self.pipeline: subprocess.Popen[bytes] | None = None
        self.field: Field | None = None
        self.state: DemoState | None = None

    def run(self, stopping: threading.Event, seconds: float | None) -> int:
        """Runs until `stopping` is set, or for so long after the first results.

        Raises:
            CliError: one of the parts failed.
        """
        from vmq.bench.load.address import parse_address
        from vmq.bench.load.transport import LoadEndpoint
        from vmq.cli.demo_devices import Field
        from vmq.cli.demo_screen import Averages, DemoState, Screen

        urls = self._start_broker()
        mqtt = urls["tcp"]
        print(f"vmq demo: {mqtt} {urls['grpc']} {urls['http']}", flush=True)
        self._start_pipeline(urls["grpc"])
        self.field = Field(LoadEndpoint(parse_address(mqtt)), self.devices)
        averages = Averages(self._pipeline_folder() / "tables" / "averages")
        self.state = DemoState(averages, mqtt, urls["http"], averages.table.parent)
        end: float | None = None
        with Screen(self.state) as screen:
            while not stopping.is_set() and (end is None or monotonic() < end):
                self.field.step(STEP)
                averages.look()
                self._look()
                screen.update()
                if end is None and seconds is not None and averages.windows and self.state.alerts:
                    end = monotonic() + seconds
        return 0

    def _pipeline_folder(self) -> Path:
        return self.folder / "plugins" / "vmq_spark" / "pipelines" / "sensors"

    def _start_broker(self) -> dict[str, str]:
        """Starts the broker; returns the addresses of its listeners by their schemes."""
        config = self.folder / "vmq.toml"
        config.write_text(CONFIG)
        self.broker = self._start("start", "--config", str(config), stdout=subprocess.PIPE)
        line = _first_line(self.broker)
        if not line.startswith("vmq ready: "):
            raise CliError(f"the broker did not start:\n{self._last_lines()}")
        return {each.partition(":")[0]: each for each in line.split()[2:]}

    def _start_pipeline(self, server: str) -> None:
        self.pipeline = self._start(
            *("spark", "run", "sensors", "--server", server, "--trigger", "1s"),
            *("-o", f"window={self.window}", "-o", f"watermark={self.window}"),
            *(word for setting in CONF for word in ("--conf", setting)),
        )

    def _start(self, *command: str, stdout: int | None = None) -> "subprocess.Popen[bytes]":
        with self.log.open("ab") as log:
            return subprocess.Popen(  # noqa: S603  # this very program
                [sys.executable, "-m", "vmq", *command, "--data-dir", str(self.folder)],
                stdin=subprocess.DEVNULL,
                stdout=log if stdout is None else stdout,
                stderr=log,
                # Ctrl-C is for us: they end in their order, the pipeline first.
                start_new_session=True,
            )

    def _look(self) -> None:
        """What the parts say of themselves."""
        from vmq_spark import status

        assert self.state is not None
        assert self.field is not None
        for part, process in (("broker", self.broker), ("pipeline", self.pipeline)):
            if process is not None and process.poll() is not None:
                raise CliError(f"the {part} has ended:\n{self._last_lines()}")
        if self.field.problem:
            raise CliError(f"a device: {self.field.problem}")
        found = status.read(self._pipeline_folder())
        state, watch = self.state, self.field.watch
        queries = found.progress.queries
        state.pipeline = found.state if found.runner.pid else "starting"
        state.restarts = found.runner.restarts
        state.lag = queries["readings"].total_lag if "readings" in queries else None
        state.late = sum(each.late for each in queries.values())
        state.devices, state.sent = self.field.loop.up - watch.is_up, self.field.sent
        state.alerts, state.last_alerts = watch.count, list(watch.last)

    def _last_lines(self) -> str:
        """What the parts said last: their errors, if they did call something one."""
        lines = self.log.read_text(errors="replace").splitlines()[-10:]
        errors = [each.removeprefix(ERROR) for each in lines if each.startswith(ERROR)]
        return "\n".join(errors or lines)

    def close(self) -> None:
        """Ends everything: first who reads, then who is read from."""
        if self.field is not None:
            self.field.close()
        for process in (self.pipeline, self.broker):
            if process is None:
                continue
            process.terminate()
            try:
                process.wait(STOP_TIMEOUT)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            if process.stdout is not None:
                process.stdout.close()


def _first_line(process: "subprocess.Popen[bytes]") -> str:
    """The first line of a process' output; empty if it ends, or is ended after a while, without one."""
    assert process.stdout is not None
    timer = threading.Timer(START_TIMEOUT, process.kill)
    timer.start()
    try:
        return process.stdout.readline().decode()
    finally:
        timer.cancel()


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


@contextmanager
def _signals(stopping: threading.Event) -> Iterator[None]:
    """Has Ctrl-C, SIGTERM and the terminal's end stop the demo; a second one changes nothing."""

    def handle(_number: int, _frame: FrameType | None) -> None:
        stopping.set()

    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = [signal.signal(each, handle) for each in numbers]
    try:
        yield
    finally:
        for number, each in zip(numbers, before, strict=True):
            signal.signal(number, each)
