"""Delayed messages that are due are published: their jobs are done when the broker owns the message.

So each is published at least once, and once while the broker does not end in between. Plugins are asked again whether
whoever published it may.
"""

import logging
from typing import Final

from vmq_hooks.modifiers import PublishModifiers
from vmq_hooks.types import SubscriberId
from vmq_hooks.verdicts import Refuse

from vmq.core.context import Core
from vmq.core.hook_sites import Answer, Pending
from vmq.core.on_commit import OnCommit
from vmq.core.registry import Registry
from vmq.core.source import Source
from vmq.core.stream_feed import feed_streams
from vmq.jobs.calls import CallWaiter
from vmq.jobs.commit import JobCommit
from vmq.jobs.mqtt.asked import Asked
from vmq.jobs.mqtt.delayed import QUEUE, Kept, decode
from vmq.jobs.mqtt.publishing import LATER, MqttPublishing, prefix_of
from vmq.jobs.queue import Job
from vmq.jobs.queues import JobRefusedError
from vmq.mqtt.message import Message
from vmq.mqtt.packets import ProtocolError
from vmq.mqtt.special import SpecialTopicError, is_served, read_job_topic
from vmq.protocol.changes import changed_message, seen_message
from vmq.store.store import StoreError

log = logging.getLogger("vmq.jobs")

#: Messages that are published in one go, of as many as may be due at once.
AT_ONCE: Final = 200


class DelayedMessages:
    """The delayed messages of a broker.

    Args:
        core: that of the broker.
        commit: the jobs.
        publishing: adds what becomes a job when it is due.
    """

    def __init__(self, core: Core, commit: JobCommit, publishing: MqttPublishing) -> None:
        self.core = core
        self.commit = commit
        self.machine = commit.machine
        self.publishing = publishing
        #: Those that are served, by the names of their queues: whether somebody waits for what is due.
        self.served: dict[bytes, bool] = {}
        #: Verdicts that are awaited.
        self.pending: set[Pending] = set()
        store = core.store
        self.safe = None if store is None else OnCommit(core.outbox, store)

    def serve_all(self) -> None:
        """Publishes what waits since before the broker's start."""
        for name in list(self.machine.queues):
            mountpoint, _, queue = name.rpartition(b"\0")
            if queue == QUEUE.encode():
                self.serve(self.core.registries.find(mountpoint.decode()))

    def serve(self, registry: Registry) -> None:
        """Publishes what is due, of a mountpoint."""
        name = prefix_of(registry) + QUEUE.encode()
        if name not in self.served:
            self.served[name] = False
            self.ask(name, registry)

    def ask(self, name: bytes, registry: Registry) -> None:
        """Waits for what is due."""
        if self.served[name]:
            return
        now = self.commit.clock()
        try:
            queue = self.machine.queue(name, now)
        except JobRefusedError:
            del self.served[name]  # the next message tries again
            return
        self.served[name] = True

        def serve(jobs: list[Job]) -> None:
            self.served[name] = False
            for job in jobs:
                self.publish(job, registry)
            self.core.call_soon(lambda: self.ask(name, registry))

        self.machine.wait(CallWaiter([queue], AT_ONCE, serve), float("inf"), now)
        self.commit.end_soon()

    # One message

    def publish(self, job: Job, registry: Registry) -> None:
        """Publishes a message that is due, if its publisher may still do that."""
        try:
            body = self.commit.writer.body(job) if job.body is None else job.body
            kept = decode(body)
        except OSError as failure:
            log.error("delayed message %s cannot be read: %s", job.id.decode(), failure)
            return  # again after its RETRY
        except ValueError as flaw:
            self.machine.bury(job, str(flaw), self.commit.clock())
            return
        hook = self.core.hooks.auth_on_publish
        if hook is None or kept.is_ours:
            self.hand_on(job, kept, registry, None)
            return
        seen = seen_message(kept.topic, kept.payload, kept.qos, kept.retain)
        who = SubscriberId(kept.client_id, registry.mountpoint)
        try:
            answer = hook(kept.user, who, seen)
        except Exception as error:  # noqa: BLE001 - contained: whatever a plugin raises
            self.core.hook_failed("auth_on_publish", error)
            return
        if not isinstance(answer, Pending):
            self.hand_on(job, kept, registry, answer)
            return
        self.pending.add(answer)

        def go_on(later: Answer) -> None:
            self.pending.discard(answer)
            self.hand_on(job, kept, registry, later)
            self.core.outbox.flush()

        answer.then = go_on

    def hand_on(self, job: Job, kept: Kept, registry: Registry, answer: Answer) -> None:
        """Goes by the verdict."""
        if isinstance(answer, Refuse):
            if not answer.unavailable:
                self.core.counters.mqtt_publish_auth_error += 1
                self.fail(job, kept, f"refused: {answer.reason}")
            return  # else again after its RETRY
        message = kept.message()
        try:
            if isinstance(answer, PublishModifiers):
                message = changed_message(message, answer)
            if is_served(message.topic.decode()):
                self.add(job, kept, registry)
            else:
                self.deliver(job, kept, registry, message)
        except (ProtocolError, SpecialTopicError) as flaw:
            self.fail(job, kept, str(flaw))
        except JobRefusedError as refusal:
            if str(refusal).partition(" ")[0] not in LATER:
                self.fail(job, kept, str(refusal))
            # Else again after its RETRY.
        except StoreError as failure:
            log.warning("delayed message %s waits: %s", job.id.decode(), failure)
        self.commit.barrier()  # what was published is written at the end of the pass
        self.commit.end_soon()

    def deliver(self, job: Job, kept: Kept, registry: Registry, message: Message) -> None:
        """Publishes it; its job is done once what has to be stored is.

        Raises:
            StoreError: the store, or a stream, cannot take it now.
            ProtocolError: the topic cannot be routed.
        """
        route = registry.route(message.topic)
        if message.qos or message.retain:
            registry.check_store(route, message.retain)
        source = Source(self.core.outbox.nowhere, kept.client_id)
        if route.taps:
            feed_streams(self.core, route, message, source, self.safe if message.qos else None)
        registry.publish(route, message, source)
        hook = self.core.hooks.on_publish
        if hook is not None:
            seen = seen_message(route.text, message.payload, message.qos, message.retain)
            who = SubscriberId(kept.client_id, registry.mountpoint)
            self.core.tell("on_publish", hook, kept.user, who, seen)
        if self.safe is None:
            self.done(job)
        else:
            self.safe.after(lambda: self.done(job))

    def add(self, job: Job, kept: Kept, registry: Registry) -> None:
        """What is due is a job itself: it is added in the same commit in which the delayed one is done.

        Raises:
            JobRefusedError: it cannot be added now, or at all.
            SpecialTopicError: its topic is wrong.
        """
        asked = Asked(read_job_topic(kept.topic), kept.message(), 0)
        asked.name = prefix_of(registry) + asked.topic.queue.encode()
        asked.user = kept.user or ""
        _, jobs = self.publishing.add_job(asked, b"")

        def told(is_there: bool) -> None:
            if is_there:
                self.done(job)  # else again after its RETRY

        self.machine.sharing.wait(jobs, self.commit.clock() + job.queue.rules.refuse_after, told)

    def done(self, job: Job) -> None:
        """The broker owns the message."""
        self.machine.acknowledge(job.id)
        self.commit.end_soon()

    def fail(self, job: Job, kept: Kept, reason: str) -> None:
        """It will never be published."""
        text = 'delayed message lost client=%s topic="%s" reason="%s"'
        log.warning(text, kept.client_id, kept.topic[:200], reason)
        if job.id in self.machine.jobs:
            self.machine.bury(job, reason, self.commit.clock())

    def stop(self) -> None:
        """Asks nobody any more."""
        for pending in list(self.pending):
            pending.then = None
            pending.cancel()
        self.pending.clear()
