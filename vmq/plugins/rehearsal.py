"""The plugins' verdicts on what nobody did, each with its reason: for `vmq why`.

Every plugin is asked as the chain would ask it; nothing is kept, and nothing that it changes is applied.
"""

import inspect
import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from vmq_hooks import REFUSED_QOS, Accept, Explanation, Next, Question, Refuse

from vmq.plugins.compiling import deciding
from vmq.plugins.guard import within
from vmq.plugins.steps import VerdictStep, ends_task

if TYPE_CHECKING:
    from vmq.plugins.loaded import LoadedPlugin
    from vmq.plugins.manager import Plugins

log = logging.getLogger("vmq.plugins")

Verdict = Accept | Next | Refuse


class Said(Struct, frozen=True):
    """What one plugin says."""

    plugin: str
    verdict: Verdict
    reason: str
    remedy: str = ""


async def rehearse(
    plugins: "Plugins", question: Question, chosen: Sequence[str] | None
) -> list[Said] | None:
    """What the plugins say, up to the first that decides; None: none is asked, and it is free.

    Args:
        plugins: those of the broker.
        question: what they are asked.
        chosen: the plugins that the client's listener chooses for it; None: all.
    """
    members = deciding(chosen, plugins.in_order(), question.hook)
    if members is None:
        return None
    found: list[Said] = []
    for each in members:
        said = await _ask(each, question)
        found.append(said)
        if not isinstance(said.verdict, Next):
            break
    return found


async def _ask(member: "LoadedPlugin", question: Question) -> Said:
    step = member.steps[question.hook]
    assert isinstance(step, VerdictStep)
    arguments = _arguments(question)
    verdict: Any = step.ask(arguments)
    if step.is_async and not isinstance(verdict, Refuse):
        verdict = await step.settle(verdict, arguments)
    verdict = _of_one(verdict)
    explained = await _explained(member, question, verdict)
    return Said(member.name, verdict, explained.reason, explained.remedy)


def _arguments(question: Question) -> tuple[Any, ...]:
    """As the hook takes them."""
    who = (question.username, question.subscriber_id)
    if question.hook == "auth_on_publish":
        return (*who, question.message)
    return (*who, [question.subscription])


def _of_one(verdict: Verdict) -> Verdict:
    """An answer that judges filter by filter, for the one that was asked about."""
    if isinstance(verdict, Accept) and verdict.subscriptions is not None:
        if verdict.subscriptions[0].qos == REFUSED_QOS:
            return Refuse("it refuses this filter")
    return verdict


async def _explained(member: "LoadedPlugin", question: Question, verdict: Verdict) -> Explanation:
    """What the plugin says to it, or what can be said without it."""
    try:
        found = member.plugin.explain(question, verdict)
        if inspect.isawaitable(found):
            found = await within(member.guard.deadline, found)
    except BaseException as error:
        if ends_task(error):
            raise
        log.warning("plugin %s: explain failed", member.name, exc_info=error)
        found = None
    if isinstance(found, Explanation):
        return found
    if isinstance(verdict, Refuse):
        return Explanation(verdict.reason or "it refuses, and does not say why")
    if isinstance(verdict, Next):
        return Explanation("it leaves the decision to the next plugin")
    return Explanation("it accepts" if verdict.modifiers is None else "it accepts, with changes")
