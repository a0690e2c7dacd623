"""All groups of a node: one envelope a peer and pass, and ticks for those groups only in which something happens.

A group in which all have everything is **quiet**: no heartbeat, no timer. That its leader lives is what the link to
the leader's node says (heartbeats between nodes, `vmq_cluster.detector`); when that node is down, or began anew, its
groups are woken in batches. So idle groups cost memory, and nothing else. (Heartbeats of 10,000 groups, though in one
frame, took 3.3 ms a peer each time; CockroachDB and TiKV came to the same.) Nothing that must be true depends on it:
a link that is thought well too long delays an election.

A link may be well though a disk, or a mistake, holds up all groups of its node. So those who call `tick` say so, by an
envelope without messages, and who falls silent is as good as down. (Nodes of before that was so never give their word,
and are not missed.)
"""

from collections import deque
from collections.abc import Callable
from random import Random

from vmq_cluster.raft.effects import Ballot, Effect, Failed, Send
from vmq_cluster.raft.group import Group
from vmq_cluster.raft.log import Log
from vmq_cluster.raft.messages import AnyMessage, Append, Envelope, Piece
from vmq_cluster.raft.options import RaftOptions
from vmq_cluster.raft.progress import AT_NO_TIME

#: An envelope is closed when its messages have about so many bytes.
ENVELOPE_BYTES = 8 * 1024 * 1024


class Host:
    """The groups of one node. Every method that is given the time returns what is to be done, in order."""

    def __init__(self, name: str, boot: int, options: RaftOptions, random: Random) -> None:
        self.name = name
        self.boot = boot
        self.options = options
        self.groups: dict[str, Group] = {}
        #: The groups that are ticked.
        self.awake: dict[str, Group] = {}
        #: Those of which this node has put off something that is to be said.
        self.telling: dict[str, Group] = {}
        self._random = random
        #: The nodes that can be reached, and since when.
        self._up: dict[str, float] = {}
        #: Those whose links are well, and when the groups of each that gives its word were heard last.
        self._linked: set[str] = set()
        self._words: dict[str, float] = {}
        self._word_at = 0.0
        #: The last boot of each node that was heard; what an earlier one sent counts no more.
        self._boots: dict[str, int] = {}
        #: Groups of which something may be another way since `take_touched`.
        self._touched: set[str] = set()
        #: Groups to be woken, by whose end, and with how many others.
        self._ended: deque[tuple[Group, str, int]] = deque()
        self._effects: list[Effect] = []
        self._items: dict[str, list[tuple[str, AnyMessage]]] = {}
        #: How many groups may stand until the next tick, and when the last one was.
        self._standing = options.wakes
        self._ticked = 0.0
        self._allowance = 0.0
        self._allowed_at = 0.0

    # --- the outlet of its groups

    def emit(self, effect: Effect) -> None:
        self._effects.append(effect)

    def send(self, peer: str, group: str, message: AnyMessage) -> None:
        self._items.setdefault(peer, []).append((group, message))

    def is_up(self, peer: str) -> bool:
        return peer in self._up

    def up_since(self, peer: str) -> float:
        return self._up.get(peer, 0.0)

    def may_stand(self) -> bool:
        self._standing -= 1
        return self._standing >= 0

    @property
    def is_busy(self) -> bool:
        """Whether it has to be ticked."""
        return bool(self.awake or self._ended)

    def may_fetch(self, size: int, now: float) -> bool:
        rate = self.options.catch_up_rate
        gained = (now - self._allowed_at) * rate
        self._allowance = min(self._allowance + gained, max(rate, size))
        self._allowed_at = now
        if self._allowance < size:
            return False
        self._allowance -= size
        return True

    # --- groups

    def open(
        self, group: str, log: Log, ballot: Ballot, life: int, now: float, *, forgot: bool = False
    ) -> Group:
        """Opens a replica of a group on this node.

        Args:
            group: its name in the cluster.
            log: what is left of it; it begins with a batch of kind `STATE`, or is empty, and then learns.
            ballot: what was last saved.
            life: higher than at every earlier opening of this replica.
            now: the time.
            forgot: whether the log may lack something that was `safe`.
        """
        found = Group(
            group,
            self.name,
            log,
            ballot,
            life,
            self,
            self.options,
            self._random,
            forgot=forgot,
            now=now,
        )
        self.groups[group] = found
        self._settle(found)
        return found

    def close(self, group: str) -> None:
        """It is not here any more, or its log failed."""
        self._touched.add(group)
        found = self.groups.pop(group, None)
        self.awake.pop(group, None)
        self.telling.pop(group, None)
        if found is not None and found.leading is not None:
            found.leading.end()  # who waits for an answer asks elsewhere

    def _settle(self, group: Group) -> None:
        name = group.replica.group
        self._touched.add(name)
        if group.is_awake and self.groups.get(name) is group:
            self.awake[name] = group
        else:
            self.awake.pop(name, None)
        if _tells_at(group) < AT_NO_TIME and self.groups.get(name) is group:
            self.telling[name] = group
        else:
            self.telling.pop(name, None)

    def _guard(self, group: Group, what: Callable[..., None], *arguments: object) -> None:
        """Lets a group do something; whatever goes wrong in it, it alone is closed."""
        try:
            what(*arguments)
        except Exception as error:  # noqa: BLE001 - a mistake in one group stops no other; `Failed` tells it
            self.close(group.replica.group)
            self.emit(Failed(group.replica.group, error))
        else:
            self._settle(group)

    def take_touched(self) -> set[str]:
        """Groups that were opened or closed, or to which something happened, since this was asked last."""
        touched, self._touched = self._touched, set()
        return touched

    def finish(self, group: Group | None = None) -> list[Effect]:
        """The end of a pass: everything that is to be done, sending last."""
        if group is not None:
            self._settle(group)
        effects, self._effects = self._effects, []
        for peer, items in self._items.items():
            for part in _portions(items):
                effects.append(Send(peer, Envelope(self.name, self.boot, part)))
        self._items = {}
        return effects

    # --- what happens

    def tick(self, now: float) -> list[Effect]:
        """Time has passed; to be called a few times in a heartbeat.

        A node that was held up itself has not listened: what leaders said meanwhile is still to be read.
        """
        self._give_word(now)
        was_away = now - self._ticked - self.options.heartbeat
        for group in self.awake.values() if was_away > 0 else ():
            group.excuse(was_away, now)
        self._ticked = now
        self._standing = self.options.wakes
        for _ in range(min(len(self._ended), self.options.wakes)):
            group, peer, count = self._ended.popleft()
            self._guard(group, group.peer_down, peer, count, now)
        for group in list(self.awake.values()):
            self._guard(group, group.tick, now)
        return self.finish()

    def _give_word(self, now: float) -> None:
        """Says that the groups of this node live, and sees whose do no more."""
        options = self.options
        was_away = now - self._ticked - options.word
        if was_away > 0:
            self._words = {peer: at + was_away for peer, at in self._words.items()}
        if now < self._word_at:
            return
        self._word_at = now + options.word
        for peer in self._linked:
            self.emit(Send(peer, Envelope(self.name, self.boot, [])))
            if peer in self._up and now - self._words.get(peer, now) > options.silence:
                del self._up[peer]
                self._end(peer)

    @property
    def tells_at(self) -> float:
        """When `tell` is to be called at the latest."""
        return min([_tells_at(each) for each in self.telling.values()], default=AT_NO_TIME)

    def tell(self, now: float) -> list[Effect]:
        """Says what was put off, where nothing else went to say so."""
        for group in list(self.telling.values()):
            if group.leading is not None and _tells_at(group) <= now:
                self._guard(group, group.leading.step, now)
            elif group.following is not None and _tells_at(group) <= now:
                self._guard(group, group.following.tell)
        return self.finish()

    def tell_leader(self, group: str) -> list[Effect]:
        """Something else goes to the node of a group's leader: what is to be said to that goes along."""
        found = self.telling.get(group)
        if found is not None and found.following is not None:
            self._guard(found, found.following.tell)
        return self.finish()

    def receive(self, envelope: Envelope, now: float) -> list[Effect]:
        """Another node says something, of an early life perhaps, or twice, or late."""
        sender = envelope.sender
        known = self._boots.get(sender, 0)
        if envelope.boot < known:
            return []
        if envelope.boot > known:
            self._boots[sender] = envelope.boot
            self._words.pop(sender, None)
            if known:
                self._end(sender)
                if sender in self._up:
                    self._up[sender] = now  # it waits anew for what it waited for
        if sender in self._words or not envelope.items:
            self._words[sender] = now
            if sender in self._linked and sender not in self._up:
                self._rise(sender, now)
        for name, message in envelope.items:
            group = self.groups.get(name)
            if group is not None:
                self._guard(group, group.receive, sender, message, now)
        return self.finish()

    def on_safe(self, group: str, now: float) -> list[Effect]:
        """The log of a group is as durable as promised, further than before."""
        found = self.groups.get(group)
        if found is None:
            return []
        self._guard(found, found.on_safe, now)
        return self.finish()

    def peer_up(self, peer: str, now: float) -> list[Effect]:
        """A node can be reached: leaders speak to it, for nobody knows what it missed."""
        self._linked.add(peer)
        if peer in self._words:
            self._words[peer] = now
        self._rise(peer, now)
        return self.finish()

    def _rise(self, peer: str, now: float) -> None:
        self._up.setdefault(peer, now)
        for group in list(self.groups.values()):
            if group.leading is not None and peer in group.leading.progress:
                self._guard(group, group.peer_up, peer, now)

    def peer_down(self, peer: str, now: float) -> list[Effect]:
        """A node cannot be reached any more."""
        self._linked.discard(peer)
        self._up.pop(peer, None)
        self._end(peer)
        return self.finish()

    def _end(self, peer: str) -> None:
        """A life of a node is over: the groups that it led, and those led here that it was in, are woken bit by bit."""
        led = [each for each in self.groups.values() if each.replica.leader == peer]
        self._ended.extend([(each, peer, len(led)) for each in led])
        for group in self.groups.values():
            if group.leading is not None and peer in group.leading.progress:
                self._ended.append((group, peer, 0))


def _tells_at(group: Group) -> float:
    if group.leading is not None:
        return group.leading.tells_at
    return AT_NO_TIME if group.following is None else group.following.tells_at


def _portions(items: list[tuple[str, AnyMessage]]) -> list[list[tuple[str, AnyMessage]]]:
    """Messages in envelopes that a frame can hold."""
    parts: list[list[tuple[str, AnyMessage]]] = [[]]
    size = 0
    for item in items:
        if size > ENVELOPE_BYTES or len(parts[-1]) >= 10_000:
            parts.append([])
            size = 0
        parts[-1].append(item)
        message = item[1]
        if isinstance(message, Append):
            size += sum(len(batch.body) for batch in message.batches)
        elif isinstance(message, Piece):
            size += len(message.data)
    return parts
