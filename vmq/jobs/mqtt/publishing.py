"""What clients of MQTT publish to jobs: jobs to be added, and ids that are acknowledged, given up or still worked at.

MQTT 3.1.1 has no packet that says "refused". What can never be done is acknowledged and becomes a dead letter with its
reason, which is also told on the error topic. What may be done later waits, unacknowledged and with its client unread,
for `refuse_after` seconds; then the connection is closed.
"""

import json
import logging
from collections import deque
from collections.abc import Callable
from functools import partial
from math import ceil
from typing import Any, Final

from vmq_hooks.modifiers import PublishModifiers
from vmq_hooks.types import REFUSED_QOS, Subscription
from vmq_hooks.types import Message as SeenMessage
from vmq_hooks.verdicts import Refuse

from vmq.core.context import Core
from vmq.core.hook_sites import AcceptedUntil, Answer, Pending
from vmq.core.registry import Registry
from vmq.core.states import FAILED
from vmq.core.trie import Route
from vmq.jobs.commit import JobCommit
from vmq.jobs.mqtt.arriving import JobArrivals
from vmq.jobs.mqtt.asked import Asked
from vmq.jobs.mqtt.copied import acknowledge_when_copied
from vmq.jobs.mqtt.delayed import QUEUE, Kept
from vmq.jobs.mqtt.received import received_key, remembering
from vmq.jobs.mqtt.settling import JobSettling
from vmq.jobs.options import AddOptions, check_queue, options_from
from vmq.jobs.queue import Job
from vmq.jobs.queues import JobRefusedError
from vmq.jobs.stock import LONGEST
from vmq.mqtt.message import Message
from vmq.mqtt.packets import ProtocolError
from vmq.mqtt.special import (
    DELAYED,
    JOB_ROW,
    JOBS,
    VERBS,
    JobTopic,
    SpecialTopicError,
    canonical,
    encode_level,
    is_served,
    queue_of,
    read_delayed,
    read_job_topic,
)
from vmq.protocol.changes import seen_message
from vmq.protocol.front_queue import FrontQueue

log = logging.getLogger("vmq.jobs")

#: Refusals that may be none later, by their first word.
LATER: Final = frozenset({"PAUSED", "MAXLEN", "OOM", "NOREPL", "IOERR"})
#: Seconds after which a delayed message is tried again that could not be published.
_RETRY: Final = 30
#: Topics that are remembered, taken apart.
_KEPT: Final = 1024


class MqttPublishing:
    """What clients of MQTT publish to jobs.

    Args:
        core: that of the broker.
        commit: the jobs.
        max_job_size: bytes of a job.
    """

    def __init__(self, core: Core, commit: JobCommit, max_job_size: int) -> None:
        self.core = core
        self.commit = commit
        self.machine = commit.machine
        self.max_job_size = max_job_size
        self.topics: dict[str, JobTopic] = {}
        self.settling = JobSettling(commit, self.acknowledge, self.tell)
        #: Those who wait, and what for.
        self.waiting: dict[Pending, tuple[Asked, str]] = {}
        self.arrivals = JobArrivals(commit, self.when_stored)
        #: What follows when what has no copies is stored, by the numbers of passes.
        self.unstored: deque[tuple[int, Callable[[], None]]] = deque()

    def publish(self, client: Any, topic: str, message: Message, packet_id: int) -> None:
        """A client publishes; `client` is its `vmq.protocol.session.Session`."""
        found = self.topics.get(topic)
        flaw = ""
        if found is None:
            try:
                found = self.read(topic)
            except SpecialTopicError as error:
                flaw = str(error)
                found = JobTopic(queue_of(topic))
        asked = Asked(found, message, packet_id)
        asked.flaw = flaw
        try:
            check_queue(found.queue.removesuffix("!dead" if found.verb else "").encode())
        except JobRefusedError as refusal:
            client.output.close(f"publish to {topic[:200]}: {refusal}")
            return
        asked.name = prefix_of(client.registry) + found.queue.encode()
        asked.user = client.username or ""
        if found.verb and not flaw:
            self.ask_to_take(client, asked)
        else:
            self.ask_to_add(client, asked)

    def delay(self, client: Any, topic: str, message: Message, packet_id: int) -> None:
        """A client publishes to `$delayed/WHEN/TOPIC`."""
        asked = Asked(JobTopic(QUEUE), message, packet_id)
        asked.name = prefix_of(client.registry) + QUEUE.encode()
        asked.seen = canonical(topic)
        asked.options = AddOptions(asked.name)
        try:
            self.read_delayed(client, topic, asked)
        except SpecialTopicError as error:
            asked.flaw = str(error)
        self.ask_to_add(client, asked)

    def read_delayed(self, client: Any, topic: str, asked: Asked) -> None:
        """What is to be kept of a delayed message.

        Raises:
            SpecialTopicError: when or where it is to be published is wrong.
        """
        now = self.core.wall_clock()
        due, target = read_delayed(topic, now)
        if is_served(target):
            read_job_topic(target)
        assert asked.options is not None
        asked.options.retry = _RETRY
        asked.options.delay = min(max(0, ceil(due - now)), LONGEST)
        asked.body = Kept(target, asked.message, client.client_id, client.username).encode()

    def read(self, topic: str) -> JobTopic:
        """What a topic says, once for many.

        Raises:
            SpecialTopicError: nothing is published there.
        """
        found = read_job_topic(topic)
        if found.verb and found.verb not in VERBS:
            raise SpecialTopicError("only subscribed to: " + found.verb)
        if len(self.topics) >= _KEPT:
            self.topics.clear()
        if len(topic) <= _KEPT:
            self.topics[topic] = found
        return found

    # Rights

    def ask_to_add(self, client: Any, asked: Asked) -> None:
        hooks = client.hooks
        hook = hooks.auth_on_publish
        topic = asked.seen
        kind = kind_of(asked)
        kept = client.kept_generation == hooks.generation
        if hook is None or (kept and topic.encode() in client.kept[kind]):
            self.add(client, asked)
            return
        answer = client.ask(
            "auth_on_publish", hook, client.username, client.subscriber_id(), seen_of(asked)
        )
        if isinstance(answer, Pending):
            client.suspend(answer, lambda later: self.on_verdict(client, asked, later))
        else:
            self.on_verdict(client, asked, answer)

    def on_verdict(self, client: Any, asked: Asked, answer: Answer) -> None:
        topic = asked.seen
        if isinstance(answer, Refuse):
            client.refuse_publish(topic, answer, asked.message.qos, asked.packet_id)
            return
        if isinstance(answer, AcceptedUntil):
            client.keep(Route(topic.encode(), topic), kind_of(asked), answer.until)
        self.add(client, asked)
        # What a plugin wants changed in topic or body is not; one client has one reason to wait.
        if isinstance(answer, PublishModifiers) and answer.throttle and not asked.deadline:
            client.throttle(float(answer.throttle))

    def ask_to_take(self, client: Any, asked: Asked) -> None:
        hook = client.hooks.auth_on_subscribe
        if hook is None:
            self.settling.settle(client, asked)
            return
        wanted = [Subscription(asked.topic.canonical(), 1, "take")]
        answer = client.ask(
            "auth_on_subscribe", hook, client.username, client.subscriber_id(), wanted
        )
        if isinstance(answer, Pending):
            client.suspend(answer, lambda later: self.on_right(client, asked, later))
        else:
            self.on_right(client, asked, answer)

    def on_right(self, client: Any, asked: Asked, answer: Answer) -> None:
        topic = asked.topic.canonical()
        if isinstance(answer, list):
            now = answer[0]
            if now.qos == REFUSED_QOS or now.topic_filter != topic:
                answer = Refuse("not allowed to take from this queue")
        if isinstance(answer, Refuse):
            client.refuse_publish(topic, answer, asked.message.qos, asked.packet_id)
        else:
            self.settling.settle(client, asked)

    # Adding

    def add(self, client: Any, asked: Asked) -> None:
        """Adds the job, or has it wait, or buries it."""
        if client.output.closing:
            return
        message, packet_id = asked.message, asked.packet_id
        if message.qos == 2 and client.received_ids().has(packet_id):
            client.wait_for_all(Route(message.topic, asked.seen))
            self.acknowledge(client, asked)
            return
        is_again = client.decoder.head & 8 != 0
        if message.qos == 2 and client.queue_of().came_before(packet_id, message, is_again):
            self.arrivals.register(client, asked, self.arrivals.new_id(asked))
            self.acknowledge(client, asked)
            return
        if asked.flaw:
            self.refuse(client, asked, "ERR " + asked.flaw)
            return
        try:
            is_durable = message.qos == 2 and client.queue_of().durable
            key = received_key(client, packet_id) if is_durable else b""
            job_id, jobs = self.add_job(asked, key)
        except JobRefusedError as refusal:
            self.refuse(client, asked, str(refusal))
            return
        self.end(client, asked, job_id, jobs)

    def give_up(self, client: Any, asked: Asked, reason: str) -> None:
        """What could not be added in time is refused unacknowledged."""
        self.tell(client, asked, reason, b"")
        client.output.finish(f"a job is refused: {reason} [MQTT-4.8.0-2]", FAILED)

    def hand_in(self, row: Any) -> None:
        """A session in a slot knows a job, which may have come to another node."""
        who = self.arrivals.found(row)
        if who is not None:
            arrival = self.arrivals.begin(row)
            arrival.failed = partial(self.give_up, *who)
            job_id = row.name.removeprefix(JOB_ROW).encode()
            arrival.take(job_id, who[1].name, partial(self.add_again, *who))
            self.arrivals.end(arrival)

    def add_again(self, client: Any, asked: Asked, job_id: bytes, name: bytes) -> list[Job]:
        """Adds a job that another node died with.

        Raises:
            JobRefusedError: it cannot be now.
        """
        reason = "ERR " + asked.flaw
        try:
            if not asked.flaw:
                return self.add_job(asked, b"", name, job_id)[1]
        except JobRefusedError as refusal:
            reason = str(refusal)
            if reason.partition(" ")[0] in LATER:
                raise
        self.tell(client, asked, reason, self.bury(asked, reason))
        return []

    def add_job(
        self, asked: Asked, key: bytes, name: bytes = b"", job_id: bytes = b""
    ) -> tuple[bytes, list[Job]]:
        """Adds the job, to a queue of this `name` in place of its own if there is one, under this id; its id, and what
        is not on its hosts yet.

        Raises:
            JobRefusedError: it cannot be, now or at all.
        """
        topic, body = asked.topic, asked.body
        now = self.commit.clock()
        options = asked.options or options_from(topic.queue, topic.options)
        queue = self.machine.queue(name or asked.name, now, asked.user)
        if len(body) > self.max_job_size:
            raise JobRefusedError(f"TOOBIG {len(body)} bytes are above limits.max_job_size")
        if self.core.memory_is_high:
            raise JobRefusedError("OOM memory is above limits.max_memory")
        self.commit.check_disk(queue.rules.persistence)
        job = self.machine.add(
            queue,
            body,
            now,
            options.ttl,
            options.retry,
            options.delay,
            options.priority,
            options.maxlen,
            options.key or key,
            options.replicate,
            job_id,
        )
        return job.id, self.machine.waited_for()

    def end(self, client: Any, asked: Asked, job_id: bytes, jobs: list[Job]) -> None:
        """The job is there, and safe once these are on their hosts: a packet id of it counts from then on."""
        message, packet_id = asked.message, asked.packet_id
        counts: Callable[[], None] | None = None
        is_slotted = message.qos == 2 and isinstance(client.queue_of(), FrontQueue)
        if is_slotted:
            for each in jobs:
                each.is_vouched = True  # nobody could take it back from the session
            self.machine.arrive(job_id, jobs)
            self.arrivals.register(client, asked, job_id)
        elif message.qos == 2 and jobs and client.queue_of().durable:
            counts = remembering(client, packet_id)
        elif message.qos == 2:
            client.remember(Route(message.topic, asked.topic.canonical()), packet_id)
        if jobs and message.qos and not is_slotted:
            failed = partial(self.give_up, client, asked)
            acknowledge_when_copied(client, self.commit, jobs, failed, counts)
        hook = client.hooks.on_publish
        if hook is not None and asked.options is None:  # what is delayed is told of when it is due
            seen = seen_of(asked)
            self.core.tell("on_publish", hook, client.username, client.subscriber_id(), seen)
        self.acknowledge(client, asked)

    def when_stored(self, then: Callable[[], None]) -> None:
        """Has something done once what was done up to now is stored."""
        self.unstored.append((self.commit.barrier(), then))
        self.commit.end_soon()

    def on_stored(self) -> None:
        """More of what was done is stored."""
        while self.unstored and self.unstored[0][0] <= self.commit.stored.reached:
            self.unstored.popleft()[1]()

    def acknowledge(self, client: Any, asked: Asked) -> None:
        """PUBACK or PUBREC, once what was done is safe."""
        commit = self.commit
        if asked.message.qos:
            client.output.answer_after(commit.stored, commit.barrier())
            client.acknowledge(asked.message.qos, asked.packet_id)
        commit.end_soon()

    # Refusals

    def refuse(self, client: Any, asked: Asked, reason: str) -> None:
        """A job that cannot be added: it waits, or is a dead letter."""
        if reason.partition(" ")[0] in LATER:
            self.wait(client, asked, reason)
            return
        try:
            job_id = self.bury(asked, reason)
        except JobRefusedError as refusal:
            self.wait(client, asked, str(refusal))
            return
        self.tell(client, asked, reason, job_id)
        self.end(client, asked, job_id, [])

    def bury(self, asked: Asked, reason: str) -> bytes:
        """What can never be done is a dead letter of its queue; the id.

        Raises:
            JobRefusedError: there is no memory.
        """
        now = self.commit.clock()
        queue = self.machine.queue(asked.name, now, asked.user)
        self.machine.counts.refused += 1
        job = self.machine.add_failed(queue, asked.body[: self.max_job_size], now)
        self.machine.bury(job, reason, now)
        return job.id

    def wait(self, client: Any, asked: Asked, reason: str) -> None:
        """Has the publisher wait for what may be done later."""
        now = self.commit.clock()
        if not asked.deadline:
            known = self.machine.queues.get(asked.name)
            rules = self.machine.rules_of(asked.name) if known is None else known.rules
            asked.deadline = now + rules.refuse_after
        elif now >= asked.deadline:
            self.give_up(client, asked, reason)
            return
        pending = Pending(lambda: self.waiting.pop(pending, None))
        self.waiting[pending] = asked, reason.partition(" ")[0]
        client.suspend(pending, lambda _: self.add(client, asked))
        self.commit.wants_time = True
        self.commit.end_soon()

    def look(self, now: float) -> None:
        """Whoever has waited long enough, or needs wait no more, goes on."""
        self.arrivals.look(now)
        for pending, (asked, word) in list(self.waiting.items()):
            if now >= asked.deadline or self.may_go(asked, word):
                del self.waiting[pending]
                pending.finish(None)

    def may_go(self, asked: Asked, word: str) -> bool:
        """Whether what stood against a job does no more, as far as can be told without trying."""
        queue = self.machine.queues.get(asked.name)
        if word == "NOREPL":
            return self.machine.sharing.is_on
        if word == "IOERR":
            return not (self.commit.is_failing or self.commit.is_short)
        if word == "OOM":
            return not self.core.memory_is_high and self.machine.memory < self.machine.max_memory
        if queue is None:
            return True
        limit = int(asked.topic.options.get("maxlen", queue.rules.maxlen))
        return not queue.paused_in and (not limit or queue.depth < limit)

    def tell(self, client: Any, asked: Asked, reason: str, job_id: bytes) -> None:
        """Says in the log, and on the error topic of the client, what was refused and why."""
        queue = asked.topic.queue
        known = [job_id.decode("latin-1")] if job_id else []
        text = 'refused client=%s queue="%s" reason="%s"' + (" id=%s" if job_id else "")
        log.info(text, client.client_id, queue[:200], reason, *known)
        tell_error(client.registry, queue, client.client_id, reason, job_id)

    # Packet ids and wills

    def release(self, client: Any, packet_id: int) -> None:
        """PUBREL: a packet id may mean another job from now on, as soon as that is safe."""
        if client.queue_of().durable and self.machine.release_key(received_key(client, packet_id)):
            client.output.answer_after(self.commit.stored, self.commit.barrier())
            self.commit.end_soon()

    def publish_will(self, client: Any, registry: Registry, topic: str, will: Message) -> None:
        """A will is a job; it has nobody who would wait, and is a dead letter if it is refused."""
        if topic.startswith(DELAYED):
            self.delay_will(client, registry, topic, will)
            return
        asked = Asked(JobTopic(queue_of(topic)), will, 0)
        asked.name = prefix_of(registry) + asked.topic.queue.encode()
        asked.user = client.username or ""
        try:
            asked.topic = read_job_topic(topic)
            if asked.topic.verb:
                asked.topic.options["verb"] = asked.topic.verb  # which is no option
            self.add_job(asked, b"")
        except (JobRefusedError, SpecialTopicError) as refusal:
            self.bury_will(client, asked, str(refusal))
        self.commit.end_soon()

    def delay_will(self, client: Any, registry: Registry, topic: str, will: Message) -> None:
        """A will that waits once more."""
        asked = Asked(JobTopic(QUEUE), will, 0)
        asked.name = prefix_of(registry) + QUEUE.encode()
        asked.options = AddOptions(asked.name)
        try:
            self.read_delayed(client, topic, asked)
            self.add_job(asked, b"")
        except (JobRefusedError, SpecialTopicError) as refusal:
            self.bury_will(client, asked, str(refusal))
        self.commit.end_soon()

    def bury_will(self, client: Any, asked: Asked, reason: str) -> None:
        try:
            if asked.options is None:
                check_queue(asked.topic.queue.encode())
            job_id = self.bury(asked, reason)
        except JobRefusedError as refusal:
            log.error("will of client=%s is lost: %s", client.client_id, refusal)
            return
        self.tell(client, asked, reason, job_id)


def is_job(asked: Asked) -> bool:
    """Whether it is, or becomes when it is due, a job, and no message."""
    return asked.seen.startswith(JOBS)


def kind_of(asked: Asked) -> int:
    """Under what a verdict is kept, as `Publisher.kept` has it."""
    message = asked.message
    return message.qos << 1 | (1 if message.retain and not is_job(asked) else 0)


def seen_of(asked: Asked) -> SeenMessage:
    """As plugins see it."""
    return seen_message(asked.seen, asked.message.payload, asked.message.qos, asked.message.retain)


def prefix_of(registry: Registry) -> bytes:
    """What stands before the names of queues of a mountpoint."""
    return registry.mountpoint.encode() + b"\0" if registry.mountpoint else b""


def tell_error(
    registry: Registry, queue: str, client_id: str, reason: str, job_id: bytes = b""
) -> None:
    """Publishes on `$jobs/QUEUE/error/CLIENTID` what was refused: JSON with `reason`, and the `id` if it has one."""
    topic = f"$jobs/{encode_level(queue)}/error/{encode_level(client_id)}"
    told = {"reason": reason}
    if job_id:
        told["id"] = job_id.decode("latin-1")
    try:
        route = registry.route(topic.encode())
    except ProtocolError:
        return  # topic_max_depth allows no such topic
    message = Message(route.topic, json.dumps(told).encode(), 1, False)
    registry.publish(route, message, registry.core.nobody)
