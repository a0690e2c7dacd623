"""What an operator asks of groups: to go elsewhere, to be led by another, to go on with what is left."""

import asyncio
import logging
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from math import inf
from typing import TYPE_CHECKING, Final

from vmq.clustering.raft.groups.thread import GroupThread
from vmq.clustering.raft.places import Places, partitions_text
from vmq.clustering.raft.publishing import moves_of
from vmq.clustering.raft.records import GroupRecords, Lead, Loss, node_of
from vmq_cluster.keyed_records import decode
from vmq_cluster.raft.placement import apart, leaders

if TYPE_CHECKING:
    from vmq.streams.catalog import Catalog

log = logging.getLogger("vmq.cluster")

#: Seconds that a recovered partition has to be led, and between two looks.
_LEADING: Final = 5.0
_SOON: Final = 0.02
#: Seconds in which at least one partition more is led by whom an operator wants.
_HANDING_OVER: Final = 10.0
#: Seconds after which a wish is noted again that was taken back in vain: by a leader that was none any more, perhaps.
_AGAIN: Final = 1.0
#: Seconds after which a node that cannot be reached is believed not to be there, rather than beyond a split.
_AWAY: Final = 60.0
#: Seconds in which all say whether they have what is damaged here, and most have noted that it is given up.
_GIVING_UP: Final = 5.0
_NOTED: Final = "what is damaged here is given up once most of its copies have noted that"
_BUT: Final = (
    "copies that lack what is damaged here cannot follow: "
    "if most do, 'vmq stream recover' goes on without them"
)


class GroupRequests:
    """Wishes stand in the metadata, so that whoever leads a group follows them.

    Args:
        records: of the groups.
        catalog: the streams.
        places: where partitions are.
        thread: this node's groups.
    """

    def __init__(
        self, records: GroupRecords, catalog: "Catalog", places: Places, thread: GroupThread
    ) -> None:
        self._records = records
        self._catalog = catalog
        self._places = places
        self._thread = thread
        #: When nodes that cannot be reached could be last, in monotonic seconds.
        self._left: dict[str, float] = {}

    def note_left(self, nodes: Iterable[str]) -> None:
        """These nodes cannot be reached any more."""
        now = time.monotonic()
        self._left.update(dict.fromkeys(nodes, now))

    def limits(self) -> dict[str, int]:
        """How many partitions nodes take, by node; 0, or nothing: as many as there are."""
        return {node_of(name): most for name, most in self._records.limits().items()}

    def move(self, stream: str, number: int, nodes: list[str]) -> str:
        """Has a partition go to other nodes; returns what is wrong with that, "" if nothing is."""
        names = self._records.nodes()
        place = self._places.places.get((stream, number))
        if place is None:
            return self._unplaced(stream, number)
        strange = [each for each in nodes if each not in names]
        known = self._catalog.streams.get(stream)
        count = len(nodes) if known is None else known.options.replicas
        hosts = {node_of(name): host for name, host in self._records.labels().items()}
        if strange or len(nodes) != count or len(apart(nodes, hosts)) < len(nodes):
            there = ", ".join(sorted(names))
            given = ", ".join(strange or nodes) or "none"
            return f"{given}; accepted: {count} nodes that keep streams, each on a host of its own: {there}"
        self._records.put("\0".join(names[each] for each in nodes).encode(), "move", place.group)
        self._records.put(names[nodes[0]].encode(), "wish", place.group)  # as soon as it can
        return ""

    def _unplaced(self, stream: str, number: int) -> str:
        known = self._catalog.streams.get(stream)
        last = -1 if known is None else len(known.partitions) - 1
        if number > last:
            return f"stream {stream!r} has no partition {number}; accepted: 0 to {last}"
        return f"partition {number} of stream {stream!r} has no place yet"

    def wish(self, stream: str, number: int, node: str) -> str:
        """Has another replica lead a partition; returns what is wrong with that, "" if nothing is.

        One that a move is about to make leads as soon as it can. Where a leader is being elected that one hands over.
        """
        place = self._places.places.get((stream, number))
        if place is None:
            return self._unplaced(stream, number)
        voters = (*place.voters, *moves_of(self._records).get(place.group, ()))
        to = next((each for each in voters if node_of(each) == node), "")
        if not to:
            there = ", ".join(dict.fromkeys(map(node_of, voters)))
            return (
                f"{node!r} has no replica of partition {number} of stream {stream!r}; accepted: {there}, "
                "or 'vmq stream move' first"
            )
        if node not in self._able():
            return f"{node!r} cannot be reached, or is drained: it would lead nothing now"
        self._records.put(to.encode(), "wish", place.group)
        return ""

    def _able(self) -> set[str]:
        """The nodes that can be reached, and keep what they come to lead."""
        return {*self._places.up, node_of(self._places.name)}.difference(self._records.drained())

    async def transfer(self, stream: str, number: int, node: str) -> str:
        """Has another replica lead a partition; returns what is wrong, "" when it does."""
        if wrong := self.wish(stream, number, node):
            return wrong
        group = self._places.places[stream, number].group
        return await self._until_led({group: (self._records.get("wish", group) or b"").decode()})

    async def rebalance(self, stream: str) -> str:
        """Has the replicas that may lead do so alike; returns what is wrong, "" when they do."""
        able, groups, able_of = self._able(), dict[int, str](), dict[int, list[str]]()
        for (name, number), place in sorted(self._places.places.items()):
            voters = [each for each in place.voters if node_of(each) in able]
            if name == stream and voters:
                groups[number], able_of[number] = place.group, voters
        return await self._until_led(
            {groups[number]: to for number, to in leaders(able_of).items()}
        )

    async def _until_led(self, wishes: Mapping[str, str]) -> str:
        """Notes whom groups are to be led by, and waits for that; returns what is wrong, "" if nothing is.

        Who leads takes the wish back. What this node knows of leaders may be old, so that alone says nothing.
        """
        for group, to in wishes.items():
            self._records.put(to.encode(), "wish", group)
        left, until, again = len(wishes) + 1, 0.0, time.monotonic() + _AGAIN
        while late := self._not_led(wishes):
            now, able = time.monotonic(), self._able()
            if gone := {each for each in late if node_of(wishes[each]) not in able}:
                nodes = ", ".join(sorted({node_of(wishes[each]) for each in gone}))
                numbers = sorted(self._places.keys[each][1] for each in gone)
                return f"{nodes}: cannot be reached any more, and is not to lead {partitions_text(numbers)}"
            if len(late) < left:
                left, until = len(late), now + _HANDING_OVER
            elif now >= until:
                told = [self._why_not_led(each, wishes[each]) for each in late[:10]]
                return f"it is noted, and goes on by itself; not led as you want yet: {'; '.join(told)}"
            if now >= again:
                again = now + _AGAIN
                for each in late:
                    if self._records.get("wish", each) is None:
                        self._records.put(wishes[each].encode(), "wish", each)
            await asyncio.sleep(_SOON)
        return ""

    def _not_led(self, wishes: Mapping[str, str]) -> list[str]:
        """The groups that are not led as is wished, as far as is known, by the numbers of their partitions."""
        noted = {parts[0] for parts, _ in self._records.all("wish")}
        late = [
            group
            for group, to in wishes.items()
            if group in self._places.keys
            and (group in noted or self._places.leaders.get(group) != to)
        ]
        return sorted(late, key=self._places.keys.__getitem__)

    def _why_not_led(self, group: str, to: str) -> str:
        """What a wish waits for."""
        noted = (self._records.get("wish", group) or to.encode()).decode(errors="replace")
        lead = decode(self._records.get("lead", group), Lead)
        why = f"{node_of(to)} leads it once it has all that the leader has"
        if noted != to:
            why = f"{node_of(noted)} is to lead it, as was asked for since"
        elif not self._places.leaders.get(group):
            why = "nobody leads it who could hand over"
        elif lead is not None and to not in lead.voters:
            why = f"the copy of {node_of(to)} is still being made"
        return f"partition {self._places.keys[group][1]}: {why}"

    def _just_left(self, voters: Iterable[str]) -> list[str]:
        """The nodes that may be a majority elsewhere with which copies go on: those that were here a moment ago."""
        nodes = [node_of(each) for each in voters]
        up, members = self._places.up | {node_of(self._places.name)}, self._records.members()
        since = time.monotonic() - _AWAY
        away = (each for each in nodes if each not in up and each in members)
        left = [each for each in away if self._left.get(each, -inf) > since]
        there = sum(each in up for each in nodes)
        return left if 2 * there <= len(nodes) < 2 * (there + len(left)) else []

    async def recover(
        self, stream: str, number: int | None, system: Iterable[str], *, force: bool
    ) -> str:
        """Has partitions without a leader, and the groups of no stream (`system`), go on with this node's copies alone.

        `force`: also if most copies were in reach a moment ago.

        Returns what is wrong with that, "" if nothing is.
        """
        groups = {
            place.group: key[1]
            for key, place in self._places.places.items()
            if key[0] == stream
            and number in (None, key[1])
            and (number is not None or not self._places.leaders.get(place.group))
        }
        if not groups:
            return f"no partition of stream {stream!r} is without a leader"
        places = self._places
        for group in () if force else groups:
            if left := self._just_left(places.places[stream, groups[group]].voters):
                return (
                    f"stream {stream!r}: most of its copies could be reached within the last {_AWAY:.0f} s "
                    f"(no more: {', '.join(left)}), and may go on elsewhere: what they acknowledge would be lost. If "
                    "their disks are lost, remove these nodes ('vmq cluster remove'), or say --force"
                )
        led = {each: f"{node} leads it" for each in groups if (node := places.leads_beside(each))}
        names = [each for each in groups if each not in led]
        recovered = self._thread.turns.call(self._thread.recover, names, list(system))
        wrong = await asyncio.wrap_future(recovered)
        wrong.update(led)
        told = [f"partition {at}: {wrong[each]}" for each, at in groups.items() if each in wrong]
        if told:
            return f"stream {stream!r}: {'; '.join(told[:10])}"
        with suppress(TimeoutError):
            async with asyncio.timeout(_LEADING):
                while not all(map(self._places.leaders.get, groups)):  # noqa: ASYNC110 - leaders wake nobody here
                    await asyncio.sleep(_SOON)
        if late := [at for each, at in groups.items() if not self._places.leaders.get(each)]:
            return f"stream {stream!r}: {partitions_text(late)}: to go on with this copy is decided, and not done yet"
        return ""

    async def accept_loss(self, stream: str, number: int | None) -> str:
        """Notes that an operator knows what may be lost, and gives up what is damaged here and nobody has.

        Returns what is wrong with that, "" if nothing is.
        """
        found = self._places.losses(stream, number)
        given_up = await self._give_up(stream, number)
        if not found and given_up is None:
            return (
                f"nothing of stream {stream!r} may be lost, as far as this node knows; "
                "a node knows it of what it has a copy of, and gives up what is damaged of what it leads"
            )
        for group, term in found.items():
            self._records.write(Loss(term), "loss", group)
        self._places.accepted = self._records.accepted()
        return given_up or ""

    async def _give_up(self, stream: str, number: int | None) -> str | None:
        """Gives up what is damaged of what this node leads; returns why it cannot, "" if it is done.

        None: nothing is damaged. Everybody is asked before whether he has it, so it takes a moment.
        """
        places = self._places.places.items()
        groups = {
            place.group: key[1]
            for key, place in places
            if key[0] == stream and number in (None, key[1])
        }
        wrong: dict[str, str] = {}
        was_damaged = False
        with suppress(TimeoutError):
            async with asyncio.timeout(_GIVING_UP):
                while wrong := await self._thread_gives_up(list(groups)):
                    was_damaged = True
                    await asyncio.sleep(_SOON)
        if not wrong:
            return "" if was_damaged else None
        told = [
            f"partition {at}: {wrong[each] or _NOTED}"
            for each, at in groups.items()
            if each in wrong
        ]
        return f"stream {stream!r}: {'; '.join(told[:10])}; {_BUT}"

    async def _thread_gives_up(self, groups: list[str]) -> dict[str, str]:
        found: dict[str, str] = await asyncio.wrap_future(
            self._thread.turns.call(self._thread.give_up, groups)
        )
        return found

    def follow(self) -> None:
        """Hands over what this node leads and somebody wants led elsewhere.

        Nobody else takes a wish back: another node may believe that it is fulfilled by a leader of yesterday. A node
        that has gone since is not to lead by surprise when it is back, unless a move brings the group there.
        """
        wishes = list(self._records.all("wish"))
        able, moves = (self._able(), moves_of(self._records)) if wishes else (set(), {})
        for parts, raw in wishes:
            group, to = parts[0], raw.decode(errors="replace")
            if self._places.own.get(group) != self._places.name:
                continue
            if to == self._places.name:
                self._records.delete("wish", *parts)
            elif node_of(to) not in able and group not in moves:
                log.warning("group=%s: %s cannot be reached, and is not to lead it", group, to)
                self._records.delete("wish", *parts)
            else:
                self._thread.post(self._thread.transfer, group, to)
