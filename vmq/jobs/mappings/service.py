"""The mappings of a broker: those of the configuration, and what the operator switched on and off."""

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec
from vmq_hooks.replacing import replace_file

from vmq.config.mappings import MappingOptions
from vmq.core.context import Core
from vmq.core.ports import MappingFinder
from vmq.jobs.calls import CallWaiter
from vmq.jobs.commit import JobCommit
from vmq.jobs.mappings.mapping import MessageMapping
from vmq.jobs.mappings.sending import FLAWS, LATER, MappingSender
from vmq.jobs.mappings.stream_source import Follow, StreamMapping
from vmq.jobs.mappings.tap import MappingTap
from vmq.jobs.mqtt.port import MqttJobs
from vmq.jobs.queue import Job
from vmq.jobs.queues import JobRefusedError
from vmq.mqtt.special import JOBS, MAPPING_ROW, STREAM, read_job_topic
from vmq.mqtt.topics import matches
from vmq.runtime.metrics import Family, Sample

log = logging.getLogger("vmq.jobs")

_FILE: Final = "mappings.json"
#: Jobs that a mapping takes in one go.
_AT_ONCE: Final = 200
#: Seconds after which it tries again to wait for some.
_AGAIN: Final = 1.0


class MappingWorker:
    """A mapping that takes jobs, as a worker of their queue."""

    def __init__(self, mapping: MessageMapping, sender: MappingSender) -> None:
        self.mapping = mapping
        self.sender = sender
        self.commit = sender.commit
        self.machine = sender.machine
        self.mountpoint = mapping.options.mountpoint
        prefix = self.mountpoint.encode() + b"\0" if self.mountpoint else b""
        self.queue = prefix + read_job_topic(mapping.source).queue.encode()
        self.waiter: CallWaiter | None = None
        self.is_over = False

    def ask(self) -> None:
        """Waits for jobs."""
        if self.is_over:
            return
        now = self.commit.clock()
        try:
            queue = self.machine.queue(self.queue, now)
            self.machine.check_taken(self.queue)
        except JobRefusedError as refusal:
            self._tell(str(refusal))
            asyncio.get_running_loop().call_later(_AGAIN, self.ask)
            return
        self.waiter = CallWaiter([queue], _AT_ONCE, self.serve)
        self.machine.wait(self.waiter, float("inf"), now)
        self.look()
        self.commit.end_soon()

    def look(self) -> None:
        """An operator may have paused its queue, or have it go on."""
        if self.waiter is not None:
            is_paused = self.waiter.queues[0].paused_out
            self._tell("its queue is paused (vmq jobs resume)" if is_paused else "")

    def _tell(self, reason: str) -> None:
        if reason and self.mapping.hindrance != reason:
            log.warning('mapping=%s waits reason="%s"', self.mapping.name, reason)
        self.mapping.hindrance = reason

    def serve(self, jobs: list[Job]) -> None:
        """Maps jobs; each is done once what it becomes is safe."""
        self.waiter = None
        for job in jobs:
            self._map(job)
        self.sender.core.call_soon(self.ask)

    def _map(self, job: Job) -> None:
        reason = ""
        try:
            body = self.commit.writer.body(job) if job.body is None else job.body
            waiting = self.sender.send_job(self.mapping, job, body, self.mountpoint)
        except OSError as failure:
            self.sender.count(self.mapping, f"a job cannot be read: {failure}")
            return  # again after its RETRY
        except FLAWS as flaw:
            reason = str(flaw)
        except JobRefusedError as refusal:
            reason = str(refusal)
            if reason.partition(" ")[0] in LATER:
                self.sender.count(self.mapping, reason)
                return
        if reason:  # nobody else would see to it
            self.sender.count(self.mapping, reason)
            self.machine.bury(job, f"mapping {self.mapping.name}: {reason}", self.commit.clock())
            return

        def told(is_there: bool) -> None:
            if is_there:
                self.machine.acknowledge(job.id)
                self.commit.end_soon()

        deadline = self.commit.clock() + job.queue.rules.refuse_after
        self.machine.sharing.wait(waiting, deadline, told)

    def stop(self) -> None:
        """Takes no more."""
        self.is_over = True
        if self.waiter is not None:
            self.machine.stop_waiting(self.waiter)
            self.waiter = None


class Mappings(MappingFinder):
    """All of them.

    Args:
        core: that of the broker.
        commit: the jobs.
        mqtt: the same for MQTT clients.
        folder: where it is kept which ones the operator switched on or off.
        functions: those that plugins bring to expressions, at present.
        follow: has a mapping read a stream.
        safe: returns once what was done is safe.
    """

    def __init__(
        self,
        core: Core,
        commit: JobCommit,
        mqtt: MqttJobs,
        folder: Path,
        functions: Callable[[], Mapping[str, Callable[..., Any]]],
        follow: Follow,
        safe: Callable[[], Awaitable[None]],
    ) -> None:
        super().__init__()
        self.functions = functions
        self.follow = follow
        self.safe = safe
        self.core = core
        self.sender = MappingSender(core, commit, mqtt)
        self.path = folder / _FILE
        self.all: dict[str, MessageMapping] = {}
        self.workers: list[MappingWorker | StreamMapping] = []
        #: Those that read streams and were told to stop.
        self.ending: set[asyncio.Task[None]] = set()
        self.switched = self._read()
        core.mappings = self

    def configure(self, options: Mapping[str, MappingOptions]) -> None:
        """These are in force from now on; what has not changed counts on."""
        before = self.all
        if {name: each.options for name, each in before.items()} == dict(options):
            return
        self.all = {}
        for name, each in options.items():
            known = before.get(name)
            if known is None or known.options != each:
                known = MessageMapping(name, each, self.functions())
            known.is_enabled = self.switched.get(name, each.enabled)
            self.all[name] = known
        self._begin()

    def use_functions(self) -> None:
        """Plugins bring other functions than before."""
        functions = self.functions() if self.all else {}
        for each in self.all.values():
            each.use(functions)
            if each.flaw:
                log.error("mapping %s fails: %s", each.name, each.flaw)

    def _begin(self) -> None:
        self._stop_workers()
        for each in self.all.values():
            each.hindrance = ""
            if each.is_enabled and each.source.startswith(JOBS):
                self.workers.append(MappingWorker(each, self.sender))
            elif each.is_enabled and each.source.startswith(STREAM):
                parts = self.sender, self.follow, self.safe, self._options
                self.workers.append(StreamMapping(each, *parts))
        for worker in self.workers:
            worker.ask()
        for mountpoint in {"", *(each.options.mountpoint for each in self.all.values())}:
            registry = self.core.registries.find(mountpoint)
            if registry is not None:
                registry.routes.resize(self.core.options.topic_cache)

    def look(self) -> None:
        """Queues are paused, or go on."""
        for worker in self.workers:
            if isinstance(worker, MappingWorker):
                worker.look()

    def _stop_workers(self) -> None:
        for worker in self.workers:
            worker.stop()
            if isinstance(worker, StreamMapping) and worker.task is not None:
                self.ending.add(worker.task)
                worker.task.add_done_callback(self.ending.discard)
        self.workers = []

    def _options(self) -> dict[str, MappingOptions]:
        return {name: each.options for name, each in self.all.items()}

    def taps(self, mountpoint: str, topic: str) -> list[Any]:
        return [
            MappingTap(each, self.sender, mountpoint)
            for each in self.all.values()
            if each.is_enabled
            and each.options.mountpoint == mountpoint
            and not each.source.startswith((JOBS, STREAM))
            and matches(each.source, topic)
        ]

    def hand_in(self, row: Any) -> None:
        mapping = self.all.get(row.name.removeprefix(MAPPING_ROW))
        if row.is_done or mapping is None:
            row.confirm()
        elif row.publisher is None:
            row.drop("it has gone")
        else:
            self.sender.hand_in(mapping, row)

    # The operator's word

    def switch(self, name: str, is_enabled: bool) -> None:
        """Switches one on or off, also for later starts.

        Raises:
            OSError: that cannot be kept; nothing changed.
        """
        switched = {**self.switched, name: is_enabled}
        replace_file(self.path, json.dumps(switched).encode())
        self.switched = switched
        self.all[name].is_enabled = is_enabled
        self._begin()

    def _read(self) -> dict[str, bool]:
        try:
            return msgspec.json.decode(self.path.read_bytes(), type=dict[str, bool])
        except FileNotFoundError:
            return {}
        except (OSError, msgspec.MsgspecError, RecursionError) as error:
            log.warning("mappings are as the configuration says: %s: %s", self.path, error)
            return {}

    async def stop(self) -> None:
        """Maps nothing any more."""
        self._stop_workers()
        self.core.mappings = MappingFinder()
        if self.ending:
            await asyncio.wait(self.ending)

    def families(self) -> Iterator[Family]:
        """What they did."""
        for name, text in (
            ("mapping_seen", "Messages and jobs that a mapping looked at."),
            ("mapping_sent", "Messages and jobs that it sent on."),
            ("mapping_failed", "Those that an expression failed for, or a target refused."),
        ):
            samples = tuple(
                Sample((("mapping", each.name),), getattr(each, name.removeprefix("mapping_")))
                for each in self.all.values()
            )
            if samples:
                yield Family(name, "counter", text, samples)

    def problems(self) -> Iterator[str]:
        """Which of them fail."""
        for each in self.all.values():
            if each.flaw and each.is_enabled:
                yield f"mapping {each.name} maps nothing: {each.flaw}"
            elif each.hindrance and each.is_enabled:
                yield f"mapping {each.name} waits: {each.hindrance}"
            elif each.failed and each.is_enabled:
                yield f"mapping {each.name} failed {each.failed} times; the last: {each.last_error}"
