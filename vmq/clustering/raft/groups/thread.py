"""The thread of all groups of a node: it has their logs and their ballots, and does what their machine asks for.

What comes in between two looks is one pass: envelopes, rows, questions, time. At its end ballots are on disk, then
messages leave, then what has to be synced is, many logs at a time; what follows from that is done likewise. Passes over
what is routine are the event loop's, if it is its turn (`passes`).
"""

import logging
import time
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random
from typing import Any, Final

from vmq.clustering.raft.groups import opened as groups_of_node
from vmq.clustering.raft.groups.ballots import Ballots
from vmq.clustering.raft.groups.envelopes import checked
from vmq.clustering.raft.groups.opened import Opened, begin
from vmq.clustering.raft.groups.outside import Outside
from vmq.clustering.raft.groups.taking import Taker
from vmq.clustering.raft.groups.turns import GroupTurns
from vmq.clustering.raft.groups.upkeep import LOOK, TICK, LookTimes, follow, lead, rest
from vmq.clustering.raft.produce import ELSEWHERE, Take
from vmq.streams.log.keys import Keys
from vmq.streams.replica.log import ReplicaLog
from vmq.streams.replica.partition import ReplicaPartition
from vmq_cluster.errors import MalformedError
from vmq_cluster.raft.effects import (
    Answered,
    Ballot,
    Committed,
    Effect,
    Failed,
    Led,
    Removed,
    Save,
    Send,
    Uncertain,
)
from vmq_cluster.raft.group import Group
from vmq_cluster.raft.host import Host
from vmq_cluster.raft.messages import Append, Campaign, Files, Nudge, decode, encode
from vmq_cluster.raft.options import RaftOptions
from vmq_cluster.raft.progress import AT_NO_TIME

log = logging.getLogger("vmq.cluster")

#: Seconds that the others of a new group have to begin it before the one that is to lead stands.
_FIRST: Final = 0.3
#: Seconds until ballots are written again that could not be.
_RETRY: Final = 0.5
#: Seconds that other threads wait for this one: it may end just then.
_ANSWER: Final = 10.0
#: Bytes that other nodes have said and that wait, as while the disk hangs; what is over that they say again.
WAITING: Final = 128 << 20
#: Logs that are synced at the same time.
_SYNCS: Final = 8


class GroupThread:
    """All groups of a node.

    Args:
        folder: what the node itself keeps, made when missing.
        node: the node's name.
        outside: who is told what happens.
        options: of the groups.

    Raises:
        OSError: the disk.
    """

    def __init__(
        self, folder: Path, node: str, outside: Outside, options: RaftOptions | None = None
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._ballots = Ballots(folder / "ballots")
        #: This node's name in groups: one that has lost its disk comes back under another.
        self.name = f"{node}@{self._ballots.identity}"
        self._outside = outside
        options = RaftOptions() if options is None else options
        self.host = Host(self.name, self._ballots.boot, options, Random())
        self.opened: dict[str, Opened] = {}
        #: Groups of which something went wrong lately, and what.
        self.failed: dict[str, str] = {}
        self.turns = GroupTurns("vmq-groups", self._run)
        self._takes: dict[str, list[Take]] = {}
        #: What the machine asked for in this pass.
        self._effects: list[Effect] = []
        self._taking = Taker(self._do)
        self._life = self._ballots.boot << 24
        self._up: set[str] = set()
        #: Groups whose logs have been written to in this pass.
        self._written: set[str] = set()
        self._looks = LookTimes()
        #: Groups that this node is to lead first, and when it stands: leaders are spread as they were placed.
        self._preferred: list[tuple[float, str]] = []
        self._pool = ThreadPoolExecutor(_SYNCS, thread_name_prefix="vmq-groups-sync")
        #: Bytes that other nodes have said, as the event loop counts them, and those that the thread has heard.
        self._said = self._heard = 0
        #: When the thread looks at the time again.
        self._due = 0.0
        #: While this node gives away what it leads: whose nodes are drained, and get nothing if others can.
        self._drained: Collection[str] | None = None
        #: When leaders here have to tell what is committed, as of the last pass; and when the event loop sees to that.
        self.tells_at = self.looks_at = AT_NO_TIME
        #: Why this node takes no part in its groups.
        self.failure = ""

    # --- from any thread

    def start(self) -> None:
        """Starts the thread."""
        self.turns.start()

    def post(self, function: Callable[..., Any], *arguments: Any) -> None:
        """Has a function called in the thread; nobody waits for what comes of it."""
        self.turns.post(function, *arguments)

    def receive(self, peer: str, raw: bytes) -> None:
        """A node says something; as good as lost where too much waits."""
        if self._said - self._heard + len(raw) <= WAITING:
            self._said += len(raw)
            self.turns.put(lambda: self._receive(peer, raw))

    def take(self, take: Take) -> None:
        """A producer hands in rows."""
        self.turns.put(lambda: self.gather(take))

    def stop(self, patience: float = 5.0) -> None:
        """Closes all logs in order, and ends."""
        self.turns.stop(patience)

    # --- a pass of another thread's, whose turn it is

    def gather(self, take: Take) -> None:
        """Rows, in this pass."""
        self._takes.setdefault(take.group, []).append(take)

    def add(self, effects: list[Effect]) -> None:
        """What the machine asks for, in this pass."""
        self._effects += effects

    def finish_routine(self, now: float) -> None:
        """Ends the pass: carries out what follows from it if that is routine, too; else the thread does, at once."""
        self._append_all(now)
        if now >= self.host.tells_at:
            self._effects += self.host.tell(now)
        self._effects += self.host.finish()
        if all(isinstance(each, Send | Answered | Committed) for each in self._effects):
            self._finish(now)
        else:
            self.turns.put(_nothing)
        if self.host.is_busy and self._due > now + TICK:
            self.turns.wake()  # groups that rested are to be ticked
        self.tells_at = self.host.tells_at

    # --- the thread

    def _run(self) -> None:
        self._due = until = time.monotonic()
        goes_on = True
        try:
            while goes_on:
                self.turns.wait(until)
                with self.turns.turn:
                    goes_on = self._pass()
                    until = self._next()
        except Exception as error:
            self.failure = repr(error)
            log.exception("the groups of this node stop")
        finally:
            with self.turns.turn:
                self._close_all()

    def _next(self) -> float:
        """When the next pass is due if nothing comes."""
        now = time.monotonic()
        pause = self._looks.pause(now, self.host.is_busy or bool(self._preferred))
        tick = now + min(pause, self.host.options.word)
        # The first group is ticked soon.
        self._due = tick if now >= self._due else min(self._due, tick)
        # The loop sets `looks_at` before it asks for `tells_at`, so one of both sees to what is to be told.
        self.tells_at = self.host.tells_at
        return self._due if self.looks_at <= self.tells_at else min(self._due, self.tells_at)

    def _pass(self) -> bool:
        """Does what there is to do; False: it is over."""
        goes_on = self.turns.do()
        now = time.monotonic()
        self._append_all(now)
        if now >= self._due:
            self._tick(now)
        elif now >= self.host.tells_at:
            self._effects += self.host.tell(now)
        self._finish(now)
        self._outside.on_pass()
        return goes_on

    def _append_all(self, now: float) -> None:
        """Rows that were gathered in a pass."""
        takes, self._takes = self._takes, {}
        for name, each in takes.items():
            self._append(name, each, now)

    def _finish(self, now: float) -> None:
        """Carries out what the machine asked for, until nothing follows from it."""
        self._effects += self.host.finish()
        # A leader without followers says nothing, and waits for its disk all the same.
        while self._effects or self._written:
            effects, self._effects = self._effects, []
            self._carry_out(effects, now)
            self._sync(now)
        self._taking.release_early()

    def _append(self, name: str, takes: list[Take], now: float) -> None:
        opened = self.opened.get(name)
        if opened is not None and opened.group is not None and opened.keys is not None:
            taking = (opened.group, opened.keys, takes, now)
            if self._guard(name, self._taking.append, *taking) is not False:
                return
        for take in takes:
            take.answer(ELSEWHERE)

    def _guard(self, name: str, what: Callable[..., Any], *about: Any) -> Any:
        """Does something for a group; whatever goes wrong in it, it alone is closed. Returns False then."""
        try:
            return what(*about)
        except Exception as error:  # noqa: BLE001 - a mistake in one group stops no other; `_fail` tells it
            self.host.close(name)
            self._fail(name, error)
            return False

    def _do(self, group: Group, what: Callable[..., Any], *about: Any) -> Any:
        """Lets a group do something, and takes what follows from it."""
        done = self._guard(group.replica.group, what, *about)
        self._effects += self.host.finish(group)
        return done

    def _carry_out(self, effects: list[Effect], now: float) -> None:
        ballots = {each.group: each.ballot for each in effects if isinstance(each, Save)}
        if ballots:
            self._save(ballots)
            for name in ballots.keys() & self.opened.keys():
                if (kept := self.opened[name].partition.log) is not None:
                    self._guard(name, kept.mark.clear)
        for effect in effects:
            match effect:
                case Send():
                    self._outside.send(effect.peer, encode(effect.envelope))
                case Answered():
                    self._taking.answered(effect)
                case Committed():
                    self._guard(effect.group, self._outside.on_committed, effect)
                case Led():
                    self._looks.set(effect.group, now + LOOK)
                    about = (effect.group, effect.leader, effect.term)
                    self._guard(effect.group, self._outside.on_led, *about)
                    if effect.leader == self.name and effect.group in self.opened:
                        self._aim(self.opened[effect.group], now)
                case Uncertain():
                    lost = (effect.first, effect.end, effect.given_up)
                    self._outside.on_uncertain(effect.group, *lost)
                case Failed():
                    self._fail(effect.group, effect.error)
                case Save() | Removed():
                    pass

    def _save(self, ballots: dict[str, Ballot]) -> None:
        """Has ballots on disk, however long that takes: until then this node says nothing."""
        while True:
            try:
                self._ballots.save(ballots)
            except OSError as error:
                if self.failure != str(error):
                    self.failure = str(error)
                    log.error("no part is taken until votes can be written: %s", error)
                if self.turns.is_stopping:
                    raise
                time.sleep(_RETRY)
            else:
                self.failure = ""
                return

    def _sync(self, now: float) -> None:
        """Has the disks take what groups wait for, and tells these."""
        written, self._written = self._written, set()
        for name in written:
            self._looks.set(name, now + LOOK)
        logs = {name: self.opened[name].partition.log for name in written & self.opened.keys()}
        syncs = [
            (name, self._pool.submit(each.sync))
            for name, each in logs.items()
            if each is not None and each.is_unsynced
        ]
        for name, sync in syncs:
            if self._guard(name, sync.result) is not False:
                self._effects += self.host.on_safe(name, now)
        self._effects += self.host.finish()

    # --- groups

    def open(
        self,
        name: str,
        partition: ReplicaPartition,
        keys: Keys | None,
        first: tuple[str, ...],
    ) -> None:
        """Opens a group of which this node has, or is to have, a replica."""
        if name not in self.opened:
            self.opened[name] = Opened(partition, keys, first)
            partition.on_damage = lambda: self.turns.put(lambda: self._find_damage(name))
            partition.on_write = lambda: self._written.add(name)
            partition.on_close = lambda: self._close_from_outside(name)
            partition.call = lambda what, *about: self.turns.call(what, *about).result(_ANSWER)
            self._looks.set(name, time.monotonic() + LOOK)
            self._guard(name, self._try_open, name)

    def _try_open(self, name: str) -> None:
        opened = self.opened[name]
        found, ballot = opened.partition.open(), self._ballots.known.get(name)
        is_first = self.name in opened.first and ballot is None
        if is_first and not found.is_begun:
            begin(found, opened.first)
            if opened.first[0] == self.name:
                wait = _FIRST if len(opened.first) > 1 else 0.0
                self._preferred.append((time.monotonic() + wait, name))
        self._life += 1
        forgot = found.forgot or (ballot is not None and not found.end)
        about = (name, found, ballot or Ballot(), self._life, time.monotonic())
        opened.group = self.host.open(*about, forgot=forgot)
        self._find_damage(name)  # that was met while it was closed

    def _fail(self, name: str, error: Exception) -> None:
        """Something went wrong in a group, which is closed by now; it is tried again."""
        self._taking.fail(name)
        if (opened := self.opened.get(name)) is None:
            return
        is_disk = isinstance(error, OSError)
        reason = str(error) if is_disk else repr(error)
        if self.failed.get(name) != reason:
            trace = None if is_disk else error
            log.error("group=%s node=%s: it fails: %s", name, self.name, reason, exc_info=trace)
        self.failed[name] = reason
        opened.group = None
        ballot = self._ballots.known.get(name, Ballot())
        if ballot.vote == self.name:  # it may have led: others are not to wait for its word
            for peer in set(ballot.members.voters) - {self.name}:
                self.host.send(peer, name, Nudge(ballot.term))
        self._looks.set(name, time.monotonic() + LOOK)
        try:
            opened.partition.shut(clean=False)
        except OSError:
            pass

    def close(self, name: str, *, erase: bool = False) -> None:
        """This node has no replica of the group any more; `erase`: nor its files."""
        self.host.close(name)
        self.failed.pop(name, None)
        opened = self.opened.pop(name, None)
        if opened is None:
            return
        partition = opened.partition
        partition.on_close = partition.on_damage = partition.on_write = _nothing
        try:
            if erase:
                partition.erase()  # the ballot stays: this node may be asked again
            else:
                partition.shut()
        except OSError as error:
            log.error("group=%s: its log cannot be closed: %s", name, error)

    def _close_from_outside(self, name: str) -> None:
        """A stream is deleted, or the broker ends, by another thread: waits until nothing is written any more."""
        if self.turns.is_own or self.turns.is_stopping:
            return
        try:
            self.turns.call(self.close, name).result(10)
        except Exception:  # noqa: BLE001 - it is closed by then, or will be
            log.warning("group=%s: it is closed while something was under way", name)

    def _close_all(self) -> None:
        for name in list(self.opened):
            self.close(name)
        self._ballots.close()
        self._pool.shutdown(wait=False)

    def hand_over(self, drained: Collection[str] | None) -> None:
        """Begins to have others lead what this node leads, and what it comes to lead; None: keeps that again."""
        self._drained = drained
        for name in list(self.opened) if drained is not None else ():
            self.transfer(name, "")

    # --- what happens

    def _receive(self, peer: str, raw: bytes) -> None:
        self._heard += len(raw)
        try:
            envelope = checked(peer, decode(raw))
        except MalformedError as error:
            log.warning("what %s says of groups is passed over: %s", peer, error)
            return
        for name, message in envelope.items:
            if name not in self.opened and isinstance(message, Append | Files):
                self._outside.on_unknown(name)
        self._effects += self.host.receive(envelope, time.monotonic())

    def peers(self, up: set[str]) -> None:
        """These members, by their names in groups, can be reached, and no others."""
        now = time.monotonic()
        for name in self._up - up:
            self._effects += self.host.peer_down(name, now)
        for name in up - self._up:
            self._effects += self.host.peer_up(name, now)
        self._up = set(up)

    def _tick(self, now: float) -> None:
        self._effects += self.host.tick(now)
        while self._preferred and self._preferred[0][0] <= now:
            opened = self.opened.get(self._preferred.pop(0)[1])
            if opened is not None and opened.group is not None and not opened.group.replica.term:
                self._do(opened.group, opened.group.receive, "", Campaign(0), now)
        for name in self._looks.due(now):
            if (opened := self.opened.get(name)) is not None:
                self._guard(name, self._look, name, opened, now)
                pause = LOOK if name in self.failed else rest(opened.partition, opened.group)
                self._looks.set(name, now + pause)

    def _look(self, name: str, opened: Opened, now: float) -> None:
        group = opened.group
        if group is None or opened.partition.log is None:
            self._try_open(name)
            return
        self.failed.pop(name, None)  # what is open since the last look is well
        follow(opened.partition, group)
        if self._drained is not None:
            self.transfer(name, "")
        if group.leading is None or name.startswith("meta/"):
            return
        is_own = opened.first[:1] in ((), (self.name,))
        if group.replica.term == 1 and not is_own and self._drained is None:
            # Somebody was quicker than the one that was placed to lead it first.
            self._do(group, group.transfer, opened.first[0], now)
        lead(opened.partition, group, self._do, now)
        self._aim(opened, now)

    def aim(self, wanted: Mapping[str, tuple[str, ...]]) -> None:
        """The voters that groups are to have, by decision of the meta group; their streams may have other options."""
        now = time.monotonic()
        for name, voters in wanted.items():
            if (opened := self.opened.get(name)) is not None:
                self._looks.set(name, now + LOOK)
                if opened.wanted != voters:
                    opened.wanted = voters
                    self._aim(opened, now)

    def transfer(self, name: str, to: str) -> bool:
        """Has another replica lead, "" = whichever keeps that; whether it begins to, which may come to nothing."""
        group, now = self.opened[name].group if name in self.opened else None, time.monotonic()
        if group is None or group.leading is None:
            return False
        self._looks.set(name, now + LOOK)
        if not to:
            return groups_of_node.give_away(group, self._drained or (), self._do, now)
        return bool(self._do(group, group.transfer, to, now))

    def recover(self, names: list[str], system: list[str]) -> dict[str, str]:
        """Has groups without a leader go on here alone, those of no stream (`system`) if it counts; says why not."""
        return groups_of_node.recover(self.opened, self.name, names, system, self._do, self.failed)

    def give_up(self, names: list[str]) -> dict[str, str]:
        """Gives up what is damaged here and nobody has, of groups that this node leads; returns why not yet."""
        return groups_of_node.give_up(self.opened, names, self._do, self.failed)

    def _aim(self, opened: Opened, now: float) -> None:
        group, wanted = opened.group, opened.wanted
        if group is None or group.leading is None or not wanted:
            return
        members = group.replica.members
        if members.voters != wanted or members.learners:
            self._do(group, group.aim, wanted, now)

    def _find_damage(self, name: str) -> None:
        """Somebody has met damage in the log of a group."""
        opened = self.opened.get(name)
        if opened is not None and opened.group is not None and opened.partition.log is not None:
            self._do(opened.group, self._find_damage_in, opened.partition.log, opened.group)

    def _find_damage_in(self, kept: ReplicaLog, group: Group) -> None:
        cut = kept.find_damage()
        if cut is not None:
            kept.cut(cut)
            self._life += 1
            group.forget(self._life, time.monotonic())


def _nothing(*_: Any) -> None:
    """Nothing is to be done."""
