"""A node of the cluster on an asyncio loop: the machine, its storage and its link, and a small face for applications.

    node = ClusterNode("a", "tcp://10.0.0.1:44053", storage, key=key)
    node.on(PeerUp, lambda effect: print(effect.peer, "is up"))
    await node.start()
    node.join("tcp://10.0.0.2:44053")
    node.put("settings", b"limit", b"10")

What is written or sent in one pass of the loop is stored in one batch, and leaves in one frame a peer, at the pass's
end. Everything that happens is told by the effects of `vmq_cluster.effects`, to whoever asked for it with `on`.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, TypeVar

from vmq_cluster.addresses import check_advertised
from vmq_cluster.clocks import Dot, NodeClock
from vmq_cluster.effects import (
    Acknowledged,
    Arrived,
    Changed,
    Contact,
    Effect,
    Left,
    MembersChanged,
    Misbehaved,
    PeerDown,
    PeerUp,
    Refused,
    Resumed,
    Transmit,
    Unreadable,
)
from vmq_cluster.errors import ClusterError, StorageError, UnwrittenError
from vmq_cluster.followers import Followers
from vmq_cluster.link import Link
from vmq_cluster.machine import Machine
from vmq_cluster.messages import Frame
from vmq_cluster.metadata.entries import Merge
from vmq_cluster.metadata.versions import Versions
from vmq_cluster.options import Options
from vmq_cluster.storage import Storage
from vmq_cluster.surroundings import Surroundings

log = logging.getLogger("vmq.cluster")

#: Seconds that the link bears with a connection that is not answered: as long as a member may be silent, but time
#: enough for a busy one to greet, and no longer than anybody wants to wait for a network that works again.
_PATIENCE: Final = (1.0, 10.0)
#: Seconds until it is tried again to write what could not be written.
WRITE_AGAIN: Final = 1.0

E = TypeVar("E")
T = TypeVar("T")


class ClusterNode:
    """One node. Its methods are called on the loop that `start` was called on."""

    def __init__(
        self,
        name: str,
        listen: str,
        storage: Storage,
        key: str | None = None,
        advertise: str = "",
        options: Options | None = None,
        versions: Versions = Versions(),  # noqa: B008 - it is immutable
        world: Surroundings | None = None,
        nearby: Mapping[str, str] | None = None,
    ) -> None:
        """`advertise` is where the others reach this node, if that is not where it listens; `nearby` are Unix sockets
        by which nodes of one machine talk to each other whatever their addresses are, by name, this one's included.

        `versions` are those of all that is said between nodes, by the application too; `world` is what the node sees of
        the machine, if that is not this one.

        Raises:
            ClusterError: the key is none.
        """
        self.name = name
        self._listen = listen
        self._advertise = advertise
        self._storage = storage
        self._nearby = {} if nearby is None else {**nearby}
        self._options = Options() if options is None else options
        shortest, longest = _PATIENCE
        patience = min(max(self._options.heartbeat_timeout, shortest), longest)
        self._world = world = Surroundings() if world is None else world
        self._link = world.link(
            self._receive, self._on_nonsense, key, patience, versions.speaks, self._on_gone
        )
        self._link.on_payloads = self._receive_at_once
        self._link.on_numbered = self._receive_numbered
        #: Those of this node.
        self.versions: Final = versions
        self._machine: Machine | None = None
        self._followers = Followers()
        self._holds = False
        self._is_flush_due = False
        self._timer: asyncio.TimerHandle | None = None
        self._left: asyncio.Future[bool] | None = None
        #: The loop's, once the node is started.
        self._now: Callable[[], float] = time.monotonic
        #: Why the node takes no part, if it stopped by itself: it cannot write, or cannot read any more.
        self.failure: StorageError | None = None
        #: When it is tried again to write.
        self._writes_again_at = 0.0

    # --- its life

    async def start(self) -> None:
        """Takes part, with the members that the storage knows. The storage stays the caller's to close.

        Raises:
            ClusterError: it cannot listen, or the storage is another node's, or damaged.
        """
        self._now = asyncio.get_running_loop().time
        try:
            own = self._nearby.pop(self.name, "")
            if own:
                await self._link.start_nearby(own, self._nearby)
            address = await self._link.start(self._listen)
            self._machine = Machine(
                self.name,
                self._advertise or check_advertised(address),
                self._storage,
                self._options,
                self._world.random,
                self._world.wall,
                self._world.boot,
                self.versions,
                frozenset(self._nearby),
            )
            self._machine.channels.holds = self._holds
            self._carry_out(self._machine.start(self._now()))
        except BaseException:
            self._machine = None
            await self._link.stop()
            raise
        self._tick()

    async def stop(self) -> None:
        """Ends in order."""
        machine, self._machine = self._machine, None
        self._end_leave(False)
        if self._timer is not None:
            self._timer.cancel()
        if machine is not None and self.failure is None:
            for effect in machine.stop(self._now()):
                if isinstance(effect, Transmit):
                    self._link.send(effect.peer, effect.frame)
        await self._link.stop()

    def join(self, address: str, is_hint: bool = False) -> None:
        """Asks the node at an address to be taken in, until it answers; or whether it is a member that is missed."""
        self._running.join(address, is_hint)
        self._flush_soon()

    async def leave(self, timeout: float | None = None) -> bool:  # noqa: ASYNC109 - the protocol's own
        """Leaves the cluster; returns whether the others have all that this node had. `stop` is still to come.

        After `timeout` seconds (or `leave_timeout`) it has left, whatever the others have, unless it stops or fails.

        Raises:
            ClusterError: this node does not belong to the cluster.
        """
        self._running.leave(self._now(), timeout)
        if self._left is None or self._left.done():
            self._left = asyncio.get_running_loop().create_future()
        self._flush_soon()
        return await asyncio.shield(self._left)

    def remove(self, name: str, force: bool = False) -> None:
        """Takes a dead member out.

        Raises:
            ClusterError: it is no other member, or (unless `force`) it is alive.
        """
        self._running.remove(name, force)
        self._flush_soon()

    # --- the others

    @property
    def address(self) -> str:
        """Where the others reach this node."""
        return self._running.membership.address

    @property
    def members(self) -> dict[str, str]:
        """Names and addresses, this node's own included."""
        return self._running.membership.addresses()

    @property
    def link(self) -> Link:
        """What the node hears and says, for its counters."""
        return self._link

    @property
    def is_running(self) -> bool:
        """Whether it takes part: not before its start, after its stop, or after a `failure`."""
        return self._machine is not None and self.failure is None

    @property
    def is_failing(self) -> bool:
        """Whether it cannot write, and takes part again as soon as it can (`Resumed`)."""
        return self._machine is not None and self.failure is not None

    @property
    def up(self) -> list[str]:
        """The other members that can be reached."""
        return sorted(self._running.detector.up)

    @property
    def machine(self) -> Machine:
        """The node without its loop, for what is shown of it: counters, clocks, records."""
        return self._running

    def spoken_by(self, peer: str) -> int:
        """The version that a peer speaks, as far as it was heard."""
        return self._running.dialects.spoken_by(peer)

    def on(self, kind: type[E], callback: Callable[[E], None]) -> None:
        """Calls back with each effect of a kind. A callback that fails is logged and harms nobody."""
        self._followers.on(kind, callback)

    # --- the replicated map

    def get(self, prefix: str, key: bytes) -> bytes | None:
        """The value of a key, if it has one. Raises `StorageError`: it cannot be read, and the node stops."""
        return self._read(self._running.metadata.get, prefix, key)

    def items(
        self, prefix: str, begin: bytes = b"", after: bytes | None = None
    ) -> Iterator[tuple[bytes, bytes]]:
        """All keys of a prefix that begin so, with their values, in order. Nothing is to be written meanwhile.

        Those behind a key `after` only, for who goes on later. Raises as `get`.
        """
        return self._each(self._running.metadata.items(prefix, begin, after))

    def dots(self, prefix: str, keys: Iterable[bytes]) -> Iterator[Dot]:
        """The dots of what keys hold: whoever has seen them knows these values, or later ones."""
        return self._each(self._running.metadata.dots(prefix, keys))

    def has_seen(self, dots: NodeClock) -> bool:
        """Whether this node has seen all of these dots; what they stand for has been told then."""
        return self._running.metadata.clock.dominates(dots)

    def put(self, prefix: str, key: bytes, value: bytes) -> None:
        """Writes a value, here at once and everywhere soon.

        Raises:
            ClusterError: the prefix, the key or the value is too long.
        """
        self._read(self._running.metadata.put, prefix, key, value)
        self._flush_soon()

    def delete(self, prefix: str, key: bytes) -> bool:
        """Deletes a key; returns whether it had a value."""
        had_any = self._read(self._running.metadata.delete, prefix, key)
        self._flush_soon()
        return had_any

    def merge_with(self, prefix: str, merge: Merge) -> None:
        """What becomes of values that were written at the same time: see `Metadata.merge_with`."""
        self._running.metadata.merge_with(prefix, merge)

    def watch(self, prefix: str, callback: Callable[[Changed], None]) -> None:
        """Calls back with each change under a prefix, made here or elsewhere."""
        self._running.metadata.watch(prefix)
        self._followers.watch(prefix, callback)

    def watch_steps(self, prefix: str, callback: Callable[[list[Changed]], None]) -> None:
        """Calls back with all changes under a prefix that one step brought, before anything else of that step is told.

        So whoever keeps a picture of the prefix has the whole of it when other callbacks look at it.
        """
        self._running.metadata.watch(prefix)
        self._followers.watch_steps(prefix, callback)

    # --- bytes for the others

    def send(self, peer: str, payload: bytes, ticket: Any = None) -> None:
        """Sends reliably; `Acknowledged` tells of the ticket. What waits is kept in memory: the caller bounds it.

        Raises:
            ClusterError: the peer is no member, or the payload is too long.
        """
        self._running.channels.send(peer, payload, ticket)
        self._flush_soon()

    def send_unreliable(self, peer: str, payload: bytes) -> bool:
        """Sends at most once; returns whether the peer is up and there was room.

        Raises:
            ClusterError: the peer is no member, or the payload is too long.
        """
        taken = self._running.channels.send_unreliable(peer, payload)
        self._flush_soon()
        return taken

    def send_at_once(self, peer: str, payload: bytes) -> bool:
        """As `send_unreliable`, in an order of its own: to a peer on this machine before the end of the pass."""
        machine = self._running
        may_overtake = machine.channels.may_overtake(peer, payload)
        if may_overtake and self._link.send_at_once(peer, machine.identity.epoch, payload):
            return True
        return self.send_unreliable(peer, payload)

    def is_near(self, peer: str) -> bool:
        """Whether a peer is on this machine, and `send_through` may bring something there at once."""
        return self._link.is_near(peer)

    def send_through(self, peer: str, payload: bytes, ticket: Any = None) -> bool:
        """As `send`, at once if it can be; returns whether the system has it whole, whatever ends this process.

        Raises:
            ClusterError: as `send`.
        """
        channels = self._running.channels
        place = channels.next_place(peer, payload)
        went = None if place is None else self._link.send_numbered(peer, place, payload)
        if went is None:
            self.send(peer, payload, ticket)
            return False
        channels.went(peer, payload, ticket, self._now())
        return went

    def hold(self) -> None:
        """What arrives reliably is from now on acknowledged only when `confirm` says so. Before `start`."""
        self._holds = True

    def confirm(self, arrived: Arrived) -> None:
        """These payloads are safe here, and all that the peer had sent before: it may forget them."""
        if self._machine is not None:
            self._machine.channels.confirm(arrived.peer, arrived.receipt)
            self._flush_soon()

    def forget(self, peer: str) -> None:
        """What was sent reliably to a peer and is not acknowledged goes to it no more; no effect tells of it."""
        self._running.channels.forget(peer)

    def drop(self, peer: str, reason: str) -> None:
        """Takes a peer that sent nonsense for lost, and does not listen to it for a while."""
        self._link.drop(peer)
        self._on_nonsense(peer, reason)

    def flush(self) -> None:
        """Stores and sends what was written and sent in this pass, which else happens at its end."""
        if self._is_flush_due:
            self._is_flush_due = False
            if self._machine is not None:
                self._step(self._machine.flush)

    def check_stored(self) -> None:
        """Whoever relies on what was written calls it behind `flush`.

        Raises:
            StorageError: it is not stored yet (`is_failing`), or may never be (`Unreadable`).
        """
        if self.failure is not None:
            raise self.failure

    # --- how it is done

    @property
    def _running(self) -> Machine:
        if self._machine is None or self.failure is not None:
            raise ClusterError(f"node {self.name!r} does not run") from self.failure
        return self._machine

    def _flush_soon(self) -> None:
        if not self._is_flush_due:
            self._is_flush_due = True
            asyncio.get_running_loop().call_soon(self.flush)

    def _read(self, what: Callable[..., T], *about: Any) -> T:
        """Does something that reads, as writing does: whoever cannot is told, and the node stops."""
        try:
            return what(*about)
        except StorageError as error:
            if self._machine is not None:
                self._fail(error)
            raise

    def _each(self, found: Iterator[T]) -> Iterator[T]:
        while (each := self._read(next, found, None)) is not None:
            yield each

    def _tick(self) -> None:
        if self._machine is not None:
            shortest = min(self._options.lazy_interval, self._options.heartbeat_interval)
            loop = asyncio.get_running_loop()
            # First: what fails in one is not to keep the next from coming.
            self._timer = loop.call_at(self.next_tick(shortest / 2), self._tick)
            if not self.is_failing:
                self._step(self._machine.tick)
            elif self._now() >= self._writes_again_at:
                self._do(self._machine.write_again)

    def next_tick(self, step: float) -> float:
        """When who looks every so often does so next, by the loop's clock: at once with others."""
        return self._world.next_tick(self._now(), step)

    def _receive(self, frame: Frame) -> None:
        if self._machine is not None:
            self._step(self._machine.receive, frame)

    def _receive_at_once(self, peer: str, life: int, payloads: list[bytes]) -> None:
        machine = self._machine
        if machine is not None and self.failure is None and machine.hears(peer, life, self._now()):
            self._followers.tell(Arrived(peer, False, payloads))

    def _receive_numbered(self, peer: str, place: tuple[int, int, int], payload: bytes) -> None:
        machine = self._machine
        if machine is None or self.failure is not None:
            return
        if machine.takes(peer, place[0], self._now()):
            arrived = machine.channels.take(peer, *place, [payload])
            if arrived is None or not self._holds:
                self._flush_soon()  # the peer is told how far this node has come
            if arrived is not None:
                self._followers.tell(arrived)

    def _on_gone(self, peer: str) -> None:
        if self._machine is not None:
            self._step(self._machine.lost, peer, "its process has ended")

    def _on_nonsense(self, peer: str, reason: str) -> None:
        log.warning("dropped the link of %s: %s", peer or "a node without a name", reason)
        if peer and self._machine is not None:
            self._step(self._machine.lost, peer, reason)

    def _step(self, what: Callable[..., list[Effect]], *about: Any) -> None:
        """Does a step unless nothing can be written: what comes meanwhile is as good as lost on the way."""
        if self.failure is None:
            self._do(what, *about)

    def _do(self, what: Callable[..., list[Effect]], *about: Any) -> None:
        """Has the machine do something, now, and carries out what comes of it."""
        try:
            effects = what(*about, self._now())
        except StorageError as error:
            self._fail(error)
            return
        if self.failure is not None:
            self.failure = None
            log.warning("the node takes part again")
            effects.append(Resumed())
        if effects:
            self._carry_out(effects)

    def _fail(self, error: StorageError) -> None:
        """What this node cannot store it must not say: it falls silent, and the others take it for dead."""
        before, self.failure = self.failure, error
        self._writes_again_at = self._now() + WRITE_AGAIN
        if not isinstance(error, UnwrittenError):
            log.critical("the node stops: %s", error)
            self._machine = None
            self._followers.tell(Unreadable())
        elif before is None:
            log.critical("the node takes no part until it can write: %s", error)
        self._end_leave(False)

    def _carry_out(self, effects: list[Effect]) -> None:
        self._followers.tell_changes(effects)
        for effect in effects:
            match effect:
                case Transmit():
                    self._link.send(effect.peer, effect.frame)
                    continue
                case Arrived() | Acknowledged():
                    pass  # first, for most are
                case Contact():
                    self._link.contact(effect.address, effect.frame)
                    continue
                case MembersChanged():
                    others = effect.members.items()
                    self._link.set_members({each: at for each, at in others if each != self.name})
                case PeerUp() | PeerDown():
                    self._link.set_up(effect.peer, isinstance(effect, PeerUp))
                case Misbehaved():
                    log.warning("dropped the link of %s: %s", effect.peer, effect.reason)
                    self._link.drop(effect.peer)
                case Refused():
                    log.warning("refused node %s: %s", effect.peer, effect.reason)
                case Left():
                    self._end_leave(effect.complete)
            self._followers.tell(effect)

    def _end_leave(self, is_complete: bool) -> None:
        """Nobody waits for the end of a leave any more."""
        if self._left is not None and not self._left.done():
            self._left.set_result(is_complete)
