"""What the coordinator decides on commits that publish (`vmq.streams.groups.steps`)."""

from collections.abc import Callable

from vmq.streams.groups.machine import GroupMachine
from vmq.streams.groups.records import GroupPlace, made_at
from vmq.streams.groups.steps import MOST_STORES, PublishStep, StepNumber, Steps, StoreSteps
from vmq.streams.groups.talk import GroupBeat


def place_before(
    beat: GroupBeat, known: GroupPlace | None, others: bool
) -> tuple[GroupPlace | None, str]:
    """Where a group was before a node said something; None: nowhere yet; and why its members get nothing, if so.

    A place in another stream of the name is none: what that had is deleted. Of what was published with commits it says
    what was decided all the same.

    Args:
        beat: what the node says.
        known: where the group is.
        others: nodes besides this one have members of it.
    """
    if known is None or known.is_of(beat.stream):
        return known, ""
    if others and made_at(beat.stream) < made_at(known.stream):
        return known, "its stream was deleted, and members read another one of the name"
    return None, ""


def decide_steps(
    beat: GroupBeat, place: GroupPlace, machine: GroupMachine | None, name: Callable[[str], str]
) -> None:
    """Decides on a node's steps, each once, and moves the cursors of those that it accepts.

    Args:
        beat: what the node asks for.
        place: where the group is; changed.
        machine: who has its partitions; not frozen. None: nobody.
        name: of a member of that node, as the machine knows it.
    """
    steps = place.steps
    if beat.store in steps:
        steps[beat.store] = steps[beat.store].since(beat.oldest)
    for step in beat.steps:
        known = steps.pop(step.store, StoreSteps())
        if step.number > known.last:
            if step.takes_over is not None:
                is_accepted = take_over(*step.takes_over, steps)
            else:
                is_accepted = machine is not None and holds(step, place, machine, name(step.member))
                if is_accepted:
                    move(step, place)
            known = known.with_next(step.number, is_accepted=is_accepted)
        steps[step.store] = known
        shorten(steps)


def take_over(store: str, number: StepNumber, steps: Steps) -> bool:
    """Whether a step of a store that is lost was accepted; it is not any more, nor will it be."""
    known = steps.get(store, StoreSteps())
    steps[store] = known.without(number)
    return number in known.accepted


def holds(step: PublishStep, place: GroupPlace, machine: GroupMachine, member: str) -> bool:
    """Whether all partitions of a step are its member's, and the cursors no further than where it began to read."""
    return all(
        machine.may_commit(member, each.partition, each.generation)
        and place.generations.get(each.partition, 0) <= each.generation
        and place.positions.get(each.partition, 0) <= each.since < each.to
        for each in step.moves
    )


def move(step: PublishStep, place: GroupPlace) -> None:
    """Moves the cursors."""
    for each in step.moves:
        place.positions[each.partition] = each.to
        place.generations[each.partition] = each.generation
        place.deliveries.pop(each.partition, None)


def shorten(steps: Steps) -> None:
    """Forgets a store that has asked for nothing for longest: each that lost its disk leaves one behind."""
    if len(steps) > MOST_STORES:
        settled = (store for store, each in steps.items() if not each.accepted)
        del steps[next(settled, next(iter(steps)))]
