"""The jobs as the core knows them: whoever publishes or subscribes to a topic of jobs comes by here."""

import logging
from typing import Any, Final

from vmq_hooks.types import REFUSED_QOS

from vmq.core.context import Core
from vmq.core.ports import JobsPort
from vmq.core.queue import Queue
from vmq.core.states import FAILED
from vmq.disk.durable import Waiter
from vmq.jobs.commit import JobCommit
from vmq.jobs.mqtt.asked import Asked
from vmq.jobs.mqtt.due import DelayedMessages
from vmq.jobs.mqtt.publishing import MqttPublishing, prefix_of, tell_error
from vmq.jobs.mqtt.working import (
    AUTOMATIC,
    MOST_PREFETCHED,
    MqttWorker,
)
from vmq.jobs.options import check_queue, whole
from vmq.jobs.queues import JobRefusedError
from vmq.mqtt.message import Message, Transient
from vmq.mqtt.special import DELAYED, MANUAL, JobTopic, SpecialTopicError, queue_of, read_job_topic

log = logging.getLogger("vmq.jobs")

_OFFERED: Final = ("", MANUAL)


class MqttJobs(JobsPort):
    """The jobs of a broker for its MQTT clients.

    Args:
        core: that of the broker.
        commit: the jobs.
        max_job_size: bytes of a job.
    """

    def __init__(self, core: Core, commit: JobCommit, max_job_size: int) -> None:
        super().__init__()
        self.is_on = True
        self.core = core
        self.commit = commit
        self.publishing = MqttPublishing(core, commit, max_job_size)
        self.delayed = DelayedMessages(core, commit, self.publishing)
        #: The workers of each client that has or had any since it is connected, by filter.
        self.workers: dict[Queue, dict[str, MqttWorker]] = {}
        #: Those that could not ask for jobs.
        self.stalled: list[MqttWorker] = []
        commit.tell = self.on_commit

    # Publishing

    def publish(self, client: Any, topic: str, message: Message, packet_id: int) -> None:
        if topic.startswith(DELAYED):
            self.delayed.serve(client.registry)
            self.publishing.delay(client, topic, message, packet_id)
        else:
            self.publishing.publish(client, topic, message, packet_id)

    def publish_will(self, client: Any, registry: Any, topic: str, will: Message) -> None:
        if topic.startswith(DELAYED):
            self.delayed.serve(registry)
        self.publishing.publish_will(client, registry, topic, will)

    def bury(self, queue: str, body: bytes, reason: str) -> None:
        asked = Asked(JobTopic(queue), Message(b"", body, 1, False), 0)
        asked.name = queue.encode()
        try:
            check_queue(asked.name)
            self.publishing.bury(asked, reason)
        except JobRefusedError as refusal:
            log.error("a dead letter of queue=%s is lost (%s): %s", queue[:200], refusal, reason)
        self.commit.end_soon()

    def on_pubrel(self, client: Any, packet_id: int) -> None:
        self.publishing.release(client, packet_id)

    def hand_in(self, row: Any) -> None:
        self.publishing.hand_in(row)

    # Working

    def grant(self, client: Any, topic_filter: str, qos: int) -> int:
        try:
            topic, _ = self.read(topic_filter)
            self.commit.machine.check_taken(prefix_of(client.registry) + topic.queue.encode())
            flaw = "" if qos else "at QoS 0 a job would be lost with the connection"
        except (SpecialTopicError, JobRefusedError) as error:
            flaw = str(error)
        if flaw:
            text = 'no worker client=%s filter="%s": %s'
            log.warning(text, client.client_id, topic_filter[:200], flaw)
            self.core.counters.subscriptions_refused += 1
            name = queue_of(topic_filter)
            if name:
                tell_error(client.registry, name, client.client_id, flaw)
                self.commit.end_soon()
            return REFUSED_QOS
        return 1

    def read(self, topic_filter: str) -> tuple[JobTopic, int]:
        """The queue of a filter, and how many jobs its worker may have.

        Raises:
            SpecialTopicError: it is wrong.
        """
        topic = read_job_topic(topic_filter)
        prefetch = 1
        try:
            check_queue(topic.queue.removesuffix("!dead").encode())
            if "prefetch" in topic.options:
                wrong = f"prefetch is 1 to {MOST_PREFETCHED}"
                prefetch = whole(topic.options["prefetch"].encode(), wrong, 1, MOST_PREFETCHED)
        except JobRefusedError as refusal:
            raise SpecialTopicError(str(refusal)) from None
        for option in topic.options:
            if option != "prefetch":
                raise SpecialTopicError("not an option of working: " + option[:80])
        if topic.verb not in _OFFERED:
            raise SpecialTopicError("only published to: " + topic.verb)
        return topic, prefetch

    def on_subscribed(self, queue: Queue, topic_filter: str) -> None:
        if queue.online:
            self.start(queue, topic_filter)

    def start(self, queue: Queue, topic_filter: str) -> None:
        """Has a subscription work."""
        try:
            topic, prefetch = self.read(topic_filter)
        except SpecialTopicError:
            return
        registry = self.core.registries.find(queue.mountpoint)
        name = prefix_of(registry) + topic.queue.encode()
        worker = MqttWorker(self.commit, queue, name, topic, prefetch, self.on_stalled)
        workers = self.workers.setdefault(queue, {})
        before = workers.get(topic_filter)
        if before is not None:
            worker.follow(before)
        workers[topic_filter] = worker
        worker.ask()

    def on_unsubscribed(self, queue: Queue, topic_filter: str) -> None:
        worker = self.workers.get(queue, {}).get(topic_filter)
        if worker is not None:
            worker.stop()

    def on_online(self, queue: Queue) -> None:
        registry = self.core.registries.find(queue.mountpoint)
        subscriber = None if registry is None else registry.subscribers.get(queue.client_id)
        for topic_filter in () if subscriber is None else subscriber.subscriptions:
            if topic_filter.startswith("$jobs/"):
                self.start(queue, topic_filter)

    def on_offline(self, queue: Queue) -> None:
        self.publishing.arrivals.on_offline(queue)
        workers = self.workers.pop(queue, None)
        if workers is None:
            return
        now = self.commit.clock()
        for delivery in queue.inflight.values():
            if isinstance(delivery, Transient):
                queue.take_back(delivery)
        for worker in workers.values():
            worker.lose(now)
        self.commit.end_soon()

    def on_acknowledged(self, queue: Queue, token: bytes) -> None:
        if token[:1] == AUTOMATIC:
            self.commit.machine.acknowledge(token[1:])
            self.commit.end_soon()

    # Time and disk

    def on_stalled(self, worker: MqttWorker) -> None:
        """A worker cannot ask for jobs at present."""
        self.stalled.append(worker)
        self.commit.wants_time = True
        self.commit.end_soon()

    def look(self, now: float) -> None:
        """To be called now and then: whoever had to wait tries again."""
        self.publishing.look(now)
        stalled, self.stalled[:] = list(self.stalled), []
        for worker in stalled:
            worker.ask()

    def waits(self) -> bool:
        """Whether somebody does."""
        return bool(self.stalled or self.publishing.waiting or self.publishing.arrivals.open)

    def on_commit(self, failure: str) -> None:
        """What was done is safe, or is not to be for now: then whoever waits for that is cut off unanswered."""
        self.publishing.on_stored()
        outbox = self.core.outbox
        outbox.flush()
        if failure:
            for waiter in list(self.commit.stored.parked):
                cut(waiter, failure)
            outbox.flush()


def cut(waiter: Waiter, reason: str) -> None:
    """Ends a connection whose answers are not safe [MQTT-4.8.0-2]."""
    output: Any = getattr(waiter, "output", None)
    if output is not None and not output.is_patient:
        output.forget_all()
        output.finish(reason + " [MQTT-4.8.0-2]", FAILED)
