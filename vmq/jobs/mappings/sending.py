"""What comes out of mappings: jobs that are added, and messages that are published.

A message at QoS 0 is published at once, as far as that goes. All else is a job first, also a message (`$delayed`, due
at once): so it is safe before whoever caused it is acknowledged, and has an id that follows from the one it came from.
"""

import logging
from functools import partial
from math import ceil
from typing import Any, Final

from vmq.core.context import Core
from vmq.core.output import Output
from vmq.core.states import FAILED
from vmq.core.stream_feed import feed_streams
from vmq.disk.durable import Durable
from vmq.jobs.commit import JobCommit
from vmq.jobs.ids import named
from vmq.jobs.mappings.mapping import Mapped, MappingError, MessageMapping, Seen
from vmq.jobs.mqtt.delayed import QUEUE, Kept
from vmq.jobs.mqtt.port import MqttJobs
from vmq.jobs.options import AddOptions, options_from
from vmq.jobs.queue import WAITING, Job
from vmq.jobs.queues import JobRefusedError
from vmq.jobs.stock import LONGEST
from vmq.mqtt.message import Message
from vmq.mqtt.packets import ProtocolError
from vmq.mqtt.special import (
    DELAYED,
    JOBS,
    SpecialTopicError,
    queue_of,
    read_delayed,
    read_job_topic,
)
from vmq.store.store import StoreError

log = logging.getLogger("vmq.jobs")

#: Refusals that are no fault of the message: whoever publishes it tries again.
NOT_NOW: Final = frozenset({"OOM", "NOREPL", "IOERR"})
#: What a queue refuses for a while.
LATER: Final = NOT_NOW | {"PAUSED", "MAXLEN"}
#: Seconds after which a mapped message is published again, unless the broker owns it by then.
_RETRY: Final = 30
#: What is wrong with a message or a target.
FLAWS: Final = (MappingError, SpecialTopicError, ProtocolError)


class NotNowError(Exception):
    """The node cannot take it at present."""


class MappingSender:
    """Sends on what mappings make.

    Args:
        core: that of the broker.
        commit: the jobs.
        mqtt: publishes what is due.
    """

    def __init__(self, core: Core, commit: JobCommit, mqtt: MqttJobs) -> None:
        self.core = core
        self.commit = commit
        self.machine = commit.machine
        self.mqtt = mqtt

    def has_room(self) -> bool:
        """Whether jobs can be added now."""
        is_full = self.core.memory_is_high or self.machine.memory >= self.machine.max_memory
        return not is_full and not (self.commit.is_failing or self.commit.is_short)

    # Messages

    def send(
        self, mapping: MessageMapping, seen: Seen, mountpoint: str, publisher: Output | None
    ) -> int:
        """Maps a message that is published; the number of the commit that makes it safe, 0 if nothing is to be.

        Raises:
            NotNowError: it cannot be sent on now.
        """
        waiting: list[Job] = []
        try:
            outs = mapping.map(seen)
            if not seen.qos and all(each.target[:1] != "$" for each in outs):
                for out in outs:
                    self._publish(out, mountpoint)
                mapping.sent += len(outs)
                return 0
            for out in outs:
                waiting += self._add(out, seen.qos, mountpoint, b"")
            mapping.sent += len(outs)
        except FLAWS as flaw:
            self.fail(mapping, seen.payload, str(flaw))
        except JobRefusedError as refusal:
            if seen.qos and str(refusal).partition(" ")[0] in NOT_NOW:
                mapping.last_error = str(refusal)
                raise NotNowError from None
            self.fail(mapping, seen.payload, str(refusal))
        self.commit.end_soon()
        if not seen.qos:
            return 0
        if seen.qos == 2:  # a session may know the message, which is not mapped again then
            for job in waiting:
                job.is_vouched = True
        self._wait_for_copies(waiting, publisher)
        return self.commit.barrier()

    def hand_in(self, mapping: MessageMapping, row: Any) -> None:
        """Maps a message that its publisher's session knows: what comes of it is there once, whoever maps it."""
        arrival = self.mqtt.publishing.arrivals.begin(row)
        topic, now = row.topic.decode(), self.core.wall_clock()
        try:
            outs = mapping.map(Seen(topic, row.payload, 2, row.retain, row.client_id, now))
            for place, out in enumerate(outs):
                origin = b"\0row %d %d " % (place, row.number) + mapping.name.encode()
                options, body = self._read(out, 2, row.mountpoint)
                adds = partial(self._add_row, mapping, row.payload, out, options, body)
                arrival.take(self._id_of(options, origin), options.queue, adds)
            mapping.sent += len(outs)
        except (*FLAWS, JobRefusedError) as flaw:
            self.fail(mapping, row.payload, str(flaw))
        self.mqtt.publishing.arrivals.end(arrival)

    def _add_row(
        self,
        mapping: MessageMapping,
        payload: bytes,
        out: Mapped,
        options: AddOptions,
        body: bytes,
        job_id: bytes,
        name: bytes,
    ) -> list[Job]:
        """Adds a job that comes of a message; what can never be added fails.

        Raises:
            JobRefusedError: it cannot be added now.
        """
        try:
            jobs = self._put(out, options, body, job_id, name)
        except JobRefusedError as refusal:
            if str(refusal).partition(" ")[0] in NOT_NOW:
                mapping.last_error = str(refusal)
                raise
            self.fail(mapping, payload, str(refusal))
            return []
        for job in jobs:
            job.is_vouched = True
        return jobs

    def _wait_for_copies(self, jobs: list[Job], publisher: Output | None) -> None:
        """Holds the publisher's answers until jobs are on their hosts."""
        if not jobs or publisher is None:
            return
        copied = Durable()
        publisher.answer_after(copied, 1)

        def told(is_there: bool) -> None:
            if is_there:
                copied.advance(1)
            else:
                text = "what a mapping makes of it is on too few hosts [MQTT-4.8.0-2]"
                publisher.finish(text, FAILED)
            self.core.outbox.flush()

        deadline = self.commit.clock() + jobs[0].queue.rules.refuse_after
        self.machine.sharing.wait(jobs, deadline, told)

    # Jobs

    def send_job(
        self, mapping: MessageMapping, job: Job, body: bytes, mountpoint: str
    ) -> list[Job]:
        """Adds what a job becomes; what of it is not on its hosts yet.

        Raises:
            MappingError: an expression fails.
            SpecialTopicError: a target is wrong.
            ProtocolError: it is no topic.
            JobRefusedError: it cannot be added, now or at all.
        """
        outs = mapping.map(Seen(mapping.source, body, 1, False, "", int(job.created) / 1e9))
        waiting: list[Job] = []
        for place, out in enumerate(outs):
            origin = b"\0map %d " % place + job.id + mapping.name.encode()
            waiting += self._add(out, 1, mountpoint, origin)
        mapping.sent += len(outs)
        return waiting

    # Messages and jobs that are staged with a cursor

    def check(self, out: Mapped, mountpoint: str) -> None:
        """Looks whether something can be sent on at all.

        Raises:
            JobRefusedError: it never can.
            SpecialTopicError: the target is wrong.
            ProtocolError: it is no topic.
        """
        self._read(out, 1, mountpoint)
        if len(out.body) > self.mqtt.publishing.max_job_size:
            raise JobRefusedError(f"TOOBIG {len(out.body)} bytes are above limits.max_job_size")

    def add_staged(self, target: str, body: bytes, qos: int, origin: bytes) -> str:
        """Adds a job that was staged; of one origin the same. Returns why that cannot be now, or nothing.

        What can never be added is a dead letter of its queue.
        """
        try:
            self._add(Mapped(target, body), qos, "", origin)
        except FLAWS as flaw:
            self.mqtt.bury(queue_of(target) or QUEUE, body, str(flaw))
        except JobRefusedError as refusal:
            if str(refusal).partition(" ")[0] in LATER:
                return str(refusal)
            self.mqtt.bury(queue_of(target) or QUEUE, body, str(refusal))
        return ""

    # One of them

    def _add(self, out: Mapped, qos: int, mountpoint: str, origin: bytes) -> list[Job]:
        """Adds one job, in each group of its queue: of one origin the same, whoever adds it.

        Returns:
            What of it is not on its hosts yet.

        Raises:
            JobRefusedError: it cannot be.
            SpecialTopicError: the target is wrong.
            ProtocolError: it is no topic.
        """
        options, body = self._read(out, qos, mountpoint)
        job_id = self._id_of(options, origin) if origin else b""
        known = self.machine.find(job_id) if origin else None
        if known is not None:
            self.machine.counts.deduplicated += 1
            return waiting_of([known])
        return self._put(out, options, body, job_id, options.queue)

    def _id_of(self, options: AddOptions, origin: bytes) -> bytes:
        """The id of what comes of an origin."""
        rules = self.machine.queue(options.queue, self.commit.clock()).rules
        retry = rules.retry_after(0) if options.retry < 0 else options.retry
        return named(origin, rules.ttl if options.ttl < 0 else options.ttl, retry > 0)

    def _put(
        self, out: Mapped, options: AddOptions, body: bytes, job_id: bytes, name: bytes
    ) -> list[Job]:
        """Adds a job to a queue; b"": it is to have a new id."""
        queue = self.machine.queue(name, self.commit.clock())
        if len(out.body) > self.mqtt.publishing.max_job_size:
            raise JobRefusedError(f"TOOBIG {len(out.body)} bytes are above limits.max_job_size")
        if self.core.memory_is_high:
            raise JobRefusedError("OOM memory is above limits.max_memory")
        self.commit.check_disk(queue.rules.persistence)
        self.machine.add(
            queue,
            body,
            self.commit.clock(),
            options.ttl,
            options.retry,
            options.delay,
            options.priority,
            options.maxlen,
            options.key,
            options.replicate,
            job_id,
        )
        return waiting_of(self.machine.unsettled)

    def _read(self, out: Mapped, qos: int, mountpoint: str) -> tuple[AddOptions, bytes]:
        """How it is added, with the queue's whole name, and the body of the job."""
        registry = self.core.registries.find(mountpoint)
        prefix = mountpoint.encode() + b"\0" if mountpoint else b""
        now = self.core.wall_clock()
        target, delay = out.target, 0
        if target.startswith(DELAYED):
            due, target = read_delayed(target, now)
            delay = min(max(0, ceil(due - now)), LONGEST)
        body = out.body
        if target.startswith(JOBS):
            topic = read_job_topic(target)
            options = options_from(topic.queue, topic.options)
            options.delay = options.delay or delay
        else:
            registry.route(target.encode())
            options = AddOptions(QUEUE.encode())
            options.delay, options.retry = delay, _RETRY
            message = Message(b"", body, qos, False)
            body = Kept(target, message, "", None, is_ours=True).encode()
            self.mqtt.delayed.serve(registry)
        options.queue = prefix + options.queue
        return options, body

    def _publish(self, out: Mapped, mountpoint: str) -> None:
        """Publishes a message at QoS 0.

        Raises:
            ProtocolError: it is no topic.
        """
        registry = self.core.registries.find(mountpoint)
        route = registry.route(out.target.encode())
        message = Message(route.topic, out.body, 0, False)
        if route.taps:
            try:
                feed_streams(self.core, route, message, self.core.nobody, None)
            except StoreError as error:
                log.warning("a mapped message is in no stream: %s", error)
        registry.publish(route, message, self.core.nobody)

    def fail(self, mapping: MessageMapping, body: bytes, reason: str) -> None:
        """A message that a mapping cannot do anything with."""
        self.count(mapping, reason)
        if mapping.options.on_error == "dead":
            self.mqtt.bury(mapping.name, body, f"mapping {mapping.name}: {reason}")

    def count(self, mapping: MessageMapping, reason: str) -> None:
        """Counts a failure; the log has each reason once in a row."""
        mapping.failed += 1
        if mapping.last_error != reason:
            log.warning('mapping=%s failed reason="%s"', mapping.name, reason)
        mapping.last_error = reason


def waiting_of(jobs: list[Job]) -> list[Job]:
    """Those that are not on their hosts yet."""
    return [each for each in jobs if each.state == WAITING]
