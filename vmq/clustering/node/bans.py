"""Bans of the whole cluster: each node has all of them in its data directory, and the replicated metadata say which.

Of two words on the same client, user or address the last writer's counts.
"""

import logging
from typing import Final

import msgspec

from vmq.runtime.banning import Banning
from vmq.runtime.bans import Ban, BansError, Kind, checked
from vmq_cluster.effects import Changed
from vmq_cluster.errors import ClusterError
from vmq_cluster.node import ClusterNode

log = logging.getLogger("vmq.cluster")

#: The prefix of the metadata under which they are: kind, NUL, value -> the ban as JSON.
BANS: Final = "vmq.bans"


class ClusterBans:
    """The bans of one node.

    Args:
        node: which runs.
        banning: the broker's.
    """

    def __init__(self, node: ClusterNode, banning: Banning) -> None:
        self._node = node
        self._banning = banning
        node.watch_steps(BANS, self._on_changes)

    def attach(self, is_first: bool, was_alone: bool) -> None:
        """Makes this node's and the cluster's the same, and keeps them so.

        What the cluster lacks is new to it (`is_first`: this node was in none; `was_alone`: it ran by itself
        meanwhile), or was removed while this node was down.
        """
        here = {_key(each): each for each in self._banning.bans.all()}
        there = dict(self._node.items(BANS))
        for key, value in there.items():
            self._take(key, value)
        for key, ban in here.items():
            if key in there:
                continue
            if is_first or was_alone:
                self.added(ban)
            else:
                self._take(key, None)
        self._banning.apply()
        self._banning.others = self

    def detach(self) -> None:
        """They are this node's own from now on."""
        self._banning.others = None

    def added(self, ban: Ban) -> None:
        """The operator of this node has banned."""
        if not self._node.is_running:
            return
        self._sweep()
        try:
            self._node.put(BANS, _key(ban), msgspec.json.encode(ban))
        except ClusterError as error:
            log.error("other nodes do not learn of a ban of %s %s: %s", ban.kind, ban.value, error)

    def removed(self, ban: Ban) -> None:
        """The operator of this node has ended a ban."""
        if self._node.is_running:
            self._node.delete(BANS, _key(ban))

    def _sweep(self) -> None:
        """Deletes what has ended by itself; an hour ago, since clocks differ."""
        latest = self._banning.bans.now() - 3600
        for key, value in list(self._node.items(BANS)):
            ban = _decode(value)
            if ban is None or (ban.until is not None and ban.until < latest):
                self._node.delete(BANS, key)

    def _on_changes(self, changes: list[Changed]) -> None:
        others = [each for each in changes if not each.local]
        for change in others:
            self._take(change.key, change.value)
        if others:
            self._banning.apply()

    def _take(self, key: bytes, value: bytes | None) -> None:
        """This node has the ban of the cluster, or none."""
        try:
            if value is None:
                kind, _, banned = key.decode().partition("\0")
                self._banning.bans.remove(msgspec.convert(kind, Kind), banned)
                return
            ban = _decode(value)
            if ban is not None:
                self._banning.bans.take(ban)
        except (msgspec.MsgspecError, UnicodeDecodeError, BansError) as error:
            log.error("no ban from the cluster: %s", error)


def _decode(value: bytes) -> Ban | None:
    """The ban of the metadata; None if this version of the broker knows none such."""
    try:
        ban = msgspec.json.decode(value, type=Ban)
        return msgspec.structs.replace(ban, value=checked(ban.kind, ban.value))
    except (msgspec.MsgspecError, BansError):
        return None


def _key(ban: Ban) -> bytes:
    return f"{ban.kind}\0{ban.value}".encode()
