"""What SHOW and QSTAT tell: names and values, in Disque's order; what Disque has not comes last."""

from vmq.jobs.queue import ACKED, ACTIVE, STATE_NAMES, Job, JobQueue
from vmq.jobs.queues import workers_at
from vmq.jobs.resp.connection import RespConnection
from vmq.jobs.resp.replies import array, bulk, number, pairs, strings


def shown(connection: RespConnection, job: Job) -> bytes:
    """All that is known of a job."""
    now = connection.commit.clock()
    name = job.queue.name[len(connection.door.prefix) :]
    retry = job.queue.rules.retry_after(job.deliveries) if job.retry < 0 else job.retry
    body = (connection.read(job) if job.body is None else job.body) or b""
    awake = max(0, int((job.due - now) * 1000))
    requeue = (
        number(awake) if job.state == ACTIVE and job.due < job.expires else connection.nothing_of()
    )
    copies = job.copies
    has = [connection.door.node_id]
    done: list[bytes] = []
    if copies is not None:
        has = [_node_id(connection, each) for each in copies.nodes]
        is_told = job.state == ACKED and copies.is_asking
        done = [_node_id(connection, each) for each in copies.confirmed if is_told]
    items = [
        ("id", bulk(job.id)),
        ("queue", bulk(name)),
        ("state", bulk(STATE_NAMES[job.state].encode())),
        ("repl", number(1 if copies is None else max(1, copies.wanted))),
        ("ttl", number(max(0, int(job.expires - now)))),
        ("ctime", number(job.created)),
        ("delay", number(job.delay)),
        ("retry", number(retry)),
        ("nacks", number(job.nacks)),
        ("additional-deliveries", number(job.repeats)),
        ("nodes-delivered", strings(has)),
        ("nodes-confirmed", strings(done)),
        ("next-requeue-within", requeue),
        ("next-awake-within", number(awake)),
        ("body", bulk(body)),
        ("priority", number(job.priority)),
        ("deliveries", number(job.deliveries)),
    ]
    if job.key:
        items.append(("key", bulk(job.key)))
    if job.reason:
        items.append(("dead", bulk(job.reason.encode())))
    if job.history:
        items.append(("history", strings([each.encode() for each in job.history])))
    return pairs(items, False)  # as Disque does, whatever protocol a client agreed on


def _node_id(connection: RespConnection, number_of_node: int) -> bytes:
    """The id of a node; of one that is not known what is known of it."""
    nodes = connection.door.control.nodes
    peer = None if nodes is None else nodes.replicas.peers.all.get(number_of_node)
    return b"%015x" % number_of_node if peer is None else bytes(peer.node_id)


def stat(connection: RespConnection, queue: JobQueue, name: bytes) -> bytes:
    """The figures of a queue."""
    now = connection.commit.clock()
    states = {(True, True): b"all", (True, False): b"in", (False, True): b"out"}
    paused = states.get((queue.paused_in, queue.paused_out), b"none")
    first = queue.first()
    oldest = 0 if first is None else int(now - int(first.created - connection.machine.wall) / 1e9)
    items = [
        ("name", bulk(name)),
        ("len", number(queue.depth)),
        ("age", number(int(now - queue.created))),
        ("idle", number(int(now - queue.used))),
        ("blocked", number(workers_at(queue))),
        ("import-from", array([])),
        ("import-rate", number(0)),
        ("jobs-in", number(queue.came)),
        ("jobs-out", number(queue.went)),
        ("pause", bulk(paused)),
        ("jobs", number(queue.jobs - queue.done)),
        ("oldest", number(max(0, oldest))),
    ]
    return pairs(items, False)  # as Disque does, whatever protocol a client agreed on
