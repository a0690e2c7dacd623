"""Starts the workers, keeps them going, and has them end together."""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

from vmq.config.configured import Configured
from vmq.config.options import Config
from vmq.config.overrides import LiveConfig
from vmq.runtime.errors import StartError
from vmq.workers.control import BeginWorker, WorkerSettings
from vmq.workers.frontend import Frontend
from vmq.workers.leaving import dissolve
from vmq.workers.lock import FolderLock, InUseError
from vmq.workers.plan import Plan
from vmq.workers.ports import PortError, Ports
from vmq.workers.process import COMMAND, Worker

T = TypeVar("T")

log = logging.getLogger("vmq.workers")

#: Seconds between two looks whether a worker hangs.
_LOOK: Final = 1.0


class Supervisor(Configured):
    """The workers of one start, seen as one broker.

    Args:
        config: as it was read; `workers` of it is not looked at.
        count: how many workers serve.
        silence: seconds without a sign of life after which a worker is ended; None = it may be silent.
        command: what a worker runs.

    Raises:
        ConfigError: the configuration is impossible, or cannot be had by several processes.
    """

    def __init__(
        self,
        config: Config,
        count: int,
        silence: float | None = None,
        command: Sequence[str] = COMMAND,
    ) -> None:
        super().__init__(config)
        self.plan = Plan(config, count)
        #: Told when all workers have left their cluster, for whoever keeps the supervisor running.
        self.on_left: Callable[[], None] | None = None
        self.workers: dict[int, Worker] = {
            number: Worker(number, self._beginning(number), command, silence)
            for number in self.plan.numbers()
        }
        self._ports = Ports()
        self._lock: FolderLock | None = None
        self.frontend = Frontend(self)
        self._tasks: set[asyncio.Task[Any]] = set()
        #: The last configuration that is on its way to the workers.
        self._delivery: asyncio.Task[list[str]] | None = None
        #: The configuration that is taken over now was read anew.
        self._is_read = False

    @property
    def addresses(self) -> list[str]:
        """The URLs of the listeners with their real ports."""
        frontend = self.frontend.listeners
        return [
            frontend[name].url if name in frontend else self.plan.urls.get(name, options.url)
            for name, options in self.config.listeners.items()
        ]

    @property
    def serving(self) -> list[Worker]:
        """The workers that are to serve, whether they do now or not."""
        return [each for number, each in self.workers.items() if number <= self.plan.count]

    def shut_because(self) -> str:
        """Why no worker serves clients, and what to do; "": one does, or is about to."""
        reasons = [each.shut if each.is_running else "" for each in self.serving]
        return f"worker 1: {reasons[0]}" if all(reasons) else ""

    # --- start and stop

    async def start(self) -> None:
        """Starts every worker; returns when all accept.

        Raises:
            StartError: one of them cannot start, or an address cannot be had.
        """
        try:
            self._lock = FolderLock(Path(self.config.broker.data_dir))
            self.plan.urls = self._ports.reserve(self.config)
            for number in self.workers:
                self.plan.own_folder(number).mkdir(mode=0o700, exist_ok=True)
        except (InUseError, PortError) as error:
            await self.stop()
            raise StartError(str(error)) from None
        except OSError as error:
            await self.stop()
            folder = self.config.broker.data_dir
            raise StartError(f"cannot use the data directory: {folder}: {error.strerror}") from None
        try:
            for worker in self.workers.values():
                worker.start()
            await self._wait_begun()
            await self.frontend.open()
        except BaseException:
            await self.stop()
            raise
        for number in self.plan.surplus:
            self._spawn(self._dissolve(self.workers[number]))
        self._spawn(self._watch())

    async def _wait_begun(self) -> None:
        """Until all workers that serve are ready.

        Raises:
            StartError: one has ended instead.
        """
        waits = {asyncio.create_task(each.begun.wait()): each for each in self.workers.values()}
        pending = set(waits)
        try:
            while pending:
                done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
                for worker in (waits[each] for each in done):
                    if not worker.is_running:
                        raise StartError(f"worker {worker.number}: {worker.trouble or 'stopped'}")
        finally:
            for each in pending:
                each.cancel()

    async def stop(self) -> None:
        """Ends every worker in order; each saves its durable state."""
        for task in list(self._tasks):
            task.cancel()
        await self.frontend.close()
        await asyncio.gather(*(each.stop() for each in self.workers.values()))
        self._ports.close()
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def pids(self) -> list[int]:
        """The processes of the workers."""
        return [each.pid for each in self.workers.values() if each.pid]

    def rotate(self) -> None:
        """Has every worker open its log file anew."""
        for worker in self.workers.values():
            worker.rotate()

    async def _watch(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(_LOOK)
            for worker in self.workers.values():
                worker.look(loop.time())

    async def _dissolve(self, worker: Worker) -> None:
        """Has a worker that is one too many hand over what it has, and removes it."""
        await dissolve(worker, self.plan, self.config, self.frontend.client)
        del self.workers[worker.number]

    def _beginning(self, number: int) -> Callable[[], BeginWorker]:
        def begin() -> BeginWorker:
            settings = WorkerSettings.of(self.plan.live_of(number, self.live))
            present = [each.number for each in self.workers.values() if each.is_there]
            return BeginWorker(settings, self.plan.share(number, self.config, present))

        return begin

    def _spawn(self, work: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    # --- changes while it runs

    def reload(self, config: Config) -> list[str]:
        """Takes over a configuration that was read anew; the workers read the files that it names, changed or not."""
        self._is_read = True
        try:
            return super().reload(config)
        finally:
            self._is_read = False

    def _follow(self, live: LiveConfig, changed: list[str]) -> None:
        """Soon (see `followed`) it is in force in the workers too."""
        for listener in self.frontend.listeners.values():
            listener.configure(live.config)
        self._delivery = self._spawn(self._deliver(live, self._delivery, is_read=self._is_read))

    async def followed(self) -> list[str]:
        return [] if self._delivery is None else await asyncio.shield(self._delivery)

    async def _deliver(
        self, live: LiveConfig, before: "asyncio.Task[list[str]] | None", *, is_read: bool
    ) -> list[str]:
        if before is not None:
            await asyncio.wait([before])
        workers = list(self.workers.values())
        refusals = await asyncio.gather(
            *(
                each.follow(
                    WorkerSettings.of(self.plan.live_of(each.number, live)), is_read=is_read
                )
                for each in workers
            )
        )
        for worker, refusal in zip(workers, refusals, strict=True):
            if refusal:
                text = 'configuration not followed worker=%d reason="%s"'
                log.error(text, worker.number, refusal)
        return list(dict.fromkeys(each for each in refusals if each))
