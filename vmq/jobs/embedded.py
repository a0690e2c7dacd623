"""Jobs from inside the process.

await broker.jobs.add("mail", b"...")

async for job in broker.jobs.take("mail", workers=8):
...
await job.ack()
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from vmq.core.ports import JobsPort

if TYPE_CHECKING:
    from vmq.config.options import Config
    from vmq.core.context import Core
    from vmq.jobs.mappings.stream_source import Follow, StreamMapping
    from vmq.jobs.nodes import JobLinks
    from vmq.jobs.queue import Job
    from vmq.jobs.service import JobService
    from vmq.mqtt.special import GroupTopic
    from vmq.persistence.group_commit import Committer
    from vmq.runtime.metrics import Family

__all__ = ["Jobs", "TakenJob"]

log = logging.getLogger("vmq.jobs")

#: Seconds after which a worker asks again for a queue that there was no room for.
_ASKS_AGAIN: Final = 1.0


class TakenJob:
    """A job that this program has to do.

    Attributes:
        id: its id.
        queue: the name of its queue.
        body: what is to be done.
        deliveries: how often it was given to a worker, this time included; a lower bound.
    """

    def __init__(self, taking: _Taking, job: Job, body: bytes) -> None:
        self._taking = taking
        self.id = job.id.decode()
        self.queue = job.queue.name.decode("utf-8", "surrogateescape")
        self.body = body
        self.deliveries = int(job.deliveries)
        self._given = job.queue, *counters(job)

    async def ack(self) -> None:
        """It is done, and will not be given again; returns when that is as safe as the queue's rules say.

        Raises:
            OSError: that cannot be written.
        """
        service = self._taking.service
        job_id = self.id.encode()
        if not service.machine.acknowledge(job_id):
            service.machine.sharing.acknowledge_unknown(job_id)
        self._taking.release(self.id)
        await service.safe()

    def give_back(self, now: float) -> None:
        """Nobody looked at it: it goes back to where it was, unless its RETRY was over or others saw to it."""
        from vmq.jobs.queue import ACTIVE

        machine = self._taking.service.machine
        job = machine.jobs.get(self.id.encode())
        if job is None or job.state != ACTIVE or self._given != (job.queue, *counters(job)):
            return
        if job.copies is None or not job.copies.is_away:
            machine.give_back(job, now)

    async def nack(self) -> None:
        """It could not be done: given again, at once or after the queue's back-off.

        Raises:
            OSError: that cannot be written.
        """
        service = self._taking.service
        job = service.machine.jobs.get(self.id.encode())
        if job is not None:
            service.machine.nack(job, service.core.clock())
        self._taking.release(self.id)
        await service.safe()

    def working(self) -> int:
        """It takes longer: given again only after another RETRY, in seconds, which is returned.

        Raises:
            ValueError: half of its time to live is over, or it is this program's no more.
        """
        from vmq.jobs.queues import JobRefusedError

        service = self._taking.service
        job = service.machine.jobs.get(self.id.encode())
        if job is None:
            raise ValueError("NOJOB Job not known in the context of this node.")
        try:
            return service.machine.working(job, service.core.clock())
        except JobRefusedError as refusal:
            raise ValueError(str(refusal)) from None


def counters(job: Job) -> tuple[int, int]:
    """Of what no two times are alike that a job is given out of a queue."""
    return int(job.deliveries), job.generation


class _Taking:
    """A worker: at most `window` jobs are its at a time."""

    def __init__(self, service: JobService, names: tuple[str, ...], window: int) -> None:
        from vmq.jobs.calls import CallWaiter
        from vmq.jobs.queues import JobRefusedError

        self.service = service
        self.window = window
        for name in names:
            if name.startswith("$"):
                raise ValueError("ERR queues whose names begin with $ are the broker's own")
            try:
                service.machine.check_taken(name.encode())
            except JobRefusedError as refusal:
                raise ValueError(str(refusal)) from None
        self.names = [name.encode() for name in names]
        self.held: set[str] = set()
        self.ready: deque[TakenJob] = deque()
        self.arrived = asyncio.Event()
        self.waiter: CallWaiter | None = None
        #: It was refused a queue, and asks again then.
        self.again: asyncio.TimerHandle | None = None
        self.ended = False
        self.ask()

    def ask(self) -> None:
        """Waits for as many jobs as there is room for."""
        from vmq.jobs.calls import CallWaiter
        from vmq.jobs.queues import JobRefusedError

        room = self.window - len(self.held)
        if room > 0 and self.waiter is None and self.again is None and not self.ended:
            service = self.service
            now = service.core.clock()
            try:
                queues = [service.machine.queue(name, now) for name in self.names]
            except JobRefusedError:
                self.again = service.loop.call_later(_ASKS_AGAIN, self.ask_again)
                return
            self.waiter = waiter = CallWaiter(queues, room, self.take)
            service.machine.wait(waiter, float("inf"), now)
            service.commit.end_pass(now)

    def ask_again(self) -> None:
        self.again = None
        self.ask()

    def take(self, jobs: list[Job]) -> None:
        self.waiter = None
        for job in jobs:
            try:
                body = self.service.journal.body(job) if job.body is None else job.body
            except OSError as failure:
                # It is given again after its RETRY; until then the disk may be well.
                log.error("job %s cannot be read: %s", job.id.decode(), failure)
                continue
            taken = TakenJob(self, job, body)
            self.held.add(taken.id)
            self.ready.append(taken)
        self.arrived.set()
        self.service.loop.call_soon(self.ask)

    def release(self, job_id: str) -> None:
        self.held.discard(job_id)
        self.service.loop.call_soon(self.ask)

    async def jobs(self) -> AsyncIterator[TakenJob]:
        try:
            while not self.ended:
                while self.ready:
                    yield self.ready.popleft()
                self.arrived.clear()
                await self.arrived.wait()
        finally:
            self.end()

    def end(self) -> None:
        """Takes no more. What was taken and not looked at goes to others at once."""
        self.ended = True
        self.arrived.set()
        service = self.service
        if self.again is not None:
            self.again.cancel()
        if self.waiter is not None:
            service.machine.stop_waiting(self.waiter)
            self.waiter = None
        now = service.core.clock()
        while self.ready:
            self.ready.popleft().give_back(now)
        service.takings.discard(self)
        service.commit.end_pass(now)


class FirstJobs(JobsPort):
    """Opens the jobs when the first client of MQTT asks for them.

    Args:
        core: that of the broker.
        begin: opens them, and puts another port in this one's place.
    """

    def __init__(self, core: Core, begin: Callable[[], object]) -> None:
        super().__init__()
        self.core = core
        self.begin = begin

    def publish(self, client: Any, topic: str, message: Any, packet_id: int) -> None:
        self.begin()
        self.core.jobs.publish(client, topic, message, packet_id)

    def publish_will(self, client: Any, registry: Any, topic: str, will: Any) -> None:
        self.begin()
        self.core.jobs.publish_will(client, registry, topic, will)

    def grant(self, client: Any, topic_filter: str, qos: int) -> int:
        self.begin()
        return self.core.jobs.grant(client, topic_filter, qos)

    def bury(self, queue: str, body: bytes, reason: str) -> None:
        self.begin()
        self.core.jobs.bury(queue, body, reason)


class Jobs:
    """The jobs of a broker, as `broker.jobs`.

    Args:
        core: that of the broker, while it is started.
        config: its configuration of now.
        stopper: what stops the broker, if anything here does.
    """

    def __init__(
        self,
        core: Callable[[], Core | None],
        config: Callable[[], Config],
        stopper: Callable[[], Callable[[], None] | None] = lambda: None,
    ) -> None:
        self._core = core
        self._config = config
        self._stopper = stopper
        #: The functions that plugins bring to expressions, at present.
        self.functions: Callable[[], Mapping[str, Callable[..., Any]]] = dict
        #: Has a mapping read a stream; unset: there are none.
        self.follow: Follow | None = None
        self._links: JobLinks | None = None
        self._is_over = False
        #: Commits the store of sessions and messages.
        self.committer: Committer | None = None
        #: None as long as nothing serves any.
        self.service: JobService | None = None

    async def add(
        self,
        queue: str,
        body: bytes,
        *,
        ttl: int | None = None,
        retry: int | None = None,
        delay: int = 0,
        priority: int | None = None,
        maxlen: int | None = None,
        key: str = "",
        replicate: int | None = None,
    ) -> str:
        """Adds a job; returns its id when it is as safe as the queue's rules say.

        Args:
            queue: the name of its queue.
            body: what is to be done.
            ttl: seconds that it lives, from when it is due.
            retry: seconds after which it is given again; 0: never, it is delivered at most once.
            delay: seconds until it is due.
            priority: 0 to 9; 9 goes first.
            maxlen: refused if so many are queued.
            key: while the queue's window lasts no second job with it is added; the id is that of the first.
            replicate: hosts that have it before this returns.

        Raises:
            ValueError: it is refused; the text begins with Disque's word for why.
            OSError: it cannot be written.
        """
        from vmq.jobs.options import check_queue
        from vmq.jobs.queues import JobRefusedError
        from vmq.jobs.stock import NO_HOSTS

        service = self.open()
        now = service.core.clock()
        if len(body) > service.config.limits.max_job_size:
            raise ValueError(f"TOOBIG {len(body)} bytes are above limits.max_job_size")
        try:
            name = queue.encode()
            check_queue(name)
            job = service.machine.add(
                service.queue_with_room(name, now),
                body,
                now,
                -1 if ttl is None else ttl,
                -1 if retry is None else retry,
                delay,
                -1 if priority is None else priority,
                -1 if maxlen is None else maxlen,
                key.encode(),
                -1 if replicate is None else replicate,
            )
        except JobRefusedError as refusal:
            raise ValueError(str(refusal)) from None
        if not await service.safe_with_copies():
            raise ValueError(NO_HOSTS)
        return (job.twin or job.id).decode()

    @asynccontextmanager
    async def taking(
        self, *queues: str, workers: int = 1
    ) -> AsyncIterator[AsyncIterator[TakenJob]]:
        """As `take`, for a block: at its end no more is taken, and what was not looked at goes to others."""
        service = self.open()
        taking = _Taking(service, queues, workers)
        service.takings.add(taking)
        try:
            yield taking.jobs()
        finally:
            taking.end()

    async def take(self, *queues: str, workers: int = 1) -> AsyncIterator[TakenJob]:
        """Takes jobs of queues, from left to right; at most `workers` are unacknowledged at a time.

        Ends with the broker. A job that is not acknowledged is given again after its RETRY.
        """
        async with self.taking(*queues, workers=workers) as jobs:
            async for job in jobs:
                yield job

    # The broker's part

    def open(self) -> JobService:
        """Opens the jobs, those that only lie in the data directory too; once.

        Raises:
            StartError: the folder cannot be used, or several processes are the broker.
        """
        if self.service is None:
            # Late: most brokers have no jobs.
            from vmq.config.mappings import mapping_problems
            from vmq.jobs.service import JobService
            from vmq.runtime.errors import StartError

            core, config = self._core(), self._config()
            assert core is not None, "the broker is not started"
            filters = {name: each.filters for name, each in config.streams.items()}
            for key, what in mapping_problems(config.mappings, self.functions(), filters):
                raise StartError(f"mappings.{key}: {what}")
            self.service = JobService(core, config, self.functions, self._follow)
            self.service.control.stop = self._stopper()
            if self.committer is not None:
                self.service.go_before(self.committer)
            if self._links is not None:
                self.service.join(self._links)
        return self.service

    def begin(self, links: JobLinks | None = None) -> None:
        """Opens the jobs if there were ever any, else when somebody first asks for them, here or on another node.

        Args:
            links: to other nodes, with which they are shared.

        Raises:
            StartError: the folder cannot be used.
        """
        core = self._core()
        assert core is not None, "the broker is not started"
        self._links = links
        self._is_over = False
        config = self._config()
        if config.schedules or config.mappings or (Path(config.broker.data_dir) / "jobs").is_dir():
            self.open()
        elif self.service is None:
            core.jobs = FirstJobs(core, self.open)
        if links is not None:
            links.open_with(self.open)

    async def _follow(self, topic: GroupTopic, mapper: StreamMapping) -> None:
        if self.follow is None:
            mapper.cannot("there are no streams")
        else:
            await self.follow(topic, mapper)

    async def add_staged(self, staged: Sequence[tuple[str, bytes, int, bytes]]) -> str:
        """Adds jobs that were staged with messages; see `JobService.add_staged`."""
        from vmq.runtime.errors import StartError

        if self._is_over:
            return "the broker ends"
        try:
            return await self.open().add_staged(staged)
        except StartError as error:
            return str(error)

    async def hand_over(self, timeout: float, *, is_leaving: bool = False) -> bool:  # noqa: ASYNC109 - a limit
        """What this node has goes to other hosts, if it leaves also to others of its own; whether they have all."""
        nodes = None if self.service is None else self.service.nodes
        return nodes is None or await nodes.hand_over(timeout, is_leaving=is_leaving)

    def take_part(self) -> None:
        """This node is to have jobs again."""
        nodes = None if self.service is None else self.service.nodes
        if nodes is not None and nodes.is_leaving:
            nodes.set_leaving(False)

    def use_functions(self) -> None:
        """Plugins bring other functions to expressions than before."""
        if self.service is not None:
            self.service.mappings.use_functions()

    def turn_away(self, reason: str) -> None:
        """Ends the connections of RESP clients."""
        for listener in [] if self.service is None else self.service.listeners:
            listener.end_all(reason)

    def make_room(self) -> None:
        """Memory is high."""
        if self.service is not None:
            self.service.make_room()

    async def stop(self) -> None:
        """Ends connections and workers, and writes what is left."""
        self._is_over = True
        if self._links is not None:  # another node that speaks of jobs would have them opened anew
            self._links.open_with(None)
        service, self.service = self.service, None
        if service is not None:
            await service.stop()

    def configure(self, config: Config) -> None:
        """Goes by another configuration."""
        if self.service is not None:
            self.service.configure(config)
        elif config.schedules or config.mappings:
            from vmq.runtime.errors import StartError

            try:
                self.open()
            except StartError as error:
                log.error("there are no jobs, schedules and mappings: %s", error)

    def families(self) -> Iterator[Family]:
        """The figures."""
        if self.service is not None:
            yield from self.service.families()

    def problems(self) -> list[str]:
        """What is wrong now."""
        return [] if self.service is None else self.service.problems()
