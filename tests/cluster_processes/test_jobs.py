"""Jobs while nodes die, lose their disks and are cut off: processes, SIGKILL, and links that break.

Nodes in one process show the rest (`tests/vmq/jobs/sharing`); the simulator has thousands of such lives
(`tests/simulator/jobs`).
"""

import itertools
import os
import random
import signal
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial

import pytest
import redis

from tests.cluster_processes.cluster import TIMEOUT, Node
from tests.cluster_processes.jobs import JobCluster, Jobs, job_cluster
from tests.support.until import reach
from tests.support.wire import (
    PUBCOMP,
    PUBREC,
    ConnectionEnded,
    Wire,
    connect_packet,
    publish_packet,
    pubrel_packet,
)

#: Seconds after which jobs are given again while nodes die.
RETRY = 3


def all_gone(jobs: JobCluster) -> bool:
    return not any(each.registered() for each in jobs.clients.values())


@pytest.fixture(scope="module")
def nodes() -> Iterator[JobCluster]:
    with job_cluster("a", "b", "c") as found:
        yield found


@pytest.fixture
def three(nodes: JobCluster) -> JobCluster:
    """All of them run, and none has a job."""
    nodes.make_whole()
    for client in nodes.clients.values():
        client("DEBUG", "FLUSHALL")
    reach(lambda: all_gone(nodes))
    return nodes


def test_too_few_hosts_in_reach_are_refused_and_a_lone_node_goes_on(three: JobCluster) -> None:
    three.kill("b", "c")
    for options in ((), ("REPLICATE", 2), ("REPLICATE", 3)):
        with pytest.raises(redis.ResponseError, match="NOREPL"):
            three["a"].add("q", "x", *options)
    job_id = three["a"].add("q", "x", "REPLICATE", 1)
    assert three["a"].get("q")[0] == job_id
    assert three["a"]("ACKJOB", job_id) == 1


def test_adding_expires_while_copies_are_under_way(three: JobCluster) -> None:
    """The others hear nothing, which is not known yet."""
    for name in ("b", "c"):
        three.cluster[name].signal(signal.SIGSTOP)
    with pytest.raises(redis.ResponseError, match="NOREPL"):
        three["a"].add("q", "x", "REPLICATE", 2, timeout=300)
    assert three["a"].registered() == 0, "it is dropped"
    for name in ("b", "c"):
        three.cluster[name].signal(signal.SIGCONT)
    three.meet()
    assert three["a"].add("q", "x", "REPLICATE", 3)


def test_both_sides_of_a_split_work_and_a_heal_leaves_each_job_once(three: JobCluster) -> None:
    shared = [three["a"].add("q", "x", "REPLICATE", 3, "RETRY", 2) for _ in range(5)]
    three.cut("a")
    alone = three["a"].add("q", "x", "REPLICATE", 1)
    together = three["b"].add("q", "x", "REPLICATE", 2)
    done = {three["a"].get("q")[0] for _ in range(2)}
    for job_id in done:
        assert three["a"]("ACKJOB", job_id) == 1
    # The other side has them queued, too, once their retry is over: nobody there knows what a does.
    reach(lambda: three["b"].length("q") + three["c"].length("q") == 6)
    three.heal()
    left = {*shared, alone, together} - done
    reach(
        lambda: sum(each.length("q") for each in three.clients.values()) == len(left),
        "of two that have a job queued one goes on",
    )
    got: Counter[bytes] = Counter()
    for _ in left:
        job_id, _ = three["c"].get("q")
        three["b"]("ACKJOB", job_id)  # before it is given again
        got[job_id] += 1
    assert got == Counter(left)
    reach(lambda: all_gone(three))


def test_all_nodes_die_at_once_and_have_every_job_again(three: JobCluster) -> None:
    ids = {three["a"].add("q", b"%d" % number, "REPLICATE", 3) for number in range(50)}
    ids |= {three["b"].add("q", "later", "REPLICATE", 2, "DELAY", 1) for _ in range(10)}
    three.kill("a", "b", "c")
    three.restart("a", "b", "c")
    got: set[bytes] = set()
    while len(got) < 60:
        job_id, _ = three["c"].get("q")
        assert job_id not in got, "each job once"
        got.add(job_id)
        three["c"]("ACKJOB", job_id)
    assert got == ids
    reach(lambda: all_gone(three))


def is_answered(node: Node, client_id: str, publish: bytes) -> bool:
    """Whether a client that comes again hears of its message, which it then releases."""
    try:
        with Wire.connected((node.host, node.port), client_id, clean=False) as wire:
            wire.ask(publish, PUBREC)
            wire.ask(pubrel_packet(1), PUBCOMP)
    except ConnectionEnded:  # too few hosts for now
        return False
    return True


@pytest.mark.parametrize("topic", ["$jobs/q", "hot"])
def test_jobs_of_clients_that_go_elsewhere_are_done_though_their_first_node_is_killed(
    three: JobCluster, topic: str
) -> None:
    """It had not answered: a host said nothing. Half of them are elsewhere when it dies."""
    a, b, c = (three.cluster[name] for name in "abc")
    bodies = {f"{topic[-1]}{number}": b"%d" % number for number in range(12)}
    again = {
        name: publish_packet(topic, body, qos=2, packet_id=1, dup=True)
        for name, body in bodies.items()
    }
    with ExitStack() as open_ones:
        wires = {name: Wire.connected((a.host, a.port), name, clean=False) for name in bodies}
        for wire in wires.values():
            open_ones.enter_context(wire)
        c.signal(signal.SIGSTOP)
        for name, wire in wires.items():
            wire.send(publish_packet(topic, bodies[name], qos=2, packet_id=1))
        for name in list(bodies)[::2]:
            wire = open_ones.enter_context(Wire.connect_tcp((b.host, b.port)))
            wire.send(connect_packet(name, clean=False), again[name])
        a.kill()
        c.signal(signal.SIGCONT)
        three.restart("a")
        for name, publish in again.items():
            reach(partial(is_answered, b, name, publish))
    got: set[bytes] = set()
    while len(got) < len(bodies):
        job_id, body = three["b"].get("q")
        three["b"]("ACKJOB", job_id)
        got.add(body)
    assert got == set(bodies.values())


KEYED = ("REPLICATE", 2, "RETRY", RETRY, "KEY")


class Producer(threading.Thread):
    """Adds jobs with keys, each at one node after the other until one that lives says that it has it."""

    def __init__(self, jobs: "Living", number: int) -> None:
        super().__init__(daemon=True)
        self.jobs = jobs
        self.number = number
        #: The ids of jobs by their keys.
        self.known: dict[bytes, bytes] = {}
        #: Seconds between two jobs.
        self.pause = 0.01
        self.ended = threading.Event()

    def run(self) -> None:
        draw = random.Random(self.number)
        for place in itertools.count():
            key = b"%d-%d" % (self.number, place)
            while key not in self.known:
                if self.ended.is_set():
                    return
                try:
                    job_id = self.jobs.client(draw).add("q", key * 10, *KEYED, key, timeout=5000)
                except (redis.RedisError, OSError, StopIteration):
                    self.ended.wait(0.1)
                    continue
                self.known[key] = job_id
            self.ended.wait(self.pause)


class Consumer(threading.Thread):
    """Does jobs, wherever a node lives; those that it acknowledged are done."""

    def __init__(self, jobs: "Living", number: int) -> None:
        super().__init__(daemon=True)
        self.jobs = jobs
        self.number = number
        self.got: list[bytes] = []
        self.ended = threading.Event()

    def run(self) -> None:
        draw = random.Random(self.number)
        while not self.ended.is_set():
            try:
                client = self.jobs.client(draw)
                if found := client("GETJOB", "TIMEOUT", 500, "FROM", "q"):
                    self.got.append(found[0][1])
                    client("ACKJOB", found[0][1])
            except (redis.RedisError, OSError, StopIteration):
                self.ended.wait(0.1)


class Living:
    """The nodes that live, for threads that care for one only as long as it does."""

    def __init__(self, jobs: JobCluster) -> None:
        self.jobs = jobs
        self.local = threading.local()

    def client(self, draw: random.Random) -> Jobs:
        """A client of a node that lives.

        Raises:
            OSError: it was killed meanwhile.
        """
        try:
            return self._client(draw, draw.choice(self.jobs.cluster.running))
        except AssertionError as dead:
            raise ConnectionError("it was just killed") from dead

    def _client(self, draw: random.Random, node: Node) -> Jobs:
        known = getattr(self.local, "known", None)
        if known is not None and known[0] == node.process.pid and draw.random() < 0.9:
            return known[1]  # type: ignore[no-any-return]
        if known is not None:
            known[1].close()
        client = Jobs(node)
        client.redis.connection_pool.connection_kwargs["socket_timeout"] = 5
        self.local.known = (node.process.pid, client)
        return client


@contextmanager
def at_work(*threads: Producer | Consumer) -> Iterator[None]:
    """They work, and have ended when this has, whatever is raised."""
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        for thread in threads:
            thread.ended.set()
        for thread in threads:
            thread.join(TIMEOUT)


def check_keys(jobs: JobCluster, known: dict[bytes, bytes], draw: random.Random) -> None:
    """Whoever adds a job with a known key anew is told the id of the first one, at any node."""
    clients = list(jobs.clients.values())
    again = {key: draw.choice(clients).add("q", "again", *KEYED, key) for key in known}
    assert {key: (known[key], again[key]) for key in known if known[key] != again[key]} == {}


@pytest.mark.timeout(400)
def test_keys_and_copies_that_are_paged_out_outlive_kills_and_a_lost_disk() -> None:
    """With little memory for jobs, of which most are on disk only; VMQ_TEST_KILLS=20 of them. All are done at last."""
    env = {"VMQ_LIMITS__MAX_JOB_MEMORY": str(1 << 20)}
    with job_cluster("a", "b", "c", env=env) as jobs:
        living = Living(jobs)
        producers = [Producer(living, number) for number in range(3)]
        with at_work(*producers):
            kill_and_ask_for_keys(jobs, producers)
            consumers = [Consumer(living, 100 + number) for number in range(3)]
            with at_work(*consumers):
                jobs.kill("b")
                jobs.restart("b")
                finish(jobs, producers, consumers)
        for producer in producers:
            check_keys(jobs, producer.known, random.Random(7))
        assert all(each.none("q") for each in jobs.clients.values())


def kill_and_ask_for_keys(jobs: JobCluster, producers: Sequence[Producer]) -> None:
    """Nodes die, one at a time; when all is mended some keys are those of the same jobs as before."""

    def are_paged() -> bool:
        infos = [each("INFO") for each in jobs.clients.values()]
        return all(int(each["paged_jobs"]) > 200 for each in infos)

    reach(are_paged, "jobs are paged out everywhere", 120)
    for producer in producers:
        producer.pause = 0.05
    draw = random.Random(7)
    for number in range(int(os.environ.get("VMQ_TEST_KILLS", "3"))):
        victim = draw.choice(sorted(jobs.clients))
        before = sum(len(each.known) for each in producers)
        jobs.kill(victim, wipe=number % 3 == 2)
        wait_for_more(producers, before + 25)
        jobs.restart(victim)
        # A disk may be lost only when what was lost before is on two hosts again.
        reach(lambda: all(not mending(each) for each in jobs.clients.values()))
        for producer in producers:
            some = draw.sample(sorted(producer.known), 30)
            check_keys(jobs, {key: producer.known[key] for key in some}, draw)


def finish(jobs: JobCluster, producers: Sequence[Producer], consumers: Sequence[Consumer]) -> None:
    """Nothing is added any more, and all that was is done: some of it twice, as nodes died."""
    for producer in producers:
        producer.ended.set()
        producer.join(TIMEOUT)
    added = {job_id for each in producers for job_id in each.known.values()}
    reach(lambda: added <= {job_id for each in consumers for job_id in each.got}, "done", 120)
    reach(lambda: not any(each.length("q") for each in jobs.clients.values()))
    given = sum(len(each.got) for each in consumers)
    assert given < 1.5 * len(added), "what a dead node had is given again, and little else"


def wait_for_more(producers: Sequence[Producer], before: int) -> None:
    """Waits until more than so many are added."""
    reach(lambda: sum(len(each.known) for each in producers) > before, "adding goes on")


def mending(client: Jobs) -> bool:
    """Whether a node still makes copies anew."""
    info = client("INFO")
    return bool(int(info["jobs_mending"]))
