"""Several workers that are one broker: they are killed and stopped one by one, and all at once."""

import os
import re
import signal
import tempfile
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from random import Random
from time import monotonic, sleep
from typing import Any, Final

from tests.cluster_processes.chaos.cast import Cast
from tests.cluster_processes.chaos.checks import QUIET, complaints, figures_of
from tests.cluster_processes.cluster import ENV, TIMEOUT
from vmq.cli.admin.client import AdminClient
from vmq.testing.closing import Closing
from vmq.testing.ports import lasting_port
from vmq.testing.process import BrokerProcess

_READY: Final = re.compile(r"worker ready number=(\d+) pid=(\d+)")
_EMPTY: Final = ("cluster_messages_waiting", "cluster_bytes_waiting", "store_uncommitted_writes")


class Door:
    """One of several names for the same port: whoever connects there comes to any of the workers."""

    transport: Final = "tcp"

    def __init__(self, name: str, port: int) -> None:
        self.name = name
        self.host = "127.0.0.1"
        self.port = port


class Workers(Closing):
    """A broker of several workers; to devices a cluster of as many nodes."""

    def __init__(self, workers: int, random: Random, say: Callable[[str, str], None]) -> None:
        self._random = random
        self._say = say
        self._workers = workers
        self._folder = tempfile.TemporaryDirectory(prefix="vmq-workers-")
        self._data = Path(self._folder.name) / "data"
        port = lasting_port()
        self.running = [Door(f"w{number}", port) for number in range(1, workers + 1)]
        self.logs: list[str] = []
        self._process: BrokerProcess
        self.start()

    def __getitem__(self, name: str) -> Door:
        return next(each for each in self.running if each.name == name)

    def start(self) -> None:
        self._process = BrokerProcess.start(
            (f"tcp://127.0.0.1:{self.running[0].port}", "http://127.0.0.1:0"),
            self._data,
            {**ENV, "VMQ_CLUSTER__SUBACK_AFTER": "cluster"},
            ("--allow-anonymous", "--workers", str(self._workers)),
        )

    @property
    def log(self) -> str:
        return "".join([*self.logs, self._process.stderr_text()])

    def _pids(self) -> dict[int, int]:
        return {int(one): int(pid) for one, pid in _READY.findall(self._process.stderr_text())}

    def _signal(self, number: signal.Signals) -> tuple[int, int]:
        worker = self._random.randrange(1, self._workers + 1)
        pid = self._pids()[worker]
        os.kill(pid, number)
        return worker, pid

    def _wait_new(self, worker: int, pid: int) -> None:
        self._process.wait_logs(
            f"worker {worker} is there again", lambda _: self._pids()[worker] != pid, TIMEOUT
        )

    def step(self) -> None:
        """Something happens to a worker, or to all of them, and is over."""
        match self._random.randrange(5):
            case 0 | 1:
                worker, pid = self._signal(signal.SIGKILL)
                self._say("kill", f"worker {worker}")
                self._wait_new(worker, pid)
            case 2 | 3:
                worker, pid = self._signal(signal.SIGSTOP)
                self._say("stop", f"worker {worker}")
                sleep(self._random.choice((0.3, 1.0, 3.0, 6.0)))
                os.kill(pid, signal.SIGCONT)
            case _:
                self._say("restart", "all")
                code = self._process.terminate()
                assert code == 0, f"it ended with {code}"
                self._process.close()
                self.logs.append(self._process.stderr_text())
                self.start()

    def restless(self) -> list[str]:
        """What is still under way."""
        figures = figures_of(self._process.http)
        return [
            f"{name} {value}"
            for name, value in figures.items()
            if value and name.partition("{")[0] in _EMPTY
        ]

    def wait_quiet(self) -> list[str]:
        deadline = monotonic() + QUIET
        while (why := self.restless()) and monotonic() < deadline:
            sleep(0.2)
        return why

    def sessions_wrong(self, client_ids: list[str]) -> list[str]:
        """Sessions that are missing, unknown or there twice."""
        deadline = monotonic() + QUIET
        while True:
            rows: Any = AdminClient(None, str(self._data), {"limit": 0}).get("/sessions")
            rows = rows["rows"] if isinstance(rows, dict) else rows
            found = Counter(str(row["client_id"]) for row in rows)
            if found == Counter(client_ids) or monotonic() > deadline:
                break
            sleep(0.2)
        wrong = found - Counter(client_ids)
        missing = Counter(client_ids) - found
        return [f"too many: {each}" for each in wrong] + [f"missing: {each}" for each in missing]

    def close(self) -> None:
        self._process.close()
        self._folder.cleanup()


def play(workers: Workers, number: int, random: Random, folder: Path) -> list[str]:
    """An episode; returns what is wrong after it, and leaves in a folder what came then."""
    with closing(Cast(workers, f"w{number}", random, faulty=True)) as cast:
        cast.start()
        cast.flow(10, [each.name for each in workers.running])
        for _ in range(random.randrange(1, 5)):
            workers.step()
            sleep(random.random() * 2)
        cast.come_back()
        cast.finish()
        # Whoever loses its connection comes to another worker, perhaps: then it may get something twice.
        wrong = cast.verdict(exact=False, roamed_exactly=False, wills=False)
        wrong += workers.wait_quiet()
        wrong += workers.sessions_wrong(cast.client_ids())
        if wrong:
            cast.tell(folder)
            return wrong
        cast.close()
        cast.forget()
        return [*workers.sessions_wrong([]), *complaints(workers.log)]
