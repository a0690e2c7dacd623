"""Job ids that clients of MQTT publish: jobs that are done, given up, or still worked at.

Some hundred of them at a time: between two slices others have their turns. The client waits for the last one, unread
and unacknowledged; what it said holds also if it goes away meanwhile.
"""

from collections.abc import Callable
from typing import Any, Final

from vmq.core.hook_sites import Pending
from vmq.core.trie import Route
from vmq.jobs.commit import JobCommit
from vmq.jobs.ids import is_job_id
from vmq.jobs.mqtt.asked import Asked
from vmq.jobs.queues import JobRefusedError

#: Ids of one PUBLISH, and of one slice.
_MOST_IDS: Final = 10_000
_SLICE: Final = 500


class Settling:
    """One PUBLISH of many ids."""

    def __init__(self, client: Any, asked: Asked, ids: list[bytes]) -> None:
        self.client = client
        self.asked = asked
        self.ids = ids
        self.done = 0
        self.pending = Pending(lambda: None)  # it goes on without its client


class JobSettling:
    """What becomes of job ids.

    Args:
        commit: the jobs.
        acknowledge: sends a client PUBACK or PUBREC, once what was done is safe.
        tell: says what was refused to a client, and why.
    """

    def __init__(
        self,
        commit: JobCommit,
        acknowledge: Callable[[Any, Asked], None],
        tell: Callable[[Any, Asked, str, bytes], None],
    ) -> None:
        self.commit = commit
        self.machine = commit.machine
        self.acknowledge = acknowledge
        self.tell = tell
        #: Those that are not over.
        self.running: list[Settling] = []

    def settle(self, client: Any, asked: Asked) -> None:
        """Job ids, one a line. Those that are unknown here need nothing."""
        message = asked.message
        lines = message.payload.split(b"\n", _MOST_IDS)[:_MOST_IDS]
        ids = list(filter(None, map(bytes.strip, lines)))
        if len(ids) <= _SLICE:
            if message.qos < 2 or self.remember(client, asked):
                self.settle_all(client, asked, ids)
            self.acknowledge(client, asked)
        elif message.qos == 2 and client.received_ids().has(asked.packet_id):
            self.end(client, asked)
        else:
            found = Settling(client, asked, ids)
            self.running.append(found)
            client.suspend(found.pending, lambda _: self.end(client, asked))
            self.turn(found)

    def turn(self, found: Settling) -> None:
        """Does a slice."""
        if found not in self.running:
            return
        start = found.done
        found.done += _SLICE
        self.settle_all(found.client, found.asked, found.ids[start : found.done])
        if found.done < len(found.ids):
            assert self.commit.call_soon is not None
            self.commit.call_soon(lambda: self.turn(found))
        else:
            self.running.remove(found)
            found.pending.finish(None)
        self.commit.end_soon()

    def end(self, client: Any, asked: Asked) -> None:
        """All are settled: no packet id is remembered before, nor acknowledged."""
        if asked.message.qos == 2:
            self.remember(client, asked)
        self.acknowledge(client, asked)

    def stop(self) -> None:
        """Settles what is left, as there are no more turns."""
        running, self.running = self.running, []
        for each in running:
            self.settle_all(each.client, each.asked, each.ids[each.done :])

    def remember(self, client: Any, asked: Asked) -> bool:
        """At QoS 2: whether a packet id is new, which it is no more."""
        route = Route(asked.message.topic, asked.topic.canonical())
        is_new = bool(client.remember(route, asked.packet_id))
        client.queue_of().on_routed(asked.message, client)
        return is_new

    def settle_all(self, client: Any, asked: Asked, ids: list[bytes]) -> None:
        now = self.commit.clock()
        for each in ids:
            try:
                self.settle_one(asked.topic.verb, each, asked.name, now)
            except JobRefusedError as refusal:
                self.tell(client, asked, str(refusal), each[:40])

    def settle_one(self, verb: str, job_id: bytes, name: bytes, now: float) -> None:
        """One id.

        Raises:
            JobRefusedError: it is none, or its worker may not go on.
        """
        machine = self.machine
        job = machine.find(job_id)
        if job is None and not is_job_id(job_id):  # to look costs most of all: not at what is found
            raise JobRefusedError("BADID Invalid Job ID format.")
        if job is None and verb == "ack":
            machine.sharing.acknowledge_unknown(job_id, name)
        elif job is None or job.queue.name != name:
            if verb == "working":
                raise JobRefusedError("NOJOB Job not known in this queue.")
        elif verb == "ack":
            machine.acknowledge(job_id)
        elif verb == "nack":
            machine.nack(job, now)
        else:
            machine.working(job, now)
