"""The jobs of this broker and the links to those of other nodes."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any, Final, Protocol

from vmq.core.context import Core
from vmq.jobs.commit import JobCommit
from vmq.jobs.nodes_port import NodeSeen
from vmq.jobs.queue import Job
from vmq.jobs.sharing.outbox import JobOutbox
from vmq.jobs.sharing.peers import JobPeer, number_of
from vmq.jobs.sharing.post import JobPost
from vmq.jobs.sharing.replicas import JobReplicas

log = logging.getLogger("vmq.jobs")

#: Below this part of the mark above which memory is scarce there is enough again.
_ENOUGH: Final = 0.9
#: Seconds between two looks whether all is handed over.
_LOOK: Final = 0.05
#: Seconds between two looks for members that were greeted in vain: a greeting may be lost.
_GREETS: Final = 1.0
#: Seconds for CLUSTER MEET to hear where a node is, bytes of what it says, and seconds for CLUSTER RESET.
_PATIENCE: Final = 5.0
_MOST_INFO: Final = 65_536
_RESET: Final = 30.0


class JobLinks(Protocol):
    """The links, as jobs know them; `vmq.clustering.node.job_links` has them."""

    @property
    def host(self) -> str:
        """The host of this node, by a name that others on it have, too."""

    @property
    def address(self) -> str:
        """Where other nodes reach this one."""

    def join(self, address: str) -> str:
        """Asks the node at an address to take this one in; "" or why not."""

    def remove(self, name: str) -> str:
        """Takes a dead member out of the cluster; "" or why not."""

    async def leave(self, timeout: float) -> bool:  # noqa: ASYNC109 - a limit, not an error
        """Leaves the cluster."""

    def others(self) -> list[str]:
        """The other members."""

    def up(self) -> list[str]:
        """Those of them that can be reached."""

    def send(self, peer: str, payload: bytes) -> None:
        """Sends something that may be lost."""

    def open_with(self, opened: Callable[[], object] | None) -> None:
        """What opens the jobs of this node when another one speaks of them; at once, if one has. None: nothing does."""

    def attach(self, nodes: "JobNodes | None") -> None:
        """Tells these of members and payloads from now on; nobody."""


class JobNodes:
    """This node among the others.

    Args:
        core: for the clock.
        commit: the jobs.
        links: to the others.
        node_id: forty hexadecimal digits.
        boot: a number that is higher after each start.
    """

    def __init__(
        self, core: Core, commit: JobCommit, links: JobLinks, node_id: bytes, boot: int
    ) -> None:
        self.core = core
        self.commit = commit
        self.links = links
        outbox = JobOutbox(commit, links.send)
        self.post = JobPost(outbox)
        me = JobPeer(number_of(node_id), links.host, node_id)
        me.boot = boot
        self.replicas = JobReplicas(commit.machine, me, core.clock, Random().shuffle, outbox)
        self.post.replicas = self.replicas
        self._tasks: set[asyncio.Task[None]] = set()
        self._greets_at = core.clock() + _GREETS
        commit.wants_time = True  # for `tick`, though there are no jobs yet: a greeting may be lost
        self.on_members(links.others())
        links.attach(self)
        for peer in links.up():
            self.on_up(peer)

    # What the links tell

    def on_payload(self, peer: str, payload: bytes) -> None:
        """Something came of a member."""
        self.post.receive(peer, payload, self.core.clock())
        self.commit.end_soon()

    def on_up(self, peer: str) -> None:
        """A member can be reached."""
        self.post.greet(peer)
        self.commit.end_soon()

    def on_down(self, peer: str) -> None:
        """A member cannot be reached any more."""
        self.replicas.on_down(peer)
        self.commit.end_soon()

    def on_members(self, others: list[str]) -> None:
        """These are the other members."""
        self.replicas.set_members(others)
        self.commit.end_soon()

    def tick(self, now: float) -> None:
        """To be called every tenth of a second. Who can be reached and was not heard of is greeted anew."""
        self.replicas.tick(now)
        scarce = self.commit.spill_above
        if self.replicas.peers.me.is_short:
            scarce = int(int(scarce) * _ENOUGH)
        self.replicas.set_short(self.commit.is_short or self.commit.machine.memory >= scarce)
        if now >= self._greets_at:
            self._greets_at = now + _GREETS
            for name in self.links.up():
                if not self.replicas.peers.is_up(name):
                    self.post.greet(name)

    # What an operator asks

    @property
    def cluster_address(self) -> str:
        """Where other nodes reach this one."""
        return self.links.address

    @property
    def is_leaving(self) -> bool:
        """Whether this node is to have no jobs any more."""
        return self.replicas.peers.me.is_leaving

    def others(self) -> list[NodeSeen]:
        """The other nodes, as far as they have told of themselves."""
        peers = self.replicas.peers
        return [
            NodeSeen(
                each.node_id, each.address, each.port, each.number in peers.up, each.is_leaving
            )
            for each in peers.all.values()
            if each is not peers.me
        ]

    def problems(self) -> list[str]:
        """What is wrong now: queues to which nothing is added without REPLICATE, as too few hosts can be reached."""
        hosts, reachable = self.replicas.hosts(), self.replicas.reachable_hosts()
        if reachable >= hosts:
            return []  # as nearly always: there may be a million queues
        for queue in self.commit.machine.queues.values():
            rules = queue.rules
            if reachable < min(rules.replicate, hosts) and not rules.may_have_fewer:
                who = f"{reachable} of {hosts} hosts can be reached"
                what = 'jobs.NAME.when_split = "reach" adds them with fewer copies for now'
                return [f"jobs are refused: {who}; {what}"]
        return []

    def set_leaving(self, is_leaving: bool) -> str:
        """Has this node give its jobs to others and take no more, or take part again; "" or why not."""
        if is_leaving and not self.replicas.peers.up:
            return "no other node can be reached that would have the jobs"
        self.replicas.set_leaving(is_leaving)
        self.commit.end_soon()
        return ""

    def forget(self, node_id: bytes) -> str:
        """Takes a dead node out of the cluster; "" or why not."""
        for name, number in self.replicas.peers.numbers.items():
            peer = self.replicas.peers.all.get(number)
            if peer is not None and peer.node_id == node_id:
                return self.links.remove(name)
        return "Unknown node ID"

    def meet(self, host: str, port: int) -> str:
        """Has this node join that whose clients' address this is; "" or why not."""
        if not 0 < port < 65_536:
            return "Invalid node address specified"
        self._begin(self._meet(host, port))
        return ""

    async def _meet(self, host: str, port: int) -> None:
        """Asks a node where other nodes reach it."""
        try:
            async with asyncio.timeout(_PATIENCE):
                reader, writer = await asyncio.open_connection(host, port)
                writer.write(b"*2\r\n$7\r\nCLUSTER\r\n$4\r\nINFO\r\n")
                size = int((await reader.readline())[1:])
                told = (await reader.readexactly(min(size, _MOST_INFO))).decode()
                writer.close()
        except (OSError, ValueError, TimeoutError, asyncio.IncompleteReadError) as error:
            log.warning("CLUSTER MEET %s %d: no node answers there: %s", host, port, error)
            return
        lines = dict(line.partition(":")[::2] for line in told.splitlines())
        flaw = self.links.join(lines.get("cluster_address", ""))
        if flaw:
            log.warning("CLUSTER MEET %s %d: %s", host, port, flaw)

    def reset(self) -> str:
        """Has this node leave its cluster, after it gave its jobs to others; "" or why not."""
        if not self.links.others():
            return "this node is in no cluster"
        self._begin(self._reset())
        return ""

    async def _reset(self) -> None:
        await self.hand_over(_RESET, is_leaving=True)
        await self.links.leave(_RESET)
        self.replicas.set_leaving(False)

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # What the broker asks

    def set_address(self, host: str, port: int) -> None:
        """Where clients of Disque reach this node."""
        me = self.replicas.peers.me
        me.address, me.port = host, port
        self.replicas.introduce(sorted(self.replicas.peers.up), False)
        self.commit.end_soon()

    async def copied(self, jobs: list[Job], timeout: float) -> bool:  # noqa: ASYNC109 - a limit, not an error
        """Returns once jobs are on their hosts, or are not to be, and whether they are."""
        if not jobs:
            return True
        done: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

        def told(is_there: bool) -> None:
            if not done.done():
                done.set_result(is_there)

        self.replicas.wait(jobs, self.core.clock() + timeout, told)
        self.commit.end_soon()
        return await done

    async def hand_over(self, timeout: float, *, is_leaving: bool = False) -> bool:  # noqa: ASYNC109 - a limit
        """Gives what this node serves to other hosts; whether they have all of it.

        Hosts that cannot be reached are waited for, unless they leave, too. A node that leaves its cluster gives it to
        others of its own host, if there are no other hosts.
        """
        mender = self.replicas.mender
        if not self.links.others():
            return True
        mender.is_for_good = is_leaving
        self.replicas.set_leaving(True)
        self.commit.end_soon()
        if not self.commit.machine.count():
            return True
        deadline = self.core.clock() + timeout
        while not mender.is_handed_over():
            if mender.is_in_vain():
                return False
            if self.core.clock() >= deadline:
                log.warning("not all jobs could be handed over in %g s", timeout)
                return False
            await asyncio.sleep(_LOOK)
        return True

    def stop(self) -> None:
        """Hears of nobody any more."""
        for task in self._tasks:
            task.cancel()
        self.links.attach(None)
        self.post.replicas = None
