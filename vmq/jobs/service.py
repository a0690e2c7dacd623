"""Jobs in a broker: opens what is on disk, serves listeners, and watches the time."""

import asyncio
import hashlib
import logging
import os
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from vmq_hooks.replacing import replace_file

from vmq.config.jobs import options_of
from vmq.config.options import Config
from vmq.core.context import Core
from vmq.core.hook_sites import Hooks
from vmq.core.ports import JobsPort
from vmq.core.registry import Registry
from vmq.jobs.calls import CallOutput
from vmq.jobs.commit import JobCommit
from vmq.jobs.control import JobControl
from vmq.jobs.ids import JobIds
from vmq.jobs.listener import JobListener
from vmq.jobs.machine import JobMachine
from vmq.jobs.mappings.service import Mappings
from vmq.jobs.mappings.stream_source import Follow, no_streams
from vmq.jobs.metrics import job_families, sharing_families
from vmq.jobs.mqtt.delayed import QUEUE as DELAYED
from vmq.jobs.mqtt.port import MqttJobs
from vmq.jobs.nodes import JobLinks, JobNodes
from vmq.jobs.queue import JobQueue
from vmq.jobs.resp.commands import run
from vmq.jobs.resp.door import STRANGERS_LIMIT, RespDoor
from vmq.jobs.resp.user import PATIENCE, unsettled
from vmq.jobs.rules import FSYNC, OFF, OS, JobRules
from vmq.jobs.schedules import Schedules
from vmq.jobs.storage.clock import JobClock
from vmq.jobs.storage.indexing import JobIndexing
from vmq.jobs.storage.journal import JobJournal, SegmentWalk
from vmq.jobs.storage.pauses import JobPauses
from vmq.jobs.storage.restoring import JobRestore
from vmq.jobs.storage.segments import JobSegments
from vmq.persistence.group_commit import Committer
from vmq.protocol.connection import split_peer
from vmq.runtime.banning import Banning
from vmq.runtime.errors import StartError
from vmq.runtime.metrics import Family
from vmq.runtime.process import ahead, boot_id, own_folder

if TYPE_CHECKING:
    from vmq.listeners.handshakes import Handshakes

log = logging.getLogger("vmq.jobs")

#: Seconds between two looks at what is due.
TICK: Final = 0.1
#: Seconds between two looks for queues that nobody uses, and segments that hold little.
SWEEP: Final = 10.0
#: Parts of limits.max_job_memory above which bodies stay on disk, nothing is added.
_SPILL: Final = 0.75
_FULL: Final = 0.95
#: Seconds of each look for pages that were read at the start, so that their jobs are found by ids; so many at a time.
_MARKING: Final = 0.03
_MARKED: Final = 4
#: Seconds after a start in which other nodes may say which times of schedules they saw to.
_SETTLES: Final = 5.0
#: Seconds in which a broker that stops hands over its jobs.
_HAND_OVER: Final = 10.0
_PERSISTENCE: Final = {"off": OFF, "os": OS, "fsync": FSYNC}


def jobs_folder(config: Config) -> Path:
    """Where a broker keeps its jobs."""
    return Path(config.broker.data_dir) / "jobs"


class Ending(Protocol):
    """Somebody who takes jobs, until he is to end."""

    def end(self) -> None:
        """Takes no more."""


class JobService:
    """The jobs of a broker.

    Args:
        core: for clock, limits and counters.
        config: as it was read.
        functions: those that plugins bring to expressions, at present.
        follow: has a mapping read a stream.

    Raises:
        StartError: what is on disk cannot be used.
    """

    def __init__(
        self,
        core: Core,
        config: Config,
        functions: Callable[[], Mapping[str, Callable[..., Any]]] = dict,
        follow: Follow = no_streams,
    ) -> None:
        self.core = core
        self.config = config
        self.loop = asyncio.get_running_loop()
        self.folder = jobs_folder(config)
        now = core.clock()
        wall = time.time_ns() - int(now * 1e9)
        try:
            own_folder(self.folder)
            self.node_id = self._read_node_id()
            self.segments = JobSegments(self.folder, threading.Lock())
            ids = JobIds(self.node_id[:8], os.urandom)
            self.machine = JobMachine(ids, self.rules_of, None, wall)
            self.machine.pager.fit(config.limits.max_job_memory or 1 << 60)
            self.clock = JobClock(self.segments, ahead, boot_id())
            restore = JobRestore(self.machine, self.segments, now)
            restore.run()
            self.clock.begin()
            self.pauses = self._pause(now)
        except OSError as error:
            raise StartError(f"cannot use the jobs: {self.folder}: {error.strerror}") from error
        self.machine.log = self.journal = JobJournal(self.segments, wall, restore.next_serial)
        self.walk = SegmentWalk(self.machine)
        self.segments.on_step = self._look_at_disk
        self.commit = JobCommit(self.machine, self.journal, core.clock)
        self.commit.watch_time = self._watch_time
        self.commit.sync = self._sync
        self.commit.call_soon = core.call_soon
        self.mqtt = MqttJobs(core, self.commit, config.limits.max_job_size)
        core.jobs = self.mqtt
        self.listeners: list[JobListener] = []
        if isinstance(core.bans, Banning):
            core.bans.ends.append(self.end_banned)
        #: Programs inside the process that take jobs.
        self.takings: set[Ending] = set()
        self.control = JobControl(self.folder, lambda: self.config, self._limit)
        self._limit()
        self._timer: asyncio.TimerHandle | None = None
        self._sweeper = self.loop.call_later(SWEEP, self._sweep)
        self.indexing = JobIndexing(self.segments, self.loop.call_later)
        self.mqtt.delayed.serve_all()
        self.schedules = Schedules(core, self.commit, self.folder, config.schedules, self.safe)
        given = self.folder, functions, follow, self.safe
        self.mappings = Mappings(core, self.commit, self.mqtt, *given)
        self.mappings.configure(config.mappings)
        #: This node among others, if it is one.
        self.nodes: JobNodes | None = None
        #: Commits the store of sessions and messages.
        self.committer: Committer | None = None
        self.schedules.start()
        self.commit.end_pass(now)
        if count := self.machine.count():
            log.info("jobs restored count=%d queues=%d", count, len(self.machine.queues))

    def go_before(self, committer: Committer) -> None:
        """What the store has from now on the jobs have, too: a packet id that it knows has its job, and what mappings
        made of its message.
        """
        self.committer = committer
        committer.before.append(self.commit.write)
        committer.before_sync.append(self._sync_first)

    def _sync_first(self) -> None:
        if self.commit.needs_sync or self.commit.syncing is not None:
            self.journal.sync()

    def join(self, links: JobLinks) -> None:
        """Shares its jobs with other nodes from now on."""
        self.nodes = JobNodes(self.core, self.commit, links, self.node_id, time.time_ns() // 1000)
        self.control.nodes = self.nodes
        replicas, schedules = self.nodes.replicas, self.schedules
        replicas.on_fired = schedules.on_fired
        schedules.rank, schedules.tell = replicas.rank, replicas.fired
        replicas.on_newcomer = schedules.tell_all
        if links.others():
            schedules.begins = self.core.wall_clock() + _SETTLES

    def _pause(self, now: float) -> JobPauses:
        """Has queues refuse what they did at the end."""
        pauses = JobPauses(self.folder)
        self.machine.pauses = pauses.read()
        for name, said in self.machine.pauses.items():
            queue = self.machine.queues.get(name) or self.machine.make_queue(name, now)
            queue.paused_in, queue.paused_out = said.is_in, said.is_out
        return pauses

    def _read_node_id(self) -> bytes:
        """Forty hexadecimal digits that this node keeps."""
        path = self.folder / "node"
        try:
            found = path.read_bytes().strip()
        except FileNotFoundError:
            found = b""
        if len(found) != 40:
            found = hashlib.sha256(secrets.token_bytes(32)).hexdigest()[:40].encode()
            replace_file(path, found + b"\n")
        return found

    def _limit(self) -> None:
        limit = self.control.memory() or 1 << 60
        self.machine.max_memory = int(limit * _FULL)
        self.machine.full_memory = limit
        self.commit.spill_above = int(limit * _SPILL)
        self.machine.pager.fit(limit)
        self.machine.max_queues = self.config.limits.max_job_queues
        self.machine.max_queues_per_user = self.config.limits.max_job_queues_per_user or 1 << 60

    def configure(self, config: Config) -> None:
        """Goes by another configuration; queues that are there get their rules anew."""
        self.config = config
        self._limit()
        self.mqtt.publishing.max_job_size = config.limits.max_job_size
        for queue in self.machine.queues.values():
            queue.rules = self.rules_of(queue.name.removesuffix(b"!dead"))
        self.mappings.configure(config.mappings)
        self.schedules.configure(config.schedules)
        self.schedules.start()

    def rules_of(self, name: bytes) -> JobRules:
        """The rules of a queue; a mountpoint before its name does not count."""
        rules = JobRules()
        text = name.rpartition(b"\0")[2].decode("utf-8", "replace")
        for option, value in options_of(text, self.config.jobs).items():
            if option == "retry":
                rules.retry = value if isinstance(value, list) else [value]
            elif option == "groups":
                rules.groups = [each.encode() for each in dict.fromkeys(value)]
            elif option == "persistence":
                rules.persistence = _PERSISTENCE[value]
            elif option == "when_split":
                rules.may_have_fewer = value == "reach"
            else:
                setattr(rules, option, value)
        if text == DELAYED:  # the broker's own: it tries all of them for as long as they live
            rules.groups, rules.max_deliveries = [], 0
        return rules

    # Listeners

    def listener(
        self,
        name: str,
        registry: Registry,
        hooks: Hooks,
        handshakes: "Handshakes | None",
        shared: bool = False,
    ) -> JobListener:
        """A listener of the configuration, not open yet."""
        config = self.config
        options = config.listeners[name]
        door = RespDoor(name, self.commit, self.core, hooks)
        door.anonymous = config.anonymous_allowed(name)
        door.anonymous_until_hook = config.anonymous_until_hook(name)
        door.admin, door.is_tls = options.admin, options.endpoint.is_tls
        door.max_job_size = config.limits.max_job_size
        door.mountpoint = options.mountpoint
        door.prefix = options.mountpoint.encode() + b"\0" if options.mountpoint else b""
        door.node_id, door.control = self.node_id, self.control
        door.others = run
        found = JobListener(name, config, registry, door, handshakes, shared)
        door.clients = found.clients
        self.listeners.append(found)
        return found

    def end_banned(self, refusal: Callable[[str, str | None, str], str]) -> int:
        """Ends the connections of those who are banned now; how many."""
        ended = 0
        for listener in self.listeners:
            for connection in list(listener.clients):
                host = split_peer(connection.describe())[0]
                reason = refusal("", connection.username, host)
                if reason and not connection.closing:
                    connection.end(reason)
                    ended += 1
        return ended

    def make_room(self) -> None:
        """Memory is high: who has us keep much of a command has to go; its job would be refused."""
        for listener in self.listeners:
            for connection in list(listener.clients):
                reader = connection.reader
                if reader.rest is not None and reader.kept() > STRANGERS_LIMIT:
                    self.core.counters.memory_ended += 1
                    connection.cut(
                        "memory is above limits.max_memory, and its command is not whole"
                    )

    # Time

    def _watch_time(self) -> None:
        self._timer = self.loop.call_later(TICK, self._tick)

    def _tick(self) -> None:
        commit = self.commit
        commit.is_watching = False
        now = self.core.clock()
        if self.machine.next_due() <= now:
            self.machine.tick(now)
        until = time.perf_counter() + _MARKING
        while self.machine.pager.unmarked and time.perf_counter() < until:
            self.machine.pager.mark(_MARKED)
        if self.nodes is not None:
            self.nodes.tick(now)
            self.commit.wants_time = True
            if self.nodes.replicas.has_new_queues():
                self.mqtt.delayed.serve_all()
        if commit.wants_time:
            self.mqtt.look(now)
            commit.wants_time = self.mqtt.waits() or self.nodes is not None
        commit.end_pass(now)

    def _sweep(self) -> None:
        self._sweeper = self.loop.call_later(SWEEP, self._sweep)
        now = self.core.clock()
        self._look_at_disk()
        if self.machine.drop_idle(now) or self.machine.tidy():
            self._sweep_on()
        try:
            self._clean()
        except OSError as error:
            log.error("a segment of jobs cannot be cleaned: %s", error)
        self.indexing.look()
        self.clock.look()
        self.commit.end_pass(now)

    def _clean(self) -> None:
        """Moves some jobs out of the oldest segment, if much on disk is not wanted."""
        oldest = self.segments.oldest()
        if oldest is None or self.commit.is_failing or not self.journal.is_wasteful():
            return
        page = self.machine.pager.in_segment(oldest.number)
        if page is None:
            jobs = self.walk.some(oldest.number, oldest.live)
        else:
            jobs = self.machine.pager.scatter(page)
        self.journal.clean([job for job in jobs if job.segment == oldest.number])
        for job in jobs:
            self.machine.pager.offer(job)
        if jobs or not self.walk.is_over:
            self._sweep_on()

    def _sweep_on(self) -> None:
        """There is more to do: goes on soon."""
        self._sweeper.cancel()
        self._sweeper = self.loop.call_later(TICK, self._sweep)

    async def safe(self) -> None:
        """Ends a pass; returns when what it did is as safe as it is to be.

        Raises:
            OSError: it cannot be written.
        """
        done: asyncio.Future[str] = self.loop.create_future()

        def told(reason: str) -> None:
            if not done.done():  # else nobody waits any more
                done.set_result(reason)

        output = CallOutput(told)
        self.commit.touch(output)
        self.commit.end_pass(self.core.clock())
        reason = await done
        if reason:
            raise OSError(reason)

    async def safe_with_copies(self) -> bool:
        """Ends a pass as `safe` does; True: what was just added is on its hosts, too; False: it is not to be.

        Raises:
            OSError: it cannot be written.
        """
        jobs = unsettled(self.machine, False, self.core.clock())
        await self.safe()
        return self.nodes is None or await self.nodes.copied(jobs, PATIENCE)

    async def add_staged(self, staged: Sequence[tuple[str, bytes, int, bytes]]) -> str:
        """Adds jobs that were staged: target, body, QoS, and of what the id is made.

        Returns, once they are safe, why that cannot be now, or nothing.
        """
        for each in staged:
            reason = self.mappings.sender.add_staged(*each)
            if reason:
                return reason
        try:
            return "" if await self.safe_with_copies() else "too few hosts can be reached"
        except OSError as error:
            return str(error)

    # Disk

    def _look_at_disk(self) -> None:
        """Has jobs refused while the disk has too little room, or taken again."""
        lack, commit = self.core.disk_room.lack(self.folder), self.commit
        if lack and not commit.is_short:
            log.error("jobs are refused until there is more room: %s", lack)
        elif commit.is_short and not lack:
            log.warning("the disk of jobs has room again")
        commit.is_short = bool(lack)

    def queue_with_room(self, name: bytes, now: float) -> JobQueue:
        """A queue to which a job is added.

        Raises:
            JobRefusedError: its jobs are kept, and the disk is short of room.
        """
        queue = self.machine.queue(name, now)
        if self.commit.is_short:
            self.commit.check_disk(queue.rules.persistence)
        return queue

    def _sync(self) -> None:
        paused = self.pauses.take(self.machine, self.core.clock())
        if paused is not None:
            self.mappings.look()

        def sync() -> None:
            self.journal.sync()
            self.pauses.write(paused)

        def synced(done: "asyncio.Future[None]") -> None:
            error = done.exception()
            if error is not None and paused is not None:
                self.machine.has_new_pauses = True
            self.commit.synced("" if error is None else str(error))

        self.loop.run_in_executor(None, sync).add_done_callback(synced)

    def problems(self) -> list[str]:
        """What is wrong now."""
        found = ["jobs cannot be written to disk"] if self.commit.is_failing else []
        if self.commit.is_short:
            found.append("jobs are refused: the disk is short of room (store.min_free_bytes)")
        found += self.mappings.problems()
        if self.machine.memory >= self.machine.max_memory:
            found.append("jobs are refused: they have all of limits.max_job_memory")
        found += [] if self.nodes is None else self.nodes.problems()
        if damaged := self.segments.damaged():
            found.append(
                f"jobs may be lost, or come again: {self.folder} has damage ({', '.join(damaged)}; "
                f"delete these files when they are of no use any more)"
            )
        return found

    def families(self) -> Iterator[Family]:
        """The figures of the jobs."""
        connections = sum(len(each.clients) for each in self.listeners)
        failures, disk = int(self.commit.failures), self.segments.total()
        yield from job_families(self.machine, self.core.clock(), failures, disk, connections)
        yield from self.mappings.families()
        if self.nodes is not None:
            yield from sharing_families(self.nodes.replicas)

    async def _all_synced(self) -> None:
        while self.commit.syncing is not None:  # noqa: ASYNC110 - a thread is at it
            await asyncio.sleep(0.01)

    async def stop(self) -> None:
        """Ends every connection, and writes what is left."""
        for listener in self.listeners:
            listener.end_all("the broker is shutting down")
        for taking in list(self.takings):
            taking.end()
        await self.mappings.stop()
        if self.nodes is not None:
            await self.nodes.hand_over(_HAND_OVER)
        self._sweeper.cancel()
        self.indexing.close()
        await self.schedules.stop()
        self.mqtt.delayed.stop()
        self.mqtt.publishing.settling.stop()
        await self._all_synced()
        self.commit.end_pass(self.core.clock())
        await self._all_synced()
        await asyncio.sleep(0)
        if self.nodes is not None:
            self.nodes.stop()
        for listener in self.listeners:
            listener.abort_all()
        self.commit.watch_time = None
        self.commit.is_over = True
        # While jobs are unwritten the store writes nothing more, which may count on them.
        if self.committer is not None and not self.commit.is_failing:
            self.committer.before.remove(self.commit.write)
            self.committer.before_sync.remove(self._sync_first)
        if isinstance(self.core.bans, Banning):
            self.core.bans.ends.clear()
        self.core.jobs = JobsPort()
        if self._timer is not None:
            self._timer.cancel()
        if self.commit.is_failing:
            log.error("stopped with unwritten jobs: the disk fails")
        self.segments.close()
