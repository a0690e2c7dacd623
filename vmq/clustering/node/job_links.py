"""The links between nodes, as jobs use them: payloads that may be lost, and who can be reached."""

import logging
from collections.abc import Awaitable, Callable

from vmq.clustering.delivery.outboxes import Outboxes
from vmq.clustering.messages.jobs import JobTalk
from vmq.clustering.node.job_questions import JobQuestions
from vmq.clustering.node.joining import Joining
from vmq.jobs.nodes import JobNodes
from vmq_cluster.effects import MembersChanged, PeerDown, PeerUp
from vmq_cluster.errors import ClusterError
from vmq_cluster.node import ClusterNode

log = logging.getLogger("vmq.cluster")


class ClusterJobLinks:
    """The links of one node.

    Args:
        node: this node.
        outboxes: messages go and come by these.
        host: the host of this node; "": it is alone on its own.
        joining: asks other nodes to take this one in.
        leave: leaves the cluster, within so many seconds.
    """

    def __init__(
        self,
        node: ClusterNode,
        outboxes: Outboxes,
        host: str,
        joining: Joining,
        leave: Callable[[float], Awaitable[bool]],
    ) -> None:
        self._joining = joining
        self._leave = leave
        self._node = node
        self._outboxes = outboxes
        self._host = host or node.name
        self._nodes: JobNodes | None = None
        self._is_spoken_of = False
        self._open: Callable[[], object] | None = None
        #: Operations on jobs that other nodes have.
        self.questions = JobQuestions(outboxes)
        outboxes.on(JobTalk, self._on_talk)
        node.on(PeerUp, self._on_up)
        node.on(PeerDown, self._on_down)
        node.on(MembersChanged, self._on_members)

    @property
    def host(self) -> str:
        """The host of this node, by a name that others on it have, too."""
        return self._host

    @property
    def address(self) -> str:
        """Where other nodes reach this one."""
        return self._node.address

    def join(self, address: str) -> str:
        """Asks the node at an address to take this one in; "" or why not."""
        try:
            self._joining.join_nowait(address)
        except ClusterError as error:
            return str(error)
        return ""

    def remove(self, name: str) -> str:
        """Takes a dead member out of the cluster; "" or why not."""
        try:
            self._node.remove(name)
        except ClusterError as error:
            return str(error)
        return ""

    async def leave(self, timeout: float) -> bool:  # noqa: ASYNC109 - a limit, not an error
        """Leaves the cluster; whether the others have all that this node had."""
        try:
            return await self._leave(timeout)
        except ClusterError as error:
            log.warning("the cluster cannot be left: %s", error)
            return False

    def others(self) -> list[str]:
        """The other members; nobody, once the node does not run."""
        members = self._node.members if self._node.is_running else ()
        return [name for name in members if name != self._node.name]

    def up(self) -> list[str]:
        """Those of them that can be reached."""
        return self._node.up if self._node.is_running else []

    def send(self, peer: str, payload: bytes) -> None:
        """Sends something that may be lost."""
        if self._node.is_running:
            self._outboxes.send_quick(peer, JobTalk(payload))

    def attach(self, nodes: JobNodes | None) -> None:
        """Tells these of members and payloads from now on; nobody."""
        self._nodes = nodes

    def open_with(self, opened: Callable[[], object] | None) -> None:
        """What opens the jobs of this node when another one speaks of them; at once, if one has. None: nothing does."""
        self._open = opened
        if opened is not None and self._is_spoken_of:
            opened()

    def _on_talk(self, peer: str, message: JobTalk) -> None:
        if self._nodes is None:
            self._is_spoken_of = True
            if self._open is not None:
                self._open()
        if self._nodes is not None:
            self._nodes.on_payload(peer, message.payload)

    def _on_up(self, effect: PeerUp) -> None:
        if self._nodes is not None:
            self._nodes.on_up(effect.peer)

    def _on_down(self, effect: PeerDown) -> None:
        if self._nodes is not None:
            self._nodes.on_down(effect.peer)

    def _on_members(self, effect: MembersChanged) -> None:
        if self._nodes is not None:
            self._nodes.on_members([name for name in effect.members if name != self._node.name])
