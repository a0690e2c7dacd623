"""The figures of the jobs.

Those of single queues are of the deepest ones only: 100,000 queues would be too many lines.
"""

from collections.abc import Iterator
from heapq import nlargest
from typing import Final

from vmq.jobs.machine import JobMachine
from vmq.jobs.queue import JobQueue
from vmq.jobs.sharing.replicas import JobReplicas
from vmq.runtime.metrics import Family, Sample

#: Queues with figures of their own.
DEEPEST: Final = 100

_COUNTERS: Final = (
    ("jobs_added", "added", "Jobs added."),
    ("jobs_deduplicated", "deduplicated", "Jobs not added because their key was known."),
    ("jobs_taken", "taken", "Jobs given to workers."),
    ("jobs_acknowledged", "acknowledged", "Jobs acknowledged as done."),
    ("jobs_deleted", "deleted", "Jobs deleted by an operator."),
    ("jobs_retried", "retried", "Jobs given again because nothing was heard of their worker."),
    ("jobs_lost", "lost", "Jobs taken from a worker whose MQTT connection ended."),
    ("jobs_nacked", "nacked", "Jobs that their worker gave up."),
    ("jobs_dead", "dead", "Jobs that went to the dead letters."),
    ("jobs_dead_dropped", "dead_dropped", "Dead letters that were too old or too many."),
    ("jobs_expired", "expired", "Jobs whose time to live ended before they were done."),
    ("jobs_unconfirmed", "unconfirmed", "Jobs of class at most once that nobody acknowledged."),
    ("jobs_refused", "refused", "Jobs refused: queue paused or full, or memory."),
)


def job_families(
    machine: JobMachine, now: float, failures: int, disk: int, connections: int
) -> Iterator[Family]:
    """Totals, then the deepest queues.

    Args:
        machine: the jobs.
        now: by its clock.
        failures: writes that the disk refused.
        disk: bytes of the log.
        connections: those of RESP.
    """
    for name, attribute, text in _COUNTERS:
        value: int = getattr(machine.counts, attribute)
        yield Family(name, "counter", text, (Sample((), value),))
    text = "Writes of jobs that the disk refused."
    yield Family("jobs_write_errors", "counter", text, (Sample((), failures),))
    gauges = (
        ("jobs", "Jobs in all states.", machine.count()),
        ("job_queues", "Queues.", len(machine.queues)),
        (
            "job_queues_of_one_user",
            "Queues that the user made who made most.",
            max(machine.made.values(), default=0),
        ),
        ("jobs_memory_bytes", "Memory of jobs, as estimated.", int(machine.memory)),
        ("jobs_disk_bytes", "Bytes of the log of jobs.", disk),
        (
            "job_connections",
            "Open RESP connections.",
            connections,
        ),
    )
    for name, text, value in gauges:
        yield Family(name, "gauge", text, (Sample((), value),))
    deepest = nlargest(DEEPEST, machine.queues.values(), key=depth_of)
    depths: list[Sample] = []
    ages: list[Sample] = []
    for queue in deepest:
        labels = (("queue", queue.name.replace(b"\0", b"/").decode("utf-8", "replace")),)
        first = queue.first()
        age = 0.0 if first is None else now - int(first.created - machine.wall) / 1e9
        depths.append(Sample(labels, int(queue.depth)))
        ages.append(Sample(labels, max(0.0, age)))
    yield Family("job_queue_depth", "gauge", "Queued jobs of the deepest queues.", tuple(depths))
    text = "Seconds that the oldest queued job of these has been there."
    yield Family("job_queue_oldest_seconds", "gauge", text, tuple(ages))


_SHARING: Final = (
    ("jobs_copied_in", "copied_in", "Copies of jobs that came from other nodes."),
    ("jobs_copied_out", "copied_out", "Copies of jobs that went to other nodes."),
    ("jobs_copies_mended", "mended", "Copies made anew where a node was gone that had one."),
    ("jobs_federated", "federated", "Jobs that went to a node that has workers or takes over."),
    ("jobs_taken_over", "taken_over", "Jobs served here since nobody else said that he had them."),
    ("jobs_not_copied", "not_copied", "Jobs given up: too few hosts had them in time."),
    ("jobs_fewer_copies", "fewer_copies", "Jobs acknowledged with fewer copies (when_split)."),
)


def sharing_families(replicas: JobReplicas) -> Iterator[Family]:
    """Totals of a node among others."""
    for name, attribute, text in _SHARING:
        value: int = getattr(replicas.counts, attribute)
        yield Family(name, "counter", text, (Sample((), value),))
    text = "Jobs that are not on their hosts yet."
    yield Family("jobs_copying", "gauge", text, (Sample((), len(replicas.adder.pending)),))
    text = "Nodes whose jobs can be reached, this one included."
    yield Family("job_nodes", "gauge", text, (Sample((), 1 + len(replicas.peers.up)),))


def depth_of(queue: JobQueue) -> int:
    """How many jobs are queued."""
    return queue.depth
