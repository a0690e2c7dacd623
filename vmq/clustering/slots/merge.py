"""Two states of a slot that parted become one: sets merge, and of each client one register wins.

A message is **done** for a client if a side has seen it for that client and has it in the client's queue no more. What
a side has seen *for a client* is its context, if it knows the client's subscriptions: else a message that one client
has finished would be lost to another who subscribed on the other side. What neither side has seen for a client though
their contexts together have it, is kept as its `missed`, and what the client has of messages that the context lacks as
`ahead`: both are empty but after forks.

So each client's queue is an observed-remove set with a context of its own, of which only the difference to the slot's
is written down (Almeida, Shoker, Baquero, "Delta State Replicated Data Types", 2018): the merge is commutative and
idempotent, and associative as long as forks know the same subscriptions. Where a client has subscribed in one of
three forks, the order may decide whether another's word counts that it has a message: it may get that again, and
loses none.
"""

from typing import Final

from vmq.clustering.slots.register import (
    NEVER_OVER,
    PAST,
    BornAt,
    ClientRegister,
    OverAt,
    SentMessage,
    begins_in_both,
    begins_without,
    is_by,
    is_of,
    seen_since,
)
from vmq.clustering.slots.state import HEAD, SlotState
from vmq.clustering.slots.words import GROUP, NO_LINEAGE, Dot, Lineage, includes
from vmq_cluster.clocks import NodeClock

#: In lineages that name a session which was a node's, before it came into a slot: no owner's has it. Whoever knows of
#: one of its subscriptions has that from a store that had the session.
MIGRATED: Final = 1 << 62


def merge(one: SlotState, other: SlotState, current: Lineage = NO_LINEAGE) -> None:
    """Makes of `one` what both have; a new version of its lineage. `other` stays as it is.

    `current` is the lineage of which `other` had all that was safe, as far as whoever had it can say.
    """
    one.load_all()
    before = one.context.copy()
    included = dict(one.included)
    for origin in one.context.merge(other.context):
        one.changed["c", "", origin, 0] = None
    stamped = {
        # Of two stamps of a message the older is its place.
        dot: min(message, other.messages[dot], key=lambda each: each.stamp)
        for dot, message in one.messages.items()
        if dot in other.messages
    }
    moves = _merge_groups(one, before, other)
    clients = {**one.registers, **other.registers, **one.queues, **other.queues}
    for client in sorted(clients):
        _merge_client(one, before, included, other, client)
    for dot, message in stamped.items():
        ours = one.messages.get(dot)
        wanted = message.stamp, moves.get(dot, message.moves)
        if ours is not None and (ours.stamp, ours.moves) != wanted:
            one.place(dot, *wanted)
    for lineage, version in other.included.items():
        one.included[lineage] = max(version, one.included.get(lineage, 0))
    for lineage, last in [*other.runs_of.items(), (other.lineage, other.last_run)]:
        if lineage != one.lineage:
            one.has_runs(lineage, last)
    one.last = max(one.last, other.last)
    one.lacks = _what_both_lack(one, included, other, current)
    one.claim()
    one.sort()
    one.is_mixed = one.is_mixed or bool(one.fresh)
    one.changed[HEAD] = None


def _what_both_lack(
    one: SlotState, included: dict[Lineage, int], other: SlotState, current: Lineage
) -> Lineage:
    """What the two together lack: nothing, if one has all that the other lacks."""
    found = []
    if one.lacks != NO_LINEAGE:
        if other.lacks != NO_LINEAGE or not has_all_of(one.lacks, current, other.included):
            found.append(one.lacks)
    if other.lacks != NO_LINEAGE:
        if one.lacks != NO_LINEAGE or not has_all_of(other.lacks, one.lineage, included):
            found.append(other.lacks)
    return max(found, default=NO_LINEAGE)


def has_all_of(lacking: Lineage, current: Lineage, included: dict[Lineage, int]) -> bool:
    """Whether a state has all that was safe in a lineage: it had in this one, or in a later one that came of it.

    `current` is the lineage of which it had, `included` what it includes.
    """
    if lacking == current:
        return True
    return lacking[0] < current[0] and includes(included, lacking, 1)


def _merge_groups(one: SlotState, before: NodeClock, other: SlotState) -> dict[Dot, int]:
    """A message of a share group is for one member: which one, where both sides have it, and how often it had moved.

    That one may have it by now.
    """
    here, there = _held_for_groups(one), _held_for_groups(other)
    had_here, had_there = _ahead(one), _ahead(other)
    moves: dict[Dot, int] = {}
    for dot, client in here.items():
        if dot not in there:
            if dot in other.context or dot in had_there:
                one.done(client, dot)
            continue
        keeps = there[dot]
        if not _is_theirs(one, client, other, keeps, dot):
            moves[dot] = one.messages[dot].moves
            continue
        moves[dot] = other.messages[dot].moves
        if keeps != client:
            message = one.messages[dot]
            one.done(client, dot)
            one.put(keeps, dot, other.queues[keeps][dot], message)
    for dot, client in there.items():
        if dot not in here and dot not in before and dot not in had_here:
            one.put(client, dot, other.queues[client][dot], other.messages[dot])
    return moves


def _ahead(state: SlotState) -> NodeClock:
    """What any client of a state has that it has not seen: of a share group no other is to get it."""
    found = NodeClock()
    for register in state.registers.values():
        if register.ahead.runs:
            found.merge(register.ahead)
    return found


def _is_theirs(one: SlotState, ours: str, other: SlotState, theirs: str, dot: Dot) -> bool:
    """Whether a message of a share group is for whom the other side has it.

    Who took it from a member knew that this one had gone, unless it has been attached by the other side since. What an
    earlier owner chose besides was not safe, so it was not sent at QoS 2.
    """
    here, there = one.messages[dot].moves, other.messages[dot].moves
    if here != there:
        is_ahead = there > here
        behind, ahead, member = (one, other, ours) if is_ahead else (other, one, theirs)
        return is_ahead != (_attached(behind, member) > _attached(ahead, member))
    if ours.startswith(GROUP) != theirs.startswith(GROUP):  # one has no member
        return ours.startswith(GROUP)
    return other.lineage > one.lineage


def _attached(state: SlotState, client: str) -> tuple[Lineage, int]:
    register = state.registers.get(client)
    return (NO_LINEAGE, 0) if register is None else register.age()[:2]


def _held_for_groups(state: SlotState) -> dict[Dot, str]:
    return {
        dot: client
        for client, queue in state.queues.items()
        for dot in queue
        if state.messages[dot].group
    }


def _merge_client(
    one: SlotState,
    before: NodeClock,
    included: dict[Lineage, int],
    other: SlotState,
    client: str,
) -> None:
    ours = one.registers.get(client) or ClientRegister()
    theirs = other.registers.get(client) or ClientRegister()
    seen_here = _seen(before, included, ours, _to_know(ours, included, theirs))
    seen_there = _seen(
        other.context, other.included, theirs, _to_know(theirs, other.included, ours)
    )
    here, there = one.queues.get(client, {}), other.queues.get(client, {})
    for dot in here.keys() ^ there.keys():
        if dot in there and _was_in(one, other, dot):
            seen_here.add(dot)
        elif dot in here and _was_in(other, one, dot):
            seen_there.add(dot)
    stale_here, stale_there = _is_over(ours, theirs), _is_over(theirs, ours)
    for dot in list(here):
        if one.messages[dot].group:
            continue
        if dot not in there and (dot in seen_there or stale_here):
            one.done(client, dot)
    for dot, qos in there.items():
        if other.messages[dot].group:
            continue
        if dot not in here and dot not in seen_here and not stale_there:
            one.put_late(client, dot, qos, other.messages[dot])
    seen_here.merge(seen_there)
    missed, waiting = NodeClock(dict(one.context.beyond(seen_here))), NodeClock()
    if missed.runs or ours.since or theirs.since:  # what it has now it will have finished
        for dot in one.queues.get(client, ()):
            waiting.add(dot)
        missed = NodeClock(dict(missed.beyond(waiting)))
    ahead = NodeClock(dict(seen_here.beyond(one.context)))
    subscribed = _merge_subscriptions(ours, included, theirs, other.included)
    _merge_registers(one, client, ours, theirs, subscribed, missed, ahead, waiting)


def _was_in(side: SlotState, other: SlotState, dot: Dot) -> bool:
    """Whether what is in a queue of another side was there when this side had the same: so it was in this one, too."""
    run = other.messages[dot].run
    return run is not None and run.number <= side.runs_of.get(other.lineage, 0)


def _to_know(
    side: ClientRegister, included: dict[Lineage, int], other: ClientRegister
) -> list[tuple[str, BornAt]]:
    """What a side must include to know all subscriptions: where they began; of one that it has not, the rest too.

    One that it has ended, though an owner reads it late, gets the client nothing.
    """
    return [
        (topic_filter, each)
        for register in (side, other)
        for topic_filter, found in register.born.items()
        for each in found
        if (not each[2] or topic_filter not in side.born)
        and not (each[0][1] & MIGRATED and each in _begun(side, topic_filter))
        and not (topic_filter in side.over and _ends(side.over[topic_filter], included, (each,)))
    ]


def _begun(side: ClientRegister, topic_filter: str) -> tuple[BornAt, ...]:
    """Where a subscription began that a side has, or had."""
    _, ended = side.over.get(topic_filter, NEVER_OVER)
    return (*side.before.get(topic_filter, ()), *side.born.get(topic_filter, ended))


def _seen(
    context: NodeClock,
    included: dict[Lineage, int],
    register: ClientRegister,
    points: list[tuple[str, BornAt]],
) -> NodeClock:
    """What a side has seen for a client whose subscriptions began at these points.

    Where it does not know one, that is what came since the client asked for the same here.
    """
    seen = register.ahead.copy()
    unknown = {each for each, point in points if not includes(included, point[0], point[1])}
    if all(each in register.since and register.asks_for(each) for each in unknown):
        known = NodeClock(dict(context.beyond(register.missed)))
        for each in sorted(unknown):
            known = seen_since(known, register.since[each])
        seen.merge(known)
    return seen


def _merge_subscriptions(
    ours: ClientRegister,
    included: dict[Lineage, int],
    theirs: ClientRegister,
    included_there: dict[Lineage, int],
) -> tuple[dict[str, tuple[int, int]], dict[str, tuple[BornAt, ...]]]:
    """By filter the later one; an end ends what is known to be older."""
    subscriptions: dict[str, tuple[int, int]] = {}
    born: dict[str, tuple[BornAt, ...]] = {}
    for each in {**ours.subscriptions, **theirs.subscriptions}:
        here, there = ours.subscriptions.get(each), theirs.subscriptions.get(each)
        if here is None or there is None:
            is_ours = there is None
            winner, other = (ours, theirs) if is_ours else (theirs, ours)
            known = included_there if is_ours else included
            if each in winner.born and _ends((other.ended_past, ()), known, winner.born[each]):
                continue  # also a side that knew it has forgotten it, so it had ended there
        elif (each in ours.born) == (each in theirs.born):
            is_ours = here >= there
        elif each in ours.born:
            end = theirs.over.get(each, NEVER_OVER)
            is_ours = not _ends(end, included_there, ours.born[each])
        else:
            is_ours = _ends(ours.over.get(each, NEVER_OVER), included, theirs.born[each])
        winner = ours if is_ours else theirs
        subscriptions[each] = winner.subscriptions[each]
        if each in winner.born:
            born[each] = tuple(sorted({*ours.born.get(each, ()), *theirs.born.get(each, ())}))
    return subscriptions, born


def _asked(topic_filter: str, ours: ClientRegister, theirs: ClientRegister) -> str:
    """What the client asked for last, where a plugin made this filter of it."""
    sides = [each for each in (ours, theirs) if topic_filter in each.born]
    last = max(sides, key=lambda each: each.subscriptions[topic_filter])
    return last.asked.get(topic_filter, "")


def _is_over(side: ClientRegister, other: ClientRegister) -> bool:
    """Whether the other side has ended the session that this side has, and knew of its connection."""
    if not 0 < side.session < other.ended:
        return False
    past = other.ended_past
    return side.connection in past or any(is_by(each, side.lineage) for each in past)


def _ends(end: OverAt, included: dict[Lineage, int], born: tuple[BornAt, ...]) -> bool:
    """Whether the end of a subscription holds against this one, on a side that includes so much.

    It knew where that began, or from the same request elsewhere, or that the request's connection or owner was over.
    """
    past, begun = end
    return all(
        includes(included, each[0], each[1])
        or any(each[3] == known[3] != 0 for known in begun)
        or _were_over(past, (each,))
        for each in born
    )


def _were_over(past: tuple[int, ...], born: tuple[BornAt, ...]) -> bool:
    """Whether a subscription was asked for on connections, or of owners, that are known to be over, on no other."""
    return all(
        any(is_of(each, request) if each > 0 else is_by(each, lineage) for each in past)
        for lineage, *_, request in born
    )


def _both(one: OverAt, other: OverAt) -> OverAt:
    """What ends that did not know of each other know together."""
    return tuple(sorted({*one[0], *other[0]})), tuple(sorted({*one[1], *other[1]}))


def _merge_registers(
    one: SlotState,
    client: str,
    ours: ClientRegister,
    theirs: ClientRegister,
    subscribed: tuple[dict[str, tuple[int, int]], dict[str, tuple[BornAt, ...]]],
    missed: NodeClock,
    ahead: NodeClock,
    waiting: NodeClock,
) -> None:
    subscriptions, born = subscribed
    over = {
        each: _both(ours.over.get(each, NEVER_OVER), theirs.over.get(each, NEVER_OVER))
        for each in subscriptions
        if each not in born
    }
    before = {each: found for each in born if (found := _ended_before(each, born, ours, theirs))}
    since = {
        each: begins_without(seen, waiting)
        for each in born
        if (seen := _since(each, ours, theirs)) is not None
    }
    asked = {each: was for each in born if (was := _asked(each, ours, theirs))}
    winner, other = (theirs, ours) if theirs.age() > ours.age() else (ours, theirs)
    session = winner.session or _left_session(one, client, ours, theirs, subscriptions)
    left = _unfinished(winner, other) if session else {}
    if (
        winner is ours
        and session == ours.session
        and client in one.registers
        and (*subscribed, over) == (ours.subscriptions, ours.born, ours.over)
        and missed == ours.missed
        and ahead == ours.ahead
        and (before, since, asked) == (ours.before, ours.since, ours.asked)
        and ours.ended >= theirs.ended
        and not left
    ):
        return
    register = winner.copy()
    register.subscriptions = subscriptions
    register.born, register.over = born, over
    register.before, register.since, register.asked = before, since, asked
    register.missed = missed
    register.ahead = ahead
    register.ended = max(ours.ended, theirs.ended)
    register.window.update(left)
    register.window = dict(sorted(register.window.items(), key=lambda item: item[1].order))
    one.unfinished += [(client, packet) for packet in left]
    register.session = session
    one.replace(client, register)


def _left_session(
    one: SlotState,
    client: str,
    ours: ClientRegister,
    theirs: ClientRegister,
    subscriptions: dict[str, tuple[int, int]],
) -> int:
    """Where the winner has none: since when its client has a session that something is left of; 0: it has none.

    Who ended it did not know of all connections of its client, who may have gone on with it on another side.
    """
    began = [stamp for stamp, qos in subscriptions.values() if qos >= 0]
    known = max(ours.session, theirs.session)
    if began:  # what was lost in part began no later than its subscriptions
        return known or min(began)
    return known if one.queues.get(client) else 0


def _ended_before(
    topic_filter: str, born: dict[str, tuple[BornAt, ...]], *sides: ClientRegister
) -> tuple[BornAt, ...]:
    """Where a subscription that is there had begun before it ended, by what both sides know."""
    found = {
        point
        for side in sides
        for point in (
            *side.before.get(topic_filter, ()),
            *side.over.get(topic_filter, NEVER_OVER)[1],
        )
    }
    return tuple(sorted(found.difference(born[topic_filter]))[-PAST:])


def _since(topic_filter: str, ours: ClientRegister, theirs: ClientRegister) -> NodeClock | None:
    """What both sides had seen when a subscription began; of what neither has seen since, `missed` tells."""
    here, there = ours.since.get(topic_filter), theirs.since.get(topic_filter)
    if here is None or there is None:
        return there if here is None else here
    return begins_in_both(here, there)


def _unfinished(winner: ClientRegister, other: ClientRegister) -> dict[int, SentMessage]:
    """Packet ids of which the client may await PUBREL, by the word of an owner that did not live to send it.

    Until it comes, a message under such an id is one that came before, for the client. Its PUBREC may have been on the
    way; to a client that does not hold the id PUBREL is nothing. What it lacks comes under another id, in its turn.
    """
    if _is_over(other, winner):
        return {}
    return {
        packet: SentMessage(sent.dot, True, 2, sent.order)
        for packet, sent in other.window.items()
        if sent.qos == 2 and packet not in winner.window
    }
