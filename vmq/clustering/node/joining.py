"""Joining: other nodes are asked to take this one in; why one does not, in words that an operator can act on."""

import asyncio
import logging
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Final

from vmq_cluster.addresses import check_address
from vmq_cluster.effects import Excluded, NameRefused, NameTaken, PeerUp, Refused
from vmq_cluster.errors import ClusterError
from vmq_cluster.membership import Status
from vmq_cluster.node import ClusterNode

log = logging.getLogger("vmq.cluster")

#: Seconds between two looks whether a node has answered.
_LOOK: Final = 0.05
#: Addresses that are asked at a time, of those that somebody else has found.
_MOST_CONTACTS: Final = 100

#: Seconds that an address has to take a connection.
_PATIENCE: Final = 2.0
#: Seconds between two looks why an address lets nobody in.
_LOOK_AGAIN: Final = 60.0
#: Heartbeats for which another node's word counts that this one's name is taken: it says so with each.
_REFUSED: Final = 3

#: What is true of somebody who listens and lets nobody in.
_OTHER: Final = (
    "who listens there does not answer: its cluster.key_file is not this node's, it runs another version of vmq, or it "
    "is no node of vmq (its log says which)"
)


class Joining:
    """What this node asks of others, and what it hears of its own place among them.

    Args:
        name: the node's.
        find_node: the node; raises ClusterError unless it runs.
    """

    def __init__(self, name: str, find_node: Callable[[], ClusterNode]) -> None:
        self._name = name
        self._find_node = find_node
        #: The cluster's key, if it has one; known at the start.
        self.key: str | None = None
        #: By whose word this node was taken out of the cluster, if it was: it need not be where an operator did that.
        self.excluded_by = ""
        #: Where there are other nodes of this one's name, some of them at least.
        self.namesakes: set[str] = set()
        #: Nodes of which one has to take this one in before it serves clients.
        self._needed: list[str] = []
        #: Where the node is that has this one's name for others, and when that was said last.
        self._refused: tuple[str, float] = ("", 0.0)
        #: Whom this node refuses, and why; the last one that it does not hear since.
        self._refusal: tuple[str, str] = ("", "")
        #: What was found out of an address that lets nobody in, and when: each look is a connection there.
        self._found: tuple[str, str, float] = ("", "", 0.0)

    def listen_to(self, node: ClusterNode) -> None:
        """Hears what a node that has not started yet is told."""
        node.on(Excluded, self._on_excluded)
        node.on(NameTaken, self._on_name_taken)
        node.on(NameRefused, self._on_name_refused)
        node.on(Refused, self._on_refused)
        node.on(PeerUp, self._on_up)

    def _on_excluded(self, effect: Excluded) -> None:
        self.excluded_by = effect.by

    def _on_name_refused(self, effect: NameRefused) -> None:
        self._refused = (effect.address, asyncio.get_running_loop().time())

    def _on_refused(self, effect: Refused) -> None:
        self._refusal = effect.peer, f"node {effect.peer} is refused: {effect.reason}"

    def _on_up(self, effect: PeerUp) -> None:
        if effect.peer == self._refusal[0]:
            self._refusal = "", ""

    def _on_name_taken(self, effect: NameTaken) -> None:
        if effect.is_lost:
            log.error("name lost: %s", lost_name(self._name, effect.address))
        elif effect.address not in self.namesakes and len(self.namesakes) < _MOST_CONTACTS:
            self.namesakes.add(effect.address)
            log.error("name taken: %s", namesake(self._name, effect.address))

    @property
    def may_join(self) -> bool:
        """Whether the node is alone or misses others, and has not been taken out of its cluster."""
        try:
            machine = self._find_node().machine
        except ClusterError:
            return False
        others = machine.membership.others
        return machine.membership.belongs and (not others or bool(machine.detector.down))

    def join_configured(self, addresses: Iterable[str]) -> None:
        """Joins as configured, unless this node was made to go: a restart does not undo that.

        Where it has others, they are looked for there as well: they may have other addresses than when it was stopped.
        One that has left joins again. One that is among those to be joined may be the first of its cluster, and one
        that had others is what is left of it: those need not be taken in.
        """
        node = self._find_node()
        if node.machine.identity.was_ahead:
            log.warning("the clock was 100 years ahead at the last start: nobody heard this node")
        given = list(addresses)
        wanted = [each for each in given if each not in (node.address, node.name)]
        membership = node.machine.membership
        has_left = membership.own.status == Status.LEFT
        if not wanted or membership.has_lost_name or not (membership.belongs or has_left):
            return
        if membership.others:
            for address in wanted:
                node.join(address, is_hint=True)
            return
        is_new = len(membership.records) == 1
        if len(wanted) == len(given) and (is_new or has_left):
            self._needed = wanted
        self.excluded_by = ""
        for address in wanted:
            node.join(address)

    @property
    def lost(self) -> str:
        """Why this node has its name no more, if another has it for good."""
        membership = self._find_node().machine.membership
        return lost_name(self._name, membership.own.address) if membership.has_lost_name else ""

    def problems(self, node: ClusterNode) -> Iterator[str]:
        """What is wrong around a node that runs, in part or less safely than it is to."""
        if self.lost or self.excluded_by:
            yield self.lost or taken_out(self.excluded_by)
        if away := sorted(node.machine.detector.down):
            yield f"members of the cluster that cannot be reached: {', '.join(away)}"

    async def why_shut(self) -> str:
        """Why this node has no place in a cluster that it is to have; nothing if it has."""
        node = self._find_node()
        membership = node.machine.membership
        if reason := self.lost:
            return reason
        if not membership.belongs:
            return out_of_cluster(membership.own.status, self.excluded_by)
        if reason := self.why_nameless():
            return reason
        if membership.others:
            self._needed = []
        if not self._needed:
            return ""
        address = self._needed[0]
        reason = self._refusal[1] or await self._why_not_lately(address)
        return f"this node is to join a cluster and is not let in: {address}: {reason}"

    def why_nameless(self) -> str:
        """For which other node others refuse this one its name by now; nothing if nobody does."""
        where, when = self._refused
        age = asyncio.get_running_loop().time() - when
        is_old = age >= _REFUSED * self._find_node().machine.options.heartbeat_interval
        return "" if not where or is_old else namesake(self._name, where)

    async def _why_not_lately(self, address: str) -> str:
        about, found, when = self._found
        now = asyncio.get_running_loop().time()
        if about != address or now - when > _LOOK_AGAIN:
            found = await self.why_not(address)
            self._found = (address, found, now)
        return found

    def join_nowait(self, address: str) -> None:
        """Asks the node at an address to take this one in, if that is another one and was not asked yet, or whether it
        is one that is missed.

        Raises:
            ClusterError: it is no address, or too many were asked and have not answered.
        """
        node = self._find_node()
        check_address(address, self.key)
        contacts = node.machine.contacts
        if address == node.address or address in contacts:
            return
        if node.machine.membership.others:
            node.join(address, is_hint=True)
            return
        if len(contacts) >= _MOST_CONTACTS:
            raise ClusterError(f"{address}: {_MOST_CONTACTS} others were asked and do not answer")
        node.join(address)

    async def join(self, address: str, timeout: float) -> bool:  # noqa: ASYNC109 - a limit, not an error
        """Asks the node at an address to take this one in; returns whether it has answered in time.

        It is asked on and on, also after the time is over.

        Raises:
            ClusterError: it is no address, or this node's own; or another node has this one's name for good.
        """
        node = self._find_node()
        check_address(address, self.key)
        if address == node.address:
            raise ClusterError(f"{address} is this node itself")
        if address in node.members.values():
            return True
        if self._needed or not node.machine.membership.belongs:
            self._needed = [address]
        node.join(address)
        self.excluded_by = ""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout
        while address in self._find_node().machine.contacts:
            if loop.time() >= deadline:
                return False
            await asyncio.sleep(_LOOK)
        return True

    async def why_not(self, address: str) -> str:
        """Why the node at an address has not taken this one in."""
        if address in self.namesakes:
            return namesake(self._name, address)
        return self.why_nameless() or self._refusal[1] or await why_silent(address)


async def why_silent(address: str) -> str:
    """What is wrong with an address at which nobody has answered."""
    scheme, _, rest = address.partition("://")
    try:
        async with asyncio.timeout(_PATIENCE):
            if scheme == "ipc":
                _, writer = await asyncio.open_unix_connection(rest)
            else:
                host, _, port = rest.rpartition(":")
                _, writer = await asyncio.open_connection(host.strip("[]"), int(port))
    except TimeoutError:
        return f"nobody answers there within {_PATIENCE:g} s: a wrong host, or a firewall"
    except (OSError, OverflowError) as error:
        number = getattr(error, "errno", None) or 0
        text = os.strerror(number) if number > 0 else str(error)
        return f"nobody listens there ({text}): it is to be the cluster.listen of a node that runs"
    writer.close()
    with suppress(OSError):
        await writer.wait_closed()
    return _OTHER


def out_of_cluster(status: int, told_by: str) -> str:
    """A node is not to serve clients by itself."""
    how = "this node has left its cluster" if status == Status.LEFT else taken_out(told_by)
    return f"{how}: `vmq cluster join` lets it in again, `vmq start --alone` has it serve by itself"


def taken_out(told_by: str) -> str:
    """A node was removed: somewhere, of which others may have told it."""
    return f"this node was taken out of the cluster (by the word of {told_by or 'an earlier decision'})"


def lost_name(name: str, address: str) -> str:
    """Another node has had the name for a while, with a data directory of its own."""
    return (
        f"the node at {address} has had this node's name, {name!r}, while this one was away: under another "
        "cluster.node_name and with an empty data directory it can join; `vmq start --alone` has it serve by itself"
    )


def namesake(name: str, address: str) -> str:
    """Two nodes have one name."""
    return (
        f"the node at {address} has this node's name, {name!r}: each needs a cluster.node_name and a data directory of "
        "its own; give one of the two another"
    )
